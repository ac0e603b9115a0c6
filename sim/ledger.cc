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
#include "client/cc/parameters/table_client.h"
#include "common/base/status.h"
#include "common/job/layout.h"
#include "google/protobuf/text_format.h"
#include "proto/wire/layout_io.h"
#include "sim/network.h"
#include "sim/plan.h"

namespace weir::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Processes; the main fibre is 0.
constexpr int kFirstShard = 1;
constexpr int kFirstWorker = 100;
constexpr int kDim = 3;  // of the table
constexpr auto kLostAfter = seconds(10);
constexpr auto kCallTimeout = seconds(5);
// In the world's time; far more than any plan needs.
constexpr auto kWorldMax = seconds(3600);

class Ledger {
 public:
  Ledger(const Plan& plan, WorldResult* result) : result_(result), plan_(plan) {
    result_->job = plan_.Words();
    Note(result_->job);
    network_.SetFaults(plan_.faults);
    std::string text = absl::StrCat(
        "job: 'sim' history: 1 shard_count: ", plan_.shards,
        " slot_count: ", plan_.slots, " block_elements: ", plan_.block_elements,
        " out_of_order_bytes: 1048576 update { ", plan_.Update(),
        " } group { optimizer { sgd {} } schedule { learning_rate: 1 } }");
    for (int v = 0; v < plan_.variables; ++v) {
      absl::StrAppend(&text, " variable { name: 'v", v, "' shape: ", 5 + 40 * v,
                      " }");
    }
    if (plan_.ids > 0) {
      absl::StrAppend(&text, " table { name: 't' dim: ", kDim,
                      " schedule { learning_rate: 1 } optimizer { sgd {} }"
                      " initializer { zeros {} } }");
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
    result_->counts.messages = network_.arrived();
    result_->counts.resets = network_.resets();
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

  // What a process of a worker has.
  struct Worker {
    Sender sender;
    std::unique_ptr<Transport> transport;
    std::vector<float> parameters;
    std::vector<float> gradients;
    std::vector<uint64_t> ids;  // of the contribution under way
    std::vector<float> rows;
    std::vector<float> row_gradients;
    std::unique_ptr<ParameterClient> blocks;
    std::unique_ptr<TableClient> table;  // null: the job has none
  };

  absl::Status Open(Worker* worker) {
    worker->transport = network_.NewTransport();
    worker->parameters.resize(static_cast<size_t>(layout_->flat_elements()));
    worker->gradients.resize(worker->parameters.size());
    ShardClientOptions shards;
    shards.transport = worker->transport.get();
    shards.addresses = addresses_;
    shards.lost_after = kLostAfter;
    ParameterClient::Options options;
    static_cast<ShardClientOptions&>(options) = shards;
    options.layout = layout_.get();
    options.parameters = worker->parameters.data();
    options.gradients = worker->gradients.data();
    WEIR_ASSIGN_OR_RETURN(worker->blocks,
                          ParameterClient::Create(std::move(options)));
    if (plan_.ids == 0) {
      return absl::OkStatus();
    }
    TableClient::Options of_table;
    static_cast<ShardClientOptions&>(of_table) = shards;
    of_table.tables = {declaration_.table(0)};
    of_table.piece_bytes = 64;  // a few rows
    WEIR_ASSIGN_OR_RETURN(worker->table,
                          TableClient::Create(std::move(of_table)));
    return absl::OkStatus();
  }

  void Work(int slot, uint32_t generation, uint64_t next) {
    Worker worker;
    worker.sender = SenderOf(slot, generation);
    absl::Status status = Open(&worker);
    if (status.ok()) {
      status = worker.blocks->StartPull(worker.sender, WantFor(slot, next));
    }
    for (uint64_t n = next; status.ok() && n < plan_.contributions; ++n) {
      status = Contribute(&worker, n);
    }
    Note(absl::StrCat("slot ", slot, " ends: ", status.message()));
    if (!status.ok()) {
      Break(absl::StrCat("slot ", slot, ": ", status.ToString()));
      return;
    }
    done_[static_cast<size_t>(slot)] = true;
  }

  absl::Status Contribute(Worker* worker, uint64_t n) {
    const int slot = static_cast<int>(worker->sender.slot());
    WEIR_RETURN_IF_ERROR(worker->blocks->WaitPull());
    TableClient::Versions versions;
    if (worker->table != nullptr) {
      WEIR_ASSIGN_OR_RETURN(versions, Look(worker, n));
    }
    SleepFor(milliseconds(RandomBelow(20)));  // computes
    ContributionPush push;
    push.sender = worker->sender;
    push.sequence = n;
    push.index_in_step =
        static_cast<uint32_t>(NumberOf(slot, n) % plan_.in_step);
    const ContributionPush of_rows = push;
    if (n + 1 < plan_.contributions) {
      push.then = WantFor(slot, n + 1);
    }
    WEIR_RETURN_IF_ERROR(worker->blocks->BeginContribution(push));
    for (size_t e = 0; e < worker->gradients.size(); ++e) {
      worker->gradients[e] = Gradient(slot, n, static_cast<int64_t>(e));
    }
    for (size_t v = layout_->variables().size(); v-- > 0;) {
      worker->blocks->GradientReady(static_cast<int>(v));
    }
    WEIR_RETURN_IF_ERROR(worker->blocks->FinishContribution());
    if (worker->table != nullptr) {
      worker->row_gradients.clear();
      for (const uint64_t id : worker->ids) {
        worker->row_gradients.insert(worker->row_gradients.end(), kDim,
                                     Gradient(slot, n, IdNumber(id)));
      }
      const TableClient::Gradients rows = {0, worker->ids,
                                           worker->row_gradients.data()};
      WEIR_RETURN_IF_ERROR(
          worker->table->StartUpdate(of_rows, versions, {&rows, 1}));
      WEIR_RETURN_IF_ERROR(worker->table->WaitUpdate().status());
    }
    return worker->blocks->WaitReceipts().status();
  }

  // Reads the rows of a contribution.
  absl::StatusOr<TableClient::Versions> Look(Worker* worker, uint64_t n) {
    const int slot = static_cast<int>(worker->sender.slot());
    worker->ids.clear();
    for (int i = 0; i < plan_.ids; ++i) {
      if (HasId(slot, n, i)) {
        worker->ids.push_back(IdOf(i));
      }
    }
    worker->rows.assign(worker->ids.size() * kDim, 0);
    const TableClient::Wanted wanted = {0, worker->ids, worker->rows.data()};
    WEIR_RETURN_IF_ERROR(worker->table->StartLookup(
        worker->sender, WantFor(slot, n), /*train=*/true, {&wanted, 1}));
    return worker->table->WaitLookup();
  }

  // Ids ascend with their numbers and lie far from each other.
  static uint64_t IdOf(int number) {
    return static_cast<uint64_t>(number) * 0x100000001;
  }
  static int64_t IdNumber(uint64_t id) {
    return static_cast<int64_t>(id / 0x100000001);
  }
  // Whether contribution n of a slot has a row.
  static bool HasId(int slot, uint64_t n, int number) {
    return (static_cast<uint64_t>(number) + n + static_cast<uint64_t>(slot)) %
               3 !=
           0;
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
          ++result_->counts.kills;
          Note(absl::StrCat("kill the worker of slot ", slot));
          network_.KillProcess(workers_[slot]);
          StartWorker(slot);
        }
        continue;
      }
      --parts;
      ++result_->counts.parts;
      const int shard =
          kFirstShard +
          static_cast<int>(RandomBelow(static_cast<uint64_t>(plan_.shards)));
      std::pair<int, int> way(workers_[slot], shard);
      if (RandomBelow(2) == 0) {
        std::swap(way.first, way.second);
      }
      const bool one_way = RandomBelow(2) == 0;
      Note(absl::StrCat("part ", way.first, one_way ? " from " : " and ",
                        way.second));
      network_.Part(way.first, way.second,
                    milliseconds(RandomBelow(kLostAfter / milliseconds(2))),
                    one_way);
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
    Worker reader;
    reader.sender = SenderOf(0, generations_[0]);
    absl::Status status = Open(&reader);
    if (status.ok()) {
      status = ReadAll(&reader);
    }
    if (!status.ok()) {
      Break(absl::StrCat("the values cannot be read: ", status.ToString()));
      return;
    }
    for (size_t v = 0; v < layout_->variables().size(); ++v) {
      CheckVariable(static_cast<int>(v), reader.parameters);
    }
    for (int i = 0; i < plan_.ids; ++i) {
      for (int k = 0; k < kDim; ++k) {
        Check(absl::StrCat("row ", i, "[", k, "]"),
              reader.rows[static_cast<size_t>(i * kDim + k)],
              [&](int slot, uint64_t n) {
                return HasId(slot, n, i) ? Gradient(slot, n, i) : 0;
              });
      }
    }
    for (const std::string& address : addresses_) {
      const auto shard =
          operator_transport_->Connect(address)->GetStatus({}, kCallTimeout);
      if (!shard.ok()) {
        Break(shard.status().ToString());
        return;
      }
      result_->counts.pushes +=
          shard->chunks_accepted() + shard->chunks_duplicate();
      result_->counts.duplicates += shard->chunks_duplicate();
      if (shard->waits_parked() != 0 || shard->out_of_order_bytes() != 0) {
        Break(absl::StrCat(address, ": ", shard->waits_parked(),
                           " pulls are parked and ",
                           shard->out_of_order_bytes(),
                           " bytes wait for their turn for ever"));
      }
    }
    result_->counts.contributions =
        static_cast<uint64_t>(plan_.slots) * plan_.contributions;
  }

  // Reads all values and all rows.
  absl::Status ReadAll(Worker* reader) {
    Want latest;
    latest.set_latest(true);
    WEIR_RETURN_IF_ERROR(reader->blocks->StartPull(reader->sender, latest));
    WEIR_RETURN_IF_ERROR(reader->blocks->WaitPull());
    if (reader->table == nullptr) {
      return absl::OkStatus();
    }
    for (int i = 0; i < plan_.ids; ++i) {
      reader->ids.push_back(IdOf(i));
    }
    reader->rows.assign(reader->ids.size() * kDim, -1);
    const TableClient::Wanted wanted = {0, reader->ids, reader->rows.data()};
    WEIR_RETURN_IF_ERROR(reader->table->StartLookup(
        reader->sender, latest, /*train=*/false, {&wanted, 1}));
    return reader->table->WaitLookup().status();
  }

  void CheckVariable(int v, const std::vector<float>& values) {
    const int64_t begin = layout_->flat_begin(v);
    for (int64_t i = 0;
         i < layout_->variables()[static_cast<size_t>(v)].elements(); ++i) {
      Check(absl::StrCat("v", v, "[", i, "]"),
            values[static_cast<size_t>(begin + i)],
            [&](int slot, uint64_t n) { return Gradient(slot, n, begin + i); });
    }
  }

  // A value that began at zero is minus the sum of its gradients, each once.
  template <typename GradientOf>
  void Check(const std::string& name, float found,
             const GradientOf& gradient_of) {
    double expected = 0;
    for (int slot = 0; slot < plan_.slots; ++slot) {
      for (uint64_t n = 0; n < plan_.contributions; ++n) {
        expected -= gradient_of(slot, n);
      }
    }
    if (plan_.mode == Mode::kSync) {
      expected /= static_cast<double>(plan_.in_step);
    }
    if (found != expected) {
      Break(absl::StrCat(name, " is ", found, " and not ", expected));
    }
  }

  WorldResult* const result_;
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

WorldResult RunLedger(uint64_t seed, LeftOut left_out) {
  WorldResult result;
  result.outcome = RunWorld(seed, [&result, left_out] {
    const Plan plan = DrawPlan();
    result.can_leave_out = plan.CanLeaveOut();
    // Not destroyed: fibres that never end look at it until the world does.
    auto* const ledger = new Ledger(plan.Without(left_out), &result);
    ledger->Run();
  });
  if (result.broken.empty()) {
    result.broken = result.outcome.stuck;
  }
  return result;
}

}  // namespace weir::sim
