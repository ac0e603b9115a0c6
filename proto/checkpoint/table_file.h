// The rows of a shard's tables in a checkpoint: names, writing, reading.
//
// Place: a ps writes and reads them, the evaluator and export read them.
//   docs/formats.md has the bytes.
//
//   <dir>/ckpt-<step>/tables-<i>-of-<S>.safetensors, for each table arrays
//       <table>.ids      U64 [rows], in the order of IndexHash
//       <table>.touched  U32 [rows]
//       <table>.updates  U32 [rows]
//       <table>.rows     F32 [rows, values and slots of a row]
//     and the metadata weir.step.<table>: updates of the table, and
//     weir.clock.<table>: its clock, of which `touched` has the low 32 bits.
//
// Terms
//   base  the checkpoint that has the rows which an incremental file leaves
//         out (TableFile.base).
//
// Threads: compatible.
// Errors: DATA_LOSS  a file is damaged, missing or foreign; names it and why.
#ifndef PROTO_CHECKPOINT_TABLE_FILE_H_
#define PROTO_CHECKPOINT_TABLE_FILE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/files.h"
#include "common/io/safetensors.h"
#include "common/job/row_records.h"
#include "proto/checkpoint.pb.h"

namespace weir {

// "tables-<shard>-of-<shard_count>.safetensors"
std::string TableFileName(int shard, int shard_count);

// What a file says of one of its tables.
struct TableFileEntry {
  std::string name;
  uint64_t step = 0;  // updates of the table
  int64_t rows = 0;
  int64_t row_floats = 0;
  // The table's clock as the checkpoint was written; not in files of earlier
  // versions of Weir.
  std::optional<uint64_t> clock = std::nullopt;
};

class TableFileWriter {
 public:
  // Calls `take` with pieces of the rows, the same ones in the same order each
  // time that it is called.
  using Visit = std::function<absl::Status(
      int table, const std::function<absl::Status(const RowRecords&)>& take)>;

  // Writes the file whole, or nothing. `visit` is called four times for each
  // table.
  static absl::StatusOr<FileDigest> Write(
      Files* files, const std::string& path,
      const std::vector<TableFileEntry>& tables, const Visit& visit);
};

class TableFileReader {
 public:
  // Rows that are read at once.
  static constexpr int64_t kPieceRows = 16384;

  // Opens the file of `shard` that the manifest in `checkpoint_dir` names, and
  // checks it against the manifest, whole.
  static absl::StatusOr<std::unique_ptr<TableFileReader>> Open(
      Files* files, const std::string& checkpoint_dir, const Manifest& manifest,
      int shard);

  const std::string& path() const { return file_->path(); }
  const std::vector<TableFileEntry>& tables() const { return tables_; }
  // -1: there is none.
  int Find(const std::string& table) const;

  // Replaces `out` by rows [begin, begin + count).
  // REQUIRES: they exist.
  absl::Status Read(int table, int64_t begin, int64_t count,
                    RowRecords* out) const;

 private:
  friend absl::StatusOr<std::vector<std::unique_ptr<TableFileReader>>>
  OpenTables(Files* files, const std::string& checkpoint_dir,
             const Manifest& manifest);

  TableFileReader() = default;

  // The rows of this base count as those of the checkpoint that extends it.
  void TakeClocks(const TableFileReader& extending);

  std::unique_ptr<SafetensorsReader> file_;
  std::vector<TableFileEntry> tables_;
};

// The files of a checkpoint's tables, by shard; what a file extends comes
// before it. None where the job has no tables.
absl::StatusOr<std::vector<std::unique_ptr<TableFileReader>>> OpenTables(
    Files* files, const std::string& checkpoint_dir, const Manifest& manifest);

// Calls `take` with every row of every table of a checkpoint: those of a base
// before those of the file that extends it, so that later rows replace earlier
// ones of the same id. `step` is the table's.
absl::Status ReadTables(
    Files* files, const std::string& checkpoint_dir, const Manifest& manifest,
    const std::function<absl::Status(const TableFileEntry&, const RowRecords&)>&
        take);

// Reads all of it, and of what it extends.
absl::Status VerifyTables(Files* files, const std::string& checkpoint_dir,
                          const Manifest& manifest);

}  // namespace weir

#endif  // PROTO_CHECKPOINT_TABLE_FILE_H_
