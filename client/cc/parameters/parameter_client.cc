// Long because its threads, pull and contribution share one lock and its state.
#include "client/cc/parameters/parameter_client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cc/transport/peer_watch.h"
#include "common/base/check.h"
#include "common/base/logging.h"
#include "common/base/status.h"
#include "proto/job/job_spec_defaults.h"
#include "proto/wire/value_encoding.h"

namespace weir {
namespace {

// A transport gives payloads back when their stream ends, or its connection;
// one that does not is a bug, and better a line in the log than a process that
// never ends.
constexpr std::chrono::seconds kReleaseWaitMax{5};
constexpr std::chrono::milliseconds kOnWaitEvery{100};
// Two threads each; a ps takes 64 streams on a connection, and as many
// connections as it has files.
constexpr int kChannelsPerPeerMax = 16;

}  // namespace

absl::Status ParameterClient::Options::Validate() const {
  if (transport == nullptr || layout == nullptr || parameters == nullptr) {
    return absl::InvalidArgumentError(
        "a parameter client needs a transport, a layout and a buffer");
  }
  if (static_cast<int>(addresses.size()) != layout->shard_count()) {
    return absl::InvalidArgumentError(
        absl::StrCat(addresses.size(), " ps addresses for a layout of ",
                     layout->shard_count(), " shards"));
  }
  if (in_flight_bytes_max < 1 || lost_after.count() < 1) {
    return absl::InvalidArgumentError(
        "in_flight_bytes_max and lost_after must be positive");
  }
  WEIR_RETURN_IF_ERROR(ValidateCompression(compression));
  if (channels_per_peer < 1 || channels_per_peer > kChannelsPerPeerMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("channels_per_peer ", channels_per_peer, " is not in [1, ",
                     kChannelsPerPeerMax, "]"));
  }
  const int variables = static_cast<int>(layout->variables().size());
  for (const int v : forward_order) {
    if (v < 0 || v >= variables) {
      return absl::InvalidArgumentError(
          absl::StrCat("forward_order names variable ", v, " of ", variables));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ParameterClient>> ParameterClient::Create(
    Options options) {
  WEIR_RETURN_IF_ERROR(options.Validate());
  std::unique_ptr<ParameterClient> client(
      new ParameterClient(std::move(options)));
  const Options& kept = client->options_;
  if (kept.compression.push() != F32 && kept.gradients != nullptr) {
    WEIR_ASSIGN_OR_RETURN(
        client->encoder_,
        GradientEncoder::Create(kept.compression, kept.layout, kept.gradients,
                                kept.transport));
  }
  client->BuildBlocks();
  for (size_t c = 0; c < client->channels_.size(); ++c) {
    for (std::thread& thread : client->channels_[c]->threads) {
      thread = std::thread(
          [raw = client.get(), c] { raw->RunChannel(static_cast<int>(c)); });
    }
  }
  client->watcher_ = std::thread([raw = client.get()] { raw->Watch(); });
  return client;
}

ParameterClient::ParameterClient(Options options)
    : options_(std::move(options)) {}

ParameterClient::~ParameterClient() {
  std::vector<std::shared_ptr<PushPullStream>> streams;
  {
    MutexLock lock(&mutex_);
    stop_ = true;
    for (const auto& channel : channels_) {
      channel->wake.NotifyAll();
      streams.push_back(channel->stream);
    }
    watch_.NotifyAll();
  }
  for (const auto& stream : streams) {
    if (stream != nullptr) {
      stream->Cancel();
    }
  }
  streams.clear();
  if (watcher_.joinable()) {
    watcher_.join();
  }
  for (const auto& channel : channels_) {
    for (std::thread& thread : channel->threads) {
      if (thread.joinable()) {
        thread.join();
      }
    }
    channel->stream.reset();
  }
  if (loans_.WaitForNone(kReleaseWaitMax)) {
    return;
  }
  // A ps that hangs takes nothing from its connection. What lies there must
  // not be sent when it goes on: the memory is the caller's again.
  for (const auto& channel : channels_) {
    channel->link->Sever();
  }
  if (!loans_.WaitForNone(kReleaseWaitMax)) {
    LOG_ERROR("a transport never gave its payloads back");
  }
}

void ParameterClient::BuildBlocks() {
  MutexLock lock(&mutex_);
  const Layout& layout = *options_.layout;
  const int variables = static_cast<int>(layout.variables().size());
  parts_of_.resize(variables);
  values_missing_.resize(variables);
  variable_ready_.resize(variables);
  std::vector<int> position(variables, variables);
  for (size_t i = 0; i < options_.forward_order.size(); ++i) {
    int& p = position[options_.forward_order[i]];
    p = std::min(p, static_cast<int>(i));
  }
  std::vector<int> order;  // by block
  for (int s = 0; s < layout.shard_count(); ++s) {
    for (int index = 0; index < layout.block_count(s); ++index) {
      Block block;
      block.range = layout.block({s, index});
      int earliest = variables;
      for (const Segment& segment : layout.segments({s, index})) {
        block.variables.push_back(segment.variable);
        parts_of_[segment.variable].push_back(
            {static_cast<int>(blocks_.size()), segment,
             block.range.begin + segment.block_offset,
             segment.count == block.range.count});
        earliest = std::min(earliest, position[segment.variable]);
      }
      forward_blocks_.push_back(static_cast<int>(blocks_.size()));
      order.push_back(earliest);
      blocks_.push_back(std::move(block));
    }
  }
  std::stable_sort(forward_blocks_.begin(), forward_blocks_.end(),
                   [&order](int a, int b) { return order[a] < order[b]; });
  int begin = 0;
  for (int s = 0; s < layout.shard_count(); ++s) {
    const int count = layout.block_count(s);
    AddChannels(s, {order.begin() + begin, order.begin() + begin + count});
    begin += count;
  }
}

// Deals the blocks of `shard`, whose order is given, to its channels.
void ParameterClient::AddChannels(int shard, const std::vector<int>& order) {
  auto link = options_.transport->Connect(options_.addresses[shard]);
  const int count = static_cast<int>(order.size());
  int channels = 1;
  if (options_.channels_per_peer > 1) {
    channels = std::clamp(link->UsefulStreams(options_.channels_per_peer), 1,
                          std::max(count, 1));
  }
  int block_index = 0;
  if (!channels_.empty()) {
    block_index = first_block_of_channel_.back() +
                  channels_.back()->exchange->block_count();
  }
  for (int c = 0; c < channels; ++c) {
    ShardExchange::Options exchange;
    exchange.shard = shard;
    exchange.address = options_.addresses[shard];
    exchange.sender = options_.sender;
    exchange.in_flight_bytes_max = options_.in_flight_bytes_max;
    exchange.lost_after = options_.lost_after;
    exchange.want_timeout =
        std::clamp(options_.lost_after / 4, std::chrono::milliseconds(1),
                   std::chrono::milliseconds(2000));
    exchange.backoff_max =
        std::clamp(options_.lost_after / 8, std::chrono::milliseconds(1),
                   std::chrono::milliseconds(1000));
    exchange.backoff_min =
        std::min(std::chrono::milliseconds(100), exchange.backoff_max);
    exchange.clock = options_.clock;
    exchange.first_block = count * c / channels;
    const int end = count * (c + 1) / channels;
    first_block_of_channel_.push_back(block_index);
    for (int i = exchange.first_block; i < end; ++i) {
      Block& block = blocks_[block_index++];
      block.channel = static_cast<int>(channels_.size());
      block.index = i - exchange.first_block;
      exchange.elements.push_back(block.range.count);
      exchange.order.push_back(order[i]);
    }
    auto channel = std::make_unique<Channel>();
    channel->ps = shard;
    channel->link =
        c == 0 ? std::move(link)
               : options_.transport->Connect(options_.addresses[shard]);
    channel->exchange = std::make_unique<ShardExchange>(std::move(exchange));
    channels_.push_back(std::move(channel));
  }
}

// ------------------------------------------------------------ the I/O threads

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
  channel.sending = channel.receiving = true;
  mutex_.Unlock();
  std::shared_ptr<PushPullStream> stream = channel.link->OpenPushPull();
  mutex_.Lock();
  channel.sending = channel.receiving = false;
  channel.stream = std::move(stream);
  channel.exchange->OnConnected();
  if (stop_) {
    channel.stream->Cancel();
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
    from = blocks_[first_block_of_channel_[c] + action.block].from;
  }
  channel.sending = true;
  if (!channel.receiving && channel.exchange->wants_in_flight() &&
      stream->SendNeedsReceiver()) {
    channel.wake.NotifyOne();  // to receive while this one sends
  }
  mutex_.Unlock();
  if (action.payload) {
    payload = PayloadOf(c, from, &action.header);
    // Before its receipt can be there: who has that has the count.
    const MutexLock lock(&mutex_);
    counters_.bytes_sent += payload.size();
  }
  const absl::Status status =
      stream->Send(action.header, payload, std::move(released));
  stream.reset();
  mutex_.Lock();
  channel.sending = false;
  if (!status.ok()) {
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
        LOG_WARN("{}; it goes again", status.ToString());
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
    const int block = first_block_of_channel_[c] + index;
    float* const out = options_.parameters + blocks_[block].range.begin;
    const auto count = static_cast<size_t>(blocks_[block].range.count);
    mutex_.Unlock();
    // Of the right size, which is all that could be wrong.
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
  const bool lost = exchange->CheckLost();
  if (lost) {
    NoteFailure(c);
  }
  mutex_.Unlock();
  if (lost && stream != nullptr) {
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

// ----------------------------------------------------------------------- pull

absl::Status ParameterClient::StartPull(const Want& want,
                                        std::span<const int> variables) {
  MutexLock lock(&mutex_);
  WEIR_RETURN_IF_ERROR(status_);
  WEIR_CHECK(!contribution_open_);
  std::vector<int> blocks;
  if (variables.empty()) {
    blocks = forward_blocks_;
  } else {
    std::vector<bool> wanted(blocks_.size(), false);
    for (const int v : variables) {
      for (const Part& part : parts_of_[v]) {
        wanted[part.block] = true;
      }
    }
    for (const int block : forward_blocks_) {
      if (wanted[block]) {
        blocks.push_back(block);
      }
    }
  }
  if (next_pull_.has_value()) {
    return absl::FailedPreconditionError("two pulls are waiting already");
  }
  if (values_left_ > 0 || then_.has_value()) {
    next_pull_.emplace(want, std::move(blocks));
  } else {
    BeginWants(want, blocks);
  }
  return absl::OkStatus();
}

void ParameterClient::BeginWants(const Want& want,
                                 const std::vector<int>& blocks, bool at_once) {
  std::vector<std::vector<int>> of_channel(channels_.size());
  for (const int block : blocks) {
    of_channel[blocks_[block].channel].push_back(blocks_[block].index);
  }
  NoteWanted(blocks);
  for (size_t c = 0; c < channels_.size(); ++c) {
    channels_[c]->exchange->StartWants(want, of_channel[c], at_once);
    channels_[c]->wake.NotifyAll();
  }
}

void ParameterClient::NoteWanted(const std::vector<int>& blocks) {
  for (const int block : blocks) {
    for (const int v : blocks_[block].variables) {
      ++values_missing_[v];
    }
  }
  values_left_ = static_cast<int>(blocks.size());
}

void ParameterClient::OnStored(int block) {
  bool notify = false;
  for (const int v : blocks_[block].variables) {
    notify = --values_missing_[v] == 0 || notify;
  }
  if (--values_left_ == 0) {
    notify = true;
    for (const auto& channel : channels_) {
      channel->exchange->SetGate(true);
      channel->wake.NotifyAll();
    }
    if (then_.has_value()) {
      WantWithContribution();
    } else if (next_pull_.has_value()) {
      BeginWants(next_pull_->first, next_pull_->second);
      next_pull_.reset();
    }
  }
  if (notify) {
    changed_.NotifyAll();
  }
}

// Asks for what follows the contribution, each block with its push or behind
// it.
void ParameterClient::WantWithContribution() {
  NoteWanted(forward_blocks_);
  for (const auto& channel : channels_) {
    channel->exchange->WantWithContribution(*then_);
  }
  then_.reset();
}

bool ParameterClient::PullWaits() const {
  return next_pull_.has_value() || (then_.has_value() && !contribution_open_);
}

bool ParameterClient::ValuesHere(int v) const {
  return !PullWaits() && values_missing_[v] == 0;
}

absl::Status ParameterClient::WaitVariable(int v) {
  MutexLock lock(&mutex_);
  WEIR_RETURN_IF_ERROR(
      WaitUntil([this, v]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return ValuesHere(v) || !interrupted_.ok();
      }));
  return interrupted_;
}

absl::Status ParameterClient::WaitPull() {
  MutexLock lock(&mutex_);
  WEIR_RETURN_IF_ERROR(
      WaitUntil([this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return (!PullWaits() && values_left_ == 0) || !interrupted_.ok();
      }));
  return interrupted_;
}

// -----------------------------------------------------------------------
// contribution

absl::Status ParameterClient::BeginContribution(
    const ContributionPush& contribution) {
  WEIR_CHECK(options_.gradients != nullptr);
  MutexLock lock(&mutex_);
  WEIR_CHECK(!contribution_open_);
  WEIR_RETURN_IF_ERROR(
      WaitUntil([this, &contribution]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return ContributionDone() && !PullWaits() &&
               (!contribution.then_at_once || values_left_ == 0);
      }));
  Push push;
  push.set_sequence(contribution.sequence);
  push.set_index_in_step(contribution.index_in_step);
  if (contribution.weight != 1.0f) {
    push.set_weight(contribution.weight);
  }
  for (const Hyper& hyper : contribution.hyper) {
    *push.add_hyper() = hyper;
  }
  for (Block& block : blocks_) {
    block.not_ready = static_cast<int>(block.variables.size());
    block.left_out.clear();
    block.from = nullptr;
  }
  for (const auto& channel : channels_) {
    channel->exchange->BeginContribution(push);
    channel->exchange->SetGate(values_left_ == 0);
  }
  then_ = contribution.then;
  if (then_.has_value() && contribution.then_at_once) {
    BeginWants(*then_, forward_blocks_, /*at_once=*/true);
    then_.reset();
  } else if (then_.has_value() && values_left_ == 0) {
    WantWithContribution();
  }
  events_fired_ = 0;
  variable_ready_.assign(variable_ready_.size(), false);
  left_out_.assign(variable_ready_.size(), false);
  for (const int v : contribution.left_out) {
    left_out_[v] = true;
  }
  contribution_open_ = true;
  return absl::OkStatus();
}

void ParameterClient::GradientReady(int v) {
  MutexLock lock(&mutex_);
  if (!left_out_[v]) {
    VariableReady(v, /*left_out=*/false);
  }
}

void ParameterClient::GradientsReady(
    std::span<const std::pair<int, const float*>> gradients) {
  const auto lent = [&](const Part& part) {
    return part.whole && encoder_ == nullptr;
  };
  for (const auto& [v, from] : gradients) {
    for (const Part& part : parts_of_[v]) {
      if (!lent(part)) {
        std::copy_n(from + part.segment.variable_offset, part.segment.count,
                    options_.gradients + part.flat_begin);
      }
    }
  }
  // All at once: the threads that this wakes find the caller's core free.
  MutexLock lock(&mutex_);
  for (const auto& [v, from] : gradients) {
    if (left_out_[v]) {
      continue;
    }
    for (const Part& part : parts_of_[v]) {
      if (lent(part)) {
        blocks_[part.block].from = from + part.segment.variable_offset;
      }
    }
    VariableReady(v, /*left_out=*/false);
  }
}

void ParameterClient::VariableReady(int v, bool left_out) {
  WEIR_CHECK(contribution_open_);
  if (variable_ready_[v]) {
    return;
  }
  variable_ready_[v] = true;
  for (const Part& part : parts_of_[v]) {
    Block& block = blocks_[part.block];
    if (left_out) {
      block.left_out.push_back(static_cast<uint32_t>(v));
    }
    if (--block.not_ready > 0) {
      continue;
    }
    Channel& channel = *channels_[block.channel];
    const bool payload = block.left_out.size() < block.variables.size();
    channel.exchange->BlockReady(block.index, payload,
                                 std::move(block.left_out));
    block.left_out.clear();
    channel.wake.NotifyOne();
  }
}

absl::Status ParameterClient::FinishContribution() {
  MutexLock lock(&mutex_);
  WEIR_CHECK(contribution_open_);
  for (size_t v = 0; v < variable_ready_.size(); ++v) {
    VariableReady(static_cast<int>(v), /*left_out=*/true);
  }
  contribution_open_ = false;
  return status_;
}

bool ParameterClient::ContributionDone() const {
  for (const auto& channel : channels_) {
    if (!channel->exchange->contribution_done()) {
      return false;
    }
  }
  return true;
}

absl::StatusOr<ParameterClient::ContributionResult>
ParameterClient::WaitReceipts() {
  ContributionResult result;
  {
    MutexLock lock(&mutex_);
    WEIR_CHECK(!contribution_open_);
    WEIR_RETURN_IF_ERROR(WaitUntil([this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(
                                       mutex_) { return ContributionDone(); }));
    for (const auto& channel : channels_) {
      const ShardExchange::Receipts& receipts = channel->exchange->receipts();
      result.duplicate_blocks += receipts.duplicates;
      result.staleness_sum += receipts.staleness_sum;
      result.staleness_count += receipts.staleness_count;
      result.staleness_max =
          std::max(result.staleness_max, receipts.staleness_max);
      if (receipts.bad_variable >= 0 && !result.bad) {
        const auto& variables = options_.layout->variables();
        result.bad = true;
        result.bad_variable =
            receipts.bad_variable < static_cast<int>(variables.size())
                ? variables[receipts.bad_variable].name
                : absl::StrCat("#", receipts.bad_variable);
      }
    }
    result.bytes_sent = counters_.bytes_sent - reported_.bytes_sent;
    result.bytes_received = counters_.bytes_received - reported_.bytes_received;
    reported_ = counters_;
  }
  while (!loans_.WaitForNone(std::chrono::milliseconds(50))) {
    MutexLock lock(&mutex_);
    WEIR_RETURN_IF_ERROR(status_);
  }
  return result;
}

// ---------------------------------------------------------------------- state

template <typename Done>
absl::Status ParameterClient::WaitUntil(const Done& done) {
  if (status_.ok() && done()) {
    return absl::OkStatus();
  }
  const int64_t begin = Clock::Real()->NowNs();
  absl::Status ended;
  while (status_.ok() && ended.ok() && !done()) {
    if (options_.on_wait == nullptr) {
      changed_.Wait(&mutex_);
    } else if (!changed_.WaitFor(&mutex_, kOnWaitEvery)) {
      mutex_.Unlock();
      ended = options_.on_wait();
      mutex_.Lock();
    }
  }
  counters_.wait_ns += Clock::Real()->NowNs() - begin;
  return status_.ok() ? ended : status_;
}

void ParameterClient::Interrupt(const absl::Status& status) {
  MutexLock lock(&mutex_);
  if (interrupted_.ok()) {
    interrupted_ = status;
  }
  changed_.NotifyAll();
}

uint64_t ParameterClient::version_min() const {
  MutexLock lock(&mutex_);
  uint64_t version = ~uint64_t{0};
  for (const Block& block : blocks_) {
    version = std::min(
        version, channels_[block.channel]->exchange->version(block.index));
  }
  return version;
}

ParameterClient::Counters ParameterClient::counters() const {
  MutexLock lock(&mutex_);
  return counters_;
}

}  // namespace weir
