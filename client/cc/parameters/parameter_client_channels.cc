// The channels of a ParameterClient and their threads: they connect, send,
// receive, and watch for shards that are lost. ShardExchange decides what to do
// next; this file does it, and drops the client's lock around the I/O.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cc/parameters/parameter_client.h"
#include "common/base/check.h"
#include "common/base/failpoint.h"
#include "common/base/plant.h"
#include "common/base/status.h"
#include "common/trace/trace.h"
#include "proto/wire/value_encoding.h"

namespace weir {

// Makes the channels of every shard, and deals the shard's blocks to them.
void ParameterClient::MakeChannels() {
  MutexLock lock(&mutex_);
  const Layout& layout = *options_.layout;
  for (int s = 0; s < layout.shard_count(); ++s) {
    const std::string& address = options_.addresses[s];
    auto link = options_.transport->ConnectData(address);
    // A channel without a block would only cost two threads.
    const int channels =
        std::clamp(link->UsefulStreams(options_.channels_per_peer), 1,
                   std::max(layout.block_count(s), 1));
    map_.DealNextShard(channels);
    while (channels_.size() < map_.channels().size()) {
      const BlockMap::Channel& mine = map_.channels()[channels_.size()];
      ShardExchange::Options exchange;
      static_cast<Exchange::ConnectionOptions&>(exchange) = ConnectionTo(s);
      exchange.in_flight_bytes_max = options_.in_flight_bytes_max;
      exchange.first_block = mine.first_in_shard;
      for (int b = mine.first_block; b < mine.first_block + mine.count; ++b) {
        exchange.elements.push_back(map_.blocks()[b].range.count);
      }
      auto channel = std::make_unique<Channel>(std::move(exchange));
      channel->number = static_cast<int>(channels_.size());
      channel->name = absl::StrCat("blocks of ps ", s);
      channel->ps = s;
      // The first channel takes the link that was asked; the others need one
      // each, since a link has one connection.
      channel->link = std::move(link);
      if (channel->link == nullptr) {
        channel->link = options_.transport->ConnectData(address);
      }
      channels_.push_back(std::move(channel));
    }
  }
  const size_t variables = layout.variables().size();
  values_missing_.resize(variables);
  variable_ready_.resize(variables);
  blocks_.resize(map_.blocks().size());
}

// Both threads of a channel call this. Next() gives either of them what the
// other is not doing, so it does not matter which one wakes.
Exchange::Step ParameterClient::DoNext(Lane* lane) {
  auto* const channel = static_cast<Channel*>(lane);
  ShardExchange::Action action =
      channel->exchange.Next(channel->sending, channel->receiving);
  const Exchange::Step step = action;
  if (step.kind == Exchange::Step::kConnect) {
    Connect(channel);
  } else if (step.kind == Exchange::Step::kSend) {
    Send(channel, std::move(action));
  } else if (step.kind == Exchange::Step::kReceive) {
    Receive(channel);
  }
  return step;
}

void ParameterClient::Connect(Channel* channel) {
  // Both, so that the other thread leaves the stream alone until it is there.
  channel->sending = channel->receiving = true;
  mutex_.Unlock();
  std::shared_ptr<PushPullStream> stream = channel->link->OpenPushPull();
  mutex_.Lock();
  channel->sending = channel->receiving = false;
  channel->stream = std::move(stream);
  channel->exchange.OnConnected();
  if (stop_) {
    channel->stream->Cancel();  // the destructor found no stream to cancel
  }
}

void ParameterClient::Send(Channel* channel, ShardExchange::Action action) {
  std::shared_ptr<PushPullStream> stream = channel->stream;
  std::span<const char> payload;
  std::function<void()> released;
  const float* from = nullptr;
  if (action.payload) {
    released = loans_.Add();
    from = blocks_[map_.block_of(channel->number, action.block)].from;
  }
  channel->sending = true;
  if (!channel->receiving && channel->exchange.wants_in_flight() &&
      stream->SendNeedsReceiver()) {
    channel->wake.NotifyOne();  // to receive while this one sends
  }
  const uint64_t flow = TraceFlowOfBlock(*channel, action.header.block());
  mutex_.Unlock();
  if (action.payload) {
    payload = PayloadOf(channel->ps, from, &action.header);
    // Counted before it is sent: whoever has seen the receipt of a block finds
    // its bytes in the counters.
    const MutexLock lock(&mutex_);
    counters_.bytes_sent += payload.size();
  }
  absl::Status status;
  {
    const TraceSpan span("send", [&](TraceDetails* details) {
      details->Add("block", action.header.block());
      details->Add("bytes", payload.size());
      if (action.header.has_push()) {
        details->Flow(TraceFlow::kBegins, flow);
      }
    });
    status = stream->Send(action.header, payload, std::move(released));
  }
  // The last reference ends the stream, which runs `released` of payloads and
  // must not happen under the lock.
  stream.reset();
  mutex_.Lock();
  channel->sending = false;
  if (!status.ok()) {
    // I1: nothing is lost. Receive gets the reason, and OnStreamEnd repeats
    // what has no receipt.
    channel->exchange.OnSendFailed();
    return;
  }
  if (action.header.has_push()) {
    HitFailpoints(channel);
  }
}

std::span<const char> ParameterClient::PayloadOf(int ps, const float* from,
                                                 GradientChunk* header) const {
  const BlockId id = {ps, static_cast<int>(header->block())};
  if (encoder_ != nullptr) {
    const GradientEncoder::Encoded encoded =
        encoder_->Encode(id, header->push());
    header->set_encoding(encoded.encoding);
    return encoded.bytes;
  }
  const FlatRange range = options_.layout->block(id);
  if (from == nullptr) {
    from = options_.gradients + range.begin;
  }
  return {reinterpret_cast<const char*>(from),
          static_cast<size_t>(range.count) * sizeof(float)};
}

absl::Status ParameterClient::StoreValues(const Payload& payload,
                                          Encoding encoding,
                                          const FlatRange& range) const {
  const auto count = static_cast<size_t>(range.count);
  if (!options_.store_values) {
    return DecodeFloats(payload, encoding, count,
                        options_.parameters + range.begin);
  }
  if (encoding == F32) {
    return options_.store_values(range.begin, payload.pieces());
  }
  std::vector<float> values(count);
  WEIR_RETURN_IF_ERROR(DecodeFloats(payload, encoding, count, values.data()));
  const std::span<const char> piece(
      reinterpret_cast<const char*>(values.data()), count * sizeof(float));
  return options_.store_values(range.begin, {&piece, 1});
}

void ParameterClient::Receive(Channel* channel) {
  std::shared_ptr<PushPullStream> stream = channel->stream;
  ValueChunk answer;
  Payload payload;
  channel->receiving = true;
  mutex_.Unlock();
  const absl::Status status = stream->Receive(&answer, &payload);
  mutex_.Lock();
  if (!status.ok()) {
    channel->stream.reset();
    if (!stop_) {
      channel->exchange.OnStreamEnd(status);
      NoteBreak(status);
    }
    mutex_.Unlock();
    stream.reset();  // its payloads come back here, or where Send returns
    mutex_.Lock();
    channel->receiving = false;
    NoteFailure(channel);
    return;
  }
  NoteAnswer(channel->ps);
  const bool was_done = channel->exchange.contribution_done();
  const int index = channel->exchange.OnAnswer(answer, payload.bytes());
  if (index >= 0) {
    const int block = map_.block_of(channel->number, index);
    const FlatRange range = map_.blocks()[block].range;
    const uint64_t flow = TraceFlowOfBlock(*channel, answer.block());
    // Without the lock: until OnStored below nobody counts the block as here,
    // and its want stays kCopying, so no other answer writes to it.
    mutex_.Unlock();
    absl::Status stored;
    {
      const TraceSpan span("receive", [&](TraceDetails* details) {
        details->Add("block", answer.block());
        details->Add("version", answer.version());
        details->Flow(TraceFlow::kEnds, flow);
      });
      stored = StoreValues(payload, answer.encoding(), range);
    }
    mutex_.Lock();
    counters_.bytes_received += payload.bytes();
    NoteAnswer(channel->ps);  // others may have come while the lock was dropped
    if (stored.ok()) {
      channel->exchange.OnStored(index, answer.version());
      OnStored(block);
    } else {
      channel->exchange.OnStoreFailed(stored);
    }
  }
  channel->receiving = false;
  if (channel->exchange.has_deferred()) {
    channel->wake.NotifyOne();  // to send them again while this one receives
  }
  // WaitReceipts and the failpoints look when the last receipt comes.
  if (!was_done && channel->exchange.contribution_done()) {
    if (!Planted("client.silent_receipt")) {
      changed_.NotifyAll();
    }
    HitFailpoints(channel);
  }
  NoteFailure(channel);
}

uint64_t ParameterClient::TraceFlowOfBlock(const Channel& channel,
                                           uint32_t block) const {
  if (!TraceIsOn()) [[likely]] {
    return 0;
  }
  return TraceFlowOf(history_, channel.ps, slot_, sequence_, block);
}

void ParameterClient::HitFailpoints(Channel* channel) {
  int unsent = 0;
  bool others_done = true;
  for (const auto& other : channels_) {
    unsent += other->exchange.blocks_unsent();
    others_done = others_done && (other.get() == channel ||
                                  other->exchange.contribution_done());
  }
  // Each once a contribution, and under the lock: a thread that waits between
  // its look and the failpoint must not let another send the blocks that are to
  // be missing.
  const auto first = [this](int bit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const bool is_first = (failpoints_hit_ & bit) == 0;
    failpoints_hit_ |= bit;
    return is_first;
  };
  if (unsent * 2 <= static_cast<int>(blocks_.size()) && first(1)) {
    Failpoint("worker.mid_push");
  }
  if (unsent == 0 && first(2)) {
    Failpoint("worker.before_ack");
  }
  if (channel->exchange.contribution_done() && !others_done && first(4)) {
    Failpoint("worker.mid_fanout");
  }
}

}  // namespace weir
