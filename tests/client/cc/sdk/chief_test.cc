// Programs of the SDK with a chief: real servers, in this process.
#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/cc/transport/grpc_transport.h"
#include "client/cc/weir.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/chief/chief_server.h"
#include "tests/support/loopback_ps.h"

namespace weir {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr int kCancelled = 1;
constexpr int kAborted = 10;
constexpr int kInvalidArgument = 3;
constexpr int kAlreadyExists = 6;

// Two ps and a chief, for `workers` programs.
class Cluster {
 public:
  Cluster(const std::string& workdir, int workers, bool resume = false,
          uint64_t every_steps = 0)
      : workers_(workers),
        first_(Empty(workdir)),
        second_(Empty(workdir)),
        transport_(MakeGrpcTransport()) {
    options_.runner.sdk_job = true;
    options_.runner.spec.mutable_checkpoint()->set_every_steps(every_steps);
    options_.runner.spec.mutable_checkpoint()->set_keep(5);
    options_.runner.ps_addresses = {first_.address(), second_.address()};
    options_.runner.worker_count = workers;
    options_.runner.workdir = workdir;
    // Clients here outlive their chief, which waits for each that stays.
    options_.runner.end_wait = 1;
    options_.runner.transport = transport_.get();
    StartChief(resume);
  }

  void StartChief(bool resume) {
    options_.runner.resume = resume;
    auto chief = ChiefServer::Start(options_);
    EXPECT_TRUE(chief.ok()) << chief.status();
    chief_ = *std::move(chief);
  }
  // Leaves the ps as they are.
  void EndChief() { chief_.reset(); }

  sdk::Options ForWorker(int index, sdk::Mode mode) const {
    sdk::Options options;
    options.ps = {first_.address(), second_.address()};
    options.chief = "127.0.0.1:" + std::to_string(chief_->port());
    options.rank = index;
    options.worker_count = workers_;
    options.block_elements = 16;
    options.mode = mode;
    options.groups[0].learning_rate = 1.0;
    return options;
  }
  ChiefServer& chief() { return *chief_; }

 private:
  static LoopbackPs::Options Empty(const std::string& workdir) {
    LoopbackPs::Options options;
    options.declare = false;
    options.checkpoint_root = workdir + "/checkpoints";
    return options;
  }

  const int workers_;
  LoopbackPs first_;
  LoopbackPs second_;
  std::unique_ptr<Transport> transport_;
  ChiefServer::Options options_;
  std::unique_ptr<ChiefServer> chief_;
};

std::string FreshDir(const std::string& name) {
  const std::string path = testing::TempDir() + "/" + name;
  std::filesystem::remove_all(path);
  return path;
}

std::vector<sdk::Tensor> Tensors() {
  return {
      {.name = "w", .shape = {40}, .values = std::vector<float>(40, 100.0)}};
}

sdk::Client Join(const sdk::Options& options) {
  auto client = sdk::Client::Connect(options);
  EXPECT_TRUE(client.ok()) << client.status().message();
  const sdk::Status status = client->Declare(Tensors());
  EXPECT_TRUE(status.ok()) << status.message();
  return std::move(*client);
}

// Each push takes 1 from every element of "w".
sdk::Status Push(sdk::Client* client) {
  for (float& gradient : client->Gradient("w")) {
    gradient = 1.0f;
  }
  return client->PushPull();
}

TEST(SdkChiefTest, FinishedWorkersEndTheJobWithACheckpoint) {
  const std::string workdir = FreshDir("sdk_chief_finish");
  Cluster cluster(workdir, 2);
  std::vector<std::thread> workers;
  for (const int w : {1, 0}) {
    workers.emplace_back([&cluster, &workdir, w] {
      sdk::Client client = Join(cluster.ForWorker(w, sdk::Mode::kAsync));
      EXPECT_TRUE(client.Pull().ok());
      for (int i = 0; i < 5 + w; ++i) {
        EXPECT_TRUE(Push(&client).ok());
      }
      EXPECT_EQ(client.pushes(), 5u + w);
      EXPECT_TRUE(client.Finish().ok());
      // What was pushed is safe.
      EXPECT_TRUE(std::filesystem::exists(workdir + "/checkpoints/ckpt-11"));
      EXPECT_TRUE(std::filesystem::exists(workdir + "/DONE"));
    });
  }
  for (std::thread& worker : workers) {
    worker.join();
  }
  EXPECT_TRUE(cluster.chief().Wait().ok());
}

// The end comes between two waits of a worker that has finished.
TEST(SdkChiefTest, AWorkerThatLooksUpAsTheJobEndsHasFinished) {
  Cluster cluster(FreshDir("sdk_chief_looks_up"), 2);
  std::promise<void> looks_up;
  std::promise<void> over;
  bool finishes = false;
  sdk::Options options = cluster.ForWorker(0, sdk::Mode::kAsync);
  options.keep_waiting = [&] {
    if (finishes) {
      finishes = false;
      looks_up.set_value();
      over.get_future().wait();
    }
    return true;
  };
  sdk::Client client = Join(options);
  sdk::Client other = Join(cluster.ForWorker(1, sdk::Mode::kAsync));
  std::thread end([&] {
    looks_up.get_future().wait();
    EXPECT_TRUE(other.Finish().ok());
    EXPECT_TRUE(cluster.chief().Wait().ok());
    over.set_value();
  });
  finishes = true;
  const sdk::Status status = client.Finish();
  EXPECT_TRUE(status.ok()) << status.message();
  end.join();
}

TEST(SdkChiefTest, AWorkerThatHasFinishedHearsOfAnEndBeforeTheLastCheckpoint) {
  Cluster cluster(FreshDir("sdk_chief_finish_early"), 2);
  sdk::Client other = Join(cluster.ForWorker(0, sdk::Mode::kAsync));
  sdk::Client client = Join(cluster.ForWorker(1, sdk::Mode::kAsync));
  ASSERT_TRUE(Push(&client).ok());
  std::thread stop([&cluster] {
    // Finish waits by now, or finds the job stopped: it must not be OK.
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    cluster.chief().RequestStop("SIGTERM");
  });
  const sdk::Status status = client.Finish();
  stop.join();
  EXPECT_EQ(status.code(), kAborted) << status.message();
  EXPECT_THAT(status.message(), HasSubstr("SIGTERM"));
}

// The chief died right after the last checkpoint, and is started again; nobody
// else comes any more.
TEST(SdkChiefTest, AChiefFindsThatAllProgramsHaveFinished) {
  const std::string workdir = FreshDir("sdk_chief_adopts");
  Cluster cluster(workdir, 1);
  int asked = 0;
  sdk::Options options = cluster.ForWorker(0, sdk::Mode::kAsync);
  options.keep_waiting = [&asked] { return ++asked < 10; };
  sdk::Client client = Join(options);
  ASSERT_TRUE(Push(&client).ok());
  cluster.EndChief();
  asked = 0;
  EXPECT_EQ(client.Finish().code(), kCancelled);  // its slot is retired
  client.Close();
  cluster.StartChief(/*resume=*/true);
  EXPECT_TRUE(cluster.chief().Wait().ok());
  EXPECT_TRUE(std::filesystem::exists(workdir + "/checkpoints/ckpt-1"));
}

TEST(SdkChiefTest, AFinishThatWasCancelledGoesOn) {
  Cluster cluster(FreshDir("sdk_chief_cancelled"), 2);
  bool keep_waiting = true;
  sdk::Options options = cluster.ForWorker(0, sdk::Mode::kAsync);
  options.keep_waiting = [&keep_waiting] { return keep_waiting; };
  sdk::Client client = Join(options);
  sdk::Client other = Join(cluster.ForWorker(1, sdk::Mode::kAsync));
  keep_waiting = false;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(client.Finish().code(), kCancelled);
  }
  keep_waiting = true;
  std::thread end([&other] { EXPECT_TRUE(other.Finish().ok()); });
  const sdk::Status status = client.Finish();
  EXPECT_TRUE(status.ok()) << status.message();
  end.join();
  EXPECT_TRUE(cluster.chief().Wait().ok());
}

TEST(SdkChiefTest, AStoppedJobContinuesFromItsCheckpoint) {
  for (const auto mode : {sdk::Mode::kAsync, sdk::Mode::kSync}) {
    const std::string workdir = FreshDir("sdk_chief_resume");
    uint64_t pushed = 0;
    {
      Cluster cluster(workdir, 1);
      sdk::Client client = Join(cluster.ForWorker(0, mode));
      ASSERT_TRUE(client.Pull().ok());
      EXPECT_THAT(client.Values("w"), Each(100.0f));
      for (int i = 0; i < 3; ++i) {
        ASSERT_TRUE(Push(&client).ok());
      }
      cluster.chief().RequestStop("SIGTERM");
      sdk::Status status;
      while (status.ok()) {
        pushed = client.pushes();
        status = Push(&client);
      }
      EXPECT_EQ(status.code(), kAborted) << status.message();
      EXPECT_THAT(status.message(), HasSubstr("SIGTERM: stopped after ckpt-"));
      EXPECT_EQ(cluster.chief().Wait().code(), absl::StatusCode::kCancelled);
    }
    Cluster cluster(workdir, 1, /*resume=*/true);
    sdk::Client client = Join(cluster.ForWorker(0, mode));
    ASSERT_TRUE(client.Pull().ok());
    // Nobody pushes once the last checkpoint is asked for, but in sync.
    const uint64_t kept = client.pushes();
    EXPECT_LE(kept, pushed);
    EXPECT_GE(kept, 3u);
    if (mode == sdk::Mode::kAsync) {
      EXPECT_EQ(kept, pushed);
    }
    EXPECT_THAT(client.Values("w"), Each(100.0f - static_cast<float>(kept)));
    ASSERT_TRUE(Push(&client).ok());
    EXPECT_EQ(client.pushes(), kept + 1);
    EXPECT_THAT(client.Values("w"), Each(99.0f - static_cast<float>(kept)));
    EXPECT_TRUE(client.Finish().ok());
    EXPECT_TRUE(cluster.chief().Wait().ok());
  }
}

TEST(SdkChiefTest, CheckpointsFallDueWhileWorkersPush) {
  const std::string workdir = FreshDir("sdk_chief_due");
  Cluster cluster(workdir, 1, /*resume=*/false, /*every_steps=*/10);
  sdk::Client client = Join(cluster.ForWorker(0, sdk::Mode::kAsync));
  const auto any = [&] {
    const std::string folder = workdir + "/checkpoints";
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (std::filesystem::exists(entry.path() / "manifest.json")) {
        return true;
      }
    }
    return false;
  };
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!any() && std::chrono::steady_clock::now() < end) {
    ASSERT_TRUE(Push(&client).ok());
  }
  EXPECT_TRUE(any());
  ASSERT_TRUE(client.Finish().ok());
  EXPECT_TRUE(cluster.chief().Wait().ok());
}

TEST(SdkChiefTest, RefusesAnotherModelByName) {
  Cluster cluster(FreshDir("sdk_chief_other"), 2);
  sdk::Client first = Join(cluster.ForWorker(0, sdk::Mode::kAsync));
  auto second = sdk::Client::Connect(cluster.ForWorker(1, sdk::Mode::kAsync));
  ASSERT_TRUE(second.ok());
  const sdk::Status status = second->Declare({{.name = "w", .shape = {41}}});
  EXPECT_EQ(status.code(), kAlreadyExists);
  EXPECT_THAT(status.message(),
              HasSubstr("'w' is [40] on the server, [41] here"));
  EXPECT_TRUE(Push(&first).ok());
  EXPECT_FALSE(first.ShutdownServers().ok());
}

TEST(SdkChiefTest, TablesComeWithTheDeclaration) {
  const auto table = [](int dim) {
    return sdk::Table{.name = "user",
                      .dim = dim,
                      .optimizer = {.learning_rate = 1.0},
                      .init = sdk::Table::Init::kConstant,
                      .init_scale = 0.0f};
  };
  Cluster cluster(FreshDir("sdk_chief_tables"), 2);
  auto first = sdk::Client::Connect(cluster.ForWorker(0, sdk::Mode::kSync));
  sdk::Status status = first->Declare(Tensors(), {table(1)});
  ASSERT_TRUE(status.ok()) << status.message();
  auto other = sdk::Client::Connect(cluster.ForWorker(1, sdk::Mode::kSync));
  status = other->Declare(Tensors(), {table(2)});
  EXPECT_EQ(status.code(), kAlreadyExists);
  EXPECT_THAT(status.message(),
              HasSubstr("rows of table 'user' have 1 floats on the server, 2"));
  auto second = sdk::Client::Connect(cluster.ForWorker(1, sdk::Mode::kSync));
  status = second->Declare(Tensors(), {table(1)});
  ASSERT_TRUE(status.ok()) << status.message();
  const std::vector<uint64_t> id = {7};
  const std::vector<float> one = {1.0f};
  ASSERT_TRUE(first->StartPushPull({}, {{"user", id, one}}).ok());
  ASSERT_TRUE(second->PushPull({}, {{"user", id, one}}).ok());
  ASSERT_TRUE(first->Wait().ok());
  std::vector<float> row(1);
  ASSERT_TRUE(first->Lookup({{"user", id, row}}).ok());
  EXPECT_EQ(row[0], -1.0f);
  // The second one never brings step 1, so the rows of step 2 never come; the
  // end of the job ends the wait.
  ASSERT_TRUE(first->Push({}, {{"user", id, one}}).ok());
  ASSERT_TRUE(first->StartLookup({{"user", id, row}}).ok());
  cluster.chief().RequestStop("SIGTERM");
  status = first->WaitLookup();
  EXPECT_EQ(status.code(), kAborted) << status.message();
  EXPECT_EQ(row[0], -1.0f);
}

TEST(SdkChiefTest, AChiefThatIsNotThereIsNamed) {
  LoopbackPs::Options empty;
  empty.declare = false;
  LoopbackPs ps(empty);
  sdk::Options options;
  options.ps = {ps.address()};
  options.chief = "127.0.0.1:1";
  options.start_wait_seconds = 0.5;
  auto client = sdk::Client::Connect(options);
  ASSERT_TRUE(client.ok());
  const sdk::Status status = client->Declare(Tensors());
  EXPECT_EQ(status.code(), kAborted);
  EXPECT_THAT(status.message(), HasSubstr("chief (127.0.0.1:1) unreachable"));

  int asked = 0;
  options.start_wait_seconds = 60.0;
  options.keep_waiting = [&asked] { return ++asked < 3; };
  auto waiting = sdk::Client::Connect(options);
  ASSERT_TRUE(waiting.ok());
  EXPECT_EQ(waiting->Declare(Tensors()).code(), 1);
}

TEST(SdkChiefTest, WhatProgramsReportIsInTrainJsonl) {
  const std::string workdir = FreshDir("sdk_chief_report");
  Cluster cluster(workdir, 2);
  std::vector<std::thread> workers;
  for (const int w : {0, 1}) {
    workers.emplace_back([&cluster, w] {
      sdk::Client client = Join(cluster.ForWorker(w, sdk::Mode::kSync));
      for (int i = 0; i < 5; ++i) {
        EXPECT_TRUE(Push(&client).ok());
        // A fast program reports far more often than heartbeats leave.
        for (int time = 0; time < 100; ++time) {
          const sdk::Status status =
              client.Report({.values = {{"loss", w + 1.0}, {"rank", w}},
                             .examples = w == 0 ? 1u : 3u});
          EXPECT_TRUE(status.ok()) << status.message();
        }
      }
      EXPECT_EQ(client.Report({.values = {{"a b", 1.0}}}).code(),
                kInvalidArgument);
      EXPECT_TRUE(client.Finish().ok());
      EXPECT_FALSE(client.Report({.values = {{"loss", 1.0}}}).ok());
    });
  }
  for (std::thread& worker : workers) {
    worker.join();
  }
  EXPECT_TRUE(cluster.chief().Wait().ok());
  std::ifstream file(workdir + "/train.jsonl");
  double loss = 0.0;
  double ranks = 0.0;
  double examples = 0.0;
  nlohmann::json last;
  for (std::string line; std::getline(file, line);) {
    last = nlohmann::json::parse(line);
    const double more = last["examples"].get<double>() - examples;
    loss += last["loss"].get<double>() * more;
    ranks += last["rank"].get<double>() * more;
    examples += more;
  }
  // However many lines there are: nothing is lost or counted twice.
  EXPECT_EQ(last["step"], 5);
  EXPECT_EQ(examples, 5 * 100 * (1 + 3));
  EXPECT_NEAR(loss, 5 * 100 * (1 * 1.0 + 3 * 2.0), 1e-3);
  EXPECT_NEAR(ranks, 5 * 100 * 3 * 1.0, 1e-3);
}

}  // namespace
}  // namespace weir
