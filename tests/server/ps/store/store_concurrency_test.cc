// The store under many threads. Run with TSan too: it must be silent.
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/ps/store/store.h"
#include "tests/common/temp_dir.h"
#include "tests/server/ps/store/store_tester.h"

namespace weir {
namespace {

constexpr int kPushers = 4;
constexpr uint64_t kContributions = 150;
constexpr int kBlocks = 2;

Declaration Job(const std::string& update) {
  return ParseDeclaration(absl::StrCat(
      "variable { name: 'a' shape: 4096 } block_elements: 2048 slot_count: ",
      kPushers,
      " group { optimizer { sgd {} } schedule { learning_rate: 1 } }"
      "update { ",
      update, " }"));
}

void RunThreads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int t = 0; t < count; ++t) {
    threads.emplace_back(body, t);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

// Blocks the calling thread for one pull; asks again on not_yet.
PulledBlock PullAndWait(StoreTester& ps, int slot, int block,
                        const Want& want) {
  for (;;) {
    std::mutex mutex;
    std::condition_variable answered;
    bool done = false;
    absl::StatusOr<PulledBlock> answer = absl::UnknownError("");
    ps.store->Pull(ps.SenderOf(slot), block, want,
                   [&](absl::StatusOr<PulledBlock> result) {
                     std::lock_guard<std::mutex> lock(mutex);
                     answer = std::move(result);
                     done = true;
                     answered.notify_one();
                   });
    std::unique_lock<std::mutex> lock(mutex);
    answered.wait(lock, [&] { return done; });
    EXPECT_TRUE(answer.ok()) << answer.status();
    if (!answer.ok() || !answer->not_yet) {
      return answer.ok() ? *std::move(answer) : PulledBlock();
    }
  }
}

// The value of all elements; fails when they differ.
float OneValue(const BlockRef& values) {
  for (int64_t i = 1; i < values.elements(); ++i) {
    if (values.data()[i] != values.data()[0]) {
      ADD_FAILURE() << "torn at element " << i << ": " << values.data()[i]
                    << " and " << values.data()[0];
      break;
    }
  }
  return values.data()[0];
}

TEST(StoreConcurrencyTest, AsyncPullsAndSnapshotsAreNeverTorn) {
  StoreTester ps(Job("async {}"));
  const std::string dir = MakeCheckpointDir();
  std::atomic<int> pushing{kPushers};
  RunThreads(kPushers + 3, [&](int t) {
    if (t < kPushers) {
      for (uint64_t sequence = 0; sequence < kContributions; ++sequence) {
        for (int block = 0; block < kBlocks; ++block) {
          const auto receipt =
              ps.PushConstant(ps.Chunk(t, sequence, block, 0), -1.0f);
          ASSERT_TRUE(receipt.ok());
          ASSERT_EQ(receipt->outcome(), Receipt::ACCEPTED);
        }
      }
      --pushing;
    } else if (t < kPushers + 2) {
      uint64_t last = 0;
      while (pushing > 0) {
        const PulledBlock pulled = PullAndWait(ps, 0, t % 2, LatestWant());
        ASSERT_EQ(OneValue(pulled.values), float(pulled.version));
        ASSERT_GE(pulled.version, last);
        last = pulled.version;
      }
    } else {
      while (pushing > 0) {
        ASSERT_TRUE(ps.Snapshot(dir).error.ok());
        ps.store->GetStatus();
      }
    }
  });
  for (int block = 0; block < kBlocks; ++block) {
    const PulledBlock pulled = ps.Latest(block);
    EXPECT_EQ(OneValue(pulled.values), float(kPushers * kContributions));
  }
  const HelloReply hello = ps.store->Hello();
  for (int slot = 0; slot < kPushers; ++slot) {
    EXPECT_EQ(hello.slot(slot).next_sequence_min(), kContributions);
    EXPECT_EQ(hello.slot(slot).next_sequence_max(), kContributions);
  }
}

TEST(StoreConcurrencyTest, TheSamePushFromManyThreadsCountsOnce) {
  StoreTester ps(Job("async {}"));
  std::atomic<int> accepted{0};
  RunThreads(kPushers, [&](int) {
    for (uint64_t sequence = 0; sequence < kContributions; ++sequence) {
      for (;;) {
        const auto receipt =
            ps.PushConstant(ps.Chunk(0, sequence, 0, 0), -1.0f);
        if (receipt.ok()) {
          accepted += receipt->outcome() == Receipt::ACCEPTED;
          break;
        }
      }
    }
  });
  EXPECT_EQ(accepted, int(kContributions));
  EXPECT_EQ(OneValue(ps.Latest(0).values), float(kContributions));
}

TEST(StoreConcurrencyTest, SyncWorkersStepTogether) {
  StoreTester ps(Job(absl::StrCat("sync { contributions: ", kPushers, " }")));
  RunThreads(kPushers, [&](int slot) {
    for (uint64_t step = 0; step < kContributions; ++step) {
      std::vector<float> gradient(2048);
      for (int block = 0; block < kBlocks; ++block) {
        const PulledBlock pulled =
            PullAndWait(ps, slot, block, VersionWant(step));
        ASSERT_EQ(pulled.version, step);
        ASSERT_EQ(OneValue(pulled.values), float(step));
      }
      for (int block = 0; block < kBlocks; ++block) {
        const auto receipt =
            ps.PushConstant(ps.Chunk(slot, step, block, step, slot), -1.0f);
        ASSERT_TRUE(receipt.ok()) << receipt.status();
      }
    }
  });
  EXPECT_EQ(OneValue(ps.Latest(0).values), float(kContributions));
  EXPECT_EQ(ps.store->GetStatus().out_of_order_bytes(), 0u);
  EXPECT_EQ(ps.store->GetStatus().waits_parked(), 0u);
}

TEST(StoreConcurrencyTest, SyncWorkersEndAtDifferentSteps) {
  StoreTester ps(Job("sync { contributions: 4 }"));
  RunThreads(kPushers, [&](int w) {
    const uint64_t steps = kContributions - 10 * static_cast<uint64_t>(w % 3);
    for (uint64_t step = 0; step < steps; ++step) {
      for (int block = 0; block < kBlocks; ++block) {
        PullAndWait(ps, w, block, VersionWant(step));
      }
      for (int block = kBlocks - 1; block >= 0; --block) {
        const auto receipt =
            ps.PushConstant(ps.Chunk(w, step, block, step, w), -1.0f);
        ASSERT_TRUE(receipt.ok()) << receipt.status();
        ASSERT_EQ(receipt->outcome(), Receipt::ACCEPTED);
      }
    }
    ASSERT_TRUE(ps.SetSlot(w, 1, true).ok());
  });
  for (int block = 0; block < kBlocks; ++block) {
    const PulledBlock pulled = ps.Latest(block);
    EXPECT_EQ(pulled.version, kContributions);
    EXPECT_EQ(OneValue(pulled.values), float(kContributions));
  }
}

TEST(StoreConcurrencyTest, BoundedWorkersStayWithinTheBound) {
  constexpr uint64_t kBound = 2;
  StoreTester ps(Job("bounded_staleness { bound: 2 }"));
  std::vector<std::atomic<uint64_t>> clocks(kPushers);
  RunThreads(kPushers, [&](int slot) {
    for (uint64_t sequence = 0; sequence < kContributions; ++sequence) {
      for (int block = 0; block < kBlocks; ++block) {
        OneValue(PullAndWait(ps, slot, block, LatestWant(sequence)).values);
      }
      for (const std::atomic<uint64_t>& clock : clocks) {
        ASSERT_LE(sequence, clock + 1 + kBound);  // it may be about to count
      }
      for (int block = 0; block < kBlocks; ++block) {
        ASSERT_TRUE(
            ps.PushConstant(ps.Chunk(slot, sequence, block, 0), -1.0f).ok());
      }
      clocks[slot] = sequence + 1;
    }
    ASSERT_TRUE(ps.SetSlot(slot, 1, true).ok());
  });
  EXPECT_EQ(OneValue(ps.Latest(1).values), float(kPushers * kContributions));
}

TEST(StoreConcurrencyTest, RestoreWhileEverybodySpeaks) {
  StoreTester ps(Job("sync { contributions: 2 }"));
  const std::string dir = MakeCheckpointDir();
  const auto saved = ps.Snapshot(dir, 0);
  ASSERT_TRUE(saved.error.ok()) << saved.error;
  ASSERT_TRUE(
      CommitManifest(dir, ps.declaration, {saved.replies[1].file()}).ok());
  const Sender old = ps.SenderOf(0);
  const GradientChunk chunk = ps.Chunk(0, 0, 0, 0);
  std::atomic<bool> stop{false};
  std::atomic<int> asked{0};
  std::atomic<int> answered{0};
  const std::vector<float> ones(2048, 1.0f);
  RunThreads(3, [&](int t) {
    if (t == 0) {
      for (uint64_t history = 2; history < 20; ++history) {
        Declaration again = ps.declaration;
        again.set_history(history % 2 + 1);
        RestoreRequest request;
        *request.mutable_declaration() = again;
        request.set_checkpoint(NameOf(dir));
        ASSERT_TRUE(ps.store->Restore(request).ok());
      }
      stop = true;
    } else {
      while (!stop) {
        ++asked;
        ps.store->Pull(old, 0, VersionWant(1),
                       [&](const absl::StatusOr<PulledBlock>&) { ++answered; });
        ps.store->Push(chunk, MakePayload(ones)).status().IgnoreError();
        ps.store->ExpireWaits();
      }
    }
  });
  ps.store.reset();
  EXPECT_EQ(asked, answered);  // each exactly once, none forgotten
}

}  // namespace
}  // namespace weir
