// Writes one object of an object store, or reads it in order, as a ps does with
// a shard; says how long it took and how much memory that needed.
//
//   object_copy put|get URL MIB
//
// Prints {"seconds": S, "grown_bytes": B}: B is by how much the peak of memory
// rose. Environment: as any_store.h says.
//
// Place: ./weir bench objects.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/status.h"
#include "common/objects/any_store.h"

namespace weir {
namespace {

// As a ps appends the blocks of a shard.
constexpr size_t kPieceBytes = size_t{1} << 20;

// Of this program alone; getrusage would count what its parent had.
int64_t PeakBytes() {
  std::ifstream status("/proc/self/status");
  int64_t kib = 0;
  for (std::string line; std::getline(status, line);) {
    absl::string_view rest = line;
    if (absl::ConsumePrefix(&rest, "VmHWM:") &&
        absl::SimpleAtoi(absl::StripSuffix(rest, "kB"), &kib)) {
      break;
    }
  }
  return kib << 10;
}

absl::Status Put(const std::string& url, int64_t bytes,
                 const std::vector<char>& piece) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<ObjectWriter> writer,
                        AnyStore()->BeginWrite(url, bytes));
  for (int64_t at = 0; at < bytes; at += kPieceBytes) {
    WEIR_RETURN_IF_ERROR(writer->Append(piece.data(), piece.size()));
  }
  return writer->Finish();
}

absl::Status Get(const std::string& url, int64_t bytes,
                 std::vector<char>* piece) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<FileReader> reader,
                        AnyStore()->Open(url));
  for (int64_t at = 0; at < bytes; at += kPieceBytes) {
    WEIR_RETURN_IF_ERROR(reader->ReadAt(at, piece->data(), piece->size()));
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  const std::string verb = argc == 4 ? argv[1] : "";
  int64_t mib = 0;
  if ((verb != "put" && verb != "get") || !absl::SimpleAtoi(argv[3], &mib)) {
    std::fprintf(stderr, "usage: object_copy put|get URL MIB\n");
    return 2;
  }
  std::vector<char> piece(kPieceBytes, 'w');
  const int64_t before = PeakBytes();
  const auto begin = std::chrono::steady_clock::now();
  const absl::Status status = verb == "put" ? Put(argv[2], mib << 20, piece)
                                            : Get(argv[2], mib << 20, &piece);
  const std::chrono::duration<double> seconds =
      std::chrono::steady_clock::now() - begin;
  if (!status.ok()) {
    std::fprintf(stderr, "object_copy: %s\n", status.ToString().c_str());
    return 1;
  }
  absl::PrintF("{\"seconds\": %f, \"grown_bytes\": %d}\n", seconds.count(),
               PeakBytes() - before);
  return 0;
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) { return weir::Main(argc, argv); }
