#include "client/cc/parameters/table_client.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/trace/trace.h"
#include "proto/wire/id_list.h"
#include "proto/wire/value_encoding.h"

namespace weir {
namespace {

IdList ListOf(const RowPart& part, const Sender& sender) {
  IdList list;
  list.set_table(static_cast<uint32_t>(part.table));
  list.set_count(static_cast<uint32_t>(part.ids.size()));
  // A shard keeps no lists of readers.
  const bool named = sender.generation() != 0;
  if (named) {
    list.set_name(part.name);
  }
  // If the shard has forgotten a list that it had, it says so, and gets it
  // after all.
  if (!part.known || !named) {
    list.set_deltas(EncodeIds(part.ids));
  }
  return list;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TableClient>> TableClient::Create(
    Options options) {
  if (options.transport == nullptr || options.addresses.empty() ||
      options.piece_bytes < 1 ||
      options.piece_bytes > static_cast<int64_t>(kRowBytesMax)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a table client of ", options.addresses.size(),
                     " shards, pieces of ", options.piece_bytes, " bytes"));
  }
  std::unique_ptr<TableClient> client(new TableClient(std::move(options)));
  std::vector<Lane*> lanes;
  for (size_t s = 0; s < client->links_.size(); ++s) {
    lanes.push_back(client->pulls_[s].get());
    lanes.push_back(client->pushes_[s].get());
  }
  client->StartThreads(std::move(lanes), /*threads=*/1);
  return client;
}

TableClient::TableClient(Options options)
    : ShardClient(options), options_(std::move(options)) {
  for (const std::string& address : options_.addresses) {
    const Exchange::ConnectionOptions connection =
        ConnectionTo(static_cast<int>(links_.size()));
    const auto lists = std::make_shared<KnownLists>();
    pulls_.push_back(std::make_unique<PullLane>(connection, lists));
    pushes_.push_back(std::make_unique<PushLane>(connection, lists));
    pulls_.back()->shard = pushes_.back()->shard = links_.size();
    pulls_.back()->name = absl::StrCat("rows from ps ", links_.size());
    pushes_.back()->name = absl::StrCat("rows to ps ", links_.size());
    links_.push_back(options_.transport->ConnectData(address));
    pulls_.back()->link = pushes_.back()->link = links_.back().get();
  }
}

// ----------------------------------------------------------- cutting lists

absl::Status TableClient::Check(int table,
                                std::span<const uint64_t> ids) const {
  if (table < 0 || table >= static_cast<int>(options_.tables.size())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "table ", table, " of ", options_.tables.size(), " tables"));
  }
  for (size_t i = 1; i < ids.size(); ++i) {
    if (ids[i] <= ids[i - 1]) {
      return absl::InvalidArgumentError(absl::StrCat(
          "table '", options_.tables[static_cast<size_t>(table)].name(),
          "': ids must ascend, each once; ", ids[i - 1], " is before ",
          ids[i]));
    }
  }
  return absl::OkStatus();
}

std::vector<std::vector<RowPiece>> TableClient::Cut(
    std::span<const RowList> lists, RowUse use) const {
  std::vector<std::vector<RowPiece>> pieces =
      CutRows(lists, options_.tables, static_cast<int>(links_.size()),
              options_.piece_bytes, use);
  for (std::vector<RowPiece>& of_shard : pieces) {
    if (of_shard.empty()) {
      // A lookup asks every shard for its version, and an update moves the
      // mark of every shard, also if it has none of the rows.
      of_shard.emplace_back();
    }
  }
  return pieces;
}

// ----------------------------------------------------------------- lookups

absl::Status TableClient::StartLookup(const Sender& sender, const Want& want,
                                      bool train,
                                      std::span<const Wanted> wanted) {
  std::vector<RowList> lists;
  for (const Wanted& list : wanted) {
    WEIR_RETURN_IF_ERROR(Check(list.table, list.ids));
    lists.push_back({list.table, list.ids});
  }
  std::vector<std::vector<RowPiece>> pieces = Cut(lists, RowUse::kLookup);
  MutexLock lock(&mutex_);
  WEIR_RETURN_IF_ERROR(status_);
  WEIR_RETURN_IF_ERROR(interrupted_);
  lookup_sender_ = sender;
  want_ = want;
  want_.set_timeout_ms(pulls_[0]->exchange.want_timeout_ms());
  train_ = train;
  wanted_.assign(wanted.begin(), wanted.end());
  for (size_t s = 0; s < pulls_.size(); ++s) {
    pulls_[s]->exchange.Start(std::move(pieces[s]));
    pulls_[s]->wake.NotifyAll();
  }
  return absl::OkStatus();
}

absl::StatusOr<TableClient::Versions> TableClient::WaitLookup() {
  MutexLock lock(&mutex_);
  WEIR_RETURN_IF_ERROR(
      WaitUntil([this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        bool done = true;
        for (const auto& pull : pulls_) {
          if (pull->exchange.storing()) {  // I2
            return false;
          }
          done = done && pull->exchange.done();
        }
        return done || !status_.ok() || !interrupted_.ok();
      }));
  WEIR_RETURN_IF_ERROR(interrupted_);
  Versions versions;
  for (const auto& pull : pulls_) {
    versions.push_back(pull->exchange.version());
  }
  return versions;
}

// Only lookups end: they wait for values. An update must be settled on every
// shard, or its contribution would be torn.
void TableClient::OnInterrupt() {
  for (const auto& pull : pulls_) {
    pull->exchange.GiveUp();
  }
}

Exchange::Step TableClient::DoNext(Lane* lane) {
  if (!status_.ok()) {
    // I2: nobody waits any more.
    return {.kind = Exchange::Step::kFailed};
  }
  if (auto* const pull = dynamic_cast<PullLane*>(lane); pull != nullptr) {
    return DoNextPull(pull);
  }
  return DoNextPush(static_cast<PushLane*>(lane));
}

Exchange::Step TableClient::DoNextPull(PullLane* lane) {
  const RowPullExchange::Action action = lane->exchange.Next();
  if (action.kind == Exchange::Step::kConnect) {
    Connect(lane);
  } else if (action.kind == Exchange::Step::kSend) {
    Ask(lane, action);
  } else if (action.kind == Exchange::Step::kReceive) {
    Receive(lane);
  }
  return action;
}

void TableClient::Connect(PullLane* lane) {
  mutex_.Unlock();
  std::shared_ptr<PullRowsStream> stream = lane->link->OpenPullRows();
  mutex_.Lock();
  lane->stream = std::move(stream);
  lane->exchange.OnConnected();
  if (stop_) {
    lane->stream->Cancel();  // StopThreads found no stream to cancel
  }
}

void TableClient::Ask(PullLane* lane, const RowPullExchange::Action& action) {
  std::shared_ptr<PullRowsStream> stream = lane->stream;
  mutex_.Unlock();
  PullRowsChunk chunk;
  *chunk.mutable_sender() = lookup_sender_;
  *chunk.mutable_want() = want_;
  chunk.set_train(train_);
  chunk.set_request(action.request);
  chunk.mutable_want()->set_encoding(action.piece->encoding);
  for (const RowPart& part : action.piece->parts) {
    *chunk.add_list() = ListOf(part, lookup_sender_);
  }
  const absl::Status status = stream->Send(chunk, {}, nullptr);
  stream.reset();
  mutex_.Lock();
  if (!status.ok()) {
    lane->exchange.OnSendFailed();
  }
}

void TableClient::Receive(PullLane* lane) {
  std::shared_ptr<PullRowsStream> stream = lane->stream;
  RowChunk answer;
  Payload payload;
  mutex_.Unlock();
  const absl::Status status = stream->Receive(&answer, &payload);
  mutex_.Lock();
  if (!status.ok()) {
    lane->stream.reset();
    if (!stop_) {
      lane->exchange.OnStreamEnd(status);
      NoteBreak(status);
    }
    mutex_.Unlock();
    stream.reset();
    mutex_.Lock();
  } else if (status_.ok()) {  // I2: else nobody waits for the rows any more
    const RowPiece* const piece =
        lane->exchange.OnAnswer(answer, payload.bytes());
    if (piece != nullptr) {
      const uint64_t flow = FlowOfRows(lane->shard);
      mutex_.Unlock();
      {
        const TraceSpan span("receive rows", [&](TraceDetails* details) {
          details->Add("bytes", payload.bytes());
          details->Add("version", answer.version());
          details->Flow(TraceFlow::kEnds, flow);
        });
        Store(*piece, answer.encoding(), payload);
      }
      mutex_.Lock();
      counters_.bytes_received += payload.bytes();
      lane->exchange.OnStored(answer.version());
    }
  }
  NoteFailure(lane);
  NoteAnswer(lane->shard);
  if (lane->exchange.done() || !status_.ok()) {
    changed_.NotifyAll();
  }
}

uint64_t TableClient::FlowOfRows(size_t shard) const {
  if (!TraceIsOn()) [[likely]] {
    return 0;
  }
  return TraceFlowOf(push_.sender.history(), static_cast<int>(shard),
                     push_.sender.slot(), push_.sequence, kTraceRows);
}

void TableClient::Store(const RowPiece& piece, Encoding encoding,
                        const Payload& payload) {
  if (piece.floats == 0) {
    return;
  }
  const auto floats = static_cast<size_t>(piece.floats);
  std::vector<float> decoded;
  const RowPart& first = piece.parts[0];
  // If a list's rows of one shard lie side by side, they are decoded there.
  const bool in_place = piece.parts.size() == 1 && first.places.empty();
  float* rows = wanted_[first.wanted].rows + first.first * dim(first.table);
  if (!in_place) {
    decoded.resize(floats);
    rows = decoded.data();
  }
  // OnAnswer has checked the size, and nothing else can be wrong.
  WEIR_CHECK(DecodeFloats(payload, encoding, floats, rows).ok());
  if (in_place) {
    return;
  }
  for (const RowPart& part : piece.parts) {
    const size_t width = dim(part.table);
    for (size_t i = 0; i < part.ids.size(); ++i, rows += width) {
      std::memcpy(wanted_[part.wanted].rows + part.PlaceOf(i) * width, rows,
                  width * sizeof(float));
    }
  }
}

// ----------------------------------------------------------------- updates

absl::Status TableClient::StartUpdate(const ContributionPush& push,
                                      const Versions& versions,
                                      std::span<const Gradients> gradients) {
  std::vector<RowList> lists;
  for (const Gradients& list : gradients) {
    WEIR_RETURN_IF_ERROR(Check(list.table, list.ids));
    lists.push_back({list.table, list.ids});
  }
  if (versions.size() != links_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(versions.size(), " versions for ", links_.size(),
                     " shards; bring those of the lookup"));
  }
  std::vector<std::vector<RowPiece>> pieces = Cut(lists, RowUse::kUpdate);
  MutexLock lock(&mutex_);
  WEIR_RETURN_IF_ERROR(status_);
  push_ = push;
  versions_ = versions;
  gradients_.assign(gradients.begin(), gradients.end());
  for (size_t s = 0; s < pushes_.size(); ++s) {
    pushes_[s]->exchange.Start(std::move(pieces[s]));
    pushes_[s]->wake.NotifyAll();
  }
  return absl::OkStatus();
}

absl::StatusOr<ContributionResult> TableClient::WaitUpdate() {
  MutexLock lock(&mutex_);
  WEIR_RETURN_IF_ERROR(
      WaitUntil([this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        bool done = true;
        for (const auto& push : pushes_) {
          if (push->sending) {  // I2
            return false;
          }
          done = done && push->exchange.done();
        }
        return done || !status_.ok();
      }));
  ContributionResult result;
  for (const auto& push : pushes_) {
    const PushRowsReply& reply = push->exchange.reply();
    result.AddReceipt(reply.receipt());
    result.rows_not_admitted += reply.rows_not_admitted();
  }
  if (result.bad) {
    // The number comes from the ps: it may be one that we do not have.
    result.bad_name = result.bad_number < options_.tables.size()
                          ? options_.tables[result.bad_number].name()
                          : absl::StrCat("#", result.bad_number);
  }
  return result;
}

Exchange::Step TableClient::DoNextPush(PushLane* lane) {
  const Exchange::Step step = lane->exchange.Next();
  if (step.kind == Exchange::Step::kConnect) {
    lane->exchange.OnConnected();  // a call connects by itself
  } else if (step.kind == Exchange::Step::kSend) {
    Push(lane);
  }
  return step;
}

void TableClient::Push(PushLane* lane) {
  lane->sending = true;
  mutex_.Unlock();
  uint64_t bytes = 0;
  const absl::StatusOr<PushRowsReply> reply = SendUpdate(lane, &bytes);
  const bool silent =
      absl::IsDeadlineExceeded(reply.status()) && !SaysHello(lane);
  mutex_.Lock();
  lane->sending = false;
  if (!reply.ok()) {
    lane->exchange.OnCallEnd(reply.status(), silent);
    NoteBreak(reply.status());
  } else {
    lane->exchange.OnReply(*reply);
    if (!reply->unknown_list()) {
      counters_.bytes_sent += bytes;
    }
  }
  NoteFailure(lane);
  NoteAnswer(static_cast<int>(lane->shard));
  if (lane->exchange.done() || !status_.ok()) {
    changed_.NotifyAll();
  }
}

const float* TableClient::GradientsOf(
    const RowPiece& piece, std::unique_ptr<float[]>* gathered) const {
  const RowPart& first = piece.parts[0];
  if (piece.parts.size() == 1 && first.places.empty()) {
    return gradients_[first.wanted].gradients + first.first * dim(first.table);
  }
  *gathered = std::make_unique_for_overwrite<float[]>(
      static_cast<size_t>(piece.floats));
  float* out = gathered->get();
  for (const RowPart& part : piece.parts) {
    const size_t width = dim(part.table);
    for (size_t i = 0; i < part.ids.size(); ++i, out += width) {
      std::memcpy(out,
                  gradients_[part.wanted].gradients + part.PlaceOf(i) * width,
                  width * sizeof(float));
    }
  }
  return gathered->get();
}

absl::StatusOr<PushRowsReply> TableClient::SendUpdate(PushLane* lane,
                                                      uint64_t* bytes) {
  const TraceSpan span("send rows", [&](TraceDetails* details) {
    details->Add("sequence", push_.sequence);
    details->Add("bytes", *bytes);
    details->Flow(TraceFlow::kBegins, FlowOfRows(lane->shard));
  });
  const std::vector<RowPiece>& pieces = lane->exchange.pieces();
  size_t next = 0;
  // By piece. Both stay until PushRows has returned: the transport reads them.
  std::vector<std::unique_ptr<float[]>> gathered(pieces.size());
  std::vector<std::vector<char>> encoded(pieces.size());
  const auto fill = [&](PushRowsChunk* chunk, std::span<const char>* payload) {
    if (next == pieces.size()) {
      return false;
    }
    const RowPiece& piece = pieces[next];
    chunk->Clear();
    *chunk->mutable_sender() = push_.sender;
    weir::Push* const push = chunk->mutable_push();
    push->set_sequence(push_.sequence);  // I1: the same in every try
    push->set_base_version(versions_[lane->shard]);
    push->set_index_in_step(push_.index_in_step);
    push->set_weight(push_.weight);
    // Once is enough: the shard applies the update when all of it is there.
    if (next == 0) {
      for (const TableRate& rate : push_.rates) {
        *chunk->add_rate() = rate;
      }
    }
    chunk->set_encoding(piece.encoding);
    for (const RowPart& part : piece.parts) {
      *chunk->add_list() = ListOf(part, push_.sender);
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
      *bytes += payload->size();
    }
    ++next;
    chunk->set_last(next == pieces.size());
    return true;
  };
  return lane->link->PushRows(options_.lost_after, fill);
}

bool TableClient::SaysHello(PushLane* lane) {
  const std::chrono::milliseconds patience = options_.lost_after / 2;
  const int64_t end_ns =
      options_.clock->NowNs() + std::chrono::nanoseconds(patience).count();
  while (!lane->link->Hello(patience).ok()) {
    MutexLock lock(&mutex_);
    if (stop_ || options_.clock->NowNs() >= end_ns) {
      return false;
    }
    lane->wake.WaitFor(&mutex_, RetryPolicy::kBackoffMin);
  }
  return true;
}

}  // namespace weir
