#include "server/ps/service/answer_flow.h"

#include <new>
#include <utility>

#include "common/io/crc32c.h"
#include "gtest/gtest.h"
#include "tests/server/ps/store/store_tester.h"

namespace weir {
namespace {

constexpr int kBlocks = 8;

Declaration Job(const std::string& update = "async {}") {
  return ParseDeclaration(
      "variable { name: 'a' shape: 512 }"
      "group { optimizer { sgd {} } schedule { learning_rate: 1 } }"
      "update { " +
      update + " }");
}

// Keeps what it is given to write until the test reports it.
class Flow : public AnswerFlow {
 public:
  Flow(Store* store, size_t window, Arena* arena = Arena::Heap())
      : AnswerFlow(store, arena, window) {}
  using AnswerFlow::ClientGone;

  // Asks for all blocks as one question.
  void AskForAll(const Sender& sender, const Want& want) {
    Question question;
    question.sender = sender;
    question.want = want;
    question.count = kBlocks;
    Ask(std::move(question));
  }
  static const ValueChunk& Values(const Answer& answer) {
    return std::get<ValueChunk>(answer.header);
  }
  // Reports the answer that was written first.
  void ReportWritten(bool ok = true) {
    Answer first = std::move(writing.front());
    writing.pop_front();
    first.values = BlockRef();
    OnWritten(first.question, ok);
  }

  std::deque<Answer> writing;
  std::vector<uint32_t> blocks;  // of all writes, in order
  std::vector<absl::Status> ends;
  int answered = 0;

 private:
  void Write(Answer&& answer, bool last) override {
    EXPECT_TRUE(ends.empty());
    blocks.push_back(Values(answer).block());
    if (last) {
      EXPECT_TRUE(writing.empty());
      ends.push_back(absl::OkStatus());
    } else {
      writing.push_back(std::move(answer));
    }
  }
  void Finish(const absl::Status& status) override {
    EXPECT_TRUE(writing.empty());
    ends.push_back(status);
  }
  void OnAnswered() override { ++answered; }
};

TEST(AnswerFlowTest, KeepsTheWindowAndEndsAfterTheLastAnswer) {
  StoreTester ps(Job());
  const auto flow = std::make_shared<Flow>(ps.store.get(), 2);
  flow->AskForAll(ps.SenderOf(0), LatestWant());
  flow->NoMoreQuestions();
  while (!flow->writing.empty()) {
    EXPECT_LE(flow->writing.size(), 2u);
    EXPECT_TRUE(flow->ends.empty());
    flow->ReportWritten();
  }
  EXPECT_EQ(flow->blocks, (std::vector<uint32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(flow->answered, 1);  // one question
  ASSERT_EQ(flow->ends.size(), 1u);
  EXPECT_TRUE(flow->ends[0].ok());
}

TEST(AnswerFlowTest, PinsOnlyWhatWaitsForItsTurn) {
  CountingArena arena;
  StoreTester ps(Job(), 0, true, &arena);
  const auto flow = std::make_shared<Flow>(ps.store.get(), 1);
  flow->AskForAll(ps.SenderOf(0), LatestWant());
  ASSERT_EQ(flow->writing.size(), 1u);
  // A push replaces the buffer of a block that somebody holds.
  const int64_t before = arena.bytes();
  for (int b = 0; b < kBlocks; ++b) {
    ASSERT_TRUE(ps.PushConstant(ps.Chunk(0, 0, b, 0), 1.0f).ok());
  }
  const auto pinned = static_cast<int64_t>(1 + AnswerFlow::kReadyMax);
  EXPECT_EQ(arena.bytes() - before,
            pinned * 64 * static_cast<int64_t>(sizeof(float)));
  flow->ClientGone();
}

TEST(AnswerFlowTest, AnErrorWaitsForWhatIsUnderWayAndDropsTheRest) {
  StoreTester ps(Job());
  const auto flow = std::make_shared<Flow>(ps.store.get(), 1);
  flow->AskForAll(ps.SenderOf(0), LatestWant());
  flow->Fail(absl::DataLossError("first"));
  flow->Fail(absl::InternalError("second"));
  EXPECT_TRUE(flow->ended());
  EXPECT_TRUE(flow->ends.empty());
  flow->ReportWritten();
  EXPECT_TRUE(flow->writing.empty());
  ASSERT_EQ(flow->ends.size(), 1u);
  EXPECT_EQ(flow->ends[0], absl::DataLossError("first"));
}

TEST(AnswerFlowTest, WritesNothingToAClientThatIsGone) {
  StoreTester ps(Job());
  const auto flow = std::make_shared<Flow>(ps.store.get(), 1);
  flow->AskForAll(ps.SenderOf(0), LatestWant());
  flow->ReportWritten(/*ok=*/false);
  EXPECT_TRUE(flow->ended());
  flow->NoMoreQuestions();
  flow->Fail(absl::InternalError("too late"));
  EXPECT_EQ(flow->blocks.size(), 1u);
  EXPECT_TRUE(flow->writing.empty());
  EXPECT_TRUE(flow->ends.empty());
}

TEST(AnswerFlowTest, APushWithoutAWantIsAcknowledged) {
  StoreTester ps(Job());
  const auto flow = std::make_shared<Flow>(ps.store.get(), 1);
  ASSERT_TRUE(flow->Take(ps.Chunk(0, 0, 3, 0),
                         MakePayload(std::vector<float>(64, 1.0f)))
                  .ok());
  ASSERT_EQ(flow->writing.size(), 1u);
  EXPECT_EQ(Flow::Values(flow->writing[0]).receipt().outcome(),
            Receipt::ACCEPTED);
  EXPECT_EQ(Flow::Values(flow->writing[0]).block(), 3u);
  EXPECT_FALSE(flow->writing[0].values);
  flow->ReportWritten();
  EXPECT_EQ(flow->answered, 1);

  GradientChunk neither;
  *neither.mutable_sender() = ps.SenderOf(0);
  EXPECT_EQ(flow->Take(neither, Payload()).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(AnswerFlowTest, AWantSeesThePushThatItCameWith) {
  StoreTester ps(Job("sync { contributions: 1 }"));
  const auto flow = std::make_shared<Flow>(ps.store.get(), 1);
  GradientChunk chunk = ps.Chunk(0, 0, 0, 0);
  *chunk.mutable_want() = VersionWant(1);
  ASSERT_TRUE(
      flow->Take(chunk, MakePayload(std::vector<float>(64, 1.0f))).ok());
  ASSERT_EQ(flow->writing.size(), 1u);
  EXPECT_EQ(Flow::Values(flow->writing[0]).version(), 1u);
  EXPECT_EQ(flow->writing[0].values.data()[0], -1.0f);
  EXPECT_TRUE(Flow::Values(flow->writing[0]).has_receipt());
  flow->ReportWritten();
}

TEST(AnswerFlowTest, AWantThatRunsOutIsNotYetOrEndsTheFlow) {
  StoreTester ps(Job("sync { contributions: 1 }"));
  for (const bool fails : {false, true}) {
    const auto flow = std::make_shared<Flow>(ps.store.get(), 1);
    Flow::Question question;
    question.sender = ps.SenderOf(0);
    question.want = VersionWant(1, 100);
    question.count = 1;
    question.not_yet_fails = fails;
    flow->Ask(std::move(question));
    EXPECT_TRUE(flow->writing.empty());
    ps.clock.Advance(std::chrono::milliseconds(200));
    ps.store->ExpireWaits();
    if (fails) {
      ASSERT_EQ(flow->ends.size(), 1u);
      EXPECT_EQ(flow->ends[0].code(), absl::StatusCode::kDeadlineExceeded);
    } else {
      ASSERT_EQ(flow->writing.size(), 1u);
      EXPECT_TRUE(Flow::Values(flow->writing[0]).not_yet());
      EXPECT_FALSE(flow->writing[0].values);
      flow->ReportWritten();
    }
  }
}

TEST(AnswerFlowTest, ValuesTravelInEncodingsOfFixedSizeOnly) {
  StoreTester ps(Job());
  const auto flow = std::make_shared<Flow>(ps.store.get(), 1);
  Want want = LatestWant();
  want.set_encoding(TOP_K);
  flow->AskForAll(ps.SenderOf(0), want);
  ASSERT_EQ(flow->ends.size(), 1u);
  EXPECT_EQ(flow->ends[0].code(), absl::StatusCode::kInvalidArgument);
}

TEST(AnswerFlowTest, BlocksThatHoldBuffersLeaveAsFloat32) {
  // The last of the eight blocks has 16 weights and the buffer.
  StoreTester ps(ParseDeclaration(
      "variable { name: 'w' shape: 464 }"
      "variable { name: 'batches' kind: BUFFER buffer_rate: 1 }"
      "group { optimizer { sgd {} } schedule { learning_rate: 1 } }"
      "update { async {} }"));
  std::vector<float> gradient(32, -0.001f);
  gradient[16] = 1001.0f;
  ASSERT_TRUE(ps.Push(ps.Chunk(0, 0, 7, 0), gradient).ok());
  for (const Encoding encoding : {BF16, F16, INT8}) {
    const auto flow = std::make_shared<Flow>(ps.store.get(), kBlocks);
    Want want = LatestWant();
    want.set_encoding(encoding);
    flow->AskForAll(ps.SenderOf(0), want);
    ASSERT_EQ(flow->writing.size(), size_t{kBlocks});
    EXPECT_EQ(Flow::Values(flow->writing[6]).encoding(), encoding);
    const AnswerFlow::Answer& last = flow->writing[7];
    EXPECT_EQ(Flow::Values(last).encoding(), F32);
    ASSERT_EQ(last.bytes, 32 * sizeof(float));
    EXPECT_EQ(last.values.data()[15], 0.001f);
    EXPECT_EQ(last.values.data()[16], 1001.0f);
    flow->ClientGone();
  }
}

TEST(AnswerFlowTest, AChecksumIsOfTheBytesThatLeave) {
  for (const char* update : {"async {}", "async { lock_free: true }"}) {
    StoreTester ps(Job(update));
    const auto flow = std::make_shared<Flow>(ps.store.get(), kBlocks);
    Want want = LatestWant();
    want.set_checksum(true);
    flow->AskForAll(ps.SenderOf(0), want);
    ASSERT_EQ(flow->writing.size(), size_t{kBlocks});
    // The answer waits for a slow network, and somebody pushes.
    ASSERT_TRUE(ps.PushConstant(ps.Chunk(0, 0, 0, 0), 1.0f).ok());
    const AnswerFlow::Answer& answer = flow->writing[0];
    EXPECT_EQ(Crc32c(answer.values.data(), answer.bytes),
              Flow::Values(answer).crc32c())
        << update;
    flow->ClientGone();
  }
}

TEST(AnswerFlowTest, Float32LeavesWithoutACopyUnlessItMayChangeUnderAChecksum) {
  for (const bool lock_free : {false, true}) {
    StoreTester ps(Job(lock_free ? "async { lock_free: true }" : "async {}"));
    for (const bool checksum : {false, true}) {
      const auto flow = std::make_shared<Flow>(ps.store.get(), kBlocks);
      Want want = LatestWant();
      want.set_checksum(checksum);
      flow->AskForAll(ps.SenderOf(0), want);
      ASSERT_EQ(flow->writing.size(), size_t{kBlocks});
      EXPECT_EQ(flow->writing[0].values.data() != ps.Latest(0).values.data(),
                lock_free && checksum);
      flow->ClientGone();
    }
  }
}

// Has no memory.
class EmptyArena : public Arena {
 public:
  void* Allocate(size_t) override { throw std::bad_alloc(); }
  void Free(void*, size_t) override {}
};

TEST(AnswerFlowTest, AnAnswerThatFindsNoMemoryEndsTheFlow) {
  EmptyArena empty;
  StoreTester ps(Job());
  const auto flow = std::make_shared<Flow>(ps.store.get(), 1, &empty);
  Want want = LatestWant();
  want.set_encoding(BF16);  // float32 needs no memory to leave
  flow->AskForAll(ps.SenderOf(0), want);
  EXPECT_TRUE(flow->blocks.empty());
  ASSERT_EQ(flow->ends.size(), 1u);
  EXPECT_EQ(flow->ends[0].code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace weir
