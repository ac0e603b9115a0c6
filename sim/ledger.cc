#include "sim/ledger.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cc/job/slot_marks.h"
#include "client/cc/parameters/parameter_client.h"
#include "common/job/layout.h"
#include "google/protobuf/text_format.h"
#include "proto/wire/layout_io.h"
#include "sim/network.h"

namespace weir::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Processes; the main fibre is 0.
constexpr int kFirstShard = 1;
constexpr int kFirstWorker = 100;
constexpr auto kLostAfter = seconds(10);
constexpr auto kCallTimeout = seconds(5);
// In the world's time; far more than any plan needs.
constexpr auto kWorldMax = seconds(3600);

enum class Mode { kAsync, kSync, kStaleness };

// What a seed draws.
struct Plan {
  Mode mode = Mode::kAsync;
  int shards = 1;
  int slots = 1;
  uint64_t contributions = 0;  // of each slot
  uint64_t in_step = 1;        // sync: contributions of a step
  int block_elements = 16;
  int variables = 1;
  Faults faults;
  int kills = 0;
  int parts = 0;

  std::string Words() const;
};

template <typename T>
T Pick(std::initializer_list<T> of) {
  return *(of.begin() + RandomBelow(of.size()));
}

Plan DrawPlan() {
  Plan plan;
  plan.mode = Pick({Mode::kAsync, Mode::kSync, Mode::kStaleness});
  plan.shards = 1 + static_cast<int>(RandomBelow(3));
  plan.slots = Pick({1, 2, 4});
  plan.contributions = 4 + RandomBelow(20);
  plan.in_step =
      static_cast<uint64_t>(plan.slots) * static_cast<uint64_t>(Pick({1, 2}));
  plan.contributions -= plan.contributions % 2;  // whole steps
  plan.block_elements = Pick({16, 32, 64});
  plan.variables = 1 + static_cast<int>(RandomBelow(4));
  plan.faults.delay_min = Pick({milliseconds(0), milliseconds(1)});
  plan.faults.delay_max =
      plan.faults.delay_min +
      Pick({milliseconds(1), milliseconds(20), milliseconds(500)});
  plan.faults.reset_one_in = Pick<uint64_t>({0, 1000, 100, 20});
  plan.kills = Pick({0, 0, 1, 2, 5});
  plan.parts = Pick({0, 0, 1, 3});
  return plan;
}

// `mode` of a job whose steps have `in_step` contributions, as a Declaration
// has it.
std::string UpdateText(Mode mode, uint64_t in_step) {
  switch (mode) {
    case Mode::kAsync:
      return "async {}";
    case Mode::kSync:
      return absl::StrCat("sync { contributions: ", in_step, " }");
    case Mode::kStaleness:
      return "bounded_staleness { bound: 2 }";
  }
  return "";
}

std::string Plan::Words() const {
  return absl::StrCat(
      UpdateText(mode, in_step), ", ", shards, " shards, ", slots, " slots, ",
      contributions, " contributions each, ", block_elements,
      " elements a block, ", variables, " variables, messages take up to ",
      faults.delay_max / std::chrono::microseconds(1), " us, one in ",
      faults.reset_one_in, " breaks its connection, ", kills, " kills, ", parts,
      " parted");
}

class Ledger {
 public:
  explicit Ledger(LedgerResult* result) : result_(result), plan_(DrawPlan()) {
    result_->job = plan_.Words();
    Note(result_->job);
    network_.SetFaults(plan_.faults);
    std::string text = absl::StrCat(
        "job: 'sim' history: 1 shard_count: ", plan_.shards,
        " slot_count: ", plan_.slots, " block_elements: ", plan_.block_elements,
        " out_of_order_bytes: 1048576 update { ",
        UpdateText(plan_.mode, plan_.in_step),
        " } group { optimizer { sgd {} } schedule { learning_rate: 1 } }");
    for (int v = 0; v < plan_.variables; ++v) {
      absl::StrAppend(&text, " variable { name: 'v", v, "' shape: ", 5 + 40 * v,
                      " }");
    }
    if (!google::protobuf::TextFormat::ParseFromString(text, &declaration_)) {
      std::abort();
    }
    layout_ = std::make_unique<Layout>(*LayoutFromDeclaration(declaration_));
    generations_.assign(static_cast<size_t>(plan_.slots), 0);
    done_.assign(static_cast<size_t>(plan_.slots), false);
    for (int s = 0; s < plan_.shards; ++s) {
      addresses_.push_back(absl::StrCat("ps", s, ":1"));
    }
  }

  void Run() {
    network_.Join();
    operator_transport_ = network_.NewTransport();
    for (int s = 0; s < plan_.shards; ++s) {
      StartShard(s);
    }
    SleepFor(milliseconds(1));
    for (int slot = 0; slot < plan_.slots; ++slot) {
      StartWorker(slot);
    }
    MakeTrouble();
    Heal();
    while (!AllDone() && Now() < kWorldMax && result_->broken.empty()) {
      SleepFor(milliseconds(100));
    }
    if (!AllDone()) {
      Break("a slot has not ended after an hour");
    }
    if (result_->broken.empty()) {
      CheckEnd();
    }
    result_->messages = network_.arrived();
    result_->resets = network_.resets();
  }

 private:
  void Break(const std::string& what) {
    if (result_->broken.empty()) {
      result_->broken = what;
      Note(what);
    }
  }

  // Of its own for every contribution, and a multiple of all that a step's sum
  // is divided by.
  float Gradient(int slot, uint64_t sequence, int64_t element) const {
    return static_cast<float>(
        8 * (1 + static_cast<int64_t>(sequence) * plan_.slots + slot +
             element % 3));
  }

  Sender SenderOf(int slot, uint32_t generation) const {
    Sender sender;
    sender.set_job(declaration_.job());
    sender.set_history(declaration_.history());
    sender.set_layout_fingerprint(layout_->fingerprint());
    sender.set_slot(static_cast<uint32_t>(slot));
    sender.set_generation(generation);
    return sender;
  }

  void StartShard(int shard) {
    StartAs(kFirstShard + shard, [this, shard] {
      network_.Join();
      // Never deleted: streams may speak of it until the world ends.
      Store* const store = Store::Create({.incarnation = Random(),
                                          .memory_bytes_max = int64_t{1} << 30})
                               ->release();
      DeclareRequest request;
      *request.mutable_declaration() = declaration_;
      request.set_shard(static_cast<uint32_t>(shard));
      if (const auto reply = store->Declare(request); !reply.ok()) {
        Break(reply.status().ToString());
      }
      network_.Serve(addresses_[static_cast<size_t>(shard)], store);
      for (;;) {
        SleepFor(milliseconds(50));
        store->ExpireWaits();
      }
    });
  }

  // As the chief: the next generation on every shard, then its process.
  void StartWorker(int slot) {
    const uint32_t generation = ++generations_[static_cast<size_t>(slot)];
    SetSlotsRequest request;
    *request.mutable_sender() = SenderOf(slot, 0);
    SetSlotsRequest::Slot* const granted = request.add_slot();
    granted->set_slot(static_cast<uint32_t>(slot));
    granted->set_generation(generation);
    SlotMarks marks(static_cast<uint32_t>(slot));
    for (const std::string& address : addresses_) {
      const auto link = operator_transport_->Connect(address);
      absl::Status set;
      do {
        set = link->SetSlots(request, kCallTimeout);
      } while (IsRepeated(set));
      absl::StatusOr<HelloReply> hello;
      do {
        hello = link->Hello(kCallTimeout);
      } while (IsRepeated(hello.status()));
      if (!set.ok() || !hello.ok()) {
        Break(absl::StrCat("no grant: ", set.ToString(), ", ",
                           hello.status().ToString()));
        return;
      }
      marks.Add(hello->slot());
    }
    const int process = ++processes_ + kFirstWorker;
    workers_[slot] = process;
    StartAs(process, [this, slot, generation, next = marks.next_sequence()] {
      network_.Join();
      Work(slot, generation, next);
    });
  }

  static bool IsRepeated(const absl::Status& status) {
    return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
  }

  void Work(int slot, uint32_t generation, uint64_t next) {
    const Sender sender = SenderOf(slot, generation);
    const auto elements = static_cast<size_t>(layout_->flat_elements());
    std::vector<float> parameters(elements);
    std::vector<float> gradients(elements);
    const std::unique_ptr<Transport> transport = network_.NewTransport();
    ParameterClient::Options options;
    options.transport = transport.get();
    options.addresses = addresses_;
    options.lost_after = kLostAfter;
    options.layout = layout_.get();
    options.parameters = parameters.data();
    options.gradients = gradients.data();
    auto client = ParameterClient::Create(std::move(options));
    absl::Status status = client.status();
    if (status.ok()) {
      status = (*client)->StartPull(sender, WantFor(slot, next));
    }
    for (uint64_t n = next; status.ok() && n < plan_.contributions; ++n) {
      status = Contribute(client->get(), sender, n, &gradients);
    }
    Note(absl::StrCat("slot ", slot, " ends: ", status.message()));
    if (!status.ok()) {
      Break(absl::StrCat("slot ", slot, ": ", status.ToString()));
      return;
    }
    done_[static_cast<size_t>(slot)] = true;
  }

  absl::Status Contribute(ParameterClient* client, const Sender& sender,
                          uint64_t n, std::vector<float>* gradients) {
    const int slot = static_cast<int>(sender.slot());
    if (absl::Status status = client->WaitPull(); !status.ok()) {
      return status;
    }
    SleepFor(milliseconds(RandomBelow(20)));  // computes
    ContributionPush push;
    push.sender = sender;
    push.sequence = n;
    push.index_in_step =
        static_cast<uint32_t>(NumberOf(slot, n) % plan_.in_step);
    if (n + 1 < plan_.contributions) {
      push.then = WantFor(slot, n + 1);
    }
    if (absl::Status status = client->BeginContribution(push); !status.ok()) {
      return status;
    }
    for (size_t e = 0; e < gradients->size(); ++e) {
      (*gradients)[e] = Gradient(slot, n, static_cast<int64_t>(e));
    }
    for (size_t v = layout_->variables().size(); v-- > 0;) {
      client->GradientReady(static_cast<int>(v));
    }
    if (absl::Status status = client->FinishContribution(); !status.ok()) {
      return status;
    }
    if (const auto result = client->WaitReceipts(); !result.ok()) {
      return result.status();
    }
    return absl::OkStatus();
  }

  // Of all slots' contributions, in the order of a job.
  uint64_t NumberOf(int slot, uint64_t n) const {
    return n * static_cast<uint64_t>(plan_.slots) + static_cast<uint64_t>(slot);
  }

  Want WantFor(int slot, uint64_t n) const {
    Want want;
    if (plan_.mode == Mode::kSync) {
      want.set_version(NumberOf(slot, n) / plan_.in_step);
    } else {
      want.set_latest(true);
      want.set_clock(plan_.mode == Mode::kStaleness ? n : 0);
    }
    return want;
  }

  void MakeTrouble() {
    int kills = plan_.kills;
    int parts = plan_.parts;
    while (kills + parts > 0 && !AllDone() && result_->broken.empty()) {
      SleepFor(milliseconds(1 + RandomBelow(500)));
      const int slot =
          static_cast<int>(RandomBelow(static_cast<uint64_t>(plan_.slots)));
      if (RandomBelow(static_cast<uint64_t>(kills + parts)) <
          static_cast<uint64_t>(kills)) {
        --kills;
        if (!done_[static_cast<size_t>(slot)]) {
          ++result_->kills;
          Note(absl::StrCat("kill the worker of slot ", slot));
          network_.KillProcess(workers_[slot]);
          StartWorker(slot);
        }
        continue;
      }
      --parts;
      ++result_->parts;
      const int shard =
          kFirstShard +
          static_cast<int>(RandomBelow(static_cast<uint64_t>(plan_.shards)));
      Note(absl::StrCat("part ", workers_[slot], " and ", shard));
      network_.Part(workers_[slot], shard,
                    milliseconds(RandomBelow(kLostAfter / milliseconds(2))));
    }
  }

  void Heal() {
    Faults calm = plan_.faults;
    calm.reset_one_in = 0;
    network_.SetFaults(calm);
  }

  bool AllDone() const {
    return std::find(done_.begin(), done_.end(), false) == done_.end();
  }

  void CheckEnd() {
    SleepFor(seconds(60));  // whatever was parked is over
    std::vector<float> values(static_cast<size_t>(layout_->flat_elements()));
    ParameterClient::Options options;
    options.transport = operator_transport_.get();
    options.addresses = addresses_;
    options.layout = layout_.get();
    options.parameters = values.data();
    auto reader = ParameterClient::Create(std::move(options));
    absl::Status status = reader.status();
    if (status.ok()) {
      Want latest;
      latest.set_latest(true);
      status = (*reader)->StartPull(SenderOf(0, generations_[0]), latest);
    }
    if (status.ok()) {
      status = (*reader)->WaitPull();
    }
    if (!status.ok()) {
      Break(absl::StrCat("the values cannot be read: ", status.ToString()));
      return;
    }
    for (size_t v = 0; v < layout_->variables().size(); ++v) {
      CheckVariable(static_cast<int>(v), values);
    }
    for (const std::string& address : addresses_) {
      const auto shard =
          operator_transport_->Connect(address)->GetStatus({}, kCallTimeout);
      if (!shard.ok()) {
        Break(shard.status().ToString());
        return;
      }
      result_->pushes += shard->chunks_accepted() + shard->chunks_duplicate();
      result_->duplicates += shard->chunks_duplicate();
      if (shard->waits_parked() != 0 || shard->out_of_order_bytes() != 0) {
        Break(absl::StrCat(address, ": ", shard->waits_parked(),
                           " pulls are parked and ",
                           shard->out_of_order_bytes(),
                           " bytes wait for their turn for ever"));
      }
    }
    result_->contributions =
        static_cast<uint64_t>(plan_.slots) * plan_.contributions;
  }

  void CheckVariable(int v, const std::vector<float>& values) {
    const int64_t begin = layout_->flat_begin(v);
    for (int64_t i = 0;
         i < layout_->variables()[static_cast<size_t>(v)].elements(); ++i) {
      double expected = 0;
      for (int slot = 0; slot < plan_.slots; ++slot) {
        for (uint64_t n = 0; n < plan_.contributions; ++n) {
          expected -= Gradient(slot, n, begin + i);
        }
      }
      if (plan_.mode == Mode::kSync) {
        expected /= static_cast<double>(plan_.in_step);
      }
      const auto found =
          static_cast<double>(values[static_cast<size_t>(begin + i)]);
      if (found != expected) {
        Break(absl::StrCat("v", v, "[", i, "] is ", found, " and not ",
                           expected));
        return;
      }
    }
  }

  LedgerResult* const result_;
  const Plan plan_;
  Network network_;
  Declaration declaration_;
  std::unique_ptr<Layout> layout_;
  std::vector<std::string> addresses_;
  std::unique_ptr<Transport> operator_transport_;
  std::vector<uint32_t> generations_;
  std::map<int, int> workers_;  // the process of each slot
  std::vector<bool> done_;
  int processes_ = 0;
};

}  // namespace

LedgerResult RunLedger(uint64_t seed) {
  LedgerResult result;
  result.outcome = RunWorld(seed, [&result] {
    // Not destroyed: fibres that never end look at it until the world does.
    auto* const ledger = new Ledger(&result);
    ledger->Run();
  });
  if (result.broken.empty()) {
    result.broken = result.outcome.stuck;
  }
  return result;
}

}  // namespace weir::sim
