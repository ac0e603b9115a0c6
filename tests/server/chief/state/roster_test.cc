#include "server/chief/state/roster.h"

#include <limits>
#include <string>
#include <vector>

#include "common/base/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using State = Roster::Worker::State;

constexpr int64_t kNow = 1'000'000'000;

RegisterRequest Process(uint64_t process, uint32_t rank = 0) {
  RegisterRequest request;
  request.set_rank(rank);
  request.set_process(process);
  request.set_host("node" + std::to_string(process));
  return request;
}

// A process that held a grant of this history before the chief was restarted.
RegisterRequest Holding(uint64_t process, uint32_t generation) {
  RegisterRequest request = Process(process);
  request.set_held_generation(generation);
  return request;
}

Progress Beat(uint32_t slot, uint32_t generation, uint64_t next_sequence = 0) {
  Progress progress;
  progress.set_slot(slot);
  progress.set_generation(generation);
  progress.set_next_sequence(next_sequence);
  return progress;
}

// A roster with what its methods give back.
struct Book {
  explicit Book(int count) : roster(count, kNow) {}

  absl::StatusOr<bool> Register(const RegisterRequest& request,
                                bool same_history = false,
                                uint64_t next_sequence = 0) {
    return roster.Register(request, same_history, next_sequence, kNow, &ended);
  }

  absl::Status OnProgress(uint64_t stream, const Progress& progress,
                          int64_t now_ns = kNow) {
    return roster.OnProgress(stream, progress, now_ns, &fresh, &ended,
                             &repeated);
  }

  // A round in which every mark of every slot is `next_sequence`.
  uint64_t Round(uint64_t next_sequence = 0) {
    EXPECT_TRUE(roster.NeedsRound());
    roster.BeginRound();
    return roster.EndRound([&](int) { return next_sequence; }, kNow);
  }

  // Grants slot 0 to `process` and opens its stream.
  void Grant(uint64_t process, uint64_t stream) {
    EXPECT_FALSE(*Register(Process(process)));
    Round();
    EXPECT_TRUE(*Register(Process(process)));
    EXPECT_TRUE(OnProgress(stream, Beat(0, roster.worker(0).generation)).ok());
  }

  Roster roster;
  uint64_t ended = 0;
  bool fresh = false;
  int repeated = 0;
};

TEST(RosterTest, AGrantComesAfterARoundThatCarriedItsGeneration) {  // I2
  Book book(2);
  ASSERT_FALSE(*book.Register(Process(7)));
  ASSERT_TRUE(book.roster.NeedsRound());
  const std::vector<SetSlotsRequest::Slot> slots = book.roster.BeginRound();
  ASSERT_EQ(slots.size(), 2u);
  EXPECT_EQ(slots[0].generation(), 1u);
  EXPECT_EQ(slots[0].process(), 7u);
  EXPECT_EQ(slots[1].generation(), 0u);
  EXPECT_FALSE(*book.Register(Process(7)));  // still under way
  book.roster.EndRound([](int) { return uint64_t{5}; }, kNow);
  EXPECT_TRUE(*book.Register(Process(7)));
  EXPECT_EQ(book.roster.worker(0).granted_sequence, 5u);
  EXPECT_EQ(book.roster.worker(0).next_sequence, 5u);
}

TEST(RosterTest, AProcessThatComesDuringARoundWaitsForTheNext) {  // I2
  Book book(2);
  ASSERT_FALSE(*book.Register(Process(7)));
  book.roster.BeginRound();
  ASSERT_FALSE(*book.Register(Process(8, /*rank=*/1)));
  EXPECT_FALSE(book.roster.NeedsRound());  // one at a time
  book.roster.EndRound([](int) { return uint64_t{0}; }, kNow);
  EXPECT_TRUE(*book.Register(Process(7)));
  EXPECT_FALSE(*book.Register(Process(8, /*rank=*/1)));
  book.Round();
  EXPECT_TRUE(*book.Register(Process(8, /*rank=*/1)));
}

TEST(RosterTest, EveryGrantHasALargerGenerationThanTheShardsKnow) {  // I1
  Book book(1);
  book.roster.SetGeneration(0, 41);
  book.roster.SetGeneration(0, 40);  // an older answer changes nothing
  ASSERT_FALSE(*book.Register(Process(7)));
  EXPECT_EQ(book.roster.worker(0).generation, 42u);
  ASSERT_FALSE(*book.Register(Process(8)));
  EXPECT_EQ(book.roster.worker(0).generation, 43u);
}

TEST(RosterTest, ANewerProcessEndsTheStreamOfTheOneBefore) {
  Book book(1);
  book.Grant(7, /*stream=*/3);
  ASSERT_FALSE(*book.Register(Process(8)));
  EXPECT_EQ(book.ended, 3u);
  EXPECT_FALSE(book.roster.AnyConnected());
  EXPECT_EQ(book.roster.worker(0).host, "node8");
}

TEST(RosterTest, AReplacedProcessNeverComesBack) {  // I3
  Book book(1);
  book.Grant(7, /*stream=*/3);
  ASSERT_FALSE(*book.Register(Process(8)));
  const absl::Status again = book.Register(Process(7)).status();
  EXPECT_EQ(again.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(again.message()), HasSubstr("on node8"));
  EXPECT_EQ(book.OnProgress(4, Beat(0, 1)).code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(book.roster.worker(0).process, 8u);
}

TEST(RosterTest, ARestartedChiefKnowsAReplacedProcessByItsGeneration) {  // I3
  Book book(1);
  book.roster.SetGeneration(0, 5);
  const auto old = book.Register(Holding(7, 4), /*same_history=*/true);
  EXPECT_EQ(old.status().code(), absl::StatusCode::kPermissionDenied);
  // Without what it held it is still the process that was replaced.
  EXPECT_EQ(book.Register(Process(7)).status().code(),
            absl::StatusCode::kPermissionDenied);
}

TEST(RosterTest, ARestartedChiefGrantsTheSameGenerationAgain) {
  Book book(1);
  book.roster.SetGeneration(0, 5);
  const auto same =
      book.Register(Holding(7, 5), /*same_history=*/true, /*next_sequence=*/9);
  ASSERT_TRUE(same.ok());
  EXPECT_TRUE(*same);
  EXPECT_FALSE(book.roster.NeedsRound());
  EXPECT_EQ(book.roster.worker(0).generation, 5u);
  EXPECT_EQ(book.roster.worker(0).next_sequence, 9u);
  EXPECT_EQ(book.roster.worker(0).reported, 9u);
}

TEST(RosterTest, AGrantOfAnotherHistoryCountsForNothing) {
  Book book(1);
  book.roster.SetGeneration(0, 5);
  const auto other = book.Register(Holding(7, 5), /*same_history=*/false);
  ASSERT_TRUE(other.ok());
  EXPECT_FALSE(*other);
  EXPECT_EQ(book.roster.worker(0).generation, 6u);
}

TEST(RosterTest, AWorkerThatARestartedChiefDoesNotKnowIsAskedToRegister) {
  Book book(1);
  book.roster.SetGeneration(0, 5);
  EXPECT_EQ(book.OnProgress(3, Beat(0, 5)).code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(book.OnProgress(3, Beat(1, 5)).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(RosterTest, ANewerStreamOfTheSameGrantReplacesTheOlder) {
  Book book(1);
  book.Grant(7, /*stream=*/3);
  EXPECT_TRUE(book.fresh);
  ASSERT_TRUE(book.OnProgress(3, Beat(0, 1)).ok());
  EXPECT_FALSE(book.fresh);
  EXPECT_EQ(book.ended, 0u);
  ASSERT_TRUE(book.OnProgress(4, Beat(0, 1)).ok());
  EXPECT_TRUE(book.fresh);
  EXPECT_EQ(book.ended, 3u);
  EXPECT_EQ(book.roster.OnStreamLost(3, kNow), -1);  // known no more
  EXPECT_THAT(book.roster.streams(), ElementsAre(4u));
  EXPECT_EQ(book.roster.OnStreamLost(4, kNow), 0);
  EXPECT_THAT(book.roster.streams(), IsEmpty());
}

TEST(RosterTest, ReportsOfContributionsThatCountAlreadyAreRepeats) {
  Book book(1);
  book.Grant(7, /*stream=*/3);
  Progress progress = Beat(0, 1, /*next_sequence=*/2);
  progress.add_report();
  progress.add_report();
  ASSERT_TRUE(book.OnProgress(3, progress).ok());
  EXPECT_EQ(book.repeated, 0);
  // The same two again, and one more.
  progress = Beat(0, 1, /*next_sequence=*/3);
  for (int i = 0; i < 3; ++i) {
    progress.add_report();
  }
  ASSERT_TRUE(book.OnProgress(3, progress).ok());
  EXPECT_EQ(book.repeated, 2);
  EXPECT_EQ(book.roster.worker(0).reported, 3u);
}

TEST(RosterTest, ANumberOfContributionsBeyondEveryJobCountsItsReportsAlone) {
  Book book(1);
  book.Grant(1, 3);
  Progress progress = Beat(0, 1, std::numeric_limits<int64_t>::max());
  progress.add_report();
  ASSERT_TRUE(book.OnProgress(3, progress).ok());
  EXPECT_EQ(book.roster.worker(0).reported, 1u);
  progress.set_next_sequence(uint64_t{1} << 63);
  progress.add_report();
  ASSERT_TRUE(book.OnProgress(3, progress).ok());
  EXPECT_EQ(book.repeated, 0);
  EXPECT_EQ(book.roster.worker(0).reported, 3u);
}

TEST(RosterTest, WhatAReplacedProcessDidNotReportIsUnreported) {
  Book book(1);
  book.Grant(7, /*stream=*/3);
  Progress progress = Beat(0, 1, /*next_sequence=*/1);
  progress.add_report();
  ASSERT_TRUE(book.OnProgress(3, progress).ok());
  ASSERT_FALSE(*book.Register(Process(8)));
  EXPECT_EQ(book.Round(/*next_sequence=*/4), 3u);
  EXPECT_EQ(book.roster.worker(0).reported, 4u);
}

TEST(RosterTest, SilentWorkersAreDroppedAndOthersAreNot) {
  Book book(1);
  book.Grant(7, /*stream=*/3);
  EXPECT_THAT(book.roster.DropSilent(100, kNow + 100), IsEmpty());
  EXPECT_THAT(book.roster.DropSilent(100, kNow + 101), ElementsAre(3u));
  EXPECT_FALSE(book.roster.AnyConnected());
  EXPECT_EQ(book.roster.worker(0).absent_since_ns, kNow + 101);
}

TEST(RosterTest, AHoldWaitsForConnectedWorkersWithWorkOnly) {
  Book book(2);
  EXPECT_TRUE(book.roster.AllHold());  // nobody is there
  book.Grant(7, /*stream=*/3);
  EXPECT_FALSE(book.roster.AllHold());
  Progress progress = Beat(0, 1);
  progress.set_holding(true);
  ASSERT_TRUE(book.OnProgress(3, progress).ok());
  EXPECT_TRUE(book.roster.AllHold());
  // The hold ends with the stream on which it came.
  book.roster.OnStreamLost(3, kNow);
  EXPECT_FALSE(book.roster.worker(0).holding);
  progress = Beat(0, 1);
  progress.set_out_of_work(true);
  ASSERT_TRUE(book.OnProgress(4, progress).ok());
  EXPECT_TRUE(book.roster.AllHold());
}

TEST(RosterTest, TheEndWaitsForWhoeverHasOrWantsASlot) {
  Book book(3);
  EXPECT_TRUE(book.roster.AllTold());  // nobody ever came
  book.roster.mutable_worker(2)->asked = true;
  EXPECT_FALSE(book.roster.AllTold());
  book.roster.mutable_worker(2)->told = true;
  book.Grant(7, /*stream=*/3);
  EXPECT_FALSE(book.roster.AllTold());
  book.roster.SetRetired(0, true);
  EXPECT_FALSE(book.roster.AllTold());
  Progress progress = Beat(0, 1);
  progress.set_ending(true);
  ASSERT_TRUE(book.OnProgress(3, progress).ok());
  EXPECT_TRUE(book.roster.AllTold());
}

TEST(RosterTest, RetiringASlotTakesARoundAndANewGenerationBringsItBack) {
  Book book(1);
  book.Grant(7, /*stream=*/3);
  EXPECT_FALSE(book.roster.NeedsRound());
  book.roster.SetRetired(0, true);
  ASSERT_TRUE(book.roster.NeedsRound());
  EXPECT_TRUE(book.roster.BeginRound().at(0).retired());
  book.roster.EndRound([](int) { return uint64_t{0}; }, kNow);
  book.roster.SetRetired(0, true);  // nothing new
  EXPECT_FALSE(book.roster.NeedsRound());
  EXPECT_EQ(book.roster.worker(0).state, State::kGranted);
  ASSERT_FALSE(*book.Register(Process(8)));
  EXPECT_FALSE(book.roster.BeginRound().at(0).retired());
}

TEST(RosterTest, AReplacedProcessThatIsForgottenIsKnownByItsGeneration) {  // I3
  Book book(1);
  book.Grant(1, 1);
  const uint32_t generation = book.roster.worker(0).generation;
  for (uint64_t process = 2; process < kReplacedMax + 2; ++process) {
    EXPECT_FALSE(*book.Register(Process(process)));
    EXPECT_EQ(book.Register(Process(process - 1)).status().code(),
              absl::StatusCode::kPermissionDenied);
  }
  EXPECT_EQ(book.Register(Process(1)).status().code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_FALSE(*book.Register(Process(kReplacedMax + 2)));
  EXPECT_EQ(book.roster.worker(0).replaced.size(), kReplacedMax);
  EXPECT_EQ(book.Register(Holding(1, generation), /*same_history=*/true)
                .status()
                .code(),
            absl::StatusCode::kPermissionDenied);
}

// The worker of a slot lives, and was only not heard, when another one finishes
// its contribution.
TEST(RosterTest, ASubstituteGivesTheSlotBack) {  // I3
  Book book(2);
  book.Grant(/*process=*/10, /*stream=*/1);
  book.roster.OnStreamLost(1, kNow);
  RegisterRequest offered = Process(20);
  offered.set_offer_low(7);
  EXPECT_FALSE(*book.Register(offered, true));
  book.Round(3);
  EXPECT_TRUE(*book.Register(offered, true));
  ASSERT_TRUE(book.OnProgress(2, Beat(0, 2)).ok());

  // Its heartbeat is told to register, and it gets a new generation.
  EXPECT_EQ(book.OnProgress(3, Beat(0, 1)).code(),
            absl::StatusCode::kUnavailable);
  EXPECT_FALSE(*book.Register(Holding(10, 1), true));
  EXPECT_EQ(book.ended, 2u);
  book.Round(3);
  EXPECT_TRUE(*book.Register(Holding(10, 1), true));
  EXPECT_TRUE(book.OnProgress(4, Beat(0, 3)).ok());

  // The substitute is replaced, as by anybody.
  EXPECT_EQ(book.OnProgress(5, Beat(0, 2)).code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(book.Register(offered, true).status().code(),
            absl::StatusCode::kPermissionDenied);
}

TEST(RosterTest, AProcessThatWasReplacedBeforeASubstituteCameStaysReplaced) {
  Book book(2);
  book.Grant(/*process=*/10, /*stream=*/1);
  book.Grant(/*process=*/11, /*stream=*/2);
  RegisterRequest offered = Process(20);
  offered.set_offer_low(7);
  EXPECT_FALSE(*book.Register(offered, true));
  book.Round();
  EXPECT_EQ(book.Register(Holding(10, 1), true).status().code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_FALSE(*book.Register(Holding(11, 2), true));
}

}  // namespace
}  // namespace weir
