// Updates of TableClient: one call to each shard, again until it is answered.
#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cc/parameters/table_client.h"
#include "common/base/status.h"
#include "proto/wire/value_encoding.h"

namespace weir {
namespace {

// Before an update is sent again that the ps had no room to keep until its
// turn.
constexpr std::chrono::milliseconds kDeferPause{10};

}  // namespace

absl::Status TableClient::StartUpdate(const ContributionPush& push,
                                      const Versions& versions,
                                      std::span<const Gradients> gradients) {
  std::vector<RowList> lists;
  for (const Gradients& list : gradients) {
    WEIR_RETURN_IF_ERROR(Check(list.table, list.ids));
    lists.push_back({list.table, list.ids});
  }
  if (versions.size() != shards_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(versions.size(), " versions for ", shards_.size(),
                     " shards; bring those of the lookup"));
  }
  std::vector<std::vector<Piece>> pieces = Cut(lists, RowUse::kUpdate);
  MutexLock lock(&mutex_);
  push_ = push;
  versions_ = versions;
  gradients_.assign(gradients.begin(), gradients.end());
  update_pieces_ = std::move(pieces);
  Start(Kind::kUpdate);
  return absl::OkStatus();
}

absl::StatusOr<ContributionResult> TableClient::WaitUpdate() {
  WEIR_RETURN_IF_ERROR(Wait(Kind::kUpdate));
  ContributionResult result;
  MutexLock lock(&mutex_);
  for (const std::unique_ptr<Shard>& shard : shards_) {
    result.AddReceipt(shard->reply.receipt());
    result.rows_not_admitted += shard->reply.rows_not_admitted();
  }
  if (result.bad) {
    // The number comes from the ps: it may be one that we do not have.
    result.bad_name = result.bad_number < options_.tables.size()
                          ? options_.tables[result.bad_number].name()
                          : absl::StrCat("#", result.bad_number);
  }
  return result;
}

absl::Status TableClient::RunUpdate(int s) {
  Shard& shard = *shards_[static_cast<size_t>(s)];
  RetryPolicy retry(options_.lost_after);
  while (true) {
    // I1: every try has the same slot, generation and sequence number, so the
    // shard counts a repeat as a duplicate.
    absl::StatusOr<PushRowsReply> reply = SendUpdate(s);
    if (reply.ok()) {
      retry.OnAnswer();
      // A ps that was restarted has neither the rows nor the marks.
      WEIR_RETURN_IF_ERROR(Named(s, CheckIncarnation(s, reply->incarnation())));
    }
    MutexLock lock(&mutex_);
    if (!reply.ok()) {
      mutex_.Unlock();  // BeforeRetry asks the ps, and sleeps
      const absl::Status again = BeforeRetry(s, reply.status(), &retry);
      mutex_.Lock();
      WEIR_RETURN_IF_ERROR(again);
    } else if (reply->unknown_list()) {
      // I2: the reply does not say which list the shard has forgotten, so all
      // are sent again.
      shard.known.clear();
    } else if (reply->receipt().outcome() == Receipt::DEFERRED) {
      stopping_.WaitFor(&mutex_, kDeferPause);
      if (stop_) {
        return absl::CancelledError("the table client ends");
      }
    } else {
      shard.reply = *std::move(reply);
      return absl::OkStatus();
    }
  }
}

const float* TableClient::GradientsOf(
    const Piece& piece, std::unique_ptr<float[]>* gathered) const {
  const Part& first = piece.parts[0];
  if (piece.parts.size() == 1 && first.places.empty()) {
    return gradients_[first.wanted].gradients +
           first.first * static_cast<size_t>(dim(first.table));
  }
  *gathered = std::make_unique_for_overwrite<float[]>(
      static_cast<size_t>(piece.floats));
  float* out = gathered->get();
  for (const Part& part : piece.parts) {
    const auto width = static_cast<size_t>(dim(part.table));
    for (size_t i = 0; i < part.ids.size(); ++i, out += width) {
      std::memcpy(out,
                  gradients_[part.wanted].gradients + part.PlaceOf(i) * width,
                  width * sizeof(float));
    }
  }
  return gathered->get();
}

absl::StatusOr<PushRowsReply> TableClient::SendUpdate(int s) {
  std::vector<Piece>& pieces = update_pieces_[static_cast<size_t>(s)];
  size_t next = 0;
  // By piece. Both stay until PushRows has returned: the transport reads them.
  std::vector<std::unique_ptr<float[]>> gathered(pieces.size());
  std::vector<std::vector<char>> encoded(pieces.size());
  uint64_t bytes = 0;
  const auto fill = [&](PushRowsChunk* chunk, std::span<const char>* payload) {
    if (next == pieces.size()) {
      return false;
    }
    const Piece& piece = pieces[next];
    chunk->Clear();
    *chunk->mutable_sender() = options_.sender;
    Push* const push = chunk->mutable_push();
    push->set_sequence(push_.sequence);
    push->set_base_version(versions_[static_cast<size_t>(s)]);
    push->set_index_in_step(push_.index_in_step);
    push->set_weight(push_.weight);
    // Once is enough: the shard applies the update when all of it is there.
    if (next == 0) {
      for (const TableRate& rate : push_.rates) {
        *chunk->add_rate() = rate;
      }
    }
    chunk->set_encoding(piece.encoding);
    for (const Part& part : piece.parts) {
      *chunk->add_list() = ListOf(s, part);
    }
    const auto floats = static_cast<size_t>(piece.floats);
    *payload = {};
    if (floats > 0) {
      const float* const values = GradientsOf(piece, &gathered[next]);
      *payload = {reinterpret_cast<const char*>(values),
                  EncodedBytes(F32, floats)};
      if (piece.encoding != F32) {
        encoded[next].resize(EncodedBytes(piece.encoding, floats));
        EncodeFloats(values, floats, piece.encoding, encoded[next].data());
        *payload = encoded[next];
      }
      bytes += payload->size();
    }
    ++next;
    chunk->set_last(next == pieces.size());
    return true;
  };
  WEIR_ASSIGN_OR_RETURN(PushRowsReply reply,
                        shards_[static_cast<size_t>(s)]->link->PushRows(
                            options_.lost_after, fill));
  // I2: an answer without unknown_list says that the shard had or took each.
  if (!reply.unknown_list()) {
    for (const Piece& piece : pieces) {
      for (const Part& part : piece.parts) {
        Remember(s, part);
      }
    }
    MutexLock lock(&mutex_);
    counters_.bytes_sent += bytes;
  }
  return reply;
}

}  // namespace weir
