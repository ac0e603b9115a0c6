// The ledger: every element equals the number of distinct items, whatever
// broke.
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <random>

#include "client/cc/grpc_transport.h"
#include "common/layout.h"
#include "proto/layout_io.h"
#include "tests/integration/harness.h"
#include "tests/support/chaos_proxy.h"

namespace weir {
namespace {

constexpr int kClients = 4;
constexpr uint64_t kItems = 2000;
constexpr int64_t kElements = 20000;
constexpr int64_t kBlockElements = 1024;
constexpr uint64_t kHistory = 77;
constexpr ShardLink::Timeout kTimeout(5000);

// Two real ps behind resettable connections, declared for plain SGD.
class Ledger {
 public:
  Ledger(const std::string& dir, const std::string& transport, bool lock_free)
      : dir_(dir),
        client_transport_(transport),
        transport_(MakeGrpcTransport()) {
    nlohmann::json cluster;
    cluster["worker"] = {FreeAddress()};
    for (int shard = 0; shard < 2; ++shard) {
      cluster["ps"].push_back(FreeAddress());
    }
    for (int shard = 0; shard < 2; ++shard) {
      const std::string address = cluster["ps"][shard];
      ps_.emplace_back(std::vector<std::string>{Binary("server/ps/weir_ps")},
                       std::vector<std::string>{TfConfig(cluster, "ps", shard)},
                       dir + "/ps-" + std::to_string(shard) + ".log");
      proxies_.push_back(std::make_unique<ChaosProxy>(address));
      links_.push_back(transport_->Connect(address));
    }
    Declare(lock_free);
  }

  void Grant(int slot) {
    ++generations_[slot];
    SetSlotsRequest request;
    *request.mutable_sender() = sender_;
    for (int s = 0; s < kClients; ++s) {
      auto* entry = request.add_slot();
      entry->set_slot(s);
      entry->set_generation(generations_[s]);
    }
    for (const auto& link : links_) {
      EXPECT_TRUE(link->SetSlots(request, kTimeout).ok());
    }
  }

  std::unique_ptr<Process> StartClient(int slot) {
    Grant(slot);
    std::vector<std::string> argv = {Binary("tests/integration/ledger_client"),
                                     client_transport_,
                                     sender_.job(),
                                     std::to_string(kHistory),
                                     std::to_string(slot),
                                     std::to_string(generations_[slot]),
                                     std::to_string(kItems),
                                     std::to_string(kElements),
                                     std::to_string(kBlockElements)};
    for (const auto& proxy : proxies_) {
      argv.push_back(proxy->address());
    }
    return std::make_unique<Process>(
        argv, std::vector<std::string>{},
        dir_ + "/client-" + std::to_string(slot) + ".log");
  }

  int Reset(int proxy) { return proxies_[proxy]->ResetAll(); }

  // Every element of every block, in no order; padding left out.
  std::vector<float> Values() {
    std::vector<float> values(layout_->flat_elements());
    for (int shard = 0; shard < 2; ++shard) {
      PullRequest request;
      *request.mutable_sender() = sender_;
      request.mutable_want()->set_latest(true);
      const absl::Status status = links_[shard]->Pull(
          request, kTimeout,
          [&](const ValueChunk& chunk, const Payload& payload) {
            const FlatRange range =
                layout_->block({shard, static_cast<int>(chunk.block())});
            payload.CopyTo(
                reinterpret_cast<char*>(values.data() + range.begin));
            return absl::OkStatus();
          });
      EXPECT_TRUE(status.ok()) << status;
    }
    values.resize(kElements);
    return values;
  }

 private:
  void Declare(bool lock_free) {
    DeclareRequest request;
    Declaration* declaration = request.mutable_declaration();
    declaration->set_job("ledger");
    declaration->set_history(kHistory);
    declaration->set_shard_count(2);
    declaration->set_block_elements(kBlockElements);
    VariableSpec variable;
    variable.name = "w";
    variable.shape = {kElements};
    *declaration->add_variable() = VariableToProto(variable);
    Group* group = declaration->add_group();
    group->mutable_optimizer()->mutable_sgd();
    group->mutable_schedule()->set_learning_rate(1.0);
    declaration->mutable_update()->mutable_async()->set_lock_free(lock_free);
    declaration->set_slot_count(kClients);
    declaration->set_out_of_order_bytes(1 << 20);
    layout_ =
        std::make_unique<Layout>(LayoutFromDeclaration(*declaration).value());
    sender_.set_job("ledger");
    sender_.set_history(kHistory);
    sender_.set_layout_fingerprint(layout_->fingerprint());
    for (int shard = 0; shard < 2; ++shard) {
      request.set_shard(shard);
      absl::Status status;
      EXPECT_TRUE(WaitUntil(20, [&] {
        status = links_[shard]->Declare(request, kTimeout).status();
        return status.ok();
      })) << status;
    }
  }

  const std::string dir_;
  const std::string client_transport_;
  std::unique_ptr<Transport> transport_;
  std::vector<Process> ps_;
  std::vector<std::unique_ptr<ChaosProxy>> proxies_;
  std::vector<std::unique_ptr<ShardLink>> links_;
  std::unique_ptr<Layout> layout_;
  Sender sender_;
  uint32_t generations_[kClients] = {};
};

// The parameter: how clients reach the ps. Shared memory has no connection that
// could be reset.
class LedgerTest : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Transports, LedgerTest, testing::Values("grpc", "shm"),
                         [](const auto& info) { return info.param; });

TEST_P(LedgerTest, IsExactThroughResetsAndKills) {
  const bool grpc = GetParam() == std::string("grpc");
  Ledger ledger(FreshDir("ledger"), GetParam(), /*lock_free=*/false);
  std::vector<std::unique_ptr<Process>> clients;
  for (int slot = 0; slot < kClients; ++slot) {
    clients.push_back(ledger.StartClient(slot));
  }
  std::mt19937 random(6);
  int resets = 0, kills = 0;
  const auto all_done = [&] {
    bool done = true;
    for (int slot = 0; slot < kClients; ++slot) {
      done = !clients[slot]->running() && clients[slot]->Wait(0) == 0 && done;
    }
    return done;
  };
  const bool done = WaitUntil(400, [&] {
    const int fault = static_cast<int>(random() % 40);
    if (fault < 2 && grpc) {
      resets += ledger.Reset(fault);
    } else if (fault < 6) {
      const int slot = static_cast<int>(random() % kClients);
      if (clients[slot]->running() && kills < 60) {
        clients[slot]->Signal(SIGKILL);
        const int code = clients[slot]->Wait(5);
        EXPECT_TRUE(code == 137 || code == 0) << code;  // it was done already
        kills += code == 137 ? 1 : 0;
      }
    }
    for (int slot = 0; slot < kClients; ++slot) {
      if (!clients[slot]->running() && clients[slot]->Wait(0) != 0) {
        EXPECT_EQ(clients[slot]->Wait(0), 137) << clients[slot]->Log();
        clients[slot] = ledger.StartClient(slot);
      }
    }
    return all_done();
  });
  ASSERT_TRUE(done);
  EXPECT_GE(resets, grpc ? 20 : 0);
  EXPECT_GE(kills, 5);
  for (const float value : ledger.Values()) {
    ASSERT_EQ(value, static_cast<float>(kClients * kItems));
  }
  RecordProperty("resets", resets);
  RecordProperty("kills", kills);
}

TEST_P(LedgerTest, LockFreeNeverAddsMore) {
  Ledger ledger(FreshDir("ledger_lock_free"), GetParam(), /*lock_free=*/true);
  std::vector<std::unique_ptr<Process>> clients;
  for (int slot = 0; slot < kClients; ++slot) {
    clients.push_back(ledger.StartClient(slot));
  }
  for (const auto& client : clients) {
    ASSERT_EQ(client->Wait(300), 0) << client->Log();
  }
  double lost = 0;
  for (const float value : ledger.Values()) {
    ASSERT_LE(value, static_cast<float>(kClients * kItems));
    lost += static_cast<double>(kClients * kItems) - value;
  }
  const double fraction = lost / (double{kElements} * kClients * kItems);
  EXPECT_LT(fraction, 0.5);
  std::printf("lock_free, %s: lost %.6f of the additions\n", GetParam(),
              fraction);
}

}  // namespace
}  // namespace weir
