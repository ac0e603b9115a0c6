// A checkpoint that somebody else made: a manifest, a shard's file and a
// table's file, whose sizes and checksums fit one another. It is read as far as
// a restore, an export or `weir checkpoint` read it.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/check.h"
#include "common/io/crc32c.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "proto/checkpoint/table_file.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/memory_files.h"

namespace weir {
namespace {

constexpr char kDirectory[] = "/run/ckpt-7";
constexpr int64_t kElementsMax = 1 << 20;  // that are read here

uint32_t Crc(const std::string& text) {
  return Crc32c(text.data(), text.size());
}

// The text with the size of `file` in place of $N and its checksum in place of
// $C, where N and C are the two letters.
std::string Fill(const std::string& json, const std::string& file,
                 const std::string& size, const std::string& crc32c) {
  return absl::StrReplaceAll(json, {{size, absl::StrCat(file.size())},
                                    {crc32c, absl::StrCat(Crc(file))}});
}

// Reads all there is. The errors are as they may be.
void Read(MemoryFiles* files) {
  const auto manifest = ReadManifest(files, kDirectory);
  if (!manifest.ok()) {
    return;
  }
  size_t rows = 0;
  ReadTables(
      files, kDirectory, *manifest,
      [&rows](const TableFileEntry& table, const RowRecords& records) {
        rows += records.ids.size();
        WEIR_CHECK(records.floats.size() ==
                   records.ids.size() * static_cast<size_t>(table.row_floats));
        return absl::OkStatus();
      })
      .IgnoreError();
  const auto reader = CheckpointReader::Open(files, kDirectory);
  if (!reader.ok() || !(*reader)->Verify().ok()) {
    return;
  }
  const Layout& layout = (*reader)->layout();
  for (size_t v = 0; v < layout.variables().size(); ++v) {
    const int64_t elements = layout.variables()[v].elements();
    if (elements > kElementsMax) {
      continue;
    }
    const auto variable = static_cast<int>(v);
    std::vector<float> values(static_cast<size_t>(elements));
    (*reader)
        ->ReadFlat(kValuesArray, layout.flat_begin(variable), elements,
                   values.data())
        .IgnoreError();
    (*reader)->StepCount(variable, 0, elements).status().IgnoreError();
  }
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weir::FuzzInput input(data, size);
  const std::string shard = input.Text();
  const std::string tables = input.Text();
  std::string json = input.Rest();
  json = weir::Fill(json, shard, "$S", "$s");
  json = weir::Fill(json, tables, "$T", "$t");
  const std::string field =
      absl::StrCat(",\n \"crc32c\": ", weir::Crc(json), "\n}\n");
  weir::MemoryFiles files;
  const std::string directory = weir::kDirectory;
  files.Put(directory + "/manifest.json", json + field);
  files.Put(directory + "/shard-0-of-1.safetensors", shard);
  files.Put(directory + "/tables-0-of-1.safetensors", tables);
  weir::Read(&files);
  return 0;
}
