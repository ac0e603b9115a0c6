#include "client/cc/weir.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>

#include "tests/client/cc/sdk/servers.h"

namespace weir::sdk {
namespace {

std::vector<Tensor> Tensors() {
  std::vector<float> values(300);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i);
  }
  return {{.name = "a", .shape = {10, 30}, .values = values},
          {.name = "b", .shape = {77}}};
}

void Fill(std::span<float> gradient, float value) {
  std::fill(gradient.begin(), gradient.end(), value);
}

TEST(WeirSdkTest, DeclaresAssignsPullsAndPushes) {
  Servers servers;
  auto client = Client::Connect(servers.ForWorker());
  ASSERT_TRUE(client.ok()) << client.status().message();
  Status status = client->Declare(Tensors());
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_TRUE(client->Pull().ok());
  ASSERT_EQ(client->Values("a").size(), 300u);
  EXPECT_EQ(client->Values("a")[299], 299.0f);
  Fill(client->Gradient("a"), 1.0f);
  Fill(client->Gradient("b"), 2.0f);
  ASSERT_TRUE(client->Push({"a"}).ok());
  ASSERT_TRUE(client->Pull().ok());
  EXPECT_EQ(client->Values("a")[299], 298.0f);
  EXPECT_EQ(client->Values("b")[5], 0.0f);
  ASSERT_TRUE(client->PushPull().ok());
  EXPECT_EQ(client->Values("a")[299], 297.0f);
  EXPECT_EQ(client->Values("b")[5], -2.0f);
  EXPECT_EQ(client->pushes(), 2u);
}

TEST(WeirSdkTest, ALaterClientFindsTheValues) {
  Servers servers;
  {
    auto client = Client::Connect(servers.ForWorker());
    ASSERT_TRUE(client->Declare(Tensors()).ok());
    Fill(client->Gradient("b"), 3.0f);
    ASSERT_TRUE(client->Push({"b"}).ok());
  }
  auto client = Client::Connect(servers.ForWorker());
  const Status status = client->Declare(Tensors());
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(client->pushes(), 1u);
  Fill(client->Gradient("b"), 1.0f);
  ASSERT_TRUE(client->PushPull({"b"}).ok());
  EXPECT_EQ(client->Values("b")[76], -4.0f);
}

TEST(WeirSdkTest, EncodingsAreChosenByName) {
  Servers servers;
  sdk::Options options = servers.ForWorker();
  options.push_encoding = "int8";
  options.pull_encoding = "bf16";
  auto client = Client::Connect(options);
  ASSERT_TRUE(client.ok()) << client.status().message();
  ASSERT_TRUE(client->Declare(Tensors()).ok());
  Fill(client->Gradient("b"), 1.0f);
  client->Gradient("b")[0] = 0.003f;  // below half a step of 1 / 127
  ASSERT_TRUE(client->PushPull({"b"}).ok());
  EXPECT_EQ(client->Values("b")[1], -1.0f);
  EXPECT_EQ(client->Values("b")[0], 0.0f);
  EXPECT_EQ(client->Values("a")[299], 300.0f);  // 299 in eight bits
  Fill(client->Gradient("b"), 0.0f);
  ASSERT_TRUE(client->PushPull({"b"}).ok());
  EXPECT_NEAR(client->Values("b")[0], -0.003f, 1e-5f);
  for (const auto& [push, pull] :
       {std::pair("int4", "f32"), {"INT8", "f32"}, {"f32", "top_k"}}) {
    options.push_encoding = push;
    options.pull_encoding = pull;
    const auto refused = Client::Connect(options);
    ASSERT_FALSE(refused.ok()) << push;
    EXPECT_EQ(refused.status().code(), 3);
  }
}

// A model with batch norm: the count of batches lies behind the last weights.
TEST(WeirSdkTest, BuffersAreExactInEveryEncoding) {
  std::vector<float> values(40, 0.001f);
  values[0] = 0.3f;
  for (const char* const encoding : {"bf16", "f16", "int8"}) {
    Servers servers;
    sdk::Options options = servers.ForWorker();
    options.pull_encoding = encoding;
    auto client = Client::Connect(options);
    ASSERT_TRUE(client.ok()) << client.status().message();
    ASSERT_TRUE(client
                    ->Declare({{.name = "w", .shape = {40}, .values = values},
                               {.name = "batches", .buffer = true}})
                    .ok());
    client->Gradient("batches")[0] = 4097.0f;
    ASSERT_TRUE(client->PushPull({"batches"}).ok());
    EXPECT_EQ(client->Values("batches")[0], 4097.0f);
    EXPECT_EQ(client->Values("w")[39], 0.001f);
    ASSERT_TRUE(client->Pull().ok());
    EXPECT_EQ(client->Values("batches")[0], 4097.0f);
    EXPECT_NE(client->Values("w")[1], 0.001f);  // in the other shard's block
  }
}

TEST(WeirSdkTest, SyncAveragesTheWorkers) {
  Servers servers;
  std::vector<std::thread> threads;
  for (int w = 0; w < 2; ++w) {
    threads.emplace_back([&servers, w] {
      sdk::Options options = servers.ForWorker(w, 2);
      options.mode = Mode::kSync;
      auto client = Client::Connect(options);
      Status status = client->Declare(Tensors());
      ASSERT_TRUE(status.ok()) << status.message();
      ASSERT_TRUE(client->Pull().ok());
      for (int step = 1; step <= 5; ++step) {
        Fill(client->Gradient("a"), 0.0f);
        Fill(client->Gradient("b"), static_cast<float>(1 + 2 * w));
        ASSERT_TRUE(client->PushPull().ok());
        EXPECT_EQ(client->Values("b")[0], -2.0f * static_cast<float>(step));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(WeirSdkTest, OnlyAWorkerHasItsRankFromTheEnvironment) {
  const auto from = [](const std::string& task, sdk::Options* options) {
    const std::string config =
        R"({"cluster": {"ps": ["a:1"], "worker": ["b:1", "c:1"],)"
        R"( "chief": ["d:1"]}, "task": {"type": )" +
        task + "}}";
    ::setenv("TF_CONFIG", config.c_str(), 1);
    const Status status = options->FromEnv();
    ::unsetenv("TF_CONFIG");
    return status;
  };
  sdk::Options options;
  const Status status = from(R"("worker", "index": 1)", &options);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(options.rank, 1);
  EXPECT_EQ(options.worker_count, 2);
  for (const std::string role : {"ps", "chief", "evaluator"}) {
    const Status refused = from('"' + role + R"(", "index": 0)", &options);
    EXPECT_EQ(refused.code(), 3);
    EXPECT_NE(refused.message().find("this task is " + role + "/0"),
              std::string::npos)
        << refused.message();
  }
}

TEST(WeirSdkTest, ErrorsNameWhatIsWrong) {
  Servers servers;
  sdk::Options nobody = servers.ForWorker();
  nobody.ps.clear();
  EXPECT_EQ(Client::Connect(nobody).status().code(), 3);
  auto client = Client::Connect(servers.ForWorker());
  EXPECT_EQ(client->Pull().code(), 9);
  EXPECT_EQ(client->Declare({{.name = "x", .shape = {0}}}).code(), 3);
  ASSERT_TRUE(client->Declare(Tensors()).ok());
  EXPECT_EQ(client->Push({"c"}).message(), "no tensor is named 'c'");
  EXPECT_TRUE(client->Values("c").empty());
  auto other = Client::Connect(servers.ForWorker());
  const Status status = other->Declare({{.name = "a", .shape = {4}}});
  EXPECT_EQ(status.code(), 6);
  EXPECT_NE(status.message().find("'a' is [10, 30] on the server, [4] here"),
            std::string::npos)
      << status.message();
}

TEST(WeirSdkTest, WorkersOfAnotherModeOrOptimizerAreRefused) {
  Servers servers;
  auto client = Client::Connect(servers.ForWorker());
  ASSERT_TRUE(client->Declare(Tensors()).ok());
  sdk::Options sync = servers.ForWorker();
  sync.mode = Mode::kSync;
  sdk::Options adam = servers.ForWorker();
  adam.groups[0].kind = Optimizer::Kind::kAdam;
  for (const sdk::Options& options : {sync, adam}) {
    auto other = Client::Connect(options);
    EXPECT_EQ(other->Declare(Tensors()).code(), 6);
  }
  sdk::Options mixed = servers.ForWorker();
  mixed.groups = {Optimizer(), adam.groups[0]};
  EXPECT_EQ(Client::Connect(mixed).status().code(), 3);
}

TEST(WeirSdkTest, PushesTensorByTensor) {
  Servers servers;
  auto client = Client::Connect(servers.ForWorker());
  ASSERT_TRUE(client->Declare(Tensors()).ok());
  Fill(client->Gradient("a"), 1.0f);
  Fill(client->Gradient("b"), 1.0f);
  EXPECT_EQ(client->Ready(0).code(), 9);
  ASSERT_TRUE(client->BeginPush({}).ok());
  EXPECT_EQ(client->BeginPush({}).code(), 9);
  EXPECT_EQ(client->Wait().code(), 9);
  EXPECT_EQ(client->Ready(2).code(), 3);
  ASSERT_TRUE(client->Ready(1).ok());
  ASSERT_TRUE(client->EndPush().ok());
  ASSERT_TRUE(client->Wait().ok());
  EXPECT_EQ(client->Values("a")[299], 299.0f);  // left alone
  EXPECT_EQ(client->Values("b")[0], -1.0f);
  ASSERT_TRUE(client->BeginPush({.weight = 0.0f}).ok());
  ASSERT_TRUE(client->Ready(1).ok());
  ASSERT_TRUE(client->EndPush().ok());
  ASSERT_TRUE(client->Wait().ok());
  EXPECT_EQ(client->Values("b")[0], -1.0f);
  EXPECT_EQ(client->pushes(), 2u);
}

TEST(WeirSdkTest, SaysWhichValuesAreHere) {
  Servers servers;
  auto client = Client::Connect(servers.ForWorker());
  EXPECT_FALSE(client->HasValues(0));
  ASSERT_TRUE(client->Declare(Tensors()).ok());
  EXPECT_FALSE(client->HasValues(0));
  for (int push = 1; push < 4; ++push) {
    Fill(client->Gradient("a"), 1.0f);
    Fill(client->Gradient("b"), 1.0f);
    ASSERT_TRUE(client->BeginPush({}).ok());
    EXPECT_FALSE(client->HasValues(0));  // it asks with its gradients
    EXPECT_FALSE(client->HasValues(-1));
    EXPECT_FALSE(client->HasValues(2));
    for (const int tensor : {1, 0}) {
      ASSERT_TRUE(client->Ready(tensor).ok());
    }
    ASSERT_TRUE(client->EndPush().ok());
    while (!client->HasValues(1)) {
      std::this_thread::yield();
    }
    EXPECT_EQ(client->Values("b")[0], static_cast<float>(-push));
    ASSERT_TRUE(client->Wait().ok());
    EXPECT_FALSE(client->HasValues(1));
  }
}

TEST(WeirSdkTest, GroupsHaveTheirOwnSettings) {
  Servers servers;
  sdk::Options options = servers.ForWorker();
  options.groups.resize(2);
  options.groups[1].learning_rate = 0.5;
  auto client = Client::Connect(options);
  std::vector<Tensor> tensors = Tensors();
  tensors[1].group = 1;
  tensors.push_back({.name = "seen", .shape = {}, .buffer = true});
  ASSERT_TRUE(client->Declare(tensors).ok());
  Fill(client->Gradient("a"), 1.0f);
  Fill(client->Gradient("b"), 1.0f);
  client->Gradient("seen")[0] = 0.1f;
  ASSERT_TRUE(client->PushPull().ok());
  EXPECT_EQ(client->Values("a")[0], -1.0f);
  EXPECT_EQ(client->Values("b")[0], -0.5f);
  EXPECT_EQ(client->Values("seen")[0], 0.1f);
  client->Gradient("seen")[0] = 0.7f;
  EXPECT_EQ(client->BeginPush({.settings = {{.group = 2}}}).code(), 3);
  ASSERT_TRUE(
      client->BeginPush({.settings = {{.group = 1, .learning_rate = 0.25}}})
          .ok());
  for (int tensor = 0; tensor < 3; ++tensor) {
    ASSERT_TRUE(client->Ready(tensor).ok());
  }
  ASSERT_TRUE(client->EndPush().ok());
  ASSERT_TRUE(client->Wait().ok());
  EXPECT_EQ(client->Values("a")[0], -2.0f);
  EXPECT_EQ(client->Values("b")[0], -0.75f);
  EXPECT_EQ(client->Values("seen")[0], 0.7f);
}

// What a ps would refuse leaves no trace: the next push is as if it had not
// been.
TEST(WeirSdkTest, NumbersThatNoOptimizerTakesAreRefusedBeforeTheyLeave) {
  Servers servers;
  sdk::Options options = servers.ForWorker();
  options.groups[0].momentum = 0.5;
  auto first = Client::Connect(options);
  ASSERT_TRUE(first->Declare(Tensors()).ok());
  // The servers keep the momentum that the first client declared.
  options.groups[0].momentum = 0.0;
  auto client = Client::Connect(options);
  ASSERT_TRUE(client->Declare(Tensors()).ok());
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const PushOptions& bad : std::vector<PushOptions>{
           {.weight = -1.0f},
           {.weight = std::numeric_limits<float>::infinity()},
           {.settings = {{.group = -1}}},
           {.settings = {{.learning_rate = nan}}},
           {.settings = {{.learning_rate = -0.1}}},
           {.settings = {{.weight_decay = -0.1}}},
           {.settings = {{.momentum = -0.1}}}}) {
    const Status status = client->BeginPush(bad);
    EXPECT_EQ(status.code(), 3) << status.message();
  }
  EXPECT_EQ(client->pushes(), 0u);
  Fill(client->Gradient("b"), 1.0f);
  for (int step = 0; step < 2; ++step) {
    ASSERT_TRUE(client->BeginPush({.settings = {{.momentum = 0.25}}}).ok());
    ASSERT_TRUE(client->Ready(1).ok());
    ASSERT_TRUE(client->EndPush().ok());
    const Status status = client->Wait();
    ASSERT_TRUE(status.ok()) << status.message();
  }
  EXPECT_EQ(client->Values("b")[0], -2.25f);
  EXPECT_EQ(client->pushes(), 2u);
}

// Sync: the servers would take it for a repeated push, and it would be lost.
TEST(WeirSdkTest, ASyncPushIsOfTheValuesOfItsStep) {
  Servers servers;
  sdk::Options options = servers.ForWorker();
  options.mode = Mode::kSync;
  auto client = Client::Connect(options);
  ASSERT_TRUE(client->Declare(Tensors()).ok());
  ASSERT_TRUE(client->Push().ok());  // of the initial values
  const Status status = client->Push();
  EXPECT_EQ(status.code(), 9) << status.message();
  EXPECT_NE(status.message().find("call Pull before it"), std::string::npos);
  ASSERT_TRUE(client->Pull().ok());
  ASSERT_TRUE(client->PushPull().ok());
  ASSERT_TRUE(client->PushPull().ok());
  EXPECT_EQ(client->pushes(), 3u);
}

// Sync: the other worker never comes.
TEST(WeirSdkTest, AWaitEndsWhenTheCallerSaysSo) {
  Servers servers;
  int asked = 0;
  sdk::Options options = servers.ForWorker(0, 2);
  options.mode = Mode::kSync;
  options.keep_waiting = [&asked] { return ++asked < 3; };
  auto client = Client::Connect(options);
  ASSERT_TRUE(client->Declare(Tensors()).ok());
  asked = 0;
  const Status status = client->PushPull();
  EXPECT_EQ(status.code(), 1) << status.message();
  EXPECT_EQ(asked, 3);
  EXPECT_EQ(client->Wait().code(), 1);  // it may wait again
}

TEST(WeirSdkTest, ServersTellWhatTheyHold) {
  Servers servers;
  auto client = Client::Connect(servers.ForWorker());
  auto before = client->Servers();
  ASSERT_TRUE(before.ok()) << before.status().message();
  ASSERT_EQ((*before).size(), 2u);
  EXPECT_FALSE((*before)[0].ready);
  ASSERT_TRUE(client->Declare(Tensors()).ok());
  ASSERT_TRUE(client->Push().ok());
  auto after = client->Servers();
  ASSERT_TRUE(after.ok());
  for (const ServerStatus& server : *after) {
    EXPECT_TRUE(server.ready);
    EXPECT_EQ(server.job, "sdk");
    EXPECT_EQ(server.version_min, 1u);
    EXPECT_EQ(server.version_max, 1u);
    EXPECT_GT(server.blocks_accepted, 0u);
    EXPECT_GT(server.bytes_resident, 0u);
  }
}

TEST(WeirSdkTest, AFinishedWorkerPushesNoMore) {
  Servers servers;
  auto client = Client::Connect(servers.ForWorker());
  ASSERT_TRUE(client->Declare(Tensors()).ok());
  ASSERT_TRUE(client->Push().ok());
  ASSERT_TRUE(client->Finish().ok());
  EXPECT_EQ(client->Push().code(), 9);
  auto again = Client::Connect(servers.ForWorker());
  ASSERT_TRUE(again->Declare(Tensors()).ok());
  EXPECT_EQ(again->pushes(), 1u);
}

TEST(WeirSdkTest, ABadGradientIsRefusedByName) {
  Servers servers;
  auto client = Client::Connect(servers.ForWorker());
  ASSERT_TRUE(client->Declare(Tensors()).ok());
  Fill(client->Gradient("a"), 0.0f);
  Fill(client->Gradient("b"), 0.0f);
  client->Gradient("b")[3] = std::numeric_limits<float>::quiet_NaN();
  const Status status = client->Push();
  EXPECT_EQ(status.code(), 11);
  EXPECT_NE(status.message().find("'b'"), std::string::npos);
}

TEST(WeirSdkTest, ANewerClientOfTheSameIndexReplacesTheOlder) {
  Servers servers;
  auto older = Client::Connect(servers.ForWorker());
  ASSERT_TRUE(older->Declare(Tensors()).ok());
  auto newer = Client::Connect(servers.ForWorker());
  ASSERT_TRUE(newer->Declare(Tensors()).ok());
  EXPECT_EQ(older->Push({"a"}).code(), 7);
  EXPECT_TRUE(newer->Push({"a"}).ok());
}

// Worker 0 dies when it has opened the first ps and not the second.
TEST(WeirSdkTest, AWorkerThatDiedWhileItOpenedThePsIsContinued) {
  Servers servers;
  {
    auto client = Client::Connect(servers.ForWorker());
    ASSERT_TRUE(client.ok()) << client.status().message();
    ASSERT_TRUE(client->Declare(Tensors()).ok());
  }
  // The second ps as it was before its slot was set: declared and filled.
  const PsStatus status = servers.first.store->GetStatus();
  DeclareRequest again;
  *again.mutable_declaration() = status.declaration();
  again.set_shard(1);
  LoopbackPs second(Servers::Empty());
  ASSERT_TRUE(second.store->Declare(again).ok());
  sdk::Options later = servers.ForWorker();
  later.ps[1] = second.address();
  auto client = Client::Connect(later);
  ASSERT_TRUE(client.ok()) << client.status().message();
  const Status declared = client->Declare(Tensors());
  ASSERT_TRUE(declared.ok()) << declared.message();
  ASSERT_TRUE(client->Pull().ok());
  EXPECT_EQ(second.store->Hello().state(), ACTIVE);
}

TEST(WeirSdkTest, ShutsTheServersDown) {
  Servers servers;
  auto client = Client::Connect(servers.ForWorker());
  ASSERT_TRUE(client->Declare(Tensors()).ok());
  EXPECT_TRUE(client->ShutdownServers().ok());
  // They say so once the answer is out.
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while ((!servers.first.was_shut_down() || !servers.second.was_shut_down()) &&
         std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(servers.first.was_shut_down());
  EXPECT_TRUE(servers.second.was_shut_down());
}

}  // namespace
}  // namespace weir::sdk
