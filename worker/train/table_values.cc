#include "worker/train/table_values.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/job/initializer.h"
#include "proto/checkpoint/table_file.h"
#include "proto/wire/declaration_io.h"

namespace weir {

absl::Status TableValues::Load(ObjectStore* files,
                               const std::string& checkpoint_dir,
                               const Manifest& manifest,
                               const std::vector<GraphTable>& tables) {
  tables_.clear();
  if (tables.empty()) {
    return absl::OkStatus();
  }
  const Declaration& declaration = manifest.declaration();
  absl::flat_hash_map<std::string, size_t> by_name;
  for (const GraphTable& table : tables) {
    const auto declared = std::find_if(
        declaration.table().begin(), declaration.table().end(),
        [&](const EmbeddingTable& one) { return one.name() == table.name; });
    if (declared == declaration.table().end() ||
        int64_t{declared->dim()} != table.dim) {
      return Invalid(checkpoint_dir, " has no table '", table.name, "' of dim ",
                     table.dim, ": evaluate with the job that wrote it");
    }
    Table one;
    one.dim = table.dim;
    WEIR_ASSIGN_OR_RETURN(one.init, RowInitOf(*declared));
    one.key = RowInitKey(TableSeed(declaration.seed(), table.name));
    by_name[table.name] = tables_.size();
    tables_.push_back(std::move(one));
  }
  // Rows of a base come before those of the increment that extends it, so that
  // the later record of an id overwrites the earlier one.
  return ReadTables(
      files, checkpoint_dir, manifest,
      [&](const TableFileEntry& from, const RowRecords& rows) -> absl::Status {
        const auto found = by_name.find(from.name);
        if (found == by_name.end()) {  // the model reads other tables only
          return absl::OkStatus();
        }
        Table& table = tables_[found->second];
        // A record has the values first, then the optimizer's state, which
        // evaluation leaves out.
        if (from.row_floats < table.dim) {
          return absl::DataLossError(
              absl::StrCat(checkpoint_dir, ": table '", from.name, "' has ",
                           from.row_floats, " floats a row"));
        }
        for (size_t i = 0; i < rows.ids.size(); ++i) {
          const auto [place, is_new] = table.places.try_emplace(
              rows.ids[i], static_cast<uint32_t>(table.places.size()));
          if (is_new) {
            table.values.resize(table.values.size() +
                                static_cast<size_t>(table.dim));
          }
          std::copy_n(
              rows.floats.begin() + static_cast<int64_t>(i) * from.row_floats,
              table.dim,
              table.values.begin() + int64_t{place->second} * table.dim);
        }
        return absl::OkStatus();
      });
}

void TableValues::Lookup(size_t t, std::span<const uint64_t> ids,
                         float* rows) const {
  const Table& table = tables_[t];
  for (const uint64_t id : ids) {
    const auto place = table.places.find(id);
    if (place == table.places.end()) {
      // A ps makes a row at its first touch, so an id that no batch has trained
      // is not in the checkpoint. The ps would give it these values.
      FillInitialRow(table.init, table.key, id, static_cast<int>(table.dim),
                     rows);
    } else {
      std::copy_n(table.values.begin() + int64_t{place->second} * table.dim,
                  table.dim, rows);
    }
    rows += table.dim;
  }
}

}  // namespace weir
