// The channels of a ParameterClient and their threads: they connect, send,
// receive, and watch for shards that are lost. ShardExchange decides what to do
// next; this file does it, and drops the client's lock around the I/O.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "client/cc/parameters/parameter_client.h"
#include "client/cc/transport/peer_watch.h"
#include "common/base/check.h"
#include "common/base/logging.h"
#include "proto/wire/value_encoding.h"

namespace weir {
namespace {

// The options of the exchange of `channel`.
ShardExchange::Options ExchangeOptions(const ParameterClient::Options& options,
                                       const BlockMap& map, size_t channel) {
  const BlockMap::Channel& mine = map.channels()[channel];
  ShardExchange::Options exchange;
  exchange.shard = mine.shard;
  exchange.address = options.addresses[mine.shard];
  exchange.sender = options.sender;
  exchange.in_flight_bytes_max = options.in_flight_bytes_max;
  exchange.lost_after = options.lost_after;
  // A fraction of lost_after, so that a ps is asked several times before it
  // counts as lost, also where a test makes lost_after short.
  exchange.want_timeout =
      std::clamp(options.lost_after / 4, std::chrono::milliseconds(1),
                 std::chrono::milliseconds(2000));
  exchange.clock = options.clock;
  exchange.first_block = mine.first_in_shard;
  for (int i = 0; i < mine.count; ++i) {
    const int block = mine.first_block + i;
    exchange.elements.push_back(map.blocks()[block].range.count);
  }
  return exchange;
}

}  // namespace

// Makes the channels of every shard, and deals the shard's blocks to them.
void ParameterClient::MakeChannels() {
  MutexLock lock(&mutex_);
  const Layout& layout = *options_.layout;
  for (int s = 0; s < layout.shard_count(); ++s) {
    const std::string& address = options_.addresses[s];
    auto link = options_.transport->ConnectData(address);
    int channels = 1;
    if (options_.channels_per_peer > 1) {
      // A channel without a block would only cost two threads.
      channels = std::clamp(link->UsefulStreams(options_.channels_per_peer), 1,
                            std::max(layout.block_count(s), 1));
    }
    map_.DealNextShard(channels);
    while (channels_.size() < map_.channels().size()) {
      const size_t c = channels_.size();
      auto channel = std::make_unique<Channel>();
      channel->ps = s;
      // The first channel takes the link that was asked; the others need one
      // each, since a link has one connection.
      channel->link = std::move(link);
      if (channel->link == nullptr) {
        channel->link = options_.transport->ConnectData(address);
      }
      channel->exchange =
          std::make_unique<ShardExchange>(ExchangeOptions(options_, map_, c));
      channels_.push_back(std::move(channel));
    }
  }
  const size_t variables = layout.variables().size();
  values_missing_.resize(variables);
  variable_ready_.resize(variables);
  blocks_.resize(map_.blocks().size());
}

// Each of the two threads of a channel runs this loop. Next() gives either of
// them what the other is not doing, so it does not matter which one wakes.
void ParameterClient::RunChannel(int c) {
  MutexLock lock(&mutex_);
  Channel& channel = *channels_[c];
  while (!stop_) {
    ShardExchange::Action action =
        channel.exchange->Next(channel.sending, channel.receiving);
    switch (action.kind) {
      case ShardExchange::Action::kConnect:
        Connect(c);
        break;
      case ShardExchange::Action::kSend:
        Send(c, std::move(action));
        break;
      case ShardExchange::Action::kReceive:
        Receive(c);
        break;
      case ShardExchange::Action::kSleep:
        // At least 1 us, so that this does not spin on a clock that a test
        // holds still.
        channel.wake.WaitFor(
            &mutex_, std::chrono::nanoseconds(std::max<int64_t>(
                         action.until_ns - options_.clock->NowNs(), 1000)));
        break;
      case ShardExchange::Action::kIdle:
      case ShardExchange::Action::kFailed:
        channel.wake.Wait(&mutex_);
        break;
    }
  }
}

void ParameterClient::Connect(int c) {
  Channel& channel = *channels_[c];
  // Both, so that the other thread leaves the stream alone until it is there.
  channel.sending = channel.receiving = true;
  mutex_.Unlock();
  std::shared_ptr<PushPullStream> stream = channel.link->OpenPushPull();
  mutex_.Lock();
  channel.sending = channel.receiving = false;
  channel.stream = std::move(stream);
  channel.exchange->OnConnected();
  if (stop_) {
    channel.stream->Cancel();  // the destructor found no stream to cancel
  }
}

void ParameterClient::Send(int c, ShardExchange::Action action) {
  Channel& channel = *channels_[c];
  std::shared_ptr<PushPullStream> stream = channel.stream;
  std::span<const char> payload;
  std::function<void()> released;
  const float* from = nullptr;
  if (action.payload) {
    released = loans_.Add();
    from = blocks_[map_.block_of(c, action.block)].from;
  }
  channel.sending = true;
  if (!channel.receiving && channel.exchange->wants_in_flight() &&
      stream->SendNeedsReceiver()) {
    channel.wake.NotifyOne();  // to receive while this one sends
  }
  mutex_.Unlock();
  if (action.payload) {
    payload = PayloadOf(c, from, &action.header);
    // Counted before it is sent: whoever has seen the receipt of a block finds
    // its bytes in the counters.
    const MutexLock lock(&mutex_);
    counters_.bytes_sent += payload.size();
  }
  const absl::Status status =
      stream->Send(action.header, payload, std::move(released));
  // The last reference ends the stream, which runs `released` of payloads and
  // must not happen under the lock.
  stream.reset();
  mutex_.Lock();
  channel.sending = false;
  if (!status.ok()) {
    // I1: nothing is lost. Receive gets the reason, and OnStreamEnd repeats
    // what has no receipt.
    channel.exchange->OnSendFailed();
    return;
  }
  if (action.header.has_push()) {
    NotePushEvents(c);
  }
}

std::span<const char> ParameterClient::PayloadOf(int c, const float* from,
                                                 GradientChunk* header) const {
  const BlockId id = {channels_[c]->ps, static_cast<int>(header->block())};
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

void ParameterClient::Receive(int c) {
  Channel& channel = *channels_[c];
  std::shared_ptr<PushPullStream> stream = channel.stream;
  ValueChunk answer;
  Payload payload;
  channel.receiving = true;
  mutex_.Unlock();
  const absl::Status status = stream->Receive(&answer, &payload);
  mutex_.Lock();
  if (!status.ok()) {
    channel.stream.reset();
    if (!stop_) {
      channel.exchange->OnStreamEnd(status);
      ++counters_.reconnects;
      if (absl::IsDataLoss(status)) {
        LOG_WARN("{}; it is sent again", status.ToString());
      }
    }
    mutex_.Unlock();
    stream.reset();  // its payloads come back here, or where Send returns
    mutex_.Lock();
    channel.receiving = false;
    NoteFailure(c);
    return;
  }
  const bool was_done = channel.exchange->contribution_done();
  const int index = channel.exchange->OnAnswer(answer, payload.bytes());
  if (index >= 0) {
    const int block = map_.block_of(c, index);
    const FlatRange range = map_.blocks()[block].range;
    float* const out = options_.parameters + range.begin;
    const auto count = static_cast<size_t>(range.count);
    // Without the lock: until OnStored below nobody counts the block as here,
    // and its want stays kCopying, so no other answer writes to it.
    mutex_.Unlock();
    // OnAnswer has checked the size, and nothing else can be wrong.
    WEIR_CHECK(DecodeFloats(payload, answer.encoding(), count, out).ok());
    mutex_.Lock();
    counters_.bytes_received += payload.bytes();
    channel.exchange->OnStored(index, answer.version());
    OnStored(block);
  }
  channel.receiving = false;
  if (channel.exchange->has_deferred()) {
    channel.wake.NotifyOne();  // to send them again while this one receives
  }
  // WaitReceipts and the failpoints look when the last receipt comes.
  if (!was_done && channel.exchange->contribution_done()) {
    changed_.NotifyAll();
    NotePushEvents(c);
  }
  NoteFailure(c);
}

void ParameterClient::NoteFailure(int c) {
  const absl::Status& status = channels_[c]->exchange->status();
  if (!status.ok() && status_.ok()) {
    status_ = status;
    changed_.NotifyAll();
  }
}

void ParameterClient::Watch() {
  const std::chrono::milliseconds period =
      PeerWatch(options_.lost_after).period();
  MutexLock lock(&mutex_);
  while (!stop_) {
    watch_.WaitFor(&mutex_, period);
    // Also without work: PeerWatch must know when it was last asked, or the
    // time in between would count as silence of the ps.
    for (size_t c = 0; c < channels_.size(); ++c) {
      Look(static_cast<int>(c));
    }
  }
}

void ParameterClient::Look(int c) {
  ShardExchange* const exchange = channels_[c]->exchange.get();
  std::shared_ptr<PushPullStream> stream = channels_[c]->stream;
  if (stream != nullptr && exchange->WantsTraffic()) {
    mutex_.Unlock();
    const int64_t bytes = stream->BytesMoved();
    mutex_.Lock();
    exchange->NoteTraffic(bytes);
  }
  // The lock was dropped for the system calls above; CheckLost sees the state
  // as it is now.
  const bool lost = exchange->CheckLost();
  if (lost) {
    NoteFailure(c);
  }
  mutex_.Unlock();
  if (lost && stream != nullptr) {
    // A thread may be blocked in a stream to a ps that hangs, and a connection
    // that still takes bytes would keep payloads of ours.
    stream->Sever();
  }
  stream.reset();
  mutex_.Lock();
}

void ParameterClient::NotePushEvents(int c) {
  if (!options_.on_event) {
    return;
  }
  int unsent = 0;
  bool others_done = true;
  for (size_t i = 0; i < channels_.size(); ++i) {
    unsent += channels_[i]->exchange->blocks_unsent();
    others_done = others_done && (static_cast<int>(i) == c ||
                                  channels_[i]->exchange->contribution_done());
  }
  // Each event once a contribution; the lock is dropped, since a failpoint may
  // wait, or end the process.
  const auto fire = [this](Event event, bool when)
                        ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                          const int bit = 1 << static_cast<int>(event);
                          if (when && (events_fired_ & bit) == 0) {
                            events_fired_ |= bit;
                            mutex_.Unlock();
                            options_.on_event(event);
                            mutex_.Lock();
                          }
                        };
  fire(Event::kHalfSent, unsent * 2 <= static_cast<int>(blocks_.size()));
  fire(Event::kAllSent, unsent == 0);
  fire(Event::kFirstShardDone,
       channels_[c]->exchange->contribution_done() && !others_done);
}

}  // namespace weir
