#include "server/ps/store/shard.h"

#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "proto/wire/layout_io.h"
#include "tests/common/temp_dir.h"
#include "tests/server/ps/store/store_tester.h"
#include "tests/support/faulty_files.h"

namespace weir {
namespace {

Declaration Job(const std::string& optimizer, int shards, int block) {
  return ParseDeclaration(absl::StrCat(
      "variable { name: 'a' shape: [30, 11] init: NORMAL init_scale: 1 }"
      "variable { name: 'b' shape: 17 group: 1 init: UNIFORM init_scale: 2 }"
      "variable { name: 'stay' shape: 40 group: 2 init_scale: 5 }"
      "variable { name: 'mean' shape: 100 kind: BUFFER buffer_rate: 0.25 }"
      "group { optimizer { ",
      optimizer,
      " } schedule { learning_rate: 0.1 warmup_steps: 7 } }"
      "group { optimizer { ",
      optimizer,
      " } schedule { learning_rate: 0.3 } }"
      "group { frozen: true } seed: 5 update { async {} } shard_count: ",
      shards, " block_elements: ", block));
}

// All shards of a job; speaks in flat ranges.
class Cluster {
 public:
  explicit Cluster(const Declaration& declaration)
      : layout_(*LayoutFromDeclaration(declaration)) {
    for (int s = 0; s < layout_.shard_count(); ++s) {
      shards_.push_back(std::make_unique<StoreTester>(declaration, s));
    }
  }

  std::vector<float> Flat() {
    std::vector<float> flat(layout_.flat_elements());
    ForEachBlock([&](int s, int b, FlatRange range) {
      const std::vector<float> values = shards_[s]->Values(b);
      std::copy(values.begin(), values.end(), flat.begin() + range.begin);
    });
    return flat;
  }

  void Push(const std::vector<float>& gradient) {
    ForEachBlock([&](int s, int b, FlatRange range) {
      const std::vector<float> part(
          gradient.begin() + range.begin,
          gradient.begin() + range.begin + range.count);
      const auto receipt =
          shards_[s]->Push(shards_[s]->Chunk(0, sequence_, b, 0), part);
      ASSERT_TRUE(receipt.ok()) << receipt.status();
    });
    ++sequence_;
  }

  std::string Checkpoint() {
    const std::string dir = MakeCheckpointDir();
    std::vector<ShardFile> files;
    for (const auto& shard : shards_) {
      const auto result = shard->Snapshot(dir);
      EXPECT_TRUE(result.error.ok()) << result.error;
      files.push_back(result.replies.at(1).file());
    }
    EXPECT_TRUE(CommitManifest(dir, shards_[0]->declaration, files).ok());
    return dir;
  }

  absl::Status Restore(const std::string& dir) {
    for (const auto& shard : shards_) {
      Declaration declaration = shard->declaration;
      declaration.set_history(declaration.history() + 1);
      const absl::Status status = shard->Restore(declaration, dir);
      if (!status.ok()) {
        return status;
      }
      EXPECT_TRUE(shard->SetSlot(0, 1, false).ok());
    }
    sequence_ = 0;
    return absl::OkStatus();
  }

 private:
  template <class Function>
  void ForEachBlock(const Function& function) {
    for (int s = 0; s < layout_.shard_count(); ++s) {
      for (int b = 0; b < layout_.block_count(s); ++b) {
        function(s, b, layout_.block({s, b}));
      }
    }
  }

  const Layout layout_;
  std::vector<std::unique_ptr<StoreTester>> shards_;
  uint64_t sequence_ = 0;
};

std::vector<float> Gradient(int seed, size_t count) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> gradient(count);
  for (float& g : gradient) {
    g = normal(random);
  }
  return gradient;
}

TEST(ShardTest, StartsAndTrainsTheSameOnAnyCut) {
  Cluster one(Job("adam {}", 1, 64));
  const std::vector<float> initial = one.Flat();
  for (int i = 0; i < 3; ++i) {
    one.Push(Gradient(i, initial.size()));
  }
  for (const int shards : {2, 3, 5}) {
    Cluster other(Job("adam {}", shards, 16 * shards));
    EXPECT_EQ(other.Flat(), initial);
    for (int i = 0; i < 3; ++i) {
      other.Push(Gradient(i, initial.size()));
    }
    EXPECT_EQ(other.Flat(), one.Flat()) << shards;
  }
}

TEST(ShardTest, RestoresOnAnotherShardCountAndTakesTheSameNextStep) {
  for (const std::string optimizer :
       {"sgd {}", "sgd { momentum: 0.9 }", "adam { amsgrad: true }",
        "adagrad { initial_accumulator: 0.5 }", "ftrl {}"}) {
    Cluster trained(Job(optimizer, 2, 64));
    for (int i = 0; i < 3; ++i) {
      trained.Push(Gradient(i, trained.Flat().size()));
    }
    const std::string dir = trained.Checkpoint();
    const std::vector<float> saved = trained.Flat();
    trained.Push(Gradient(9, saved.size()));
    trained.Push(Gradient(10, saved.size()));
    for (const int shards : {1, 2, 3, 7}) {
      for (const int block : {16, 64, 128, 1024}) {
        Cluster restored(Job(optimizer, shards, block));
        ASSERT_TRUE(restored.Restore(dir).ok());
        ASSERT_EQ(restored.Flat(), saved) << optimizer << shards;
        restored.Push(Gradient(9, saved.size()));
        restored.Push(Gradient(10, saved.size()));
        ASSERT_EQ(restored.Flat(), trained.Flat())
            << optimizer << " " << shards << " x " << block;
      }
    }
  }
}

TEST(ShardTest, WithoutBlocksAndTablesItHasTheVersionItBeganWith) {
  const Declaration declaration = ParseDeclaration(
      "variable { name: 'a' shape: 16 } shard_count: 2 base_version: 9 "
      "group { optimizer { sgd {} } schedule { learning_rate: 1 } } "
      "update { async {} }");
  StoreTester ps(declaration, 0);  // its block is on the other
  ASSERT_EQ(ps.block_count(), 0);
  EXPECT_EQ(ps.store->GetStatus().version_min(), 9u);
  EXPECT_EQ(ps.store->GetStatus().version_max(), 9u);
}

TEST(ShardTest, RefusesAMomentumThatTheGroupCannotTake) {
  StoreTester ps(ParseDeclaration(
      "variable { name: 'a' shape: 64 }"
      "group { name: 'plain' optimizer { sgd {} }"
      "        schedule { learning_rate: 1 } }"
      "group { name: 'sums' optimizer { adagrad {} }"
      "        schedule { learning_rate: 1 } }"
      "group { name: 'head' optimizer { adamw {} }"
      "        schedule { learning_rate: 1 } }"
      "group { name: 'stay' frozen: true } update { async {} }"));
  const auto push = [&ps](uint32_t group, double momentum) {
    GradientChunk chunk = ps.Chunk(0, 0, 0, 0);
    Hyper* const hyper = chunk.mutable_push()->add_hyper();
    hyper->set_group(group);
    hyper->set_momentum(momentum);
    return ps.PushConstant(chunk, 1.0f).status();
  };
  for (const auto& [group, momentum, words] :
       std::vector<std::tuple<uint32_t, double, std::string>>{
           {0, 0.5,
            "settings of group 0 'plain'.momentum: sgd was declared with "
            "momentum 0 and keeps none; declare it with the largest momentum "
            "that will come"},
           {1, 0.5,
            "settings of group 1 'sums'.momentum: adagrad has none; declare "
            "sgd or rmsprop with a momentum, adam or adamw"},
           {2, 1.0,
            "settings of group 2 'head'.momentum: 1 is not in [0, 1)"}}) {
    const absl::Status status = push(group, momentum);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), words);
  }
  EXPECT_EQ(ps.Latest(0).version, 0u);
  EXPECT_TRUE(push(3, 0.5).ok());  // frozen: nothing uses it
}

TEST(ShardTest, RefusesACheckpointOfOtherVariablesOrOptimizer) {
  Cluster trained(Job("sgd {}", 1, 64));
  const std::string dir = trained.Checkpoint();
  Cluster adam(Job("adam {}", 1, 64));
  const absl::Status status = adam.Restore(dir);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(status.message()).find("state.m"), std::string::npos);
  for (const auto& spoil : std::vector<std::function<void(Declaration&)>>{
           [](Declaration& d) { d.mutable_variable(1)->set_name("z"); },
           [](Declaration& d) { d.mutable_variable(0)->set_shape(1, 12); },
           [](Declaration& d) {
             d.mutable_variable(2)->set_kind(Variable::BUFFER);
           },
           [](Declaration& d) { d.mutable_variable()->RemoveLast(); }}) {
    Declaration other = Job("sgd {}", 1, 64);
    spoil(other);
    Cluster cluster(other);
    EXPECT_EQ(cluster.Restore(dir).code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(ShardTest, ASnapshotIsTheFrozenStateWhilePushesGoOn) {
  const Declaration job = Job("adam {}", 1, 64);
  CountingArena arena;
  StoreTester ps(job, 0, true, &arena);
  const auto push = [&](uint64_t sequence) {
    for (int b = 0; b < ps.block_count(); ++b) {
      ASSERT_TRUE(ps.PushConstant(ps.Chunk(0, sequence, b, 0), 1.0f).ok());
    }
  };
  push(0);
  const int64_t steady = arena.bytes();
  const auto saved = ps.Values(1);
  const std::string dir = MakeCheckpointDir();
  std::vector<SnapshotReply> replies;
  std::function<void()> write;
  SnapshotRequest request;
  *request.mutable_sender() = ps.SenderOf(0, 0);
  request.set_checkpoint(NameOf(dir));
  ps.store->Snapshot(
      request,
      [&](absl::StatusOr<SnapshotReply> reply) {
        ASSERT_TRUE(reply.ok());
        replies.push_back(*std::move(reply));
      },
      [&](std::function<void()> run) { write = std::move(run); });
  ASSERT_EQ(replies.size(), 1u);
  for (uint64_t sequence = 1; sequence < 5; ++sequence) {
    push(sequence);
  }
  // Copy on write: at most values and slots once more.
  EXPECT_LE(arena.bytes_max(), 2 * steady);
  EXPECT_NE(ps.Values(1), saved);
  write();
  write = nullptr;
  EXPECT_EQ(arena.bytes(), steady);
  ASSERT_EQ(replies.size(), 2u);
  ASSERT_TRUE(CommitManifest(dir, job, {replies[1].file()}).ok());
  StoreTester restored(job);
  Declaration again = job;
  again.set_history(2);
  ASSERT_TRUE(restored.Restore(again, dir).ok());
  EXPECT_EQ(restored.Values(1), saved);
}

TEST(ShardTest, EveryFailingFileCallFailsTheSnapshotAndLeavesNoFile) {
  FaultyFiles files(Files::Real());
  Store::Options options;
  options.files = &files;
  options.checkpoint_root = CheckpointRoot();
  const auto store = *Store::Create(options);
  DeclareRequest declare;
  *declare.mutable_declaration() = Job("adam {}", 1, 64);
  const auto reply = *store->Declare(declare);
  SnapshotRequest request;
  Sender* const sender = request.mutable_sender();
  sender->set_job("test");
  sender->set_history(1);
  sender->set_layout_fingerprint(reply.layout_fingerprint());
  bool succeeded = false;
  for (int64_t k = 1; !succeeded; ++k) {
    ASSERT_LT(k, 1000);
    const std::string dir = MakeCheckpointDir();
    request.set_checkpoint(NameOf(dir));
    files.FailCall(k, absl::ResourceExhaustedError("disk full"));
    int frozen = 0;
    int written = 0;
    int failed = 0;
    store->Snapshot(
        request,
        [&](const absl::StatusOr<SnapshotReply>& r) {
          frozen += r.ok() && r->frozen();
          written += r.ok() && r->has_file();
          failed += !r.ok();
        },
        [](const std::function<void()>& write) { write(); });
    EXPECT_EQ(frozen, 1);
    EXPECT_EQ(written + failed, 1);
    succeeded = written == 1;
    files.FailCall(0, absl::OkStatus());
    // The last call is the directory's sync: then the file is there, whole.
    const std::vector<std::string> names = *Files::Real()->List(dir);
    EXPECT_LE(names.size(), 1u);
    for (const std::string& name : names) {
      EXPECT_FALSE(IsTemporaryPath(name)) << name;
    }
  }
}

}  // namespace
}  // namespace weir
