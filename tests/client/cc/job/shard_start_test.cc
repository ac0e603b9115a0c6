#include "client/cc/job/shard_start.h"

#include <atomic>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/wire/layout_io.h"
#include "server/ps/store/store.h"
#include "tests/support/in_process_transport.h"
#include "tests/support/link_to.h"

namespace weir {
namespace {

using testing::HasSubstr;

Declaration Job(uint64_t history = 1) {
  Declaration declaration;
  declaration.set_job("script");
  declaration.set_history(history);
  declaration.set_shard_count(2);
  declaration.set_slot_count(2);
  declaration.set_block_elements(16);
  declaration.set_out_of_order_bytes(1 << 20);
  declaration.mutable_update()->mutable_async();
  declaration.add_group()->mutable_optimizer()->mutable_sgd();
  declaration.mutable_group(0)->mutable_schedule()->set_learning_rate(1);
  Variable* const variable = declaration.add_variable();
  variable->set_name("w");
  variable->add_shape(200);
  return declaration;
}

// Two declared shards; each call of Links is another process's.
class Shards {
 public:
  Shards() {
    for (int s = 0; s < 2; ++s) {
      stores_.push_back(*Store::Create({}));
      transport_.Serve(absl::StrCat("ps", s), stores_[s].get());
      DeclareRequest request;
      *request.mutable_declaration() = Job();
      request.set_shard(static_cast<uint32_t>(s));
      const auto reply = stores_[s]->Declare(request);
      EXPECT_TRUE(reply.ok()) << reply.status();
      sender.set_layout_fingerprint(reply->layout_fingerprint());
    }
    sender.set_job("script");
    sender.set_history(1);
  }

  std::vector<std::unique_ptr<ControlLink>> Links() {
    std::vector<std::unique_ptr<ControlLink>> links;
    for (int s = 0; s < 2; ++s) {
      links.push_back(transport_.Connect(absl::StrCat("ps", s)));
    }
    return links;
  }
  SlotStatus Slot(int s) const { return stores_[s]->Hello().slot(0); }

  Sender sender;

 private:
  InProcessTransport transport_;
  std::vector<std::unique_ptr<Store>> stores_;
};

std::vector<StartingShard> On(
    const std::vector<std::unique_ptr<ControlLink>>& links) {
  std::vector<StartingShard> shards;
  for (const auto& link : links) {
    StartingShard shard;
    shard.index = static_cast<int>(shards.size());
    shard.link = link.get();
    shards.push_back(shard);
  }
  return shards;
}

TEST(ShardStartTest, ASlotIsTakenOnEveryShardForThisProcess) {
  Shards shards;
  const auto links = shards.Links();
  for (const uint32_t generation : {1u, 2u}) {
    const auto taken = TakeSlot(On(links), shards.sender, 0, 40 + generation);
    ASSERT_TRUE(taken.ok()) << taken.status();
    EXPECT_EQ(taken->generation, generation);
    for (const int s : {0, 1}) {
      EXPECT_EQ(shards.Slot(s).generation(), generation);
      EXPECT_EQ(shards.Slot(s).process(), 40 + generation);
    }
  }
}

// Another process of the same worker comes between Hello and SetSlots.
TEST(ShardStartTest, WhoComesSecondToTheFirstShardTakesTheNextGeneration) {
  Shards shards;
  const auto theirs = shards.Links();
  auto ours = shards.Links();
  bool came = false;
  LinkTo::Hooks hooks;
  hooks.before_set_slots = [&] {
    if (!came) {
      came = true;
      const auto other = TakeSlot(On(theirs), shards.sender, 0, 7);
      EXPECT_TRUE(other.ok()) << other.status();
      EXPECT_EQ(other->generation, 1u);
    }
  };
  ours[0] = std::make_unique<LinkTo>(std::move(ours[0]), hooks);
  const auto taken = TakeSlot(On(ours), shards.sender, 0, 8);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(taken->generation, 2u);
  EXPECT_EQ(shards.Slot(0).process(), 8u);
  EXPECT_EQ(shards.Slot(1).process(), 8u);
}

// Process 8 tries to take slot 0, and process 7 takes it whenever process 8 is
// about to take it on shard `s`. Returns why process 8 gave up.
std::string TakeWhileAnotherComes(Shards& shards, int s) {
  const auto theirs = shards.Links();
  auto ours = shards.Links();
  LinkTo::Hooks hooks;
  hooks.before_set_slots = [&] {
    EXPECT_TRUE(TakeSlot(On(theirs), shards.sender, 0, 7).ok());
  };
  ours[s] = std::make_unique<LinkTo>(std::move(ours[s]), hooks);
  const auto taken = TakeSlot(On(ours), shards.sender, 0, 8);
  EXPECT_TRUE(absl::IsPermissionDenied(taken.status())) << taken.status();
  return std::string(taken.status().message());
}

// It comes when this one has the first shard, and not the second.
TEST(ShardStartTest, WhoIsOvertakenBehindTheFirstShardWasReplaced) {
  Shards shards;
  EXPECT_THAT(TakeWhileAnotherComes(shards, 1), HasSubstr("worker 0: ps 1"));
  EXPECT_EQ(shards.Slot(0).process(), 7u);
  EXPECT_EQ(shards.Slot(1).process(), 7u);
}

TEST(ShardStartTest, GivesUpByNameWhereOthersKeepComing) {
  Shards shards;
  EXPECT_THAT(TakeWhileAnotherComes(shards, 0),
              HasSubstr("start one process per worker"));
}

TEST(ShardStartTest, ProcessesThatRaceNeverShareAGeneration) {
  constexpr int kProcesses = 4;
  for (int round = 0; round < 20; ++round) {
    Shards shards;
    std::vector<std::thread> threads;
    std::vector<absl::StatusOr<TakenSlot>> taken(kProcesses,
                                                 absl::UnknownError(""));
    std::atomic<int> ready{0};
    for (int p = 0; p < kProcesses; ++p) {
      threads.emplace_back([&, p] {
        const auto links = shards.Links();
        for (++ready; ready < kProcesses;) {
        }
        taken[p] = TakeSlot(On(links), shards.sender, 0, 100 + p);
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    std::set<uint32_t> generations;
    for (const auto& result : taken) {
      if (result.ok()) {
        EXPECT_TRUE(generations.insert(result->generation).second);
      } else {
        EXPECT_TRUE(absl::IsPermissionDenied(result.status()));
      }
    }
    EXPECT_FALSE(generations.empty());
    EXPECT_EQ(shards.Slot(0).process(), shards.Slot(1).process());
  }
}

TEST(ShardStartTest, APsThatIsStillAtItDelaysNothingForGood) {
  Shards shards;
  auto links = shards.Links();
  const std::vector<absl::Status> ends = {
      absl::DeadlineExceededError("10 s"), absl::UnavailableError("reset"),
      absl::UnknownError("stream removed"), absl::OkStatus()};
  size_t calls_made = 0;
  LinkTo::Hooks hooks;
  hooks.after_declare = [&] { return ends[calls_made++ % ends.size()]; };
  links[1] = std::make_unique<LinkTo>(std::move(links[1]), hooks);
  StartingShard shard = On(links)[1];
  int waits = 0;
  shard.on_wait = [&] {
    ++waits;
    return absl::OkStatus();
  };
  EXPECT_TRUE(DeclareShard(shard, Job(), std::chrono::hours(1)).ok());
  EXPECT_EQ(calls_made, ends.size());
  EXPECT_EQ(waits, 3);
  // Not for ever, and not where the caller has had enough.
  calls_made = 0;
  EXPECT_TRUE(absl::IsDeadlineExceeded(
      DeclareShard(shard, Job(), std::chrono::seconds(0))));
  shard.on_wait = [] { return absl::CancelledError("enough"); };
  EXPECT_TRUE(
      absl::IsCancelled(DeclareShard(shard, Job(), std::chrono::hours(1))));
}

TEST(ShardStartTest, AShardThatThePsHasNoRoomForIsNotDeclaredAgain) {
  Shards shards;
  auto links = shards.Links();
  int calls_made = 0;
  LinkTo::Hooks hooks;
  hooks.after_declare = [&] {
    ++calls_made;
    return absl::ResourceExhaustedError("3 GiB of memory");
  };
  links[1] = std::make_unique<LinkTo>(std::move(links[1]), hooks);
  const absl::Status status =
      DeclareShard(On(links)[1], Job(), std::chrono::hours(1));
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(calls_made, 1);
}

// A job of one shard with a variable of so many elements.
Declaration JobOf(int64_t elements) {
  Declaration declaration = Job();
  declaration.set_shard_count(1);
  declaration.set_block_elements(Layout::kDefaultBlockElements);
  declaration.mutable_variable(0)->set_shape(0, elements);
  return declaration;
}

// No call carries more than a slow link brings in its time.
TEST(ShardStartTest, ValuesGoOutInCallsOfTheirSize) {
  Shards shards;
  auto links = shards.Links();
  const int64_t elements = (int64_t{50} << 18) + 25;
  const Layout layout = *LayoutFromDeclaration(JobOf(elements));
  size_t sent = 0;
  std::vector<size_t> sizes;
  LinkTo::Hooks hooks;
  hooks.assign = [&](std::chrono::milliseconds timeout, size_t bytes) {
    EXPECT_LE(bytes, kAssignBytesPerCall);
    EXPECT_GE(
        timeout.count(),
        10000 + static_cast<int64_t>(bytes * 1000 / kLinkBytesPerSecondMin));
    sent += bytes;
    sizes.push_back(bytes);
    return absl::OkStatus();
  };
  links[0] = std::make_unique<LinkTo>(std::move(links[0]), hooks);
  const std::vector<float> values(static_cast<size_t>(elements));
  const SegmentValues all = [&](const Segment& segment, std::vector<float>*) {
    return std::span<const float>(values).subspan(
        static_cast<size_t>(segment.variable_offset),
        static_cast<size_t>(segment.count));
  };
  ASSERT_TRUE(AssignShard(On(links)[0], layout, shards.sender, all).ok());
  EXPECT_EQ(sent, static_cast<size_t>(elements) * sizeof(float));
  EXPECT_EQ(sizes.size(), 4u);
}

TEST(ShardStartTest, ValuesThatWereDamagedGoOutAgain) {
  const Layout layout = *LayoutFromDeclaration(JobOf(3 << 18));
  for (const int damaged : {4, 5}) {
    Shards shards;
    auto links = shards.Links();
    int sent = 0;
    LinkTo::Hooks hooks;
    hooks.assign = [&](std::chrono::milliseconds, size_t bytes) {
      EXPECT_EQ(bytes, size_t{3} << 20);
      return ++sent <= damaged ? absl::DataLossError("damaged on its way")
                               : absl::OkStatus();
    };
    links[0] = std::make_unique<LinkTo>(std::move(links[0]), hooks);
    const SegmentValues values = [&](const Segment& segment,
                                     std::vector<float>* space) {
      space->resize(static_cast<size_t>(segment.count));
      return std::span<const float>(*space);
    };
    EXPECT_EQ(AssignShard(On(links)[0], layout, shards.sender, values).ok(),
              damaged == 4);
    EXPECT_EQ(sent, 5);
  }
}

TEST(ShardStartTest, AShardKeepsWhatNobodyGivesAndFailsByItsName) {
  Shards shards;
  const auto links = shards.Links();
  const Layout layout = *LayoutFromDeclaration(Job());
  int asked = 0;
  const SegmentValues none = [&](const Segment&, std::vector<float>*) {
    ++asked;
    return std::span<const float>();
  };
  EXPECT_TRUE(AssignShard(On(links)[0], layout, shards.sender, none).ok());
  EXPECT_EQ(asked, layout.block_count(0));
  Sender other = shards.sender;
  other.set_history(2);
  const SegmentValues zeros = [](const Segment& segment,
                                 std::vector<float>* space) {
    space->resize(static_cast<size_t>(segment.count));
    return std::span<const float>(*space);
  };
  const absl::Status status = AssignShard(On(links)[1], layout, other, zeros);
  EXPECT_THAT(std::string(status.message()), HasSubstr("ps 1 (ps1)"));
}

}  // namespace
}  // namespace weir
