// Speaks of tables to a store.
#ifndef TESTS_SERVER_PS_ROWS_TABLE_STORE_TESTER_H_
#define TESTS_SERVER_PS_ROWS_TABLE_STORE_TESTER_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "proto/wire/id_list.h"
#include "tests/server/ps/store/store_tester.h"

namespace weir {

inline IdList ListOf(uint32_t table, const std::vector<uint64_t>& ids,
                     uint64_t name = 0) {
  IdList list;
  list.set_table(table);
  list.set_count(static_cast<uint32_t>(ids.size()));
  list.set_deltas(EncodeIds(ids));
  list.set_name(name);
  return list;
}

// A lookup that may be parked.
struct LookupResult {
  bool done = false;
  absl::StatusOr<PulledRows> answer = absl::UnknownError("not answered");

  std::vector<float> rows() const {
    const auto* floats = answer->rows.data();
    return std::vector<float>(floats, floats + answer->bytes / sizeof(float));
  }
};

inline std::shared_ptr<LookupResult> LookUp(StoreTester& tester,
                                            PullRowsChunk request) {
  auto result = std::make_shared<LookupResult>();
  tester.store->PullRows(request, [result](absl::StatusOr<PulledRows> answer) {
    result->done = true;
    result->answer = std::move(answer);
  });
  return result;
}

inline PullRowsChunk Request(const StoreTester& tester, int slot,
                             const IdList& list, const Want& want) {
  PullRowsChunk request;
  *request.mutable_sender() = tester.SenderOf(slot);
  *request.mutable_want() = want;
  *request.add_list() = list;
  request.set_train(true);
  return request;
}

// Rows of one table, now. REQUIRES: they can be read.
inline std::vector<float> Rows(StoreTester& tester,
                               const std::vector<uint64_t>& ids,
                               uint32_t table = 0) {
  PullRowsChunk request = Request(tester, 0, ListOf(table, ids), LatestWant());
  request.mutable_sender()->set_generation(0);
  request.set_train(false);
  return LookUp(tester, request)->rows();
}

// One piece of an update; `contribution` is the sync index.
inline PushRowsChunk Piece(const StoreTester& tester, int slot,
                           uint64_t sequence, uint64_t base_version,
                           uint32_t contribution = 0) {
  PushRowsChunk chunk;
  *chunk.mutable_sender() = tester.SenderOf(slot);
  chunk.mutable_push()->set_sequence(sequence);
  chunk.mutable_push()->set_base_version(base_version);
  chunk.mutable_push()->set_index_in_step(contribution);
  chunk.set_last(true);
  return chunk;
}

struct UpdateResult {
  bool done = false;
  absl::StatusOr<PushRowsReply> reply = absl::UnknownError("not answered");
};

// A whole update of one piece.
inline std::shared_ptr<UpdateResult> Apply(
    StoreTester& tester, const PushRowsChunk& chunk,
    const std::vector<float>& gradients) {
  auto result = std::make_shared<UpdateResult>();
  RowPush update(tester.store.get());
  if (absl::Status status =
          update.Add(chunk, MakePayload(gradients, 0, chunk.encoding()));
      !status.ok()) {
    result->done = true;
    result->reply = std::move(status);
    return result;
  }
  update.Apply([result](absl::StatusOr<PushRowsReply> reply) {
    result->done = true;
    result->reply = std::move(reply);
  });
  return result;
}

inline Receipt::Outcome OutcomeOf(const std::shared_ptr<UpdateResult>& result) {
  return result->reply.ok() ? result->reply->receipt().outcome()
                            : Receipt::NONE;
}

}  // namespace weir

#endif  // TESTS_SERVER_PS_ROWS_TABLE_STORE_TESTER_H_
