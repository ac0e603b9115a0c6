#include "client/cc/parameters/table_client.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/math/random.h"
#include "gmock/gmock.h"
#include "tests/support/store_cluster.h"

namespace weir {
namespace {

using testing::HasSubstr;

// A declaration with the tables `t` of dim 3 and `u` of dim 1. `job` adds
// fields to it, and `of_t` to `t`.
std::string JobWith(const std::string& job, const std::string& of_t = "") {
  return absl::StrCat(
      "variable { name: 'w' shape: 4 } "
      "table { name: 't' dim: 3 ",
      of_t, " } table { name: 'u' dim: 1 } ", job);
}

struct Worker {
  TableClient* operator->() const { return client.get(); }

  Sender sender;
  std::unique_ptr<TableClient> client;
};

Worker WorkerOf(StoreCluster* cluster, int slot = 0, int lost_after_ms = 400) {
  TableClient::Options options;
  static_cast<ShardClientOptions&>(options) = cluster->ClientOptions();
  options.tables = cluster->tables();
  options.piece_bytes = 48;
  options.lost_after = std::chrono::milliseconds(lost_after_ms);
  auto client = TableClient::Create(std::move(options));
  EXPECT_TRUE(client.ok()) << client.status();
  return {cluster->SenderOf(slot), *std::move(client)};
}

Want Latest() {
  Want want;
  want.set_latest(true);
  return want;
}

Want Version(uint64_t version) {
  Want want;
  want.set_version(version);
  return want;
}

// Rows of table `u`, one float each.
std::vector<float> Read(const Worker& client, const std::vector<uint64_t>& ids,
                        const Want& want = Latest()) {
  std::vector<float> rows(ids.size(), -99);
  const TableClient::Wanted wanted = {1, ids, rows.data()};
  EXPECT_TRUE(
      client->StartLookup(client.sender, want, true, {&wanted, 1}).ok());
  const auto versions = client->WaitLookup();
  EXPECT_TRUE(versions.ok()) << versions.status();
  return rows;
}

absl::StatusOr<ContributionResult> Push(const Worker& client, uint64_t sequence,
                                        const TableClient::Versions& versions,
                                        const std::vector<uint64_t>& ids,
                                        const std::vector<float>& gradients,
                                        uint32_t contribution = 0) {
  ContributionPush push;
  push.sender = client.sender;
  push.sequence = sequence;
  push.index_in_step = contribution;
  const TableClient::Gradients list = {1, ids, gradients.data()};
  if (const absl::Status status =
          client->StartUpdate(push, versions, {&list, 1});
      !status.ok()) {
    return status;
  }
  return client->WaitUpdate();
}

std::vector<uint64_t> SomeIds(uint64_t seed, size_t count) {
  RandomStream random(seed);
  std::set<uint64_t> ids;
  while (ids.size() < count) {
    ids.insert(random.Next64() >> random.NextBelow(60));
  }
  return std::vector<uint64_t>(ids.begin(), ids.end());
}

TEST(TableClientTest, RowsOfSeveralTablesComeInTheOrderOfTheirIds) {
  for (const int shards : {1, 3}) {
    StoreCluster cluster(JobWith(absl::StrCat("shard_count: ", shards)));
    const auto client = WorkerOf(&cluster);
    const std::vector<uint64_t> ids = SomeIds(1, 100);
    std::vector<float> gradients(300);
    for (size_t i = 0; i < gradients.size(); ++i) {
      gradients[i] = static_cast<float>(i);
    }
    ContributionPush push;
    push.sender = client.sender;
    const TableClient::Versions read(static_cast<size_t>(shards), 0);
    const std::vector<float> ones(100, 1.0f);
    const TableClient::Gradients lists[] = {{0, ids, gradients.data()},
                                            {1, ids, ones.data()}};
    ASSERT_TRUE(client->StartUpdate(push, read, lists).ok());
    ASSERT_TRUE(client->WaitUpdate().ok());
    std::vector<float> rows(300), u(100);
    const TableClient::Wanted wanted[] = {{1, ids, u.data()},
                                          {0, ids, rows.data()}};
    ASSERT_TRUE(
        client->StartLookup(client.sender, Latest(), false, wanted).ok());
    const auto versions = client->WaitLookup();
    ASSERT_TRUE(versions.ok()) << versions.status();
    EXPECT_EQ(*versions, TableClient::Versions(shards, 1));
    for (size_t i = 0; i < rows.size(); ++i) {
      ASSERT_EQ(rows[i], -gradients[i]) << i;
    }
    EXPECT_EQ(u, std::vector<float>(100, -1.0f));
  }
}

TEST(TableClientTest, ListsAreSentOnce) {
  StoreCluster cluster(JobWith(""));
  const auto client = WorkerOf(&cluster);
  const std::vector<uint64_t> ids = SomeIds(2, 50);
  Read(client, ids);
  const auto result =
      Push(client, 0, {0, 0}, ids, std::vector<float>(50, 2.0f));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->staleness_count, 2u);
  EXPECT_EQ(Read(client, ids), std::vector<float>(50, -2.0f));
  // A client that believes in lists which the shard does not have.
  for (const int s : {0, 1}) {
    cluster.Replace(s, cluster.MakeStore(s, cluster.stores[s]->incarnation()));
  }
  EXPECT_EQ(Read(client, ids), std::vector<float>(50, 0.0f));
}

TEST(TableClientTest, AReaderGetsTheSameRowsAgain) {
  StoreCluster cluster(JobWith(""));
  const auto worker = WorkerOf(&cluster);
  const std::vector<uint64_t> ids = SomeIds(2, 50);
  ASSERT_TRUE(Push(worker, 0, {0, 0}, ids, std::vector<float>(50, 2)).ok());
  auto reader = WorkerOf(&cluster);
  reader.sender.set_generation(0);  // a shard keeps none of its lists
  for (int i = 0; i < 2; ++i) {
    std::vector<float> rows(ids.size());
    const TableClient::Wanted wanted = {1, ids, rows.data()};
    ASSERT_TRUE(
        reader->StartLookup(reader.sender, Latest(), false, {&wanted, 1}).ok());
    ASSERT_TRUE(reader->WaitLookup().ok());
    EXPECT_EQ(rows, std::vector<float>(50, -2));
  }
}

TEST(TableClientTest, EveryRowGetsEveryContributionOnceThroughFaults) {
  for (const int shards : {1, 3}) {
    StoreCluster cluster(
        JobWith(absl::StrCat("slot_count: 2 shard_count: ", shards)));
    WireFaults faults;
    faults.lost_before = 0.03;
    faults.lost_after = 0.05;
    faults.delayed = 0.2;
    cluster.transport.SetFaults(faults);
    constexpr uint64_t kContributions = 30;
    const std::vector<uint64_t> ids = SomeIds(3, 40);
    std::vector<std::thread> workers;
    for (int slot = 0; slot < 2; ++slot) {
      workers.emplace_back([&, slot] {
        const auto client = WorkerOf(&cluster, slot, 30000);
        for (uint64_t sequence = 0; sequence < kContributions; ++sequence) {
          Read(client, ids);
          const auto result =
              Push(client, sequence, TableClient::Versions(shards, 0), ids,
                   std::vector<float>(ids.size(), -1.0f));
          ASSERT_TRUE(result.ok()) << result.status();
        }
      });
    }
    for (std::thread& worker : workers) {
      worker.join();
    }
    cluster.transport.SetFaults({});
    EXPECT_EQ(Read(WorkerOf(&cluster), ids),
              std::vector<float>(ids.size(), 2.0f * kContributions));
  }
}

TEST(TableClientTest, TheSameRowsOnAnyNumberOfShardsInSync) {
  std::map<int, std::vector<float>> results;
  const std::vector<uint64_t> ids = SomeIds(4, 60);
  for (const int shards : {1, 2, 3}) {
    StoreCluster cluster(JobWith(absl::StrCat(
        "update { sync { contributions: 2 } } slot_count: 2 shard_count: ",
        shards)));
    std::vector<std::thread> workers;
    for (int slot = 0; slot < 2; ++slot) {
      workers.emplace_back([&, slot] {
        const auto client = WorkerOf(&cluster, slot);
        for (uint64_t step = 0; step < 10; ++step) {
          std::vector<float> gradients = Read(client, ids, Version(step));
          for (size_t i = 0; i < ids.size(); ++i) {
            gradients[i] = 0.1f * gradients[i] +
                           UnitFloat(Philox(step, slot, ids[i])[0]) - 0.5f;
          }
          const auto result =
              Push(client, step, TableClient::Versions(shards, step), ids,
                   gradients, static_cast<uint32_t>(slot));
          ASSERT_TRUE(result.ok()) << result.status();
        }
      });
    }
    for (std::thread& worker : workers) {
      worker.join();
    }
    results[shards] = Read(WorkerOf(&cluster), ids, Version(10));
  }
  EXPECT_EQ(results[2], results[1]);
  EXPECT_EQ(results[3], results[1]);
  EXPECT_NE(results[1][0], 0.0f);
}

TEST(TableClientTest, AWaitForAVersionOutlastsTheServersDeadline) {
  StoreCluster cluster(
      JobWith("update { sync { contributions: 1 } } shard_count: 1"));
  const auto client = WorkerOf(&cluster);
  std::vector<float> row(1);
  const std::vector<uint64_t> id = {5};
  const TableClient::Wanted wanted = {1, id, row.data()};
  ASSERT_TRUE(
      client->StartLookup(client.sender, Version(1), true, {&wanted, 1}).ok());
  ASSERT_TRUE(Push(client, 0, {0}, id, {4}).ok());
  ASSERT_TRUE(client->WaitLookup().ok());
  EXPECT_EQ(row[0], -4.0f);
}

TEST(TableClientTest, IdsThatDoNotAscendAreRefused) {
  StoreCluster cluster(JobWith("shard_count: 1"));
  const auto client = WorkerOf(&cluster);
  const std::vector<uint64_t> ids = {3, 3};
  std::vector<float> rows(2);
  const TableClient::Wanted wanted = {1, ids, rows.data()};
  EXPECT_THAT(client->StartLookup(client.sender, Latest(), true, {&wanted, 1})
                  .message(),
              HasSubstr("'u': ids must ascend"));
  const TableClient::Wanted foreign = {2, ids, rows.data()};
  EXPECT_THAT(client->StartLookup(client.sender, Latest(), true, {&foreign, 1})
                  .message(),
              HasSubstr("table 2 of 2"));
}

TEST(TableClientTest, AnInterruptEndsAWait) {
  StoreCluster cluster(
      JobWith("update { sync { contributions: 1 } } shard_count: 1"));
  const auto client = WorkerOf(&cluster);
  std::vector<float> row(1);
  const std::vector<uint64_t> id = {5};
  const TableClient::Wanted wanted = {1, id, row.data()};
  ASSERT_TRUE(
      client->StartLookup(client.sender, Version(1), true, {&wanted, 1}).ok());
  client->Interrupt(absl::AbortedError("the job is over"));
  EXPECT_EQ(client->WaitLookup().status().message(), "the job is over");
}

TEST(TableClientTest, HalfPrecisionTravelsByTable) {
  StoreCluster cluster(JobWith("", "lookup: F16 update: BF16"));
  const auto client = WorkerOf(&cluster);
  const std::vector<uint64_t> ids = SomeIds(6, 20);
  std::vector<float> gradients(60, -1.5f);
  std::vector<float> rows(60), u(20);
  ContributionPush push;
  push.sender = client.sender;
  const std::vector<float> ones(20, 1.0f);
  const TableClient::Gradients lists[] = {
      {1, ids, ones.data()}, {0, ids, gradients.data()}, {1, {}, nullptr}};
  ASSERT_TRUE(client->StartUpdate(push, {0, 0}, lists).ok());
  ASSERT_TRUE(client->WaitUpdate().ok());
  EXPECT_EQ(client->counters().bytes_sent, 20u * 4 + 60 * 2);
  const TableClient::Wanted wanted[] = {{0, ids, rows.data()},
                                        {1, ids, u.data()}};
  ASSERT_TRUE(client->StartLookup(client.sender, Latest(), true, wanted).ok());
  ASSERT_TRUE(client->WaitLookup().ok());
  EXPECT_EQ(rows, std::vector<float>(60, 1.5f));
  EXPECT_EQ(u, std::vector<float>(20, -1.0f));
  EXPECT_EQ(client->counters().bytes_received, 20u * 4 + 60 * 2);
}

}  // namespace
}  // namespace weir
