#include "client/cc/parameters/shard_exchange.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "proto/wire/value_encoding.h"

namespace weir {
namespace {

using Kind = ShardExchange::Action;

ShardExchange::Options MakeOptions(FakeClock* clock, size_t blocks) {
  ShardExchange::Options options;
  options.shard = 1;
  options.address = "host:7";
  options.elements.assign(blocks, 1024);
  options.in_flight_bytes_max = int64_t{3} * 4096;
  options.clock = clock;
  return options;
}

Push Contribution(uint64_t sequence) {
  Push push;
  push.set_sequence(sequence);
  return push;
}

ValueChunk ReceiptFor(uint64_t sequence, uint32_t block,
                      Receipt::Outcome outcome = Receipt::ACCEPTED,
                      uint32_t count = 1) {
  ValueChunk answer;
  answer.set_incarnation(5);
  answer.set_block(block);
  answer.set_block_count(count);
  answer.mutable_receipt()->set_sequence(sequence);
  answer.mutable_receipt()->set_outcome(outcome);
  return answer;
}

ValueChunk ValueFor(uint32_t block, uint64_t version) {
  ValueChunk answer;
  answer.set_incarnation(5);
  answer.set_block(block);
  answer.set_version(version);
  return answer;
}

void Connect(ShardExchange* exchange) {
  ASSERT_EQ(exchange->Next().kind, Kind::kConnect);
  exchange->OnConnected();
}

// Time in which the owner looks as often as it should. Whether the shard was
// lost.
bool LostWithin(FakeClock* clock, ShardExchange* exchange,
                std::chrono::milliseconds time) {
  // Options above leave lost_after at its default.
  const auto period =
      PeerWatch(Exchange::ConnectionOptions().lost_after).period();
  bool lost = exchange->CheckLost();
  for (auto left = time; left.count() > 0 && !lost;) {
    const auto step = std::min(left, period);
    clock->Advance(step);
    left -= step;
    lost = exchange->CheckLost();
  }
  return lost;
}

Want VersionWanted(uint64_t version) {
  Want want;
  want.set_version(version);
  return want;
}

TEST(ShardExchangeTest, SendsTheFirstReadyBlockFirst) {
  FakeClock clock;
  ShardExchange exchange(MakeOptions(&clock, 4));
  exchange.BeginContribution(Sender(), Contribution(0));
  EXPECT_EQ(exchange.Next().kind, Kind::kIdle);
  for (const int block : {3, 1, 2}) {
    exchange.BlockReady(block, true, {});
  }
  Connect(&exchange);
  EXPECT_EQ(exchange.Next().header.block(), 1u);
  EXPECT_EQ(exchange.Next().header.block(), 2u);
  exchange.BlockReady(0, true, {});
  EXPECT_EQ(exchange.Next().header.block(), 0u);
}

TEST(ShardExchangeTest, BoundsPayloadInFlight) {
  FakeClock clock;
  ShardExchange exchange(MakeOptions(&clock, 4));
  exchange.BeginContribution(Sender(), Contribution(0));
  for (int block = 0; block < 4; ++block) {
    exchange.BlockReady(block, true, {});
  }
  Connect(&exchange);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(exchange.Next().kind, Kind::kSend);
  }
  EXPECT_EQ(exchange.Next().kind, Kind::kReceive);
  exchange.OnAnswer(ReceiptFor(0, 0), 0);
  EXPECT_EQ(exchange.Next().kind, Kind::kSend);
}

TEST(ShardExchangeTest, LeftOutBlocksTravelAsOneRun) {
  FakeClock clock;
  ShardExchange exchange(MakeOptions(&clock, 4));
  exchange.BeginContribution(Sender(), Contribution(4));
  exchange.BlockReady(0, true, {2, 7});
  for (int block = 1; block < 4; ++block) {
    exchange.BlockReady(block, false, {0});
  }
  Connect(&exchange);
  const ShardExchange::Action payload = exchange.Next();
  EXPECT_TRUE(payload.payload);
  EXPECT_EQ(payload.header.push().left_out_size(), 2);
  const ShardExchange::Action run = exchange.Next();
  EXPECT_FALSE(run.payload);
  EXPECT_EQ(run.header.block(), 1u);
  EXPECT_EQ(run.header.block_count(), 3u);
  EXPECT_EQ(run.header.push().sequence(), 4u);
  exchange.OnAnswer(ReceiptFor(4, 1, Receipt::ACCEPTED, 3), 0);
  EXPECT_FALSE(exchange.contribution_done());
  exchange.OnAnswer(ReceiptFor(4, 0), 0);
  EXPECT_TRUE(exchange.contribution_done());
}

TEST(ShardExchangeTest, AsksForValuesBehindTheContribution) {
  FakeClock clock;
  ShardExchange exchange(MakeOptions(&clock, 3));
  exchange.BeginContribution(Sender(), Contribution(0));
  for (int block = 0; block < 3; ++block) {
    exchange.BlockReady(block, true, {});
  }
  exchange.StartWants(Sender(), VersionWanted(1));
  Connect(&exchange);
  for (int i = 0; i < 3; ++i) {
    const ShardExchange::Action push = exchange.Next();
    EXPECT_TRUE(push.header.has_push());
    EXPECT_FALSE(push.header.has_want());
  }
  const ShardExchange::Action ask = exchange.Next();
  EXPECT_TRUE(ask.header.has_want());
  EXPECT_EQ(ask.header.block(), 0u);
  EXPECT_EQ(ask.header.block_count(), 3u);
  EXPECT_EQ(exchange.Next().kind, Kind::kReceive);
}

TEST(ShardExchangeTest, BoundsLatestValuesInFlight) {
  FakeClock clock;
  ShardExchange exchange(MakeOptions(&clock, 5));
  Want want;
  want.set_latest(true);
  exchange.StartWants(Sender(), want);
  Connect(&exchange);
  ShardExchange::Action action = exchange.Next();
  EXPECT_EQ(action.kind, Kind::kSend);
  EXPECT_EQ(action.header.block_count(), 3u);
  EXPECT_EQ(exchange.Next().kind, Kind::kReceive);
  ASSERT_EQ(exchange.OnAnswer(ValueFor(0, 1), 4096), 0);
  exchange.OnStored(0, 1);
  action = exchange.Next();
  EXPECT_EQ(action.header.block(), 3u);
  EXPECT_EQ(action.header.block_count(), 1u);
  EXPECT_EQ(exchange.Next().kind, Kind::kReceive);
  // A broken stream loses what was asked for; everything left is asked again.
  exchange.OnStreamEnd(absl::UnavailableError("reset"));
  clock.Advance(std::chrono::seconds(1));
  Connect(&exchange);
  action = exchange.Next();
  EXPECT_EQ(action.header.block(), 1u);
  EXPECT_EQ(action.header.block_count(), 3u);
}

TEST(ShardExchangeTest, AsksForEveryBlockOfAVersionAtOnce) {
  FakeClock clock;
  ShardExchange exchange(MakeOptions(&clock, 5));
  Want want;
  want.set_version(1);
  exchange.StartWants(Sender(), want);
  Connect(&exchange);
  EXPECT_EQ(exchange.Next().header.block_count(), 5u);
}

Want LatestValues() {
  Want want;
  want.set_latest(true);
  return want;
}

// Receipt and values in one.
ValueChunk BothFor(uint64_t sequence, uint32_t block, uint64_t version) {
  ValueChunk answer = ReceiptFor(sequence, block);
  answer.set_version(version);
  return answer;
}

TEST(ShardExchangeTest, AWantWithTheContributionTravelsInThePush) {
  FakeClock clock;
  ShardExchange exchange(MakeOptions(&clock, 3));
  exchange.BeginContribution(Sender(), Contribution(4));
  exchange.WantWithContribution(LatestValues());
  EXPECT_EQ(exchange.wants_left(), 3);
  exchange.BlockReady(2, true, {});
  Connect(&exchange);
  ShardExchange::Action action = exchange.Next();
  EXPECT_TRUE(action.payload);
  EXPECT_TRUE(action.header.has_push() && action.header.has_want());
  EXPECT_EQ(exchange.Next().kind, Kind::kReceive);
  ASSERT_EQ(exchange.OnAnswer(BothFor(4, 2, 9), 4096), 2);
  exchange.OnStored(2, 9);
  EXPECT_EQ(exchange.wants_left(), 2);
  EXPECT_FALSE(exchange.contribution_done());
  EXPECT_EQ(exchange.Next().kind, Kind::kIdle);

  // A run that is left out asks for its values behind it.
  exchange.BlockReady(0, false, {});
  exchange.BlockReady(1, false, {});
  action = exchange.Next();
  EXPECT_TRUE(action.header.has_push());
  EXPECT_FALSE(action.header.has_want());
  action = exchange.Next();
  EXPECT_FALSE(action.header.has_push());
  EXPECT_EQ(action.header.block_count(), 2u);
  EXPECT_EQ(exchange.OnAnswer(ReceiptFor(4, 0, Receipt::ACCEPTED, 2), 0), -1);
  EXPECT_TRUE(exchange.contribution_done());
  EXPECT_EQ(exchange.wants_left(), 2);
  ASSERT_EQ(exchange.OnAnswer(ValueFor(0, 9), 4096), 0);
  exchange.OnStored(0, 9);
  ASSERT_EQ(exchange.OnAnswer(ValueFor(1, 9), 4096), 1);
  exchange.OnStored(1, 9);
  EXPECT_EQ(exchange.wants_left(), 0);
  EXPECT_EQ(exchange.Next().kind, Kind::kIdle);
}

TEST(ShardExchangeTest, AWantWithABrokenPushIsSentWithItAgain) {
  FakeClock clock;
  ShardExchange exchange(MakeOptions(&clock, 1));
  exchange.BeginContribution(Sender(), Contribution(4));
  exchange.WantWithContribution(LatestValues());
  exchange.BlockReady(0, true, {});
  Connect(&exchange);
  EXPECT_TRUE(exchange.Next().header.has_want());
  exchange.OnStreamEnd(absl::UnavailableError("reset"));
  clock.Advance(std::chrono::seconds(1));
  Connect(&exchange);
  const ShardExchange::Action action = exchange.Next();
  EXPECT_TRUE(action.header.has_push() && action.header.has_want());
  EXPECT_EQ(exchange.Next().kind, Kind::kReceive);
  ValueChunk both = BothFor(4, 0, 9);
  both.mutable_receipt()->set_outcome(Receipt::DUPLICATE);
  ASSERT_EQ(exchange.OnAnswer(both, 4096), 0);
  exchange.OnStored(0, 9);
  EXPECT_TRUE(exchange.contribution_done());
  EXPECT_EQ(exchange.wants_left(), 0);
}

// The overlap of sync: versions are asked for while later gradients are still
// being computed, each behind its own push.
TEST(ShardExchangeTest, AsksForTheVersionOfABlockAsSoonAsItsPushHasLeft) {
  FakeClock clock;
  ShardExchange exchange(MakeOptions(&clock, 4));
  exchange.BeginContribution(Sender(), Contribution(4));
  exchange.WantWithContribution(VersionWanted(5));
  exchange.BlockReady(2, true, {});
  exchange.BlockReady(3, true, {});
  Connect(&exchange);
  for (const uint32_t block : {2u, 3u}) {
    const ShardExchange::Action push = exchange.Next();
    EXPECT_TRUE(push.header.has_push());
    EXPECT_FALSE(push.header.has_want());
    EXPECT_EQ(push.header.block(), block);
  }
  const ShardExchange::Action ask = exchange.Next();
  EXPECT_FALSE(ask.header.has_push());
  EXPECT_EQ(ask.header.want().version(), 5u);
  EXPECT_EQ(ask.header.block(), 2u);
  EXPECT_EQ(ask.header.block_count(), 2u);
  // Both are parked; one thread waits for them, the other goes on sending.
  EXPECT_EQ(exchange.Next().kind, Kind::kReceive);
  EXPECT_EQ(exchange.Next(false, /*receiving=*/true).kind, Kind::kIdle);
  exchange.BlockReady(1, true, {});
  const ShardExchange::Action push = exchange.Next(false, /*receiving=*/true);
  EXPECT_TRUE(push.header.has_push());
  EXPECT_EQ(push.header.block(), 1u);
  // An answer for a block of a gradient that has not left would overwrite what
  // backward still reads: it is never asked for.
  EXPECT_EQ(exchange.Next(false, true).header.block(), 1u);
  EXPECT_EQ(exchange.Next(false, true).kind, Kind::kIdle);
}

TEST(ShardExchangeTest, AVersionIsAskedForAgainBehindTheRepeatedPush) {
  FakeClock clock;
  ShardExchange exchange(MakeOptions(&clock, 2));
  exchange.BeginContribution(Sender(), Contribution(4));
  exchange.WantWithContribution(VersionWanted(5));
  exchange.BlockReady(0, true, {});
  exchange.BlockReady(1, true, {});
  Connect(&exchange);
  EXPECT_TRUE(exchange.Next().header.has_push());
  EXPECT_TRUE(exchange.Next().header.has_push());
  EXPECT_TRUE(exchange.Next().header.has_want());
  exchange.OnAnswer(ReceiptFor(4, 1), 0);
  exchange.OnStreamEnd(absl::UnavailableError("reset"));
  clock.Advance(std::chrono::seconds(1));
  Connect(&exchange);
  ShardExchange::Action action = exchange.Next();
  EXPECT_TRUE(action.header.has_push());
  EXPECT_EQ(action.header.block(), 0u);
  action = exchange.Next();
  EXPECT_FALSE(action.header.has_push());
  EXPECT_EQ(action.header.block(), 0u);
  EXPECT_EQ(action.header.block_count(), 2u);
}

TEST(ShardExchangeTest, ParkedWantsLeaveRoomForPushes) {
  FakeClock clock;
  constexpr int kBlocks = 200;
  ShardExchange exchange(MakeOptions(&clock, kBlocks));
  exchange.BeginContribution(Sender(), Contribution(4));
  exchange.WantWithContribution(VersionWanted(5));
  int wants = 0;
  // From the last one, so that no two wants share a message.
  for (int block = kBlocks - 1; block >= 0; --block) {
    exchange.BlockReady(block, true, {});
    if (block == kBlocks - 1) {
      Connect(&exchange);
    }
    EXPECT_TRUE(exchange.Next().header.has_push());
    if (exchange.Next(false, /*receiving=*/true).kind == Kind::kSend) {
      ++wants;
    }
    exchange.OnAnswer(ReceiptFor(4, static_cast<uint32_t>(block)), 0);
  }
  EXPECT_TRUE(exchange.contribution_done());
  EXPECT_LE(wants, ShardExchange::kWantRequestsMax);
  EXPECT_GE(wants, ShardExchange::kWantRequestsMax - 1);
}

TEST(ShardExchangeTest, WantsOfPushesThatAreNotReadyAreNotLost) {
  FakeClock clock;
  ShardExchange exchange(MakeOptions(&clock, 2));
  exchange.BeginContribution(Sender(), Contribution(4));
  exchange.WantWithContribution(LatestValues());
  clock.Advance(std::chrono::hours(1));  // a long backward
  EXPECT_FALSE(exchange.CheckLost());
  EXPECT_EQ(exchange.Next().kind, Kind::kIdle);
  exchange.BlockReady(1, true, {});
  EXPECT_TRUE(LostWithin(&clock, &exchange, std::chrono::seconds(10)));
}

TEST(ShardExchangeTest, AsksAgainAfterNotYet) {
  FakeClock clock;
  ShardExchange exchange(MakeOptions(&clock, 1));
  Want want;
  want.set_version(3);
  exchange.StartWants(Sender(), want);
  Connect(&exchange);
  EXPECT_EQ(exchange.Next().kind, Kind::kSend);
  ValueChunk not_yet = ValueFor(0, 0);
  not_yet.set_not_yet(true);
  EXPECT_EQ(exchange.OnAnswer(not_yet, 0), -1);
  const ShardExchange::Action again = exchange.Next();
  EXPECT_EQ(again.kind, Kind::kSend);
  EXPECT_EQ(again.header.want().version(), 3u);
  EXPECT_EQ(exchange.OnAnswer(ValueFor(0, 3), 4096), 0);
  exchange.OnStored(0, 3);
  EXPECT_EQ(exchange.wants_left(), 0);
}

TEST(ShardExchangeTest, TakesValuesAsTheyWereWantedOrAsFloat32) {
  FakeClock clock;
  for (const Encoding encoding : {F32, BF16, INT8}) {
    ShardExchange exchange(MakeOptions(&clock, 1));
    Want want;
    want.set_latest(true);
    want.set_encoding(BF16);
    exchange.StartWants(Sender(), want);
    Connect(&exchange);
    EXPECT_EQ(exchange.Next().kind, Kind::kSend);
    ValueChunk answer = ValueFor(0, 3);
    answer.set_encoding(encoding);
    const bool taken = encoding != INT8;
    EXPECT_EQ(exchange.OnAnswer(answer, EncodedBytes(encoding, 1024)) == 0,
              taken);
    EXPECT_EQ(exchange.status().ok(), taken);
  }
}

TEST(ShardExchangeTest, ResendsWithTheSameIdentityAfterABreak) {
  FakeClock clock;
  ShardExchange exchange(MakeOptions(&clock, 2));
  exchange.BeginContribution(Sender(), Contribution(9));
  exchange.BlockReady(0, true, {});
  exchange.BlockReady(1, true, {});
  Connect(&exchange);
  exchange.Next();
  exchange.Next();
  exchange.OnAnswer(ReceiptFor(9, 0), 0);
  exchange.OnStreamEnd(absl::UnavailableError("reset"));
  const ShardExchange::Action pause = exchange.Next();
  EXPECT_EQ(pause.kind, Kind::kSleep);
  EXPECT_EQ(pause.until_ns - clock.NowNs(), 50'000'000);
  clock.Advance(std::chrono::milliseconds(50));
  Connect(&exchange);
  const ShardExchange::Action again = exchange.Next();
  EXPECT_EQ(again.kind, Kind::kSend);
  EXPECT_EQ(again.header.block(), 1u);
  EXPECT_EQ(again.header.push().sequence(), 9u);
  exchange.OnAnswer(ReceiptFor(9, 1, Receipt::DUPLICATE), 0);
  EXPECT_TRUE(exchange.contribution_done());
  EXPECT_EQ(exchange.receipts().duplicates, 1u);
}

TEST(ShardExchangeTest, BackoffDoublesToItsMaximumAndResets) {
  FakeClock clock;
  ShardExchange exchange(MakeOptions(&clock, 1));
  exchange.BeginContribution(Sender(), Contribution(0));
  exchange.BlockReady(0, true, {});
  int64_t pauses_ms[6];
  for (int64_t& pause_ms : pauses_ms) {
    Connect(&exchange);
    exchange.OnStreamEnd(absl::UnavailableError("refused"));
    const int64_t pause = exchange.Next().until_ns - clock.NowNs();
    pause_ms = pause / 1'000'000;
    clock.Advance(std::chrono::nanoseconds(pause));
  }
  EXPECT_EQ(pauses_ms[0], 50);
  EXPECT_EQ(pauses_ms[1], 100);
  EXPECT_EQ(pauses_ms[5], 1000);
}

TEST(ShardExchangeTest, GivesUpAfterLostAfterNamingTheShard) {
  FakeClock clock;
  ShardExchange exchange(MakeOptions(&clock, 1));
  clock.Advance(std::chrono::hours(1));  // idle time does not count
  exchange.BeginContribution(Sender(), Contribution(0));
  exchange.BlockReady(0, true, {});
  Connect(&exchange);
  exchange.OnStreamEnd(absl::UnavailableError("refused"));
  EXPECT_FALSE(LostWithin(&clock, &exchange, std::chrono::milliseconds(9999)));
  EXPECT_TRUE(LostWithin(&clock, &exchange, std::chrono::milliseconds(1)));
  EXPECT_EQ(exchange.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(exchange.status().message(),
            "ps 1 (host:7) unreachable for 10 s: refused");
  EXPECT_EQ(exchange.Next().kind, Kind::kFailed);
}

// An answer of a slow link takes longer than lost_after.
TEST(ShardExchangeTest, WaitsWhileBytesFlow) {
  FakeClock clock;
  ShardExchange exchange(MakeOptions(&clock, 1));
  exchange.BeginContribution(Sender(), Contribution(0));
  exchange.BlockReady(0, true, {});
  Connect(&exchange);
  exchange.Next();
  ASSERT_FALSE(LostWithin(&clock, &exchange, std::chrono::seconds(2)));
  EXPECT_FALSE(exchange.WantsTraffic());  // too early to ask
  ASSERT_FALSE(LostWithin(&clock, &exchange, std::chrono::seconds(1)));
  EXPECT_TRUE(exchange.WantsTraffic());
  int64_t bytes = 5000;
  exchange.NoteTraffic(bytes);
  for (int second = 0; second < 60; ++second) {
    bytes += 120000;
    exchange.NoteTraffic(bytes);
    ASSERT_FALSE(LostWithin(&clock, &exchange, std::chrono::seconds(1)));
  }
  EXPECT_TRUE(LostWithin(&clock, &exchange, std::chrono::seconds(10)));
}

TEST(ShardExchangeTest, AProcessThatSleptDoesNotBlameTheShard) {
  FakeClock clock;
  ShardExchange exchange(MakeOptions(&clock, 1));
  exchange.BeginContribution(Sender(), Contribution(0));
  exchange.BlockReady(0, true, {});
  Connect(&exchange);
  exchange.Next();
  ASSERT_FALSE(LostWithin(&clock, &exchange, std::chrono::seconds(5)));
  clock.Advance(std::chrono::seconds(12));  // SIGSTOP, then SIGCONT
  // Whoever comes first: a stream that broke meanwhile, or the watcher.
  exchange.OnStreamEnd(absl::UnavailableError("reset"));
  EXPECT_TRUE(exchange.status().ok());
  EXPECT_FALSE(LostWithin(&clock, &exchange, std::chrono::seconds(9)));
  EXPECT_TRUE(LostWithin(&clock, &exchange, std::chrono::seconds(2)));
}

TEST(ShardExchangeTest, AChangedIncarnationEndsIt) {
  FakeClock clock;
  ShardExchange exchange(MakeOptions(&clock, 2));
  exchange.BeginContribution(Sender(), Contribution(0));
  exchange.BlockReady(0, true, {});
  exchange.BlockReady(1, true, {});
  Connect(&exchange);
  exchange.Next();
  exchange.Next();
  exchange.OnAnswer(ReceiptFor(0, 0), 0);
  ValueChunk other = ReceiptFor(0, 1);
  other.set_incarnation(6);
  exchange.OnAnswer(other, 0);
  EXPECT_EQ(exchange.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(ShardExchangeTest, SendsADeferredBlockAgainAfterAPause) {
  FakeClock clock;
  ShardExchange exchange(MakeOptions(&clock, 1));
  exchange.BeginContribution(Sender(), Contribution(0));
  exchange.BlockReady(0, true, {});
  Want want;
  want.set_version(1);
  exchange.StartWants(Sender(), want);
  Connect(&exchange);
  exchange.Next();  // push
  exchange.Next();  // want
  exchange.OnAnswer(ReceiptFor(0, 0, Receipt::DEFERRED), 0);
  // The parked want must not keep the block from going again: one thread waits
  // for the answer, the other for the pause to end.
  EXPECT_TRUE(exchange.has_deferred());
  EXPECT_EQ(exchange.Next().kind, Kind::kReceive);
  EXPECT_EQ(exchange.Next(false, /*receiving=*/true).kind, Kind::kSleep);
  clock.Advance(std::chrono::milliseconds(10));
  EXPECT_TRUE(exchange.Next(false, true).header.has_push());
}

TEST(ShardExchangeTest, NothingOfAContributionLeavesThroughAClosedGate) {
  FakeClock clock;
  ShardExchange exchange(MakeOptions(&clock, 2));
  Want want;
  want.set_version(1);
  exchange.StartWants(Sender(), want);
  exchange.BeginContribution(Sender(), Contribution(0));
  exchange.SetGate(false);
  exchange.BlockReady(0, true, {});
  Connect(&exchange);
  EXPECT_TRUE(exchange.Next().header.has_want());
  EXPECT_EQ(exchange.Next().kind, Kind::kReceive);
  exchange.SetGate(true);
  EXPECT_TRUE(exchange.Next().header.has_push());
}

TEST(ShardExchangeTest, ASkippedContributionIsResentOnceThenFails) {
  FakeClock clock;
  ShardExchange exchange(MakeOptions(&clock, 1));
  exchange.BeginContribution(Sender(), Contribution(3));
  exchange.BlockReady(0, true, {});
  Connect(&exchange);
  exchange.Next();
  exchange.OnStreamEnd(absl::OutOfRangeError("expected sequence number 2"));
  EXPECT_TRUE(exchange.status().ok());
  clock.Advance(std::chrono::seconds(1));
  Connect(&exchange);
  EXPECT_EQ(exchange.Next().kind, Kind::kSend);
  exchange.OnStreamEnd(absl::OutOfRangeError("expected sequence number 2"));
  EXPECT_EQ(exchange.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(ShardExchangeTest, NamesTheVariableOfABadBlock) {
  FakeClock clock;
  ShardExchange exchange(MakeOptions(&clock, 1));
  exchange.BeginContribution(Sender(), Contribution(0));
  exchange.BlockReady(0, true, {});
  Connect(&exchange);
  exchange.Next();
  ValueChunk answer = ReceiptFor(0, 0, Receipt::LEFT_OUT);
  answer.mutable_receipt()->set_bad_variable(12);
  exchange.OnAnswer(answer, 0);
  EXPECT_TRUE(exchange.contribution_done());
  EXPECT_EQ(exchange.receipts().bad_number, 12u);
}

TEST(ShardExchangeTest, ConnectsAgainWhenBothThreadsHaveLeftTheStream) {
  FakeClock clock;
  ShardExchange exchange(MakeOptions(&clock, 2));
  exchange.BeginContribution(Sender(), Contribution(0));
  exchange.BlockReady(0, true, {});
  Connect(&exchange);
  exchange.Next();
  exchange.OnStreamEnd(absl::UnavailableError("reset"));
  clock.Advance(std::chrono::seconds(1));
  EXPECT_EQ(exchange.Next(/*sending=*/true, false).kind, Kind::kIdle);
  exchange.OnSendFailed();  // of the stream that is gone
  EXPECT_EQ(exchange.Next(false, /*receiving=*/true).kind, Kind::kIdle);
  Connect(&exchange);
  EXPECT_TRUE(exchange.Next().header.has_push());
}

TEST(ShardExchangeTest, ASendThatFailsAfterTheStreamsEndChangesNothing) {
  FakeClock clock;
  ShardExchange exchange(MakeOptions(&clock, 1));
  exchange.BeginContribution(Sender(), Contribution(0));
  exchange.BlockReady(0, true, {});
  Connect(&exchange);
  EXPECT_EQ(exchange.Next().kind, Kind::kSend);
  exchange.OnStreamEnd(absl::UnavailableError("reset"));
  exchange.OnSendFailed();  // by the other thread
  clock.Advance(std::chrono::seconds(1));
  Connect(&exchange);
  EXPECT_EQ(exchange.Next().kind, Kind::kSend);
}

TEST(ShardExchangeTest, ReadsTheStatusOfAStreamWhoseSendFailed) {
  FakeClock clock;
  ShardExchange exchange(MakeOptions(&clock, 1));
  exchange.BeginContribution(Sender(), Contribution(0));
  exchange.BlockReady(0, true, {});
  Connect(&exchange);
  exchange.Next();
  exchange.OnSendFailed();
  EXPECT_EQ(exchange.Next().kind, Kind::kReceive);
  exchange.OnStreamEnd(absl::PermissionDeniedError("generation 1 of slot 0"));
  EXPECT_EQ(exchange.status().code(), absl::StatusCode::kPermissionDenied);
}

}  // namespace
}  // namespace weir
