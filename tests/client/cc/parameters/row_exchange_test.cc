#include "client/cc/parameters/row_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace weir {
namespace {

using testing::HasSubstr;
using Kind = Exchange::Step;

constexpr size_t kPieceBytes = 8;  // two floats

Exchange::ConnectionOptions MakeOptions(FakeClock* clock) {
  Exchange::ConnectionOptions options;
  options.shard = 1;
  options.address = "host:7";
  options.clock = clock;
  return options;
}

// Pieces of two rows of dim 1, whose lists are named 1, 2, ...
std::vector<RowPiece> Pieces(int count) {
  std::vector<RowPiece> pieces(static_cast<size_t>(count));
  for (size_t i = 0; i < pieces.size(); ++i) {
    RowPart part;
    part.picked = {2 * i, 2 * i + 1};
    part.ids = part.picked;
    part.name = i + 1;
    pieces[i].floats = 2;
    pieces[i].parts.push_back(std::move(part));
  }
  return pieces;
}

RowChunk RowsOf(uint32_t request, uint64_t version = 3) {
  RowChunk answer;
  answer.set_incarnation(5);
  answer.set_request(request);
  answer.set_version(version);
  return answer;
}

class RowPullTest : public testing::Test {
 protected:
  void Connect() {
    ASSERT_EQ(pull_.Next().kind, Kind::kConnect);
    pull_.OnConnected();
  }
  // Asks for as much as it may; returns the requests.
  std::vector<uint32_t> AskAll() {
    std::vector<uint32_t> requests;
    RowPullExchange::Action action = pull_.Next();
    for (; action.kind == Kind::kSend; action = pull_.Next()) {
      requests.push_back(action.request);
    }
    return requests;
  }
  void Answer(uint32_t request, uint64_t version = 3) {
    ASSERT_NE(pull_.OnAnswer(RowsOf(request, version), kPieceBytes), nullptr);
    EXPECT_TRUE(pull_.storing());
    pull_.OnStored(version);
    EXPECT_FALSE(pull_.storing());
  }

  FakeClock clock_;
  std::shared_ptr<KnownLists> lists_ = std::make_shared<KnownLists>();
  RowPullExchange pull_{MakeOptions(&clock_), lists_};
};

TEST_F(RowPullTest, AsksForAFewPiecesAhead) {
  EXPECT_EQ(pull_.Next().kind, Kind::kIdle);
  pull_.Start(Pieces(6));
  Connect();
  EXPECT_EQ(AskAll(), (std::vector<uint32_t>{0, 1, 2, 3}));
  EXPECT_EQ(pull_.Next().kind, Kind::kReceive);
  Answer(2);
  EXPECT_EQ(AskAll(), (std::vector<uint32_t>{4}));
  for (const uint32_t request : {0u, 1u, 3u, 4u}) {
    Answer(request);
  }
  EXPECT_FALSE(pull_.done());
  EXPECT_EQ(AskAll(), (std::vector<uint32_t>{5}));
  Answer(5);
  EXPECT_TRUE(pull_.done());
  EXPECT_EQ(pull_.Next().kind, Kind::kIdle);
}

TEST_F(RowPullTest, TheOldestVersionCounts) {
  pull_.Start(Pieces(3));
  Connect();
  AskAll();
  Answer(0, 7);
  Answer(1, 4);
  Answer(2, 9);
  EXPECT_EQ(pull_.version(), 4u);
}

TEST_F(RowPullTest, AnEncodingThatRowsNeverHaveEndsThePull) {
  for (const int encoding : {static_cast<int>(TOP_K), 99}) {
    RowPullExchange pull(MakeOptions(&clock_), lists_);
    pull.Start(Pieces(1));
    pull.OnConnected();
    pull.Next();
    RowChunk answer = RowsOf(0);
    answer.set_encoding(static_cast<Encoding>(encoding));
    EXPECT_EQ(pull.OnAnswer(answer, kPieceBytes), nullptr);
    EXPECT_EQ(pull.Next().kind, Kind::kFailed);
    EXPECT_THAT(std::string(pull.status().message()),
                HasSubstr(absl::StrCat("in encoding ", encoding)));
  }
}

TEST_F(RowPullTest, AListIsSentOnceAndAgainWhenTheShardHasForgottenIt) {
  pull_.Start(Pieces(1));
  Connect();
  EXPECT_FALSE(pull_.Next().piece->parts[0].known);
  Answer(0);
  pull_.Start(Pieces(1));
  EXPECT_TRUE(pull_.Next().piece->parts[0].known);
  RowChunk forgotten = RowsOf(0);
  forgotten.set_unknown_list(true);
  EXPECT_EQ(pull_.OnAnswer(forgotten, 0), nullptr);
  EXPECT_FALSE(pull_.Next().piece->parts[0].known);
  Answer(0);
  EXPECT_TRUE(pull_.done());
}

TEST_F(RowPullTest, AsksAgainAfterNotYet) {
  pull_.Start(Pieces(1));
  Connect();
  AskAll();
  RowChunk not_yet = RowsOf(0);
  not_yet.set_not_yet(true);
  EXPECT_EQ(pull_.OnAnswer(not_yet, 0), nullptr);
  EXPECT_EQ(AskAll(), (std::vector<uint32_t>{0}));
}

TEST_F(RowPullTest, RowsThatCameBeforeABreakAreNotAskedForAgain) {
  pull_.Start(Pieces(3));
  Connect();
  AskAll();
  Answer(1);
  pull_.OnStreamEnd(absl::UnavailableError("reset"));
  const RowPullExchange::Action pause = pull_.Next();
  EXPECT_EQ(pause.kind, Kind::kSleep);
  EXPECT_EQ(pause.until_ns - clock_.NowNs(), 50'000'000);
  clock_.Advance(std::chrono::milliseconds(50));
  Connect();
  EXPECT_EQ(AskAll(), (std::vector<uint32_t>{0, 2}));
}

TEST_F(RowPullTest, ReadsTheStatusOfAStreamWhoseSendFailed) {
  pull_.Start(Pieces(2));
  Connect();
  EXPECT_EQ(pull_.Next().kind, Kind::kSend);
  pull_.OnSendFailed();
  EXPECT_EQ(pull_.Next().kind, Kind::kReceive);
  pull_.OnStreamEnd(absl::InternalError("a bug"));
  EXPECT_EQ(pull_.Next().kind, Kind::kFailed);
  EXPECT_EQ(pull_.status(), absl::InternalError("ps 1 (host:7) a bug"));
}

TEST_F(RowPullTest, ASilentShardIsLostWhileRowsAreWaitedFor) {
  clock_.Advance(std::chrono::hours(1));  // idle time does not count
  pull_.Start(Pieces(1));
  Connect();
  AskAll();
  bool lost = false;
  for (int ms = 0; ms < 10'000 && !lost; ms += 250) {
    clock_.Advance(std::chrono::milliseconds(250));
    lost = pull_.CheckLost();
    EXPECT_EQ(lost, ms == 9750);
  }
  EXPECT_EQ(pull_.status(), absl::FailedPreconditionError(
                                "ps 1 (host:7) unreachable for 10 s"));
}

TEST_F(RowPullTest, AnAnswerToNothingOrOfAWrongSizeEndsIt) {
  pull_.Start(Pieces(1));
  Connect();
  AskAll();
  EXPECT_EQ(pull_.OnAnswer(RowsOf(1), kPieceBytes), nullptr);
  EXPECT_THAT(std::string(pull_.status().message()),
              HasSubstr("answered request 1 of 1"));
  RowPullExchange other(MakeOptions(&clock_), lists_);
  other.Start(Pieces(1));
  other.OnConnected();
  EXPECT_EQ(other.Next().kind, Kind::kSend);
  EXPECT_EQ(other.OnAnswer(RowsOf(0), 12), nullptr);
  EXPECT_THAT(std::string(other.status().message()),
              HasSubstr("12 bytes for 2 floats"));
}

TEST_F(RowPullTest, AnswersAreIgnoredOnceNobodyWants) {
  pull_.Start(Pieces(2));
  Connect();
  AskAll();
  pull_.GiveUp();
  EXPECT_TRUE(pull_.done());
  EXPECT_EQ(pull_.OnAnswer(RowsOf(0), kPieceBytes), nullptr);
  EXPECT_EQ(pull_.Next().kind, Kind::kIdle);
  EXPECT_TRUE(pull_.status().ok());
}

PushRowsReply ReplyOf(Receipt::Outcome outcome, uint64_t incarnation = 5) {
  PushRowsReply reply;
  reply.set_incarnation(incarnation);
  reply.mutable_receipt()->set_outcome(outcome);
  return reply;
}

class RowPushTest : public testing::Test {
 protected:
  void StartAndSend() {
    push_.Start(Pieces(2));
    ASSERT_EQ(push_.Next().kind, Kind::kConnect);
    push_.OnConnected();
    ASSERT_EQ(push_.Next().kind, Kind::kSend);
  }

  FakeClock clock_;
  std::shared_ptr<KnownLists> lists_ = std::make_shared<KnownLists>();
  RowPushExchange push_{MakeOptions(&clock_), lists_};
};

TEST_F(RowPushTest, IsDoneWithItsReceipt) {
  StartAndSend();
  EXPECT_FALSE(push_.done());
  push_.OnReply(ReplyOf(Receipt::DUPLICATE));
  EXPECT_TRUE(push_.done());
  EXPECT_EQ(push_.reply().receipt().outcome(), Receipt::DUPLICATE);
  EXPECT_EQ(push_.Next().kind, Kind::kIdle);
}

TEST_F(RowPushTest, ADeferredPushGoesAgainAfterAPause) {
  StartAndSend();
  push_.OnReply(ReplyOf(Receipt::DEFERRED));
  const Exchange::Step pause = push_.Next();
  EXPECT_EQ(pause.kind, Kind::kSleep);
  EXPECT_EQ(pause.until_ns - clock_.NowNs(), 10'000'000);
  clock_.Advance(std::chrono::milliseconds(10));
  EXPECT_EQ(push_.Next().kind, Kind::kSend);
  EXPECT_TRUE(push_.pieces()[0].parts[0].known);  // it has the lists
}

TEST_F(RowPushTest, AllListsAreSentAgainWhenOneIsForgotten) {
  StartAndSend();
  push_.OnReply(ReplyOf(Receipt::ACCEPTED));
  push_.Start(Pieces(2));
  EXPECT_EQ(push_.Next().kind, Kind::kSend);
  EXPECT_TRUE(push_.pieces()[1].parts[0].known);
  PushRowsReply forgotten = ReplyOf(Receipt::NONE);
  forgotten.set_unknown_list(true);
  push_.OnReply(forgotten);
  EXPECT_FALSE(push_.done());
  EXPECT_EQ(push_.Next().kind, Kind::kSend);
  EXPECT_FALSE(push_.pieces()[1].parts[0].known);
}

TEST_F(RowPushTest, CallsThatFailForLostAfterMeanALostShard) {
  StartAndSend();
  for (int ms = 0; ms < 10'000; ms += 500) {
    push_.OnCallEnd(absl::UnavailableError("refused"), /*silent=*/false);
    ASSERT_TRUE(push_.status().ok()) << ms;
    clock_.Advance(std::chrono::milliseconds(500));
  }
  push_.OnCallEnd(absl::UnavailableError("refused"), /*silent=*/false);
  EXPECT_EQ(push_.status(), absl::FailedPreconditionError(
                                "ps 1 (host:7) unreachable for 10 s: refused"));
}

TEST_F(RowPushTest, APsThatSaysHelloMayTakeItsTime) {
  StartAndSend();
  for (int i = 0; i < 5; ++i) {
    push_.OnCallEnd(absl::DeadlineExceededError("late"), /*silent=*/false);
    clock_.Advance(std::chrono::seconds(15));
    ASSERT_TRUE(push_.status().ok());
  }
  push_.OnCallEnd(absl::DeadlineExceededError("late"), /*silent=*/true);
  EXPECT_EQ(push_.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(RowPushTest, AProcessThatAnotherExchangeHasNotMetEndsIt) {
  const Exchange::ConnectionOptions options = MakeOptions(&clock_);
  RowPullExchange pull(options, lists_);
  RowPushExchange push(options, lists_);
  pull.Start(Pieces(1));
  pull.OnConnected();
  pull.Next();
  pull.OnAnswer(RowsOf(0), kPieceBytes);  // of process 5
  push.Start(Pieces(1));
  push.OnReply(ReplyOf(Receipt::ACCEPTED, /*incarnation=*/6));
  EXPECT_THAT(std::string(push.status().message()), HasSubstr("restarted"));
  EXPECT_FALSE(push.done());
}

}  // namespace
}  // namespace weir
