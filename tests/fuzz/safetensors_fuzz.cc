// A safetensors file: what is accepted lies end to end inside the file, and
// every array of it can be read.
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/io/safetensors.h"
#include "tests/fuzz/memory_files.h"

namespace weir {
namespace {

constexpr char kPath[] = "/x.safetensors";

void Read(const SafetensorsReader& file) {
  int64_t end = 0;
  for (const SafetensorsArray& array : file.arrays()) {
    WEIR_CHECK(array.begin == end && array.end >= array.begin);
    end = array.end;
    WEIR_CHECK(file.Find(array.name) == &array);
    std::vector<char> bytes(static_cast<size_t>(array.bytes()));
    WEIR_CHECK(file.Read(array, 0, bytes.data(), array.bytes()).ok());
  }
  WEIR_CHECK(end <= file.file_bytes());
  WEIR_CHECK(file.ReadCrc32c().ok());
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // The header's length before the header, as a number of eight bytes, is the
  // last thing that mutation gets right: it is right here in one of two inputs.
  std::string contents(reinterpret_cast<const char*>(data), size);
  if (size > 8 && (data[0] & 1) != 0) {
    const size_t header = contents.rfind('}') + 1;  // 0: there is none
    for (int byte = 0; byte < 8; ++byte) {
      contents[static_cast<size_t>(byte)] =
          static_cast<char>((header - 8) >> (8 * byte));
    }
  }
  weir::MemoryFiles files;
  files.Put(weir::kPath, contents);
  const auto file = weir::SafetensorsReader::Open(&files, weir::kPath);
  if (file.ok()) {
    weir::Read(**file);
  }
  return 0;
}
