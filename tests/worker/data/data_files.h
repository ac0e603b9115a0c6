// Makes small data files for tests of readers, and finds the real ones.
#ifndef TESTS_WORKER_DATA_DATA_FILES_H_
#define TESTS_WORKER_DATA_DATA_FILES_H_

#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <string>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"
#include "zlib.h"
#include "zstd.h"

namespace weir {

// Writes `bytes` to a fresh file called `name`; returns its path.
inline std::string WriteFile(const std::string& name,
                             const std::string& bytes) {
  std::string path = MakeTempDir() + "/" + name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

// `bytes` as a gzip file.
inline std::string Gzip(const std::string& bytes) {
  z_stream stream = {};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// `bytes` as a zstd file with a checksum, as the `zstd` program makes it.
inline std::string Zstd(const std::string& bytes) {
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  const size_t size = ZSTD_compress2(context, out.data(), out.size(),
                                     bytes.data(), bytes.size());
  EXPECT_FALSE(ZSTD_isError(size));
  ZSTD_freeCCtx(context);
  out.resize(size);
  return out;
}

// Expects an error with `code` whose message holds every one of `parts`.
inline void ExpectError(const absl::Status& status, absl::StatusCode code,
                        std::initializer_list<std::string> parts) {
  EXPECT_EQ(status.code(), code) << status;
  const std::string message(status.message());
  for (const std::string& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos)
        << "no \"" << part << "\" in: " << message;
  }
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

// The folder with real data, or "" where there is none.
inline std::string RealData(const std::string& file) {
  const char* const given = std::getenv("WEIR_TEST_DATA");
  const std::string folder = given == nullptr ? "../shared/data" : given;
  return std::ifstream(folder + "/" + file).good() ? folder : "";
}

}  // namespace weir

#endif  // TESTS_WORKER_DATA_DATA_FILES_H_
