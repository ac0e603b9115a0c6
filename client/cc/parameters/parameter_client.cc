// The caller's side of a ParameterClient; parameter_client_channels.cc has
// the threads that talk to the ps. Both work on one state under one lock.
#include "client/cc/parameters/parameter_client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/logging.h"
#include "common/base/status.h"
#include "proto/job/job_spec_checks.h"

namespace weir {
namespace {

// A transport gives payloads back when their stream ends, or its connection;
// one that does not is a bug, and better a line in the log than a process that
// never ends.
constexpr std::chrono::seconds kReleaseWaitMax{5};
// Two threads each; a ps takes 64 streams on a connection, and as many
// connections as it has files.
constexpr int kChannelsPerPeerMax = 16;

}  // namespace

absl::Status ParameterClient::Options::Validate() const {
  if (transport == nullptr || layout == nullptr ||
      (parameters == nullptr && !store_values)) {
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
  if (channels_per_peer < 0 || channels_per_peer > kChannelsPerPeerMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("channels_per_peer ", channels_per_peer, " is not in [0, ",
                     kChannelsPerPeerMax, "]"));
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
  client->MakeChannels();
  // Last: the threads find all channels, blocks and links in place.
  std::vector<Lane*> lanes;
  for (const auto& channel : client->channels_) {
    lanes.push_back(channel.get());
  }
  client->StartThreads(std::move(lanes), /*threads=*/2);
  return client;
}

ParameterClient::ParameterClient(Options options)
    : ShardClient(options),
      options_(std::move(options)),
      map_(*options_.layout) {}

ParameterClient::~ParameterClient() {
  StopThreads();
  // The last reference to a stream gives its payloads back, see loans_ below.
  for (const auto& channel : channels_) {
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

// ----------------------------------------------------------------------- pull

absl::Status ParameterClient::StartPull(const Sender& sender,
                                        const Want& want) {
  MutexLock lock(&mutex_);
  WEIR_RETURN_IF_ERROR(status_);
  WEIR_CHECK(!contribution_open_);
  // An exchange has one set of wants, so a pull never overtakes another.
  if (values_left_ > 0 || then_.has_value()) {
    return absl::FailedPreconditionError(
        "a pull is under way: wait for it before the next one");
  }
  BeginWants(sender, want);
  return absl::OkStatus();
}

void ParameterClient::BeginWants(const Sender& sender, const Want& want,
                                 bool at_once) {
  NoteWanted();
  for (const auto& channel : channels_) {
    channel->exchange.StartWants(sender, want, at_once);
    channel->wake.NotifyAll();
  }
}

void ParameterClient::NoteWanted() {
  values_left_ = static_cast<int>(map_.blocks().size());
  for (size_t v = 0; v < values_missing_.size(); ++v) {
    values_missing_[v] =
        static_cast<int>(map_.parts_of(static_cast<int>(v)).size());
  }
}

void ParameterClient::OnStored(int block) {
  bool notify = false;
  for (const int v : map_.blocks()[block].variables) {
    notify = --values_missing_[v] == 0 || notify;
  }
  if (--values_left_ == 0) {
    notify = true;
    // I2: this was the last value of all shards, so the contribution that
    // BeginContribution held back may leave.
    for (const auto& channel : channels_) {
      channel->exchange.SetGate(true);
      channel->wake.NotifyAll();
    }
    if (then_.has_value()) {
      WantWithContribution();
    }
  }
  if (notify) {
    changed_.NotifyAll();
  }
}

// Asks for the values that follow the contribution. The exchange asks for each
// block with its push or right behind it (I3).
void ParameterClient::WantWithContribution() {
  NoteWanted();
  for (const auto& channel : channels_) {
    channel->exchange.WantWithContribution(*then_);
  }
  then_.reset();
}

bool ParameterClient::PullWaits() const {
  return then_.has_value() && !contribution_open_;
}

bool ParameterClient::ValuesHere(int v) const {
  return !PullWaits() && values_missing_[v] == 0;
}

absl::Status ParameterClient::WaitVariable(int v) {
  MutexLock lock(&mutex_);
  WEIR_RETURN_IF_ERROR(WaitUntil(
      [this, v]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return !status_.ok() || !interrupted_.ok() || ValuesHere(v);
      },
      v));
  return interrupted_;
}

bool ParameterClient::HasVariable(int v) {
  const MutexLock lock(&mutex_);
  return status_.ok() && interrupted_.ok() && ValuesHere(v);
}

absl::Status ParameterClient::WaitPull() {
  MutexLock lock(&mutex_);
  WEIR_RETURN_IF_ERROR(
      WaitUntil([this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return !status_.ok() || !interrupted_.ok() ||
               (!PullWaits() && values_left_ == 0);
      }));
  return interrupted_;
}

// --------------------------------------------------------------- contribution

absl::Status ParameterClient::BeginContribution(
    const ContributionPush& contribution) {
  WEIR_CHECK(options_.gradients != nullptr);
  MutexLock lock(&mutex_);
  WEIR_CHECK(!contribution_open_);
  // then_at_once overwrites `parameters` from now on, so the values that are
  // still on their way must be here first.
  WEIR_RETURN_IF_ERROR(
      WaitUntil([this, &contribution]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return !status_.ok() ||
               (ContributionDone() && !PullWaits() &&
                (!contribution.then_at_once || values_left_ == 0));
      }));
  Push push;
  push.set_sequence(contribution.sequence);
  history_ = contribution.sender.history();
  slot_ = contribution.sender.slot();
  sequence_ = contribution.sequence;
  push.set_index_in_step(contribution.index_in_step);
  if (contribution.weight != 1.0f) {
    push.set_weight(contribution.weight);
  }
  for (const Hyper& hyper : contribution.hyper) {
    *push.add_hyper() = hyper;
  }
  for (size_t b = 0; b < blocks_.size(); ++b) {
    BlockPush& block = blocks_[b];
    block.not_ready = static_cast<int>(map_.blocks()[b].variables.size());
    block.left_out.clear();
    block.from = nullptr;
  }
  for (const auto& channel : channels_) {
    channel->exchange.BeginContribution(contribution.sender, push);
    channel->exchange.SetGate(values_left_ == 0);  // I2; OnStored opens it
  }
  then_ = contribution.then;
  if (then_.has_value() && contribution.then_at_once) {
    BeginWants(contribution.sender, *then_, /*at_once=*/true);
    then_.reset();
  } else if (then_.has_value() && values_left_ == 0) {
    WantWithContribution();
  }
  failpoints_hit_ = 0;
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
  // A part that fills its block can be sent from where it lies. Where the block
  // is shared, or the encoder reads `gradients`, it is copied there: before the
  // lock is taken, since nobody reads a block that is not ready (I3).
  const auto lent = [&](const Part& part) {
    return part.whole && encoder_ == nullptr;
  };
  for (const auto& [v, from] : gradients) {
    for (const Part& part : map_.parts_of(v)) {
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
    for (const Part& part : map_.parts_of(v)) {
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
  for (const Part& part : map_.parts_of(v)) {
    BlockPush& block = blocks_[part.block];
    const BlockMap::Block& known = map_.blocks()[part.block];
    if (left_out) {
      block.left_out.push_back(static_cast<uint32_t>(v));
    }
    if (--block.not_ready > 0) {
      continue;
    }
    Channel& channel = *channels_[known.channel];
    // A block of which every variable is left out travels as a header, so that
    // its mark moves on as well.
    const bool payload = block.left_out.size() < known.variables.size();
    channel.exchange.BlockReady(known.index, payload,
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
    if (!channel->exchange.contribution_done()) {
      return false;
    }
  }
  return true;
}

absl::StatusOr<ContributionResult> ParameterClient::WaitReceipts() {
  ContributionResult result;
  {
    MutexLock lock(&mutex_);
    WEIR_CHECK(!contribution_open_);
    WEIR_RETURN_IF_ERROR(
        WaitUntil([this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
          return !status_.ok() || ContributionDone();
        }));
    for (const auto& channel : channels_) {
      result.Add(channel->exchange.receipts());
    }
  }
  if (result.bad) {
    // The number comes from the ps: it may be one that we do not have.
    const std::vector<VariableSpec>& variables = options_.layout->variables();
    result.bad_name = result.bad_number < variables.size()
                          ? variables[result.bad_number].name
                          : absl::StrCat("#", result.bad_number);
  }
  // I1, I3: every receipt is in, but a transport may still hold a payload (of
  // a stream that broke, say). Until it lets go, gradients must not change.
  while (!loans_.WaitForNone(std::chrono::milliseconds(50))) {
    MutexLock lock(&mutex_);
    WEIR_RETURN_IF_ERROR(status_);
  }
  return result;
}

}  // namespace weir
