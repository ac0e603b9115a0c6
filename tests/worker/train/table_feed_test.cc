#include "worker/train/table_feed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/support/store_cluster.h"

namespace weir {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Want Latest() {
  Want want;
  want.set_latest(true);
  return want;
}

// One sample whose only bag has these ids.
SparseBatch BagOf(const std::vector<uint64_t>& ids) {
  SparseBatch batch;
  batch.Clear(1);
  batch.features[0].ids = ids;
  batch.features[0].EndBag();
  return batch;
}

// Two shards in async with tables `unused` and `t`, of which the model reads
// `t`, of dim 2. `cache` may add the cache's fields to `t`.
class TableFeedTest : public testing::Test {
 protected:
  void Begin(const std::string& cache = "") {
    cluster_ = std::make_unique<StoreCluster>(absl::StrCat(
        "variable { name: 'w' shape: 4 } table { name: 'unused' dim: 1 } "
        "table { name: 't' dim: 2 ",
        cache, " }"));
    TableClient::Options options;
    static_cast<ShardClientOptions&>(options) = cluster_->ClientOptions();
    options.tables = cluster_->tables();
    auto client = TableClient::Create(std::move(options));
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }

  std::unique_ptr<TableFeed> MakeFeed() {
    auto feed =
        TableFeed::Create(ReadTables(), cluster_->tables(), client_.get());
    EXPECT_TRUE(feed.ok()) << feed.status();
    return *std::move(feed);
  }

  Sender ASender() const { return cluster_->SenderOf(0); }

  // What the network reads: one feature, pooled in one way.
  static std::vector<GraphTable> ReadTables(const std::string& name = "t") {
    return {{.name = name, .dim = 2, .uses = {{.features = {0}}}}};
  }

  // Looks one bag up and returns the rows, [ids, 2], in the order of their ids.
  std::vector<float> LookUp(TableFeed& feed, const std::vector<uint64_t>& ids) {
    EXPECT_TRUE(feed.Start(BagOf(ids), 1, ASender(), Latest()).ok());
    const auto inputs = feed.Wait();
    EXPECT_TRUE(inputs.ok()) << inputs.status();
    EXPECT_EQ(inputs->size(), 1u);
    const TableInput& input = inputs->front();
    return {input.rows, input.rows + 2 * input.batch->ids().size()};
  }

  // Pushes the same gradient for every element of the current rows.
  ContributionResult Push(TableFeed& feed, uint64_t sequence, float gradient) {
    for (const std::span<float> table : feed.Gradients()) {
      std::fill(table.begin(), table.end(), gradient);
    }
    EXPECT_TRUE(feed.Push({.sender = ASender(), .sequence = sequence}).ok());
    const auto result = client_->WaitUpdate();
    EXPECT_TRUE(result.ok()) << result.status();
    return *result;
  }

  std::unique_ptr<StoreCluster> cluster_;
  std::unique_ptr<TableClient> client_;
};

TEST_F(TableFeedTest, ATableThatTheJobLacksIsNamed) {
  Begin();
  const auto feed =
      TableFeed::Create(ReadTables("other"), cluster_->tables(), client_.get());
  EXPECT_EQ(feed.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(feed.status().message(), HasSubstr("'other'"));
}

TEST_F(TableFeedTest, GradientsReachTheRowsThatWereLookedUp) {
  Begin();
  const auto feed = MakeFeed();
  EXPECT_FALSE(feed->started());
  ASSERT_TRUE(feed->Start(BagOf({9, 4, 9}), 1, ASender(), Latest()).ok());
  EXPECT_TRUE(feed->started());
  const auto inputs = feed->Wait();
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  EXPECT_FALSE(feed->started());
  EXPECT_THAT(inputs->front().batch->ids(), ElementsAre(4, 9));
  ASSERT_EQ(feed->Gradients().size(), 1u);
  ASSERT_EQ(feed->Gradients()[0].size(), 4u);
  EXPECT_EQ(feed->Gradients()[0].data(), inputs->front().gradients);
  std::copy_n(std::vector<float>{1, 2, 3, 4}.data(), 4,
              inputs->front().gradients);
  ASSERT_TRUE(feed->Push({.sender = ASender()}).ok());
  ASSERT_TRUE(client_->WaitUpdate().ok());
  EXPECT_THAT(LookUp(*feed, {9, 5, 4}), ElementsAre(-1, -2, 0, 0, -3, -4));
}

// I1: without samples too, or a shard would refuse the next one.
TEST_F(TableFeedTest, AContributionWithoutSamplesIsPushedToEveryShard) {
  Begin();
  const auto feed = MakeFeed();
  const SparseBatch none;
  ASSERT_TRUE(feed->Start(none, 0, ASender(), Latest()).ok());
  const auto inputs = feed->Wait();
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  EXPECT_TRUE(inputs->empty());
  EXPECT_TRUE(feed->Gradients().empty());
  Push(*feed, 0, 0);
  LookUp(*feed, {1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(Push(*feed, 1, 1).duplicates, 0u);
  // The same number again is a duplicate on both shards.
  LookUp(*feed, {1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(Push(*feed, 1, 1).duplicates, 2u);
}

TEST_F(TableFeedTest, ALookupAheadLeavesTheCurrentRowsAlone) {
  Begin();
  const auto feed = MakeFeed();
  ASSERT_TRUE(feed->Start(BagOf({1}), 1, ASender(), Latest()).ok());
  const auto inputs = feed->Wait();
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  const TableInput current = inputs->front();
  ASSERT_TRUE(feed->Start(BagOf({2, 3}), 1, ASender(), Latest()).ok());
  EXPECT_THAT(current.batch->ids(), ElementsAre(1));
  Push(*feed, 0, 5);  // of the current rows, not of those ahead
  ASSERT_TRUE(feed->Wait().ok());
  Push(*feed, 1, 7);
  EXPECT_THAT(LookUp(*feed, {1, 2, 3}), ElementsAre(-5, -5, -7, -7, -7, -7));
}

TEST_F(TableFeedTest, ACachedRowIsReadAgainForAsLongAsItMay) {
  Begin("cache_rows: 10 cache_contributions: 2");
  const auto feed = MakeFeed();
  EXPECT_THAT(LookUp(*feed, {1}), ElementsAre(0, 0));
  Push(*feed, 0, 1);
  // Two lookups may still read the row of the first one; id 2 is new.
  EXPECT_THAT(LookUp(*feed, {1, 2}), ElementsAre(0, 0, 0, 0));
  Push(*feed, 1, 1);
  EXPECT_THAT(LookUp(*feed, {1}), ElementsAre(0, 0));
  Push(*feed, 2, 1);
  EXPECT_THAT(LookUp(*feed, {1, 2}), ElementsAre(-3, -3, 0, 0));
}

// I2: the staleness that the shards see is that of the oldest row.
TEST_F(TableFeedTest, APushNamesTheVersionsOfItsOldestRow) {
  Begin("cache_rows: 10 cache_contributions: 5");
  const auto feed = MakeFeed();
  LookUp(*feed, {1});
  EXPECT_EQ(Push(*feed, 0, 1).staleness_max, 0u);
  LookUp(*feed, {1, 2});  // row 1 from version 0, now that the shards are at 1
  EXPECT_EQ(Push(*feed, 1, 1).staleness_max, 1u);
  LookUp(*feed, {1, 2});
  EXPECT_EQ(Push(*feed, 2, 1).staleness_max, 2u);
  LookUp(*feed, {7});  // without a cached row
  EXPECT_EQ(Push(*feed, 3, 1).staleness_max, 0u);
}

}  // namespace
}  // namespace weir
