#include "server/ps/rows/row_checks.h"

#include <cmath>
#include <limits>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "proto/wire/id_list.h"
#include "tests/server/ps/store/store_tester.h"

namespace weir {
namespace {

using absl::StatusCode;

// Two tables, of dim 2 and 1.
Declaration Job() {
  return ParseDeclaration(
      "table { name: 't' dim: 2 } table { name: 'u' dim: 1 }");
}

PullRowsChunk Pull(uint32_t table, uint32_t count) {
  PullRowsChunk request;
  request.mutable_sender()->set_generation(1);
  request.mutable_want()->set_latest(true);
  request.add_list()->set_table(table);
  request.mutable_list(0)->set_count(count);
  return request;
}

TEST(RowChecksTest, APullSaysWhatItWantsInAnEncodingOfFixedSize) {
  const Declaration job = Job();
  EXPECT_TRUE(CheckPullRows(job, Pull(1, 5)).ok());
  PullRowsChunk no_want = Pull(1, 5);
  no_want.clear_want();
  EXPECT_EQ(CheckPullRows(job, no_want).code(), StatusCode::kInvalidArgument);
  PullRowsChunk sparse = Pull(1, 5);
  sparse.mutable_want()->set_encoding(TOP_K);
  EXPECT_EQ(CheckPullRows(job, sparse).code(), StatusCode::kInvalidArgument);
}

TEST(RowChecksTest, AReaderDoesNotTrain) {
  const Declaration job = Job();
  PullRowsChunk request = Pull(0, 5);
  request.mutable_sender()->set_generation(0);
  EXPECT_TRUE(CheckPullRows(job, request).ok());
  request.set_train(true);
  EXPECT_EQ(CheckPullRows(job, request).code(), StatusCode::kPermissionDenied);
  request.mutable_sender()->set_generation(1);
  EXPECT_TRUE(CheckPullRows(job, request).ok());
}

TEST(RowChecksTest, AnAnswerFitsIntoOneMessage) {
  const Declaration job = Job();
  const auto most = static_cast<uint32_t>(kRowBytesMax / (2 * sizeof(float)));
  EXPECT_TRUE(CheckPullRows(job, Pull(0, most)).ok());
  EXPECT_FALSE(CheckPullRows(job, Pull(0, most + 1)).ok());
  // count * dim * 4 does not fit into 32 bits.
  EXPECT_FALSE(CheckPullRows(job, Pull(0, UINT32_MAX)).ok());
  // All lists of a request count together.
  PullRowsChunk two = Pull(0, most);
  two.add_list()->set_table(1);
  two.mutable_list(1)->set_count(1);
  EXPECT_FALSE(CheckPullRows(job, two).ok());
}

TEST(RowChecksTest, NamesATableThatTheJobDoesNotHave) {
  const absl::Status status = CheckPullRows(Job(), Pull(2, 1));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "table 2 of 2 tables"));
}

PushRowsChunk Piece(uint32_t slot, uint64_t sequence) {
  PushRowsChunk chunk;
  chunk.mutable_sender()->set_slot(slot);
  chunk.mutable_push()->set_sequence(sequence);
  return chunk;
}

TEST(RowChecksTest, AllPiecesAreOfOneContribution) {
  const Declaration job = Job();
  StagedPush update;
  EXPECT_TRUE(CheckPushPiece(job, Piece(1, 4), update).ok());
  update.begun = true;
  update.sender.set_slot(1);
  update.push.set_sequence(4);
  EXPECT_TRUE(CheckPushPiece(job, Piece(1, 4), update).ok());
  EXPECT_FALSE(CheckPushPiece(job, Piece(1, 5), update).ok());
  EXPECT_FALSE(CheckPushPiece(job, Piece(2, 4), update).ok());
}

TEST(RowChecksTest, RefusesWeightsAndRatesThatNoOptimizerTakes) {
  const Declaration job = Job();
  const auto with_weight = [&](float weight) {
    PushRowsChunk chunk = Piece(0, 0);
    chunk.mutable_push()->set_weight(weight);
    return CheckPushPiece(job, chunk, StagedPush()).ok();
  };
  EXPECT_TRUE(with_weight(0.0f));
  EXPECT_FALSE(with_weight(-0.5f));
  EXPECT_FALSE(with_weight(std::nanf("")));

  const auto with_rate = [&](uint32_t table, double rate) {
    PushRowsChunk chunk = Piece(0, 0);
    chunk.add_rate()->set_table(table);
    chunk.mutable_rate(0)->set_learning_rate(rate);
    return CheckPushPiece(job, chunk, StagedPush()).ok();
  };
  EXPECT_TRUE(with_rate(1, 0.0));
  EXPECT_FALSE(with_rate(2, 0.1));
  EXPECT_FALSE(with_rate(0, -0.1));
  EXPECT_FALSE(with_rate(0, std::numeric_limits<double>::infinity()));
}

TEST(RowChecksTest, RatesOfAllPiecesAreBoundedByTheTables) {
  const Declaration job = Job();
  StagedPush update;
  update.rates.resize(1);
  PushRowsChunk chunk = Piece(0, 0);
  chunk.add_rate()->set_learning_rate(0.1);
  EXPECT_TRUE(CheckPushPiece(job, chunk, update).ok());
  update.rates.resize(2);
  EXPECT_FALSE(CheckPushPiece(job, chunk, update).ok());
}

}  // namespace
}  // namespace weir
