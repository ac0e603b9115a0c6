#include "worker/model/table_batch.h"

#include <map>
#include <string>

#include "common/math/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kLarge = 0xfedcba9876543210;

// Samples {7, 7, 3}, {} and {kLarge} of one feature, {3}, {7} and {1, 2} of the
// other.
SparseBatch TwoFeatures() {
  return {.features = {{{0, 3, 3, 4}, {7, 7, 3, kLarge}, {}},
                       {{0, 1, 2, 4}, {3, 7, 1, 2}, {}}}};
}

TEST(TableBatchTest, IdsAreMergedAndListsGoBothWays) {
  TableBatch table;
  const std::vector<TableUse> uses = {{.features = {0, 1}}, {.features = {1}}};
  ASSERT_TRUE(table.Fill(uses, TwoFeatures(), 3).ok());
  EXPECT_EQ(table.samples(), 3);
  EXPECT_THAT(table.ids(), ElementsAre(1, 2, 3, 7, kLarge));
  ASSERT_EQ(table.uses().size(), 2u);
  const TableBatch::Use& both = table.uses()[0];
  EXPECT_THAT(both.bags.offsets, ElementsAre(0, 3, 4, 4, 5, 6, 8));
  EXPECT_THAT(both.bags.index, ElementsAre(3, 3, 2, 2, 3, 4, 0, 1));
  EXPECT_THAT(both.bags.weights, IsEmpty());
  EXPECT_THAT(both.rows.offsets, ElementsAre(0, 1, 2, 4, 7, 8));
  EXPECT_THAT(both.rows.index, ElementsAre(5, 5, 0, 1, 0, 0, 3, 4));
  EXPECT_THAT(both.rows.weights, IsEmpty());
  const TableBatch::Use& second = table.uses()[1];
  EXPECT_THAT(second.bags.index, ElementsAre(2, 3, 0, 1));
  EXPECT_THAT(second.rows.offsets, ElementsAre(0, 1, 2, 3, 4, 4));
  EXPECT_THAT(second.rows.index, ElementsAre(2, 2, 0, 1));
}

TEST(TableBatchTest, AMeanIsASumWithDividedWeights) {
  SparseBatch batch = TwoFeatures();
  TableBatch table;
  const std::vector<TableUse> uses = {
      {.features = {0}, .pooling = Pooling::kMean}};
  ASSERT_TRUE(table.Fill(uses, batch, 3).ok());
  EXPECT_THAT(table.uses()[0].bags.weights,
              ElementsAre(1.0f / 3, 1.0f / 3, 1.0f / 3, 1.0f));
  EXPECT_THAT(table.uses()[0].rows.index, ElementsAre(0, 0, 0, 2));
  batch.features[0].weights = {1.0f, -3.0f, 4.0f, 0.0f};
  ASSERT_TRUE(table.Fill(uses, batch, 3).ok());
  EXPECT_THAT(table.uses()[0].bags.weights,
              ElementsAre(0.5f, -1.5f, 2.0f, 0.0f));
  EXPECT_THAT(table.uses()[0].rows.weights,
              ElementsAre(2.0f, 0.5f, -1.5f, 0.0f));
}

TEST(TableBatchTest, FeaturesWithAndWithoutWeightsShareALayer) {
  SparseBatch batch = TwoFeatures();
  batch.features[1].weights = {2, 3, 4, 5};
  TableBatch table;
  ASSERT_TRUE(
      table.Fill(std::vector<TableUse>{{.features = {0, 1}}}, batch, 3).ok());
  EXPECT_THAT(table.uses()[0].bags.weights,
              ElementsAre(1, 1, 1, 2, 3, 1, 4, 5));
}

TEST(TableBatchTest, AMaximumNamesABagOnceAndHasNoWeights) {
  SparseBatch batch = TwoFeatures();
  batch.features[0].weights = {1, 2, 3, 4};
  TableBatch table;
  ASSERT_TRUE(
      table.Fill(std::vector<TableUse>{{{0}, Pooling::kMax}, {{0}}}, batch, 3)
          .ok());
  EXPECT_THAT(table.uses()[0].bags.index, ElementsAre(1, 1, 0, 2));
  EXPECT_THAT(table.uses()[0].bags.weights, IsEmpty());
  EXPECT_THAT(table.uses()[0].rows.index, ElementsAre(0, 0, 2));
  EXPECT_THAT(table.uses()[0].rows.weights, IsEmpty());
  EXPECT_THAT(table.uses()[1].rows.index, ElementsAre(0, 0, 0, 2));
}

TEST(TableBatchTest, ABatchWithoutIdsHasEmptyBags) {
  TableBatch table;
  const std::vector<TableUse> uses = {{.features = {0, 1}}};
  ASSERT_TRUE(table.Fill(uses, TwoFeatures(), 3).ok());
  const SparseFeature empty = {{0, 0, 0}, {}, {}};
  ASSERT_TRUE(table.Fill(uses, {.features = {empty, empty}}, 2).ok());
  EXPECT_THAT(table.ids(), IsEmpty());
  EXPECT_THAT(table.uses()[0].bags.offsets, ElementsAre(0, 0, 0, 0, 0));
  EXPECT_THAT(table.uses()[0].bags.index, IsEmpty());
  EXPECT_THAT(table.uses()[0].rows.offsets, ElementsAre(0));
}

// Compares the lists with maps, for ids of few and of many bits; the same batch
// object is filled again and again.
TEST(TableBatchTest, RandomBatchesAreWhatMapsSay) {
  RandomStream random(1);
  TableBatch table;
  for (int round = 0; round < 20; ++round) {
    SCOPED_TRACE(round);
    const int64_t samples = 1 + random.NextBelow(50);
    const int shift = static_cast<int>(random.NextBelow(60));
    SparseBatch batch;
    batch.features.resize(3);
    std::map<uint64_t, std::vector<int32_t>> bags;  // by id, in order
    for (int64_t s = 0; s < samples; ++s) {
      for (int f = 0; f < 3; ++f) {
        SparseFeature& feature = batch.features[f];
        for (uint32_t k = random.NextBelow(4); k > 0; --k) {
          feature.ids.push_back(random.Next64() >> shift);
          bags[feature.ids.back()].push_back(static_cast<int32_t>(s * 3 + f));
        }
        feature.offsets.push_back(static_cast<int64_t>(feature.ids.size()));
      }
    }
    ASSERT_TRUE(
        table.Fill(std::vector<TableUse>{{{0, 1, 2}}}, batch, samples).ok());
    ASSERT_EQ(table.ids().size(), bags.size());
    const TableBatch::Lists& rows = table.uses()[0].rows;
    size_t row = 0;
    for (const auto& [id, expected] : bags) {
      EXPECT_EQ(table.ids()[row], id);
      EXPECT_EQ(
          std::vector<int32_t>(rows.index.begin() + rows.offsets[row],
                               rows.index.begin() + rows.offsets[row + 1]),
          expected);
      ++row;
    }
    const TableBatch::Lists& lists = table.uses()[0].bags;
    for (int64_t b = 0; b < lists.count(); ++b) {
      const SparseFeature& feature = batch.features[b % 3];
      const int64_t begin = feature.offsets[b / 3];
      ASSERT_EQ(lists.offsets[b + 1] - lists.offsets[b],
                feature.offsets[b / 3 + 1] - begin);
      for (int32_t e = lists.offsets[b]; e < lists.offsets[b + 1]; ++e) {
        EXPECT_EQ(table.ids()[lists.index[e]],
                  feature.ids[begin + e - lists.offsets[b]]);
      }
    }
  }
}

std::string ErrorOf(const std::vector<TableUse>& uses, const SparseBatch& batch,
                    int64_t samples) {
  TableBatch table;
  const absl::Status status = table.Fill(uses, batch, samples);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(table.ids(), IsEmpty());
  EXPECT_THAT(table.uses(), IsEmpty());
  return std::string(status.message());
}

TEST(TableBatchTest, NamesWhatDoesNotFit) {
  const std::vector<TableUse> uses = {{.features = {1}}};
  SparseBatch batch = TwoFeatures();
  EXPECT_THAT(ErrorOf({{.features = {2}}}, batch, 3),
              HasSubstr("feature 2 is not one of the batch's 2"));
  EXPECT_THAT(ErrorOf(uses, batch, 4),
              HasSubstr("feature 1: has 3 bags of 4 samples"));
  batch.features[1].weights = {1};
  EXPECT_THAT(ErrorOf(uses, batch, 3), HasSubstr("has 1 weights for 4 ids"));
  batch.features[1] = {{0, 3, 2, 4}, {1, 2, 3, 4}, {}};
  EXPECT_THAT(ErrorOf(uses, batch, 3), HasSubstr("its bags are not its 4 ids"));
  // One feature of 2^12 samples, named 2^20 times: one bag too many for int32.
  const std::vector<TableUse> many = {
      {.features = std::vector<int>(size_t{1} << 20, 0)}};
  batch.features[0] = {std::vector<int64_t>((1 << 12) + 1, 0), {}, {}};
  EXPECT_THAT(ErrorOf(many, batch, 1 << 12),
              HasSubstr("4294967296 bags of one layer; at most 2147483647"));
}

}  // namespace
}  // namespace weir
