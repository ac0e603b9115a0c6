#include "server/ps/table/rows_before.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace weir {
namespace {

using Row = std::pair<std::vector<uint32_t>, std::vector<float>>;

std::unique_ptr<Table> MakeTable() {
  TableOptions options;
  options.name = "t";
  options.dim = 2;
  options.optimizer.mutable_adam();
  auto table = Table::Create(options);
  return table.ok() ? *std::move(table) : nullptr;
}

void Update(Table& table, const std::vector<uint64_t>& ids, float gradient) {
  const std::vector<float> gradients(ids.size() * 2, gradient);
  ASSERT_TRUE(
      table.Update(ids, reinterpret_cast<const char*>(gradients.data()), 0.1)
          .ok());
}

// Every row, as a checkpoint would have it.
std::map<uint64_t, Row> Exported(Table& table, const RowsBefore* before) {
  std::map<uint64_t, Row> rows;
  ExportCursor cursor;
  RowRecords records;
  const auto floats = static_cast<size_t>(table.row_floats());
  while (table.Export(&cursor, &records)) {
    if (before != nullptr) {
      before->PutBack(&records);
    }
    for (size_t i = 0; i < records.ids.size(); ++i) {
      const float* const row = records.floats.data() + i * floats;
      rows[records.ids[i]] = {{records.touched[i], records.updates[i]},
                              std::vector<float>(row, row + floats)};
    }
  }
  return rows;
}

TEST(RowsBeforeTest, PutsBackWhatTheStepMovedAndMade) {
  const std::unique_ptr<Table> table = MakeTable();
  ASSERT_NE(table, nullptr);
  table->SetClock(1);
  Update(*table, {1, 2, 3}, 0.5f);
  const std::map<uint64_t, Row> then = Exported(*table, nullptr);
  ASSERT_EQ(then.size(), 3u);

  table->SetClock(2);
  const std::vector<uint64_t> moved = {2, 3, 4, 5};
  RowsBefore before(table->row_floats());
  before.Take(*table, moved);
  Update(*table, moved, -0.25f);
  EXPECT_EQ(Exported(*table, nullptr).size(), 5u);
  EXPECT_NE(Exported(*table, nullptr).at(2), then.at(2));

  EXPECT_EQ(Exported(*table, &before), then);
  EXPECT_EQ(before.step(), 1u);
  EXPECT_EQ(table->step(), 2u);
}

TEST(RowsBeforeTest, HasTheValuesOfRowsThatWereNotThere) {
  const std::unique_ptr<Table> table = MakeTable();
  ASSERT_NE(table, nullptr);
  const std::vector<uint64_t> ids = {7};
  std::vector<float> initial(2);
  ASSERT_TRUE(table->Lookup(ids, Table::Mode::kRead, initial.data()).ok());
  RowsBefore before(table->row_floats());
  before.Take(*table, ids);
  Update(*table, ids, 1.0f);
  ASSERT_NE(before.Find(7), nullptr);
  EXPECT_EQ(before.Find(7)[0], initial[0]);
  EXPECT_EQ(before.Find(7)[1], initial[1]);
  EXPECT_EQ(before.Find(8), nullptr);
  before.Take(*table, {});
  EXPECT_EQ(before.Find(7), nullptr);
}

}  // namespace
}  // namespace weir
