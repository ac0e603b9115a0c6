#include "server/ps/store/store.h"

#include <functional>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/io/files.h"
#include "gtest/gtest.h"
#include "server/ps/block/block.h"
#include "tests/common/temp_dir.h"
#include "tests/server/ps/store/store_tester.h"

namespace weir {
namespace {

using absl::StatusCode;

Declaration Job(const std::string& more = "update { async {} }") {
  return ParseDeclaration(absl::StrCat(
      "variable { name: 'a' shape: 100 init: NORMAL init_scale: 1 }"
      "group { optimizer { sgd {} } schedule { learning_rate: 1 } } seed: 3 ",
      more));
}

DeclareRequest RequestFor(const Declaration& declaration) {
  DeclareRequest request;
  *request.mutable_declaration() = declaration;
  return request;
}

Declaration WithHistory(Declaration declaration, uint64_t history) {
  declaration.set_history(history);
  return declaration;
}

// Trains one contribution and commits a checkpoint of it.
std::string MakeCheckpoint(StoreTester& ps) {
  const std::string dir = MakeCheckpointDir();
  for (int block = 0; block < ps.block_count(); ++block) {
    EXPECT_TRUE(ps.PushConstant(ps.Chunk(0, 0, block, 0), 1.0f).ok());
  }
  const auto result =
      ps.Snapshot(dir, ps.declaration.update().has_sync() ? 1 : -1);
  EXPECT_TRUE(result.error.ok()) << result.error;
  EXPECT_TRUE(
      CommitManifest(dir, ps.declaration, {result.replies[1].file()}).ok());
  return dir;
}

TEST(StoreTest, AnswersHelloAndStatusWhileEmpty) {
  Store::Options options;
  options.incarnation = 42;
  const auto store = *Store::Create(options);
  EXPECT_EQ(store->Hello().incarnation(), 42u);
  EXPECT_EQ(store->Hello().state(), EMPTY);
  EXPECT_EQ(store->GetStatus().hello().incarnation(), 42u);
  GradientChunk chunk;
  chunk.mutable_push();
  EXPECT_EQ(store->Push(chunk, Payload()).status().code(),
            StatusCode::kFailedPrecondition);
  bool answered = false;
  store->Pull(Sender(), 0, LatestWant(),
              [&](const absl::StatusOr<PulledBlock>& answer) {
                answered = true;
                EXPECT_EQ(answer.status().code(),
                          StatusCode::kFailedPrecondition);
              });
  EXPECT_TRUE(answered);
  EXPECT_EQ(store->SetSlots(SetSlotsRequest()).code(),
            StatusCode::kFailedPrecondition);
  store->ExpireWaits();
}

TEST(StoreTest, DeclareIsRepeatableUntilActive) {
  StoreTester ps(Job(), 0, /*activate=*/false);
  EXPECT_EQ(ps.store->Hello().state(), LOADED);
  const std::vector<float> values = ps.Values(0);
  EXPECT_NE(values[0], 0.0f);
  EXPECT_TRUE(ps.store->Declare(RequestFor(Job())).ok());
  EXPECT_EQ(ps.Values(0), values);
  Declaration changed = Job();
  changed.set_seed(4);
  EXPECT_EQ(ps.store->Declare(RequestFor(changed)).status().code(),
            StatusCode::kInvalidArgument);
  // Another history declares anew.
  ASSERT_TRUE(ps.store->Declare(RequestFor(WithHistory(changed, 2))).ok());
  ASSERT_TRUE(ps.store->Declare(RequestFor(Job())).ok());
  EXPECT_EQ(ps.Values(0), values);

  ASSERT_TRUE(ps.SetSlot(0, 1, false).ok());
  EXPECT_EQ(ps.store->Hello().state(), ACTIVE);
  for (const uint64_t history : {1, 2}) {
    // Another history is another chief's.
    EXPECT_EQ(ps.store->Declare(RequestFor(WithHistory(Job(), history)))
                  .status()
                  .code(),
              history == 1 ? StatusCode::kFailedPrecondition
                           : StatusCode::kPermissionDenied);
  }
}

TEST(StoreTest, NobodyPushesBeforeSlotsAreSet) {
  StoreTester ps(Job(), 0, /*activate=*/false);
  const auto receipt = ps.PushConstant(ps.Chunk(0, 0, 0, 0), 1.0f);
  EXPECT_FALSE(receipt.ok());
  EXPECT_EQ(ps.Latest(0).version, 0u);
}

TEST(StoreTest, AGenerationNeverFalls) {
  StoreTester ps(Job());
  ASSERT_TRUE(ps.SetSlot(0, 5, false).ok());
  EXPECT_EQ(ps.SetSlot(0, 4, false).code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(ps.SetSlot(1, 1, false).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ps.store->Hello().slot(0).generation(), 5u);
}

TEST(StoreTest, AGenerationBelongsToOneProcess) {
  StoreTester ps(Job());
  SetSlotsRequest request;
  *request.mutable_sender() = ps.SenderOf(0, 0);
  SetSlotsRequest::Slot* const slot = request.add_slot();
  const auto set = [&](uint32_t generation, uint64_t process) {
    slot->set_generation(generation);
    slot->set_process(process);
    return ps.store->SetSlots(request).code();
  };
  const auto holder = [&] { return ps.store->Hello().slot(0).process(); };
  EXPECT_EQ(set(1, 7), StatusCode::kOk);  // so far nobody's
  EXPECT_EQ(set(1, 7), StatusCode::kOk);
  EXPECT_EQ(set(1, 8), StatusCode::kPermissionDenied);
  EXPECT_EQ(set(1, 0), StatusCode::kOk);  // a chief that does not know
  EXPECT_EQ(holder(), 7u);
  EXPECT_EQ(set(2, 8), StatusCode::kOk);
  EXPECT_EQ(holder(), 8u);
  EXPECT_EQ(set(3, 0), StatusCode::kOk);
  EXPECT_EQ(holder(), 0u);
}

TEST(StoreTest, AssignsValuesUntilActive) {
  StoreTester ps(Job(), 0, /*activate=*/false);
  const PulledBlock held = ps.Latest(0);
  const float before = held.values.data()[3];
  AssignChunk chunk;
  *chunk.mutable_sender() = ps.SenderOf(0, 0);
  chunk.set_block(0);
  chunk.set_offset(3);
  ASSERT_TRUE(ps.store->Assign(chunk, MakePayload({7, 8})).ok());
  EXPECT_EQ(ps.Values(0)[3], 7.0f);
  EXPECT_EQ(ps.Values(0)[4], 8.0f);
  EXPECT_EQ(held.values.data()[3], before);  // a pulled block never changes
  EXPECT_EQ(ps.Latest(0).version, 0u);

  chunk.set_offset(63);
  EXPECT_EQ(ps.store->Assign(chunk, MakePayload({7, 8})).code(),
            StatusCode::kInvalidArgument);
  chunk.set_offset(UINT32_MAX);
  EXPECT_EQ(ps.store->Assign(chunk, MakePayload({7, 8})).code(),
            StatusCode::kInvalidArgument);
  chunk.set_block(2);
  EXPECT_EQ(ps.store->Assign(chunk, MakePayload({7, 8})).code(),
            StatusCode::kInvalidArgument);
  chunk.set_block(0);
  chunk.set_offset(0);
  ASSERT_TRUE(ps.SetSlot(0, 1, false).ok());
  EXPECT_EQ(ps.store->Assign(chunk, MakePayload({7, 8})).code(),
            StatusCode::kFailedPrecondition);
}

TEST(StoreTest, RefusesPullsThatCannotBe) {
  StoreTester ps(Job());
  const auto code = [&](const Sender& sender, int block, const Want& want) {
    StatusCode result = StatusCode::kUnknown;
    ps.store->Pull(sender, block, want,
                   [&](const absl::StatusOr<PulledBlock>& answer) {
                     result = answer.status().code();
                   });
    return result;
  };
  EXPECT_EQ(code(ps.SenderOf(0, 0), 0, LatestWant()), StatusCode::kOk);
  EXPECT_EQ(code(ps.SenderOf(0, 1), 0, LatestWant()), StatusCode::kOk);
  EXPECT_EQ(code(ps.SenderOf(0, 2), 0, LatestWant()),
            StatusCode::kPermissionDenied);
  EXPECT_EQ(code(ps.SenderOf(9, 1), 0, LatestWant()),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code(ps.SenderOf(0, 0), 2, LatestWant()),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code(ps.SenderOf(0, 0), -1, LatestWant()),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code(ps.SenderOf(0, 0), 0, Want()), StatusCode::kInvalidArgument);
}

TEST(StoreTest, RestoreReplacesTheShardAndEndsItsWaits) {
  const Declaration job = Job("update { sync { contributions: 1 } }");
  StoreTester ps(job);
  const std::string dir = MakeCheckpoint(ps);
  const std::vector<float> saved = ps.Values(0);
  ASSERT_TRUE(ps.PushConstant(ps.Chunk(0, 1, 0, 1), 1.0f).ok());
  const auto parked = ps.Pull(0, 0, VersionWant(9));
  ASSERT_FALSE(parked->done);
  const GradientChunk late = ps.Chunk(0, 2, 0, 2);

  Declaration again = WithHistory(job, 2);
  again.set_base_version(1);
  ASSERT_TRUE(ps.Restore(again, dir).ok());
  ASSERT_TRUE(parked->done);
  EXPECT_EQ(parked->answer.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(ps.Values(0), saved);
  EXPECT_EQ(ps.Latest(0).version, 1u);
  EXPECT_EQ(ps.store->Hello().state(), LOADED);
  EXPECT_EQ(ps.store->Hello().history(), 2u);
  // Requests that were under way in the old history change nothing.
  EXPECT_EQ(ps.PushConstant(late, 1.0f).status().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(ps.Values(0), saved);
}

TEST(StoreTest, ALateRestoreDoesNotReplaceWhatAnotherChiefMade) {
  StoreTester ps(Job());
  const std::string dir = MakeCheckpoint(ps);
  RestoreRequest request;
  *request.mutable_declaration() = WithHistory(Job(), 3);
  request.set_checkpoint(NameOf(dir));
  for (const uint64_t seen : {0, 2}) {
    request.set_seen_history(seen);
    EXPECT_EQ(ps.store->Restore(request).status().code(),
              StatusCode::kPermissionDenied);
    EXPECT_EQ(ps.store->Hello().history(), 1u);
  }
  request.set_seen_history(1);
  EXPECT_TRUE(ps.store->Restore(request).ok());
  // Nobody trains what is only LOADED: a chief may have died over it.
  request.mutable_declaration()->set_history(4);
  EXPECT_TRUE(ps.store->Restore(request).ok());
  EXPECT_EQ(ps.store->Hello().history(), 4u);
}

TEST(StoreTest, AnotherHistoryIsAnotherChiefs) {
  StoreTester ps(Job());
  Sender other = ps.SenderOf(0, 0);
  other.set_history(9);
  SetSlotsRequest slots;
  *slots.mutable_sender() = other;
  EXPECT_EQ(ps.store->SetSlots(slots).code(), StatusCode::kPermissionDenied);
  SnapshotRequest snapshot;
  *snapshot.mutable_sender() = other;
  snapshot.set_checkpoint(NameOf(MakeCheckpointDir()));
  StatusCode code = StatusCode::kOk;
  ps.store->Snapshot(
      snapshot,
      [&](const absl::StatusOr<SnapshotReply>& reply) {
        code = reply.status().code();
      },
      [](const std::function<void()>&) {});
  EXPECT_EQ(code, StatusCode::kPermissionDenied);
  // A worker that retires its slot has slept through a restore.
  slots.mutable_sender()->set_generation(1);
  EXPECT_EQ(ps.store->SetSlots(slots).code(), StatusCode::kFailedPrecondition);
  slots.mutable_sender()->set_generation(0);
  // Another job is no sign of another chief.
  slots.mutable_sender()->set_job("another");
  EXPECT_EQ(ps.store->SetSlots(slots).code(), StatusCode::kFailedPrecondition);
}

TEST(StoreTest, AFailedRestoreLeavesTheShardAsItWas) {
  StoreTester ps(Job());
  const std::string dir = MakeCheckpoint(ps);
  const std::vector<float> live = ps.Values(1);
  const std::string path = dir + "/shard-0-of-1.safetensors";
  std::string bytes = *Files::Real()->ReadAll(path);
  bytes[bytes.size() - 20] ^= 4;
  ASSERT_TRUE(Files::Real()->WriteAtomically(path, bytes).ok());
  const absl::Status status = ps.Restore(WithHistory(Job(), 2), dir);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_TRUE(absl::StrContains(status.message(), path)) << status;
  EXPECT_EQ(ps.store->Hello().history(), 1u);
  EXPECT_EQ(ps.Values(1), live);
  EXPECT_TRUE(ps.PushConstant(ps.Chunk(0, 1, 1, 1), 1.0f).ok());

  EXPECT_EQ(ps.Restore(WithHistory(Job(), 2), "ckpt-1").code(),
            StatusCode::kNotFound);
}

TEST(StoreTest, ReadersThatWaitKeepNoWorkerOut) {
  StoreTester ps(Job("update { sync { contributions: 1 } } slot_count: 2"));
  const auto parks = [&](int slot, uint32_t generation) {
    Want want;
    want.set_version(1);
    // A pull that is parked is answered when the store ends.
    auto refused = std::make_shared<bool>(false);
    ps.store->Pull(ps.SenderOf(slot, generation), 0, want,
                   [refused](const absl::StatusOr<PulledBlock>& answer) {
                     *refused = absl::IsResourceExhausted(answer.status());
                   });
    return !*refused;
  };
  int waiting = 0;
  while (parks(waiting % 7, 0)) {  // a reader's slot means nothing
    ASSERT_LT(++waiting, 10000);
  }
  EXPECT_EQ(waiting, Block::kParkingShares.readers);
  for (int slot = 0; slot < 2; ++slot) {
    waiting = 0;
    while (parks(slot, 1)) {
      ASSERT_LT(++waiting, 10000);
    }
    EXPECT_EQ(waiting, Block::kParkingShares.per_slot);
  }
  ps.store.reset();  // answers them all
}

TEST(StoreTest, ARestoreThatDoesNotFitBesideTheShardIsRefused) {
  StoreTester trained(Job());
  const std::string dir = MakeCheckpoint(trained);
  const Declaration again = WithHistory(Job(), 2);
  RestoreRequest request;
  *request.mutable_declaration() = again;
  request.set_checkpoint(NameOf(dir));
  Store::Options options;
  // A shard needs 2480 bytes: 400 of values, and what two blocks cost. Beside
  // it, 400 bytes are held.
  options.memory_bytes_max = 2600;
  options.checkpoint_root = CheckpointRoot();
  const auto store = *Store::Create(options);
  ASSERT_TRUE(store->Restore(request).ok());
  const absl::StatusOr<DeclareReply> twice = store->Restore(request);
  EXPECT_EQ(twice.status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(absl::StrContains(twice.status().message(), "start it anew"))
      << twice.status();
  EXPECT_EQ(store->Hello().history(), again.history());
}

TEST(StoreTest, ADeclarationThatDoesNotFitBesideTheShardIsRefused) {
  Store::Options options;
  options.memory_bytes_max = 2600;  // as above
  const auto store = *Store::Create(options);
  DeclareRequest request;
  *request.mutable_declaration() = Job();
  ASSERT_TRUE(store->Declare(request).ok());
  *request.mutable_declaration() = WithHistory(Job(), 2);
  const absl::StatusOr<DeclareReply> twice = store->Declare(request);
  EXPECT_EQ(twice.status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(absl::StrContains(twice.status().message(), "start it anew"))
      << twice.status();
  EXPECT_EQ(store->Hello().history(), Job().history());
}

TEST(StoreTest, ARestoreDropsASnapshotThatWaits) {
  const Declaration job = Job("update { sync { contributions: 1 } }");
  CountingArena arena;
  StoreTester ps(job, 0, true, &arena);
  const std::string dir = MakeCheckpoint(ps);
  const int64_t before = arena.bytes();
  const auto waiting = [&](uint64_t version, absl::Status* error) {
    SnapshotRequest request;
    *request.mutable_sender() = ps.SenderOf(0, 0);
    request.set_checkpoint(NameOf(dir));
    request.set_version(version);
    ps.store->Snapshot(
        request,
        [error](const absl::StatusOr<SnapshotReply>& reply) {
          *error = reply.status();
        },
        [](const std::function<void()>&) {});
  };
  absl::Status first;
  absl::Status second;
  waiting(3, &first);
  EXPECT_TRUE(first.ok());
  waiting(2, &second);
  EXPECT_EQ(first.code(), StatusCode::kAborted);
  ASSERT_TRUE(ps.PushConstant(ps.Chunk(0, 1, 0, 1), 1.0f).ok());
  EXPECT_TRUE(second.ok());  // block 0 is frozen, block 1 is not there yet
  Declaration again = WithHistory(job, 2);
  ASSERT_TRUE(ps.Restore(again, dir).ok());
  EXPECT_EQ(second.code(), StatusCode::kFailedPrecondition);
  // Values only: nothing of the old shard is held.
  EXPECT_LT(arena.bytes(), before);
}

TEST(StoreTest, ShutdownNeedsTheSecretOfTheChiefThatMadeTheShard) {
  StoreTester ps(Job(), 0, /*activate=*/false);
  ShutdownRequest request;
  *request.mutable_sender() = ps.SenderOf(0, 0);
  EXPECT_TRUE(ps.store->CheckShutdown(request).ok());  // made without one
  DeclareRequest declare = RequestFor(WithHistory(Job(), 2));
  declare.set_chief_secret("abc");
  ASSERT_TRUE(ps.store->Declare(declare).ok());
  request.mutable_sender()->set_history(2);
  for (const char* secret : {"", "ab", "abd"}) {
    request.set_chief_secret(secret);
    EXPECT_EQ(ps.store->CheckShutdown(request).code(),
              StatusCode::kPermissionDenied);
  }
  request.set_chief_secret("abc");
  EXPECT_TRUE(ps.store->CheckShutdown(request).ok());
  request.mutable_sender()->set_history(1);
  EXPECT_EQ(ps.store->CheckShutdown(request).code(),
            StatusCode::kFailedPrecondition);
}

TEST(StoreTest, ACheckpointIsNamedAndLiesInTheRoot) {
  StoreTester maker(Job());
  const std::string name = NameOf(MakeCheckpoint(maker));
  Store::Options options;
  options.checkpoint_root = CheckpointRoot();
  const auto store = *Store::Create(options);
  RestoreRequest restore;
  *restore.mutable_declaration() = WithHistory(Job(), 2);
  const std::string path = JoinPath(options.checkpoint_root, name);
  for (const std::string& other :
       {std::string(), path, "./" + name,
        "../" + NameOf(CheckpointRoot()) + "/" + name, name + "/", name + "/..",
        std::string("..")}) {
    restore.set_checkpoint(other);
    EXPECT_EQ(store->Restore(restore).status().code(),
              StatusCode::kInvalidArgument)
        << other;
    SnapshotRequest snapshot;
    *snapshot.mutable_sender() = maker.SenderOf(0, 0);
    snapshot.set_checkpoint(other);
    absl::Status status;
    maker.store->Snapshot(
        snapshot,
        [&](const absl::StatusOr<SnapshotReply>& reply) {
          status = reply.status();
        },
        [](const std::function<void()>&) {});
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << other;
  }
  EXPECT_EQ(store->Hello().state(), EMPTY);
  restore.set_checkpoint(name);
  EXPECT_TRUE(store->Restore(restore).ok());
}

TEST(StoreTest, APsWithoutARootKeepsNoCheckpoints) {
  StoreTester maker(Job());
  RestoreRequest restore;
  *restore.mutable_declaration() = WithHistory(Job(), 2);
  restore.set_checkpoint(NameOf(MakeCheckpoint(maker)));
  EXPECT_TRUE(maker.store->Hello().keeps_checkpoints());
  const auto store = *Store::Create({});
  EXPECT_FALSE(store->Hello().keeps_checkpoints());
  const absl::Status status = store->Restore(restore).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(status.message(), "--checkpoint_root"))
      << status;
}

TEST(StoreTest, ASnapshotLeavesACheckpointAsItIs) {
  StoreTester ps(Job());
  const std::string dir = MakeCheckpoint(ps);
  const std::string path = JoinPath(dir, "shard-0-of-1.safetensors");
  const std::string before = *Files::Real()->ReadAll(path);
  ASSERT_TRUE(ps.PushConstant(ps.Chunk(0, 1, 0, 1), 1.0f).ok());
  EXPECT_EQ(ps.Snapshot(dir).error.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(*Files::Real()->ReadAll(path), before);
  EXPECT_EQ(Files::Real()->List(dir)->size(), 2u);  // and the manifest
}

TEST(StoreTest, ClosesParkedPullsWhenItEnds) {
  std::shared_ptr<StoreTester::PullResult> parked;
  {
    StoreTester ps(Job("update { sync { contributions: 1 } }"));
    parked = ps.Pull(0, 0, VersionWant(1));
    EXPECT_FALSE(parked->done);
  }
  ASSERT_TRUE(parked->done);
  EXPECT_EQ(parked->answer.status().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace weir
