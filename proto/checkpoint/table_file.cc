#include "proto/checkpoint/table_file.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status.h"
#include "common/job/row_age.h"
#include "proto/checkpoint/checkpoint_files.h"

namespace weir {
namespace {

constexpr char kIds[] = ".ids";
constexpr char kTouched[] = ".touched";
constexpr char kUpdates[] = ".updates";
constexpr char kRows[] = ".rows";
constexpr char kStepKey[] = "weir.step.";
constexpr char kClockKey[] = "weir.clock.";

template <class T>
absl::Status Append(SafetensorsWriter& writer, const std::vector<T>& values) {
  return writer.Append(values.data(),
                       static_cast<int64_t>(values.size() * sizeof(T)));
}

template <class T>
absl::Status ReadInto(const SafetensorsReader& file, const std::string& name,
                      int64_t begin, int64_t count, std::vector<T>* out) {
  out->resize(static_cast<size_t>(count));
  const auto bytes = static_cast<int64_t>(sizeof(T));
  return file.Read(*file.Find(name), begin * bytes, out->data(), count * bytes);
}

// `directory`/../`name`
std::string Sibling(const std::string& directory, const std::string& name) {
  return JoinPath(DirectoryOf(absl::StripSuffix(directory, "/")), name);
}

// The table whose array of ids is `ids`. DATA_LOSS if one of its other arrays
// or its metadata is missing or does not fit.
absl::StatusOr<TableFileEntry> EntryOf(const SafetensorsReader& file,
                                       const SafetensorsArray& ids) {
  TableFileEntry table;
  table.name = ids.name.substr(0, ids.name.size() - sizeof(kIds) + 1);
  table.rows = ids.shape[0];
  const SafetensorsArray* const touched = file.Find(table.name + kTouched);
  const SafetensorsArray* const updates = file.Find(table.name + kUpdates);
  const SafetensorsArray* const rows = file.Find(table.name + kRows);
  const auto step = file.metadata().find(kStepKey + table.name);
  // A read of rows [begin, begin + count) is in range of all four arrays only
  // if all have equally many.
  const auto fits = [&](const SafetensorsArray* array, const char* dtype,
                        size_t rank) {
    return array != nullptr && array->dtype == dtype &&
           array->shape.size() == rank && array->shape[0] == table.rows;
  };
  if (ids.dtype != "U64" || !fits(touched, "U32", 1) ||
      !fits(updates, "U32", 1) || !fits(rows, "F32", 2) ||
      step == file.metadata().end() ||
      !absl::SimpleAtoi(step->second, &table.step)) {
    return DamagedFile(file.path(), absl::StrCat("table '", table.name,
                                                 "' is not whole in it"));
  }
  table.row_floats = rows->shape[1];
  // The clock may be missing, as in files of earlier versions, but not broken.
  const auto clock = file.metadata().find(kClockKey + table.name);
  if (clock != file.metadata().end() &&
      !absl::SimpleAtoi(clock->second, &table.clock.emplace())) {
    return DamagedFile(
        file.path(), absl::StrCat("the clock of table '", table.name, "' is '",
                                  clock->second, "'"));
  }
  return table;
}

// The manifest of the checkpoint `base`, which the manifest in `checkpoint_dir`
// names.
absl::StatusOr<Manifest> ReadBase(ObjectStore* files,
                                  const std::string& checkpoint_dir,
                                  const std::string& base) {
  absl::StatusOr<Manifest> read =
      ReadManifest(files, Sibling(checkpoint_dir, base));
  // A base that is missing is NOT_FOUND for itself, but damage of the
  // checkpoint that needs it. One that cannot be read now is neither.
  if (absl::IsNotFound(read.status()) || absl::IsDataLoss(read.status())) {
    return DamagedFile(
        JoinPath(checkpoint_dir, kManifestName),
        absl::StrCat("extends '", base, "', and ", read.status().message()));
  }
  return read;
}

}  // namespace

std::string TableFileName(int shard, int shard_count) {
  return absl::StrCat("tables-", shard, "-of-", shard_count, ".safetensors");
}

absl::StatusOr<FileDigest> TableFileWriter::Write(
    ObjectStore* files, const std::string& path,
    const std::vector<TableFileEntry>& tables, const Visit& visit) {
  std::vector<SafetensorsArray> arrays;
  std::map<std::string, std::string> metadata = {{"format", "pt"}};
  for (const TableFileEntry& table : tables) {
    arrays.push_back({table.name + kIds, "U64", {table.rows}});
    arrays.push_back({table.name + kTouched, "U32", {table.rows}});
    arrays.push_back({table.name + kUpdates, "U32", {table.rows}});
    arrays.push_back(
        {table.name + kRows, "F32", {table.rows, table.row_floats}});
    metadata[kStepKey + table.name] = absl::StrCat(table.step);
    if (table.clock.has_value()) {
      metadata[kClockKey + table.name] = absl::StrCat(*table.clock);
    }
  }
  WEIR_ASSIGN_OR_RETURN(
      const std::unique_ptr<SafetensorsWriter> writer,
      SafetensorsWriter::Create(files, path, arrays, metadata));
  // The arrays lie one behind the other, and rows come in pieces with all four.
  // Visiting four times needs no memory for a whole array.
  for (int t = 0; t < static_cast<int>(tables.size()); ++t) {
    const auto append = [&](auto RowRecords::*array) {
      return visit(t, [&](const RowRecords& rows) {
        return Append(*writer, rows.*array);
      });
    };
    WEIR_RETURN_IF_ERROR(append(&RowRecords::ids));
    WEIR_RETURN_IF_ERROR(append(&RowRecords::touched));
    WEIR_RETURN_IF_ERROR(append(&RowRecords::updates));
    WEIR_RETURN_IF_ERROR(append(&RowRecords::floats));
  }
  return writer->Finish();
}

absl::StatusOr<std::unique_ptr<TableFileReader>> TableFileReader::OpenListed(
    ObjectStore* files, const std::string& checkpoint_dir,
    const Manifest& manifest, int shard) {
  const TableFile& file = manifest.file(shard).tables();
  // The manifest's name is compared and never used as a path.
  const std::string expected = TableFileName(shard, manifest.file_size());
  const std::string path = JoinPath(checkpoint_dir, expected);
  if (file.name() != expected) {
    return DamagedFile(
        JoinPath(checkpoint_dir, kManifestName),
        absl::StrCat("names '", file.name(), "' in place of '", expected, "'"));
  }
  std::unique_ptr<TableFileReader> reader(new TableFileReader());
  WEIR_ASSIGN_OR_RETURN(
      reader->file_,
      OpenListedFile(files, path, manifest.file(shard).host(), file.bytes()));
  return reader;
}

absl::Status TableFileReader::FindTables() {
  // An array <table>.ids makes a table; other arrays are left alone.
  for (const SafetensorsArray& ids : file_->arrays()) {
    if (!absl::EndsWith(ids.name, kIds) || ids.shape.size() != 1) {
      continue;
    }
    WEIR_ASSIGN_OR_RETURN(TableFileEntry table, EntryOf(*file_, ids));
    tables_.push_back(std::move(table));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<TableFileReader>> TableFileReader::Open(
    ObjectStore* files, const std::string& checkpoint_dir,
    const Manifest& manifest, int shard) {
  WEIR_ASSIGN_OR_RETURN(auto reader,
                        OpenListed(files, checkpoint_dir, manifest, shard));
  // Rows are read by piece and more than once, so the whole file is checked
  // here, before the first of them.
  WEIR_RETURN_IF_ERROR(CheckListedCrc32c(
      *reader->file_, manifest.file(shard).tables().crc32c()));
  WEIR_RETURN_IF_ERROR(reader->FindTables());
  return reader;
}

absl::Status TableFileReader::CheckWithoutRows(
    ObjectStore* files, const std::string& checkpoint_dir,
    const Manifest& manifest, int shard) {
  WEIR_ASSIGN_OR_RETURN(const auto reader,
                        OpenListed(files, checkpoint_dir, manifest, shard));
  return reader->FindTables();
}

void TableFileReader::TakeClocks(const TableFileReader& extending) {
  for (TableFileEntry& table : tables_) {
    const int t = extending.Find(table.name);
    if (t >= 0) {
      table.clock = extending.tables()[static_cast<size_t>(t)].clock;
    }
  }
}

int TableFileReader::Find(const std::string& table) const {
  for (size_t t = 0; t < tables_.size(); ++t) {
    if (tables_[t].name == table) {
      return static_cast<int>(t);
    }
  }
  return -1;
}

absl::Status TableFileReader::Read(int table, int64_t begin, int64_t count,
                                   RowRecords* out) const {
  const TableFileEntry& of = tables_[static_cast<size_t>(table)];
  WEIR_RETURN_IF_ERROR(
      ReadInto(*file_, of.name + kIds, begin, count, &out->ids));
  WEIR_RETURN_IF_ERROR(
      ReadInto(*file_, of.name + kTouched, begin, count, &out->touched));
  WEIR_RETURN_IF_ERROR(
      ReadInto(*file_, of.name + kUpdates, begin, count, &out->updates));
  return ReadInto(*file_, of.name + kRows, begin * of.row_floats,
                  count * of.row_floats, &out->floats);
}

bool TableFileReader::IsExpired(int table, const Expiry& expiry,
                                uint32_t touched) const {
  const std::optional<uint64_t>& clock =
      tables_[static_cast<size_t>(table)].clock;
  // One of the two at most is set, and both count in units of the clock.
  const uint32_t age_max = std::max(expiry.steps(), expiry.seconds());
  return age_max != 0 && clock.has_value() &&
         RowAge(static_cast<uint32_t>(*clock), touched) > age_max;
}

absl::StatusOr<std::vector<std::unique_ptr<TableFileReader>>> OpenTables(
    ObjectStore* files, const std::string& checkpoint_dir,
    const Manifest& manifest) {
  std::vector<std::unique_ptr<TableFileReader>> readers;
  const auto open = [&](const std::string& dir, const Manifest& of,
                        int shard) -> absl::Status {
    WEIR_ASSIGN_OR_RETURN(std::unique_ptr<TableFileReader> reader,
                          TableFileReader::Open(files, dir, of, shard));
    readers.push_back(std::move(reader));
    return absl::OkStatus();
  };
  std::map<std::string, Manifest> bases;  // each is read once
  for (int s = 0; s < manifest.file_size(); ++s) {
    if (!manifest.file(s).has_tables()) {
      if (manifest.declaration().table_size() > 0) {
        return DamagedFile(JoinPath(checkpoint_dir, kManifestName),
                           absl::StrCat("names no table file of shard ", s));
      }
      continue;
    }
    const std::string& base = manifest.file(s).tables().base();
    if (!base.empty()) {
      if (!ParseCheckpointName(base).has_value() || base == manifest.name()) {
        return DamagedFile(
            JoinPath(checkpoint_dir, kManifestName),
            absl::StrCat("names base '", base,
                         "', which is not another checkpoint's name"));
      }
      const std::string base_dir = Sibling(checkpoint_dir, base);
      if (bases.count(base) == 0) {
        WEIR_ASSIGN_OR_RETURN(bases[base],
                              ReadBase(files, checkpoint_dir, base));
      }
      // Rows of a shard are in the base's file of the same shard only if both
      // have equally many shards. A base that extends another checkpoint would
      // make a chain, which nobody writes.
      if (bases[base].file_size() != manifest.file_size() ||
          !bases[base].file(s).tables().base().empty()) {
        return DamagedFile(
            JoinPath(base_dir, kManifestName),
            absl::StrCat("is no base of '", manifest.name(), "'"));
      }
      WEIR_RETURN_IF_ERROR(open(base_dir, bases[base], s));
    }
    WEIR_RETURN_IF_ERROR(open(checkpoint_dir, manifest, s));
    if (!base.empty()) {  // the base's file is the one before the last
      readers[readers.size() - 2]->TakeClocks(*readers.back());
    }
  }
  return readers;
}

absl::Status ReadTables(
    ObjectStore* files, const std::string& checkpoint_dir,
    const Manifest& manifest,
    const std::function<absl::Status(const TableFileEntry&, const RowRecords&)>&
        take) {
  WEIR_ASSIGN_OR_RETURN(const auto readers,
                        OpenTables(files, checkpoint_dir, manifest));
  std::map<std::string, Expiry> expiries;
  for (const EmbeddingTable& table : manifest.declaration().table()) {
    expiries[table.name()] = table.expiry();
  }
  RowRecords rows;
  for (const auto& reader : readers) {
    for (int t = 0; t < static_cast<int>(reader->tables().size()); ++t) {
      const TableFileEntry& table = reader->tables()[static_cast<size_t>(t)];
      const Expiry& expiry = expiries[table.name];
      int64_t begin = 0;
      do {  // also once for a table without rows, since it has a step
        const int64_t count =
            std::min(TableFileReader::kPieceRows, table.rows - begin);
        WEIR_RETURN_IF_ERROR(reader->Read(t, begin, count, &rows));
        rows.KeepIf(static_cast<size_t>(table.row_floats), [&](size_t i) {
          return !reader->IsExpired(t, expiry, rows.touched[i]);
        });
        WEIR_RETURN_IF_ERROR(take(table, rows));
        begin += count;
      } while (begin < table.rows);
    }
  }
  return absl::OkStatus();
}

absl::Status VerifyTables(ObjectStore* files, const std::string& checkpoint_dir,
                          const Manifest& manifest) {
  return OpenTables(files, checkpoint_dir, manifest).status();
}

}  // namespace weir
