// What peers ask of a ps, in any order and with any numbers: Declare, SetSlots,
// Assign, pushes and pulls of blocks and of rows, Shrink, Snapshot, GetStatus
// and Shutdown, for jobs of every consistency mode. Every question is answered
// exactly once, and the ps keeps within its memory.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "google/protobuf/text_format.h"
#include "proto/wire/id_list.h"
#include "proto/wire/layout_io.h"
#include "server/ps/store/store.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/memory_files.h"

namespace weir {
namespace {

constexpr int kRequestsMax = 48;
constexpr int64_t kMemoryBytes = 64 << 20;

// Two variables, of one block and of three, and two tables; each job in another
// mode, with other optimizers.
constexpr char kCommon[] =
    "job: 'fuzz' shard_count: 1 slot_count: 2 block_elements: 64 "
    "out_of_order_bytes: 4096 "
    "variable { name: 'w' shape: 40 } "
    "variable { name: 'v' shape: [15, 10] init: NORMAL init_scale: 1 } ";
constexpr const char* kJobs[] = {
    "update { async {} } "
    "group { optimizer { sgd {} } schedule { learning_rate: 1 } } "
    "table { name: 't' dim: 3 schedule { learning_rate: 1 } "
    "  initializer { zeros {} } optimizer { sgd {} } } "
    "table { name: 'u' dim: 1 schedule { learning_rate: 1 } "
    "  initializer { normal_stddev: 1 } optimizer { adagrad {} } "
    "  expiry { steps: 4 } }",
    "update { async { lock_free: true } } "
    "group { optimizer { adagrad {} } schedule { learning_rate: 1 } }",
    "update { sync { contributions: 2 } } "
    "group { optimizer { adam {} } schedule { learning_rate: 1 } } "
    "table { name: 't' dim: 2 schedule { learning_rate: 1 } "
    "  initializer { zeros {} } optimizer { adam {} } }",
    "update { bounded_staleness { bound: 1 } } "
    "group { optimizer { ftrl {} } schedule { learning_rate: 1 } } "
    "table { name: 't' dim: 2 schedule { learning_rate: 1 } "
    "  initializer { zeros {} } optimizer { ftrl {} } }",
};

Declaration Parse(int job) {
  Declaration declaration;
  WEIR_CHECK(google::protobuf::TextFormat::ParseFromString(
      std::string(kCommon) + kJobs[job], &declaration));
  return declaration;
}

const Declaration& JobOf(int job) {
  static const auto* const jobs =
      new std::vector<Declaration>{Parse(0), Parse(1), Parse(2), Parse(3)};
  return (*jobs)[static_cast<size_t>(job)];
}

class Session {
 public:
  explicit Session(FuzzInput* input) : input_(*input) {
    store_ = *Store::Create({.clock = &clock_,
                             .files = &files_,
                             .incarnation = 7,
                             .memory_bytes_max = kMemoryBytes,
                             .checkpoint_root = "/run"});
  }

  void Run() {
    Declare();
    SetSlots();
    for (int i = 0; i < kRequestsMax && !input_.empty(); ++i) {
      Ask();
    }
    push_.reset();
    store_.reset();
    WEIR_CHECK(open_ == 0);  // every question had its answer
  }

 private:
  void Ask() {
    switch (input_.Below(13)) {
      case 0:
        return Declare();
      case 1:
        return SetSlots();
      case 2:
      case 3:
        return Push();
      case 4:
        return Pull();
      case 5:
      case 6:
        return PullRows();
      case 7:
      case 8:
        return PushRows();
      case 9:
        return Shrink();
      case 10:
        return Assign();
      case 11:
        clock_.Advance(std::chrono::milliseconds(input_.Number() % 20000));
        return store_->ExpireWaits();
      default:
        return Control();
    }
  }

  // A continuation that must run exactly once.
  template <typename T>
  std::function<void(absl::StatusOr<T>)> Answer() {
    ++open_;
    return [this, answered = std::make_shared<bool>(false)](
               const absl::StatusOr<T>& /*answer*/) {
      WEIR_CHECK(!std::exchange(*answered, true));
      --open_;
    };
  }

  // Mostly one that is right.
  Sender MakeSender() {
    Sender sender;
    sender.set_job("fuzz");
    sender.set_history(history_);
    sender.set_layout_fingerprint(fingerprint_);
    const uint8_t how = input_.Byte();
    sender.set_slot(how & 1);
    sender.set_generation(generation_[how & 1]);
    if (how >= 192) {
      sender.set_slot(input_.Number32());
      sender.set_generation(input_.Number32());
    }
    return sender;
  }

  Want MakeWant() {
    Want want;
    const uint8_t how = input_.Byte();
    if ((how & 3) == 0) {
      want.set_version(input_.Number());
    } else if ((how & 3) != 1) {
      want.set_latest(true);
    }
    want.set_encoding(static_cast<Encoding>((how >> 2) % 6));
    if (how >= 128) {
      want.set_clock(input_.Number());
      want.set_timeout_ms(input_.Number32());
    }
    return want;
  }

  ::weir::Push MakePush() {
    ::weir::Push push;
    const uint8_t how = input_.Byte();
    push.set_sequence((how & 1) == 0 ? next_ : input_.Number());
    next_ += how >> 7;
    push.set_base_version(input_.Number());
    push.set_index_in_step((how >> 1) & 1);
    if ((how & 4) != 0) {
      push.set_weight(MakeFloat());
    }
    if ((how & 8) != 0) {
      push.add_left_out(input_.Number32());
    }
    if ((how & 16) != 0) {
      Hyper* const hyper = push.add_hyper();
      hyper->set_group(input_.Number32());
      hyper->set_learning_rate(MakeFloat());
      hyper->set_weight_decay(MakeFloat());
      hyper->set_momentum(MakeFloat());
    }
    if ((how & 32) != 0) {
      push.set_index_in_step(input_.Number32());
    }
    return push;
  }

  float MakeFloat() {
    constexpr float kFloats[] = {
        1.0f,
        0.0f,
        -1.0f,
        0.5f,
        3e38f,
        1e-42f,
        std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN(),
    };
    return kFloats[input_.Below(8)];
  }

  // Bytes for `count` values: as many as F32 takes, of one value, or any.
  std::string MakePayload(size_t count) {
    if (input_.Flag()) {
      return input_.Text();
    }
    const std::vector<float> values(count, MakeFloat());
    return {reinterpret_cast<const char*>(values.data()), count * 4};
  }

  void Declare() {
    DeclareRequest request;
    const uint8_t how = input_.Byte();
    Declaration* const declaration = request.mutable_declaration();
    *declaration = JobOf(how & 3);
    declaration->set_history((how >> 2) % 3 + 1);
    if (how >= 128) {
      declaration->set_base_version(input_.Number());
      declaration->set_block_elements(input_.Number());
      declaration->set_slot_count(input_.Number32());
      declaration->set_out_of_order_bytes(input_.Number());
      declaration->mutable_variable(0)->set_shape(
          0, static_cast<int64_t>(input_.Number()));
      request.set_shard(input_.Number32());
      for (EmbeddingTable& table : *declaration->mutable_table()) {
        table.set_dim(input_.Number32());
        table.mutable_admission()->set_filter_bytes(input_.Number());
        table.mutable_admission()->set_count(input_.Number32());
      }
    }
    request.set_chief_secret("secret");
    const auto reply = store_->Declare(request);
    if (reply.ok()) {
      history_ = declaration->history();
      fingerprint_ = reply->layout_fingerprint();
      generation_[0] = generation_[1] = 0;
      next_ = 0;
    }
  }

  void SetSlots() {
    SetSlotsRequest request;
    *request.mutable_sender() = MakeSender();
    const uint8_t how = input_.Byte();
    for (uint32_t slot = 0; slot < 2; ++slot) {
      SetSlotsRequest::Slot* const one = request.add_slot();
      one->set_slot(how < 224 ? slot : input_.Number32());
      one->set_generation(how < 224 ? generation_[slot] + 1
                                    : input_.Number32());
      one->set_retired(((how >> slot) & 1) != 0);
      one->set_process(slot + 1);
    }
    if (store_->SetSlots(request).ok()) {
      for (const SetSlotsRequest::Slot& slot : request.slot()) {
        if (slot.slot() < 2) {
          generation_[slot.slot()] = slot.generation();
        }
      }
    }
  }

  void Push() {
    GradientChunk chunk;
    *chunk.mutable_sender() = MakeSender();
    *chunk.mutable_push() = MakePush();
    chunk.set_block(static_cast<uint32_t>(input_.Number()));
    const uint8_t how = input_.Byte();
    chunk.set_encoding(static_cast<Encoding>((how >> 1) % 6));
    std::string bytes;
    if ((how & 1) == 0) {
      bytes = MakePayload(64);
    } else {
      chunk.set_block_count(input_.Number32());
    }
    Payload payload = Payload::Borrowed(bytes);
    payload.Keep();
    store_->Push(chunk, std::move(payload)).status().IgnoreError();
  }

  void Pull() {
    const Sender sender = MakeSender();
    const int block = static_cast<int>(input_.Number());
    store_->Pull(sender, block, MakeWant(), Answer<PulledBlock>());
  }

  void Assign() {
    AssignChunk chunk;
    *chunk.mutable_sender() = MakeSender();
    chunk.set_block(input_.Number32());
    chunk.set_offset(input_.Number32());
    const std::string bytes = MakePayload(input_.Below(65));
    store_->Assign(chunk, Payload::Borrowed(bytes)).IgnoreError();
  }

  // A list of ids, its name alone, or bytes that may be none. Returns how many
  // ids it says to have.
  uint32_t AddList(IdList* list) {
    const uint8_t how = input_.Byte();
    list->set_table(how & 1);
    list->set_name((how >> 1) & 3);
    uint32_t count = input_.Below(12);
    if (how >= 224) {
      list->set_table(input_.Number32());
      list->set_deltas(input_.Text());
      count = input_.Number32();
    } else if ((how & 8) == 0) {
      std::vector<uint64_t> ids;
      uint64_t next = input_.Number() % (uint64_t{1} << 40);
      for (uint32_t i = 0; i < count; ++i) {
        ids.push_back(next);
        next += 1 + input_.Below(200);
      }
      list->set_deltas(EncodeIds(ids));
    }
    list->set_count(count);
    return std::min(count, uint32_t{256});
  }

  void PullRows() {
    PullRowsChunk request;
    *request.mutable_sender() = MakeSender();
    *request.mutable_want() = MakeWant();
    const uint8_t how = input_.Byte();
    request.set_train((how & 1) != 0);
    for (int i = 0; i < ((how >> 1) & 3); ++i) {
      AddList(request.add_list());
    }
    store_->PullRows(request, Answer<PulledRows>());
  }

  void PushRows() {
    PushRowsChunk chunk;
    *chunk.mutable_sender() = MakeSender();
    *chunk.mutable_push() = MakePush();
    const uint8_t how = input_.Byte();
    size_t rows = 0;
    for (int i = 0; i < (how & 3); ++i) {
      rows += AddList(chunk.add_list());
    }
    if ((how & 4) != 0) {
      TableRate* const rate = chunk.add_rate();
      rate->set_table(input_.Number32());
      rate->set_learning_rate(MakeFloat());
    }
    chunk.set_encoding(static_cast<Encoding>((how >> 3) % 6));
    const std::string bytes = MakePayload(rows * (1 + input_.Below(3)));
    if (push_ == nullptr) {
      push_ = std::make_unique<RowPush>(store_.get());
    }
    if (!push_->Add(chunk, Payload::Borrowed(bytes)).ok()) {
      push_.reset();
    } else if (how < 192) {  // else another piece may follow
      push_->Apply(Answer<PushRowsReply>());
      push_.reset();
    }
  }

  void Shrink() {
    ShrinkRequest request;
    *request.mutable_sender() = MakeSender();
    const uint8_t how = input_.Byte();
    request.set_table((how & 1) == 0 ? "" : "t");
    if ((how & 2) != 0) {
      request.set_rows_max(input_.Number());
    }
    request.set_age_max(input_.Number32());
    store_->Shrink(request).status().IgnoreError();
  }

  // What the chief and people ask.
  void Control() {
    switch (input_.Below(3)) {
      case 0: {
        store_->Hello();
        {
          GetStatusRequest request;
          request.set_hot_ids(static_cast<uint32_t>(input_.Number() % 1001));
          store_->GetStatus(request);
        }
        return;
      }
      case 1: {
        ShutdownRequest request;
        *request.mutable_sender() = MakeSender();
        request.set_code(input_.Number32());
        store_->CheckShutdown(request).IgnoreError();
        return;
      }
      default:
        return Snapshot();
    }
  }

  // The files refuse to be written, so it ends with an error, which is told.
  void Snapshot() {
    SnapshotRequest request;
    *request.mutable_sender() = MakeSender();
    request.set_checkpoint("ckpt-1");
    if (input_.Flag()) {
      request.set_version(input_.Number());
    }
    store_->Snapshot(
        request, [](const absl::StatusOr<SnapshotReply>& /*reply*/) {},
        [](const std::function<void()>& write) { write(); });
  }

  FuzzInput& input_;
  FakeClock clock_;
  MemoryFiles files_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<RowPush> push_;  // whose pieces come in
  int open_ = 0;                   // questions without an answer
  // What the peers know.
  uint64_t history_ = 0;
  uint64_t fingerprint_ = 0;
  uint32_t generation_[2] = {0, 0};
  uint64_t next_ = 0;
};

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weir::FuzzInput input(data, size);
  weir::Session(&input).Run();
  return 0;
}
