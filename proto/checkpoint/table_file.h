// Writes and reads the files that hold the rows of tables in a checkpoint.
//
// Place: a ps writes and reads them, the evaluator and export read them.
// docs/formats.md has the bytes.
//
//   <dir>/ckpt-<step>/tables-<i>-of-<S>.safetensors, for each table arrays
//       <table>.ids      U64 [rows], in the order of IndexHash
//       <table>.touched  U32 [rows]
//       <table>.updates  U32 [rows]
//       <table>.rows     F32 [rows, values and optimizer state of a row]
//     and in the metadata weir.step.<table>, the number of the table's updates,
//     and weir.clock.<table>, its clock, whose low 32 bits `touched` has.
//
// Terms
//   base  the checkpoint that has the rows which an increment leaves out
//         (TableFile.base). A base is never an increment itself.
//
// Threads: compatible.
// Errors: DATA_LOSS  a file is damaged, missing or foreign; the message names
//                    it and says why.
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

// One of the tables of a file.
struct TableFileEntry {
  std::string name;
  uint64_t step = 0;  // updates of the table
  int64_t rows = 0;
  int64_t row_floats = 0;
  // The table's clock when the checkpoint was written. Files of earlier
  // versions of Weir do not have it.
  std::optional<uint64_t> clock = std::nullopt;
};

class TableFileWriter {
 public:
  // Calls `take` with pieces of the rows of a table. Every call must give the
  // same rows in the same order.
  using Visit = std::function<absl::Status(
      int table, const std::function<absl::Status(const RowRecords&)>& take)>;

  // Writes the file as a whole, or nothing. Calls `visit` four times for each
  // table, once for each of its arrays.
  static absl::StatusOr<FileDigest> Write(
      ObjectStore* files, const std::string& path,
      const std::vector<TableFileEntry>& tables, const Visit& visit);
};

class TableFileReader {
 public:
  // Rows that are read at once.
  static constexpr int64_t kPieceRows = 16384;

  // Opens the file of `shard` that the manifest in `checkpoint_dir` names, and
  // checks all of it against the manifest: name, size, checksum, arrays.
  static absl::StatusOr<std::unique_ptr<TableFileReader>> Open(
      ObjectStore* files, const std::string& checkpoint_dir,
      const Manifest& manifest, int shard);

  // Checks name, size and arrays of that file and reads no row, however many
  // there are.
  static absl::Status CheckWithoutRows(ObjectStore* files,
                                       const std::string& checkpoint_dir,
                                       const Manifest& manifest, int shard);

  const std::string& path() const { return file_->path(); }
  const std::vector<TableFileEntry>& tables() const { return tables_; }
  // The index of `table`, or -1 if the file does not have it.
  int Find(const std::string& table) const;

  // Replaces `out` by rows [begin, begin + count).
  // REQUIRES: they exist.
  absl::Status Read(int table, int64_t begin, int64_t count,
                    RowRecords* out) const;

  // Whether a row of `table` that was last touched then is older than `expiry`
  // allows. A base has such rows where they went only after it: an increment
  // does not tell that they are gone. Never so without a clock.
  bool IsExpired(int table, const Expiry& expiry, uint32_t touched) const;

 private:
  friend absl::StatusOr<std::vector<std::unique_ptr<TableFileReader>>>
  OpenTables(ObjectStore* files, const std::string& checkpoint_dir,
             const Manifest& manifest);

  TableFileReader() = default;

  // Opens the file, whose size is right, and reads its header.
  static absl::StatusOr<std::unique_ptr<TableFileReader>> OpenListed(
      ObjectStore* files, const std::string& checkpoint_dir,
      const Manifest& manifest, int shard);
  absl::Status FindTables();

  // Replaces the clocks of this base by those of the checkpoint that extends
  // it, because the rows of both are restored at one time.
  void TakeClocks(const TableFileReader& extending);

  std::unique_ptr<SafetensorsReader> file_;
  std::vector<TableFileEntry> tables_;
};

// Opens the files of a checkpoint's tables, by shard. Where a file extends a
// base, the base's file comes before it. Empty if the job has no tables.
absl::StatusOr<std::vector<std::unique_ptr<TableFileReader>>> OpenTables(
    ObjectStore* files, const std::string& checkpoint_dir,
    const Manifest& manifest);

// Calls `take` with every row of every table of a checkpoint, and at least once
// for each table of each file. The rows of a base come before those of the file
// that extends it, so later rows must replace earlier ones of the same id. Rows
// of a base that have expired since are left out.
absl::Status ReadTables(
    ObjectStore* files, const std::string& checkpoint_dir,
    const Manifest& manifest,
    const std::function<absl::Status(const TableFileEntry&, const RowRecords&)>&
        take);

// Reads and checks the files of a checkpoint's tables, and those of its bases.
absl::Status VerifyTables(ObjectStore* files, const std::string& checkpoint_dir,
                          const Manifest& manifest);

}  // namespace weir

#endif  // PROTO_CHECKPOINT_TABLE_FILE_H_
