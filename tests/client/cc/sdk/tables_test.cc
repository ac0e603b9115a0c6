#include "client/cc/sdk/tables.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <thread>

#include "client/cc/weir.h"
#include "tests/client/cc/sdk/servers.h"

namespace weir::sdk {
namespace {

// Rows of zeros, SGD with rate 1.
Table Zeros(const std::string& name, int dim) {
  Table table;
  table.name = name;
  table.dim = dim;
  table.optimizer.learning_rate = 1.0;
  table.init = Table::Init::kConstant;
  table.init_scale = 0.0f;
  return table;
}

using Ids = std::vector<uint64_t>;
using Floats = std::vector<float>;

Floats Read(Client* client, const std::string& table, int dim, const Ids& ids,
            bool train = true) {
  Floats rows(ids.size() * static_cast<size_t>(dim), -99.0f);
  const Status status = client->Lookup({{table, ids, rows}}, train);
  EXPECT_TRUE(status.ok()) << status.message();
  return rows;
}

Result<Client> Declared(const sdk::Options& options,
                        const std::vector<Table>& tables,
                        const std::vector<Tensor>& tensors = {
                            {.name = "w", .shape = {3}}}) {
  auto client = Client::Connect(options);
  EXPECT_TRUE(client.ok()) << client.status().message();
  const Status status = client->Declare(tensors, tables);
  EXPECT_TRUE(status.ok()) << status.message();
  return client;
}

TEST(SdkTablesTest, RowsOfAnyOrderWithDuplicatesComeAndGo) {
  Servers servers;
  auto client = Declared(servers.ForWorker(), {Zeros("a", 2), Zeros("b", 1)});
  const Ids ids = {~uint64_t{0}, 5, 5, 0};
  const Floats gradients = {1, 2, 3, 4, 5, 6, 7, 8};
  const Ids more = {5};
  const Floats of_more = {100, 200};
  std::fill_n(client->Gradient("w").begin(), 3, 1.0f);
  // Two lists of one table are one list.
  ASSERT_TRUE(
      client->PushPull({}, {{"a", ids, gradients}, {"a", more, of_more}}).ok());
  EXPECT_EQ(client->Values("w")[2], -1.0f);
  const Ids other = {0, 5, 1, ~uint64_t{0}, 5};
  Floats a(10), b(5);
  ASSERT_TRUE(client->Lookup({{"b", other, b}, {"a", other, a}}).ok());
  EXPECT_EQ(a, (Floats{-7, -8, -108, -210, 0, 0, -1, -2, -108, -210}));
  EXPECT_EQ(b, Floats(5, 0.0f));
}

// 1e8 + 1 + ... is lost in float32.
TEST(SdkTablesTest, DuplicatesAreSummedInDouble) {
  Servers servers;
  auto client = Declared(servers.ForWorker(), {Zeros("a", 1)});
  const Ids ids = {4, 4, 4, 4, 4};
  const Floats gradients = {1e8f, 1, 1, 1, -1e8f};
  ASSERT_TRUE(client->Push({}, {{"a", ids, gradients}}).ok());
  EXPECT_EQ(Read(&*client, "a", 1, {4}), Floats{-3});
}

TEST(SdkTablesTest, AJobMayHaveTablesAlone) {
  Servers servers;
  for (const Mode mode : {Mode::kAsync, Mode::kSync, Mode::kBoundedStaleness}) {
    Servers fresh;
    sdk::Options options = fresh.ForWorker();
    options.mode = mode;
    {
      auto client = Declared(options, {Zeros("a", 1)}, {});
      ASSERT_TRUE(client->Pull().ok());
      for (int step = 1; step <= 3; ++step) {
        const Ids ids = {1, 2};
        Read(&*client, "a", 1, ids);
        ASSERT_TRUE(client->PushPull({}, {{"a", ids, Floats{1, 2}}}).ok());
        EXPECT_EQ(Read(&*client, "a", 1, ids),
                  (Floats{-1.0f * static_cast<float>(step),
                          -2.0f * static_cast<float>(step)}));
      }
    }
    // The marks of tables alone say where it goes on.
    auto client = Declared(options, {Zeros("a", 1)}, {});
    EXPECT_EQ(client->pushes(), 3u);
    EXPECT_EQ(Read(&*client, "a", 1, {1}), Floats{-3});
  }
  auto client = Client::Connect(servers.ForWorker());
  EXPECT_EQ(client->Declare({}).message(),
            "neither a tensor nor a table is given");
}

TEST(SdkTablesTest, APushWithoutRowsIsAStepOfEveryTable) {
  Servers servers;
  sdk::Options options = servers.ForWorker();
  options.mode = Mode::kSync;
  auto client = Declared(options, {Zeros("a", 1)});
  for (int step = 0; step < 3; ++step) {
    ASSERT_TRUE(client->PushPull().ok());
    EXPECT_EQ(Read(&*client, "a", 1, {7}), Floats{0});
  }
  auto status = client->Servers();
  EXPECT_EQ(status->at(0).version_min, 3u);
  EXPECT_EQ(status->at(1).version_min, 3u);
  ASSERT_EQ(status->at(0).tables.size(), 1u);
  EXPECT_EQ(status->at(0).tables[0].rows + status->at(1).tables[0].rows, 1u);
}

TEST(SdkTablesTest, SyncIsTheMeanOverTheWorkers) {
  Servers servers;
  std::vector<std::thread> threads;
  for (int w = 0; w < 2; ++w) {
    threads.emplace_back([&servers, w] {
      sdk::Options options = servers.ForWorker(w, 2);
      options.mode = Mode::kSync;
      auto client = Declared(options, {Zeros("a", 1)});
      ASSERT_TRUE(client->Pull().ok());
      // Row 1 is of both workers, row 10 + w of one.
      const Ids ids = {1, 10 + static_cast<uint64_t>(w)};
      const Floats gradients = {static_cast<float>(1 + 2 * w), 1.0f};
      for (int step = 0; step < 5; ++step) {
        const Floats rows = Read(&*client, "a", 1, ids);
        EXPECT_EQ(rows, (Floats{-2.0f * static_cast<float>(step),
                                -0.5f * static_cast<float>(step)}));
        // The next step's rows are under way while this one's push is.
        ASSERT_TRUE(client->StartPushPull({}, {{"a", ids, gradients}}).ok());
        Floats next(2);
        ASSERT_TRUE(client->StartLookup({{"a", ids, next}}).ok());
        ASSERT_TRUE(client->Wait().ok());
        ASSERT_TRUE(client->WaitLookup().ok());
        EXPECT_EQ(next[0], rows[0] - 2.0f);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(SdkTablesTest, SyncRefusesGradientsOfAnEarlierStepsRows) {
  Servers servers;
  sdk::Options options = servers.ForWorker();
  options.mode = Mode::kSync;
  auto client = Declared(options, {Zeros("a", 1)});
  Read(&*client, "a", 1, {1});
  ASSERT_TRUE(client->PushPull().ok());
  Read(&*client, "a", 1, {1});
  ASSERT_TRUE(client->PushPull().ok());
  Floats row(1);
  const Ids id = {1};
  ASSERT_TRUE(client->StartLookup({{"a", id, row}}).ok());
  ASSERT_TRUE(client->PushPull().ok());
  ASSERT_TRUE(client->WaitLookup().ok());
  const Status status = client->Push({}, {{"a", id, Floats{1}}});
  EXPECT_EQ(status.code(), 3);
  EXPECT_NE(status.message().find("for step 3, their rows were looked up in "
                                  "step 2"),
            std::string::npos)
      << status.message();
  EXPECT_EQ(client->pushes(), 3u);  // nothing was sent
}

TEST(SdkTablesTest, ATablesRateMayComeWithAPush) {
  Servers servers;
  auto client = Declared(servers.ForWorker(), {Zeros("a", 1), Zeros("b", 1)});
  const Ids id = {1};
  const Floats one = {1};
  ASSERT_TRUE(client
                  ->BeginPush({.tables = {{"b", 0.25}},
                               .rows = {{"a", id, one}, {"b", id, one}}})
                  .ok());
  EXPECT_EQ(client->PushRows({{"a", id, one}}).code(), 9);  // all at once
  ASSERT_TRUE(client->EndPush().ok());
  ASSERT_TRUE(client->Wait().ok());
  EXPECT_EQ(Read(&*client, "a", 1, id), Floats{-1});
  EXPECT_EQ(Read(&*client, "b", 1, id), Floats{-0.25});
  EXPECT_EQ(client->BeginPush({.tables = {{"b", -1.0}}}).code(), 3);
  ASSERT_TRUE(client->BeginPush({}).ok());
  ASSERT_TRUE(client->PushRows({{"a", id, one}}).ok());
  ASSERT_TRUE(client->EndPush().ok());
  ASSERT_TRUE(client->Wait().ok());
  EXPECT_EQ(Read(&*client, "a", 1, id), Floats{-2});
}

TEST(SdkTablesTest, AReadMakesNoRow) {
  Servers servers;
  Table table = Zeros("a", 1);
  table.init = Table::Init::kUniform;
  table.init_scale = 1.0f;
  auto client = Declared(servers.ForWorker(), {table});
  const auto rows = [&] {
    auto status = client->Servers();
    return status->at(0).tables[0].rows + status->at(1).tables[0].rows;
  };
  const Floats before = Read(&*client, "a", 1, {1, 2, 3}, /*train=*/false);
  EXPECT_EQ(rows(), 0u);
  EXPECT_EQ(Read(&*client, "a", 1, {1, 2, 3}), before);
  EXPECT_EQ(rows(), 3u);
}

// If there were several lookups for one push, the oldest counts.
TEST(SdkTablesTest, StalenessIsThatOfTheOldestLookup) {
  Servers servers;
  auto first = Declared(servers.ForWorker(0, 2), {Zeros("a", 1)}, {});
  auto second = Declared(servers.ForWorker(1, 2), {Zeros("a", 1)}, {});
  const Ids id = {1};
  const auto push = [&](Client* client) {
    const Status status = client->Push({}, {{"a", id, Floats{1}}});
    EXPECT_TRUE(status.ok()) << status.message();
    return std::max(client->Servers()->at(0).staleness_max,
                    client->Servers()->at(1).staleness_max);
  };
  Read(&*first, "a", 1, id);
  for (int i = 0; i < 2; ++i) {
    Read(&*second, "a", 1, id);
    EXPECT_EQ(push(&*second), 0u);
  }
  Read(&*first, "a", 1, id);
  EXPECT_EQ(push(&*first), 2u);
}

TEST(SdkTablesTest, ErrorsNameTheTable) {
  Servers servers;
  auto client = Declared(servers.ForWorker(), {Zeros("a", 2)});
  const Ids ids = {1, 2};
  Floats rows(4);
  EXPECT_EQ(client->Lookup({{"x", ids, rows}}).message(),
            "no table is named 'x'");
  EXPECT_EQ(client->Lookup({{"a", ids, std::span(rows).first(3)}}).message(),
            "table 'a': 3 floats of rows for 2 ids of dim 2");
  EXPECT_EQ(client->Push({}, {{"a", Ids{1}, rows}}).message(),
            "table 'a': 4 floats of gradients for 1 ids of dim 2");
  EXPECT_EQ(client->WaitLookup().code(), 9);
  ASSERT_TRUE(client->StartLookup({{"a", ids, rows}}).ok());
  EXPECT_EQ(client->StartLookup({{"a", ids, rows}}).code(), 9);
  ASSERT_TRUE(client->WaitLookup().ok());
  rows[1] = std::numeric_limits<float>::infinity();
  const Status status = client->Push({}, {{"a", ids, rows}});
  EXPECT_EQ(status.code(), 11);
  EXPECT_EQ(status.message(), "the gradient of 'a' has NaN or Inf");
  EXPECT_EQ(client->pushes(), 1u);  // it counts, and the next one may follow
  EXPECT_TRUE(client->Push().ok());
  auto other = Client::Connect(servers.ForWorker());
  const Status refused =
      other->Declare({{.name = "w", .shape = {3}}}, {Zeros("a", 4)});
  EXPECT_EQ(refused.code(), 6);
  EXPECT_NE(refused.message().find("rows of table 'a' have 2 floats on the "
                                   "server, 4 here"),
            std::string::npos)
      << refused.message();
  auto dense = Client::Connect(servers.ForWorker(1, 2));
  EXPECT_EQ(dense->Declare({{.name = "w", .shape = {3}}}).code(), 6);
}

TEST(SdkTablesTest, WithoutTablesRowsAreRefused) {
  Servers servers;
  auto client = Declared(servers.ForWorker(), {});
  const Ids ids = {1};
  Floats row(1);
  EXPECT_EQ(client->Lookup({{"a", ids, row}}).code(), 3);
  EXPECT_EQ(client->Push({}, {{"a", ids, row}}).code(), 3);
  EXPECT_TRUE(client->Push().ok());
}

// Sync: the other worker never comes, so the rows of step 1 never do.
TEST(SdkTablesTest, AWaitForRowsEndsWhenTheCallerSaysSo) {
  Servers servers;
  bool wait = true;
  sdk::Options options = servers.ForWorker(0, 2);
  options.mode = Mode::kSync;
  options.keep_waiting = [&wait] { return wait; };
  auto client = Declared(options, {Zeros("a", 1)});
  ASSERT_TRUE(client->Push().ok());
  wait = false;
  Floats row(1, 5.0f);
  const Ids id = {1};
  EXPECT_EQ(client->Lookup({{"a", id, row}}).code(), 1);
  EXPECT_EQ(row[0], 5.0f);
  // Another one waits for the one that was given up; its memory may be gone.
  EXPECT_EQ(client->Lookup({{"a", id, row}}).code(), 1);
}

TEST(SdkTablesTest, ARestartedWorkerSendsNothingTwice) {
  Servers servers;
  sdk::Options options = servers.ForWorker();
  options.mode = Mode::kSync;
  const Ids ids = {1, 2, 3, 4, 5, 6, 7, 8};
  for (int life = 0; life < 3; ++life) {
    auto client = Declared(options, {Zeros("a", 1)});
    EXPECT_EQ(client->pushes(), static_cast<uint64_t>(2 * life));
    ASSERT_TRUE(client->Pull().ok());
    for (int step = 0; step < 2; ++step) {
      EXPECT_EQ(Read(&*client, "a", 1, ids),
                Floats(8, -static_cast<float>(2 * life + step)));
      const Status status = client->PushPull({}, {{"a", ids, Floats(8, 1.0f)}});
      ASSERT_TRUE(status.ok()) << status.message();
    }
  }
}

}  // namespace
}  // namespace weir::sdk
