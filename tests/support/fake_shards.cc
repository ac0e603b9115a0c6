#include "tests/support/fake_shards.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weir {

class FakeStream : public PushPullStream {
 public:
  FakeStream(FakeShards* shards, int shard) : shards_(shards), shard_(shard) {
    std::lock_guard<std::mutex> lock(shards_->mutex_);
    shards_->streams_.push_back(this);
    end_ = shards_->shards_[shard].down;
  }

  ~FakeStream() override {
    {
      std::lock_guard<std::mutex> lock(shards_->mutex_);
      std::erase(shards_->streams_, this);
    }
    GiveBack();
  }

  absl::Status Send(const GradientChunk& header, std::span<const char> payload,
                    std::function<void()> released) override {
    if (released) {
      // Every other payload is given back late, as a slow transport does.
      if (++sends_ % 2 == 0) {
        std::lock_guard<std::mutex> lock(held_mutex_);
        held_.push_back(std::move(released));
      } else {
        released();
      }
    }
    std::lock_guard<std::mutex> lock(shards_->mutex_);
    if (!end_.ok()) {
      return absl::UnavailableError("the stream is broken");
    }
    Fault fault = Fault::kNone;
    if (shards_->options_.fault) {
      fault = shards_->options_.fault(shard_, header);
    }
    if (fault == Fault::kBreakBefore) {
      Break(absl::UnavailableError("fault before"));
      return absl::OkStatus();  // with a real transport the loss shows later
    }
    Take(header, payload, fault == Fault::kDefer);
    if (fault == Fault::kBreakAfter) {
      Break(absl::UnavailableError("fault after"));
    }
    shards_->changed_.notify_all();
    return absl::OkStatus();
  }

  absl::Status Receive(ValueChunk* header, Payload* payload) override {
    std::unique_lock<std::mutex> lock(shards_->mutex_);
    const auto late =
        std::chrono::system_clock::now() + std::chrono::milliseconds(200);
    bool timed_out = false;
    while (true) {
      if (!answers_.empty()) {
        *header = std::move(answers_.front());
        answers_.pop_front();
        lock.unlock();
        GiveBack();
        return absl::OkStatus();
      }
      if (!end_.ok()) {
        return end_;
      }
      if (!shards_->shards_[shard_].silent && Answer(header, payload)) {
        lock.unlock();
        GiveBack();
        return absl::OkStatus();
      }
      if (timed_out && !shards_->shards_[shard_].silent && !parked_.empty()) {
        header->Clear();
        header->set_incarnation(shards_->shards_[shard_].incarnation);
        header->set_block(parked_.front().block);
        header->set_not_yet(true);
        parked_.pop_front();
        return absl::OkStatus();
      }
      timed_out =
          shards_->changed_.wait_until(lock, late) == std::cv_status::timeout;
    }
  }

  void Cancel() override {
    std::lock_guard<std::mutex> lock(shards_->mutex_);
    Break(absl::CancelledError("cancelled"));
  }

  void Break(const absl::Status& status) {
    if (end_.ok()) {
      end_ = status;
      answers_.clear();
    }
    shards_->changed_.notify_all();
  }

  int shard() const { return shard_; }

 private:
  void Take(const GradientChunk& header, std::span<const char> payload,
            bool defer) {
    FakeShards::Shard& shard = shards_->shards_[shard_];
    const int count = std::max<int>(static_cast<int>(header.block_count()), 1);
    const int first = static_cast<int>(header.block());
    std::optional<Receipt> receipt;
    if (first + count > static_cast<int>(shard.blocks.size())) {
      Break(absl::InvalidArgumentError("no such block"));
      return;
    }
    if (header.has_push()) {
      ValueChunk answer;
      answer.set_incarnation(shard.incarnation);
      answer.set_block(header.block());
      answer.set_block_count(header.block_count());
      std::vector<float> gradient(payload.size() / sizeof(float));
      std::copy(payload.begin(), payload.end(),
                reinterpret_cast<char*>(gradient.data()));
      for (int b = first; b < first + count; ++b) {
        if (defer) {
          answer.mutable_receipt()->set_outcome(Receipt::DEFERRED);
          answer.mutable_receipt()->set_sequence(header.push().sequence());
          continue;
        }
        const Receipt applied = shards_->Apply(
            shard_, b, header, gradient.empty() ? nullptr : gradient.data());
        if (applied.outcome() == Receipt::NONE) {
          Break(absl::OutOfRangeError(absl::StrCat(
              "sequence number ", header.push().sequence(),
              " skips sequence number ",
              shard.blocks[b].next_sequence[header.sender().slot()])));
          return;
        }
        *answer.mutable_receipt() = applied;
      }
      if (!payload.empty()) {
        shards_->arrivals_.push_back({shard_, first});
      }
      if (header.has_want()) {
        receipt = answer.receipt();  // goes with the values
      } else {
        answers_.push_back(std::move(answer));
      }
    }
    if (header.has_want()) {
      shards_->wants_.push_back({shard_, first});
      for (int b = first; b < first + count; ++b) {
        // A ps sends the request's run length back with each value, too.
        parked_.push_back({b, header.want(), header.block_count(), receipt});
      }
    }
  }

  // Called on a thread of the client's, as Send is.
  void GiveBack() {
    std::vector<std::function<void()>> due;
    {
      std::lock_guard<std::mutex> lock(held_mutex_);
      due.swap(held_);
    }
    for (const auto& released : due) {
      released();
    }
  }

  bool Answer(ValueChunk* header, Payload* payload) {
    FakeShards::Shard& shard = shards_->shards_[shard_];
    for (auto it = parked_.begin(); it != parked_.end(); ++it) {
      FakeShards::Block& block = shard.blocks[it->block];
      const bool previous = it->want.when_case() == Want::kVersion &&
                            it->want.version() + 1 == block.version &&
                            !block.previous.empty();
      if (it->want.when_case() == Want::kVersion && !previous &&
          it->want.version() != block.version) {
        continue;
      }
      header->Clear();
      header->set_incarnation(shard.incarnation);
      header->set_block(static_cast<uint32_t>(it->block));
      header->set_block_count(it->run_length);
      if (it->receipt.has_value()) {
        *header->mutable_receipt() = *it->receipt;
      }
      header->set_version(block.version - (previous ? 1 : 0));
      auto copy = std::make_shared<std::vector<float>>(previous ? block.previous
                                                                : block.values);
      const std::span<const char> bytes(
          reinterpret_cast<const char*>(copy->data()), copy->size() * 4);
      // The payload has two pieces, cut inside a float, as a network may.
      *payload = Payload({bytes.first(bytes.size() / 2 + 1),
                          bytes.subspan(bytes.size() / 2 + 1)},
                         copy);
      parked_.erase(it);
      return true;
    }
    return false;
  }

  struct Parked {
    int block;
    Want want;
    uint32_t run_length;
    std::optional<Receipt> receipt;  // of the push in the same request
  };

  FakeShards* const shards_;
  const int shard_;
  absl::Status end_;
  int sends_ = 0;
  std::deque<ValueChunk> answers_;
  std::deque<Parked> parked_;
  std::mutex held_mutex_;
  std::vector<std::function<void()>> held_;
};

class FakeLink : public DataLink {
 public:
  FakeLink(FakeShards* shards, int shard) : shards_(shards), shard_(shard) {}

  std::unique_ptr<PushPullStream> OpenPushPull() override {
    return std::make_unique<FakeStream>(shards_, shard_);
  }
  std::unique_ptr<PullRowsStream> OpenPullRows() override { return nullptr; }
  absl::StatusOr<PushRowsReply> PushRows(
      Timeout, const ChunkSource<PushRowsChunk>&) override {
    return absl::UnimplementedError("fake");
  }
  absl::StatusOr<HelloReply> Hello(Timeout) override {
    return absl::UnimplementedError("fake");
  }

 private:
  FakeShards* const shards_;
  const int shard_;
};

FakeShards::FakeShards(Options options) : options_(std::move(options)) {
  shards_.resize(options_.layout->shard_count());
  for (size_t s = 0; s < shards_.size(); ++s) {
    shards_[s].incarnation = 100 + s;
    shards_[s].blocks.resize(options_.layout->block_count(static_cast<int>(s)));
    for (size_t b = 0; b < shards_[s].blocks.size(); ++b) {
      const FlatRange range =
          options_.layout->block({static_cast<int>(s), static_cast<int>(b)});
      std::vector<float>& values = shards_[s].blocks[b].values;
      values.resize(range.count);
      if (!options_.initial.empty()) {
        std::copy_n(options_.initial.begin() + range.begin, range.count,
                    values.begin());
      }
    }
  }
}

FakeShards::~FakeShards() = default;

std::vector<std::string> FakeShards::addresses() const {
  std::vector<std::string> addresses;
  for (size_t s = 0; s < shards_.size(); ++s) {
    addresses.push_back(absl::StrCat("fake:", s));
  }
  return addresses;
}

std::unique_ptr<ControlLink> FakeShards::Connect(const std::string&) {
  return nullptr;
}

std::unique_ptr<DataLink> FakeShards::ConnectData(const std::string& address) {
  return std::make_unique<FakeLink>(this, std::stoi(address.substr(5)));
}

Receipt FakeShards::Apply(int shard, int index, const GradientChunk& request,
                          const float* gradient) {
  Block& block = shards_[shard].blocks[index];
  const Push& push = request.push();
  Receipt receipt;
  receipt.set_sequence(push.sequence());
  uint64_t& next = block.next_sequence[request.sender().slot()];
  if (push.sequence() > next) {
    return receipt;
  }
  if (push.sequence() < next) {
    ++duplicates_;
    receipt.set_outcome(Receipt::DUPLICATE);
    return receipt;
  }
  ++next;
  receipt.set_outcome(Receipt::ACCEPTED);
  receipt.set_staleness(block.version - push.base_version());
  std::vector<float> sum(block.values.size(), 0.0f);
  const float weight = push.has_weight() ? push.weight() : 1.0f;
  for (size_t i = 0; gradient != nullptr && i < sum.size(); ++i) {
    sum[i] = weight * gradient[i];
  }
  if (options_.contributions == 0) {
    for (size_t i = 0; i < sum.size(); ++i) {
      block.values[i] += options_.rate * sum[i];
    }
    ++block.version;
    return receipt;
  }
  block.taken[push.index_in_step()] = std::move(sum);
  if (static_cast<int>(block.taken.size()) == options_.contributions) {
    block.previous = block.values;
    std::vector<float> total(block.values.size(), 0.0f);
    for (const auto& [m, taken] : block.taken) {
      for (size_t i = 0; i < taken.size(); ++i) {
        total[i] += taken[i];
      }
    }
    for (size_t i = 0; i < total.size(); ++i) {
      block.values[i] += options_.rate * total[i];
    }
    block.taken.clear();
    ++block.version;
  }
  return receipt;
}

void FakeShards::SetDown(int shard, const absl::Status& status) {
  std::lock_guard<std::mutex> lock(mutex_);
  shards_[shard].down = status;
  for (FakeStream* stream : streams_) {
    if (stream->shard() == shard && !status.ok()) {
      stream->Break(status);
    }
  }
}

void FakeShards::ChangeIncarnation(int shard) {
  std::lock_guard<std::mutex> lock(mutex_);
  shards_[shard].incarnation += 1000;
}

void FakeShards::SetSilent(int shard, bool silent) {
  std::lock_guard<std::mutex> lock(mutex_);
  shards_[shard].silent = silent;
  changed_.notify_all();
}

std::vector<float> FakeShards::values(int shard, int block) {
  std::lock_guard<std::mutex> lock(mutex_);
  return shards_[shard].blocks[block].values;
}

uint64_t FakeShards::version(int shard, int block) {
  std::lock_guard<std::mutex> lock(mutex_);
  return shards_[shard].blocks[block].version;
}

uint64_t FakeShards::next_sequence(int shard, int block, uint32_t slot) {
  std::lock_guard<std::mutex> lock(mutex_);
  return shards_[shard].blocks[block].next_sequence[slot];
}

uint64_t FakeShards::duplicates() {
  std::lock_guard<std::mutex> lock(mutex_);
  return duplicates_;
}

std::vector<BlockId> FakeShards::arrivals() {
  std::lock_guard<std::mutex> lock(mutex_);
  return arrivals_;
}

std::vector<BlockId> FakeShards::wants() {
  std::lock_guard<std::mutex> lock(mutex_);
  return wants_;
}

}  // namespace weir
