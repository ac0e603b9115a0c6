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
#include "google/protobuf/text_format.h"
#include "server/ps/store/store.h"
#include "tests/support/in_process_transport.h"

namespace weir {
namespace {

using testing::HasSubstr;

// S stores behind one transport, all active; two tables: `t` of dim 3, `u` of
// dim 1, plain SGD with rate 1, rows of zeros.
struct Worker {
  TableClient* operator->() const { return client.get(); }

  Sender sender;
  std::unique_ptr<TableClient> client;
};

class Job {
 public:
  explicit Job(int shards, const std::string& update = "async {}",
               int slots = 1, const std::string& more = "") {
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        absl::StrCat(
            "job: 'test' history: 1 block_elements: 64 "
            "out_of_order_bytes: 1048576 "
            "variable { name: 'w' shape: 4 } "
            "group { optimizer { sgd {} } schedule { learning_rate: 1 } } "
            "table { name: 't' dim: 3 schedule { learning_rate: 1 } "
            "        initializer { zeros {} } ",
            more, " } ",
            "table { name: 'u' dim: 1 schedule { learning_rate: 1 } "
            "        initializer { zeros {} } } "
            "update { ",
            update, " } slot_count: ", slots, " shard_count: ", shards),
        &declaration));
    for (int s = 0; s < shards; ++s) {
      Store::Options options;
      options.incarnation = static_cast<uint64_t>(s) + 10;
      stores.push_back(*Store::Create(options));
      DeclareRequest request;
      *request.mutable_declaration() = declaration;
      request.set_shard(static_cast<uint32_t>(s));
      const auto reply = stores.back()->Declare(request);
      EXPECT_TRUE(reply.ok()) << reply.status();
      fingerprint = reply->layout_fingerprint();
      SetSlotsRequest live;
      *live.mutable_sender() = SenderOf(0);
      for (int w = 0; w < slots; ++w) {
        live.add_slot()->set_slot(static_cast<uint32_t>(w));
        live.mutable_slot(w)->set_generation(1);
      }
      EXPECT_TRUE(stores.back()->SetSlots(live).ok());
      addresses.push_back(absl::StrCat("ps", s));
      transport.Serve(addresses.back(), stores.back().get());
    }
  }

  Sender SenderOf(int slot) const {
    Sender sender;
    sender.set_job("test");
    sender.set_history(1);
    sender.set_layout_fingerprint(fingerprint);
    sender.set_slot(static_cast<uint32_t>(slot));
    sender.set_generation(1);
    return sender;
  }

  Worker Client(int slot = 0, int lost_after_ms = 400) {
    TableClient::Options options;
    options.transport = &transport;
    options.addresses = addresses;
    options.tables.assign(declaration.table().begin(),
                          declaration.table().end());
    options.piece_bytes = 48;
    options.lost_after = std::chrono::milliseconds(lost_after_ms);
    auto client = TableClient::Create(std::move(options));
    EXPECT_TRUE(client.ok()) << client.status();
    return {SenderOf(slot), *std::move(client)};
  }

  Declaration declaration;
  std::vector<std::unique_ptr<Store>> stores;
  std::vector<std::string> addresses;
  InProcessTransport transport{7};
  uint64_t fingerprint = 0;
};

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
    Job job(shards);
    const auto client = job.Client();
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
  Job job(2);
  const auto client = job.Client();
  const std::vector<uint64_t> ids = SomeIds(2, 50);
  Read(client, ids);
  const auto result =
      Push(client, 0, {0, 0}, ids, std::vector<float>(50, 2.0f));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->staleness_count, 2u);
  EXPECT_EQ(Read(client, ids), std::vector<float>(50, -2.0f));
  // A client that believes in lists which the shard does not have.
  for (const std::string& address : job.addresses) {
    job.transport.Stop(address);  // its streams use the stores
  }
  job.stores.clear();
  Job other(2);
  for (int s = 0; s < 2; ++s) {
    job.transport.Serve(job.addresses[s], other.stores[s].get());
  }
  EXPECT_EQ(Read(client, ids), std::vector<float>(50, 0.0f));
}

TEST(TableClientTest, EveryRowGetsEveryContributionOnceThroughFaults) {
  for (const int shards : {1, 3}) {
    Job job(shards, "async {}", 2);
    WireFaults faults;
    faults.lost_before = 0.03;
    faults.lost_after = 0.05;
    faults.delayed = 0.2;
    job.transport.SetFaults(faults);
    constexpr uint64_t kContributions = 30;
    const std::vector<uint64_t> ids = SomeIds(3, 40);
    std::vector<std::thread> workers;
    for (int slot = 0; slot < 2; ++slot) {
      workers.emplace_back([&, slot] {
        const auto client = job.Client(slot, 30000);
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
    job.transport.SetFaults({});
    EXPECT_EQ(Read(job.Client(), ids),
              std::vector<float>(ids.size(), 2.0f * kContributions));
  }
}

TEST(TableClientTest, TheSameRowsOnAnyNumberOfShardsInSync) {
  std::map<int, std::vector<float>> results;
  const std::vector<uint64_t> ids = SomeIds(4, 60);
  for (const int shards : {1, 2, 3}) {
    Job job(shards, "sync { contributions: 2 }", 2);
    std::vector<std::thread> workers;
    for (int slot = 0; slot < 2; ++slot) {
      workers.emplace_back([&, slot] {
        const auto client = job.Client(slot);
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
    results[shards] = Read(job.Client(), ids, Version(10));
  }
  EXPECT_EQ(results[2], results[1]);
  EXPECT_EQ(results[3], results[1]);
  EXPECT_NE(results[1][0], 0.0f);
}

TEST(TableClientTest, AWaitForAVersionOutlastsTheServersDeadline) {
  Job job(1, "sync { contributions: 1 }");
  const auto client = job.Client();
  std::vector<float> row(1);
  const std::vector<uint64_t> id = {5};
  const TableClient::Wanted wanted = {1, id, row.data()};
  ASSERT_TRUE(
      client->StartLookup(client.sender, Version(1), true, {&wanted, 1}).ok());
  ASSERT_TRUE(Push(client, 0, {0}, id, {4}).ok());
  ASSERT_TRUE(client->WaitLookup().ok());
  EXPECT_EQ(row[0], -4.0f);
}

TEST(TableClientTest, AShardThatIsGoneIsNamed) {
  Job job(2);
  const auto client = job.Client();
  Read(client, {1, 2, 3});
  job.transport.Stop("ps1");
  const std::vector<uint64_t> ids = SomeIds(5, 30);
  std::vector<float> rows(30);
  const TableClient::Wanted wanted = {1, ids, rows.data()};
  ASSERT_TRUE(
      client->StartLookup(client.sender, Latest(), true, {&wanted, 1}).ok());
  const auto versions = client->WaitLookup();
  EXPECT_EQ(versions.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(versions.status().message(), HasSubstr("ps 1 (ps1)"));
  EXPECT_THAT(versions.status().message(), HasSubstr("unreachable for 0.4 s"));
}

TEST(TableClientTest, ARestartedShardIsNamed) {
  Job job(1);
  const auto client = job.Client();
  Read(client, {1});
  auto other = *Store::Create({.incarnation = 99});
  DeclareRequest request;
  *request.mutable_declaration() = job.declaration;
  ASSERT_TRUE(other->Declare(request).ok());
  SetSlotsRequest live;
  *live.mutable_sender() = job.SenderOf(0);
  live.add_slot()->set_generation(1);
  ASSERT_TRUE(other->SetSlots(live).ok());
  job.transport.Serve("ps0", other.get());
  const auto result = Push(client, 0, {0}, {1}, {1});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(result.status().message(), HasSubstr("restarted"));
}

TEST(TableClientTest, IdsThatDoNotAscendAreRefused) {
  Job job(1);
  const auto client = job.Client();
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
  Job job(1, "sync { contributions: 1 }");
  const auto client = job.Client();
  std::vector<float> row(1);
  const std::vector<uint64_t> id = {5};
  const TableClient::Wanted wanted = {1, id, row.data()};
  ASSERT_TRUE(
      client->StartLookup(client.sender, Version(1), true, {&wanted, 1}).ok());
  client->Interrupt(absl::AbortedError("the job is over"));
  EXPECT_EQ(client->WaitLookup().status().message(), "the job is over");
}

TEST(TableClientTest, HalfPrecisionTravelsByTable) {
  Job job(2, "async {}", 1, "lookup: F16 update: BF16");
  const auto client = job.Client();
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
