#include "server/ps/table/row_sums.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "common/math/random.h"

namespace weir {
namespace {

const char* Bytes(const std::vector<float>& values) {
  return reinterpret_cast<const char*>(values.data());
}

TEST(RowSumsTest, SumsByRowInTheOrderOfTheCalls) {
  constexpr int kDim = 3;
  RandomStream random(5);
  RowSums sums(kDim);
  std::map<uint64_t, std::vector<float>> expected;
  for (int call = 0; call < 20; ++call) {
    std::set<uint64_t> ids;
    for (int i = 0; i < 30; ++i) {
      ids.insert(random.NextBelow(100));
    }
    const std::vector<uint64_t> list(ids.begin(), ids.end());
    std::vector<float> gradients(list.size() * kDim);
    for (float& value : gradients) {
      value = random.NextFloat(-1, 1);
    }
    const float weight = random.NextFloat(0.5f, 2);
    sums.Add(list, Bytes(gradients), weight);
    for (size_t i = 0; i < list.size(); ++i) {
      const bool is_new = expected.count(list[i]) == 0;
      std::vector<float>& row = expected[list[i]];
      row.resize(kDim);
      for (size_t k = 0; k < kDim; ++k) {
        const float term = weight * gradients[i * kDim + k];
        row[k] = is_new ? term : row[k] + term;
      }
    }
  }
  ASSERT_EQ(sums.ids().size(), expected.size());
  for (size_t place = 0; place < sums.ids().size(); ++place) {
    ASSERT_EQ(expected.count(sums.ids()[place]), 1u);
    const std::vector<float>& row = expected[sums.ids()[place]];
    for (size_t k = 0; k < kDim; ++k) {
      EXPECT_EQ(sums.sums()[place * kDim + k], row[k]);
    }
  }
}

TEST(RowSumsTest, DividesAndClears) {
  RowSums sums(1);
  const std::vector<uint64_t> ids = {4, 9};
  sums.Add(ids, Bytes({3, 6}), 1);
  sums.DivideBy(3);
  EXPECT_EQ(sums.sums()[1], 2.0f);
  sums.Clear();
  EXPECT_TRUE(sums.ids().empty());
}

}  // namespace
}  // namespace weir
