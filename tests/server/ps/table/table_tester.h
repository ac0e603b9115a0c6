// Small tables for tests.
#ifndef TESTS_SERVER_PS_TABLE_TABLE_TESTER_H_
#define TESTS_SERVER_PS_TABLE_TABLE_TESTER_H_

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/ps/table/table.h"

namespace weir {

// `text` is the text format of a TableOptimizer.
inline TableOptimizer ParseRowOptimizer(const std::string& text) {
  TableOptimizer rule;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &rule))
      << text;
  return rule;
}

inline TableOptions SmallOptions(const std::string& optimizer = "adagrad {}",
                                 int dim = 4) {
  TableOptions options;
  options.name = "user";
  options.dim = dim;
  options.optimizer = ParseRowOptimizer(optimizer);
  options.init = {InitKind::kUniform, 0.5f};
  options.seed = 42;
  options.stripes = 8;
  return options;
}

inline std::unique_ptr<Table> MakeTable(const TableOptions& options) {
  return Table::Create(options).value();
}

inline std::vector<float> Read(Table* table, const std::vector<uint64_t>& ids,
                               Table::Mode mode = Table::Mode::kTrain) {
  std::vector<float> out(ids.size() *
                         static_cast<size_t>(table->options().dim));
  EXPECT_TRUE(table->Lookup(ids, mode, out.data()).ok());
  return out;
}

inline UpdateReceipt Push(Table* table, const std::vector<uint64_t>& ids,
                          const std::vector<float>& gradients,
                          double rate = 0.1) {
  EXPECT_EQ(gradients.size(),
            ids.size() * static_cast<size_t>(table->options().dim));
  return table
      ->Update(ids, reinterpret_cast<const char*>(gradients.data()), rate)
      .value();
}

// Every id's gradient is `value` in each column.
inline UpdateReceipt PushAll(Table* table, const std::vector<uint64_t>& ids,
                             float value, double rate = 0.1) {
  return Push(
      table, ids,
      std::vector<float>(ids.size() * static_cast<size_t>(table->options().dim),
                         value),
      rate);
}

// All rows, in the order of the export.
inline RowRecords ExportAll(Table* table) {
  RowRecords all;
  ExportCursor cursor;
  for (RowRecords some; table->Export(&cursor, &some);) {
    all.ids.insert(all.ids.end(), some.ids.begin(), some.ids.end());
    all.touched.insert(all.touched.end(), some.touched.begin(),
                       some.touched.end());
    all.updates.insert(all.updates.end(), some.updates.begin(),
                       some.updates.end());
    all.floats.insert(all.floats.end(), some.floats.begin(), some.floats.end());
  }
  return all;
}

inline std::vector<uint64_t> Range(uint64_t begin, uint64_t end) {
  std::vector<uint64_t> ids;
  for (uint64_t id = begin; id < end; ++id) {
    ids.push_back(id);
  }
  return ids;
}

}  // namespace weir

#endif  // TESTS_SERVER_PS_TABLE_TABLE_TESTER_H_
