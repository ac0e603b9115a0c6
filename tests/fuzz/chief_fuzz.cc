// Workers that tell the chief anything, and shards that answer Hello with
// anything, among workers and shards that keep the rules: the chief goes on or
// ends the job, grants no generation of a slot to two processes, and finishes
// once.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "common/base/check.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/server/chief/chief_world.h"

namespace weir {
namespace {

constexpr int kStepsMax = 40;
constexpr int kShards = 2;
constexpr int kWorkers = 2;

class Session {
 public:
  explicit Session(FuzzInput* input)
      : input_(*input), world_(kShards, kWorkers, SpecOf(input->Below(2))) {
    if (input_.Below(3) == 0) {
      world_.options.sdk_job = true;
      world_.sdk_job = SmallDeclaration(kShards, kWorkers);
    }
  }

  void Run() {
    world_.StartChief();
    world_.Settle();
    for (int i = 0; i < kStepsMax && !input_.empty(); ++i) {
      Step();
    }
    world_.Run(0.1);
    for (const auto& [grant, processes] : world_.grants) {
      WEIR_CHECK(processes.size() == 1);
    }
    // The whole line: a part of one may be what a peer wrote.
    WEIR_CHECK(std::count(world_.log.begin(), world_.log.end(),
                          "finished twice") == 0);
  }

 private:
  static JobSpec SpecOf(uint32_t kind) {
    JobSpec spec = SmallSpec();
    if (kind == 1) {
      spec.mutable_update()->mutable_sync()->set_contributions(kWorkers);
    }
    return spec;
  }

  void Step() {
    const int w = static_cast<int>(input_.Below(kWorkers));
    switch (input_.Below(10)) {
      case 0:
        return world_.Register(w);
      case 1:
      case 2:
        return Work(w);
      case 3:
        return world_.Run(0.05 * input_.Below(16));
      case 4:
        return Register();
      case 5:
      case 6:
      case 7:
        return Report();
      case 8:
        return Hello();
      default:
        return Rare();
    }
  }

  // What a worker with a grant does.
  void Work(int w) {
    const auto worker = world_.workers.find(w);
    if (worker == world_.workers.end() || !worker->second.grant.has_value()) {
      return world_.Register(w);
    }
    world_.DoContribution(w, /*torn=*/input_.Byte() > 224);
    world_.Beat(w).IgnoreError();
  }

  // Small, so that the numbers of several messages meet.
  uint64_t Process() { return 1 + input_.Below(5); }

  void Register() {
    const uint8_t how = input_.Byte();
    RegisterRequest request;
    if ((how & 1) == 0) {
      request = world_.workers[0].request;
    }
    request.set_rank(how < 240 ? (how >> 1) & 1 : input_.Number32());
    request.set_process(Process());
    request.set_cluster_fingerprint((how & 4) != 0 ? 77 : 0);
    request.set_host(input_.Bytes((how >> 3) & 3));
    if ((how & 32) != 0) {
      request.set_held_history(input_.Number());
      request.set_held_generation(input_.Number32());
      request.set_assigned_history(input_.Number());
    }
    if ((how & 64) != 0) {
      request.set_sample_count(input_.Number());
      Variable* const variable = request.add_variable();
      variable->set_name(input_.Text());
      variable->add_shape(static_cast<int64_t>(input_.Number()));
      variable->set_group(input_.Number32());
    }
    if ((how & 128) != 0) {
      Declare(request.mutable_declaration());
    }
    const auto reply = world_.chief().OnRegister(request);
    if (reply.ok() && reply->has_grant()) {
      const Sender& sender = reply->grant().sender();
      world_.grants[{sender.slot(), sender.generation()}].insert(
          request.process());
    }
    world_.Run(0.05);
  }

  void Declare(Declaration* declaration) {
    *declaration = SmallDeclaration(kShards, kWorkers);
    declaration->set_shard_count(input_.Number32());
    declaration->set_slot_count(input_.Number32());
    declaration->set_block_elements(input_.Number());
    declaration->mutable_variable(0)->set_shape(
        0, static_cast<int64_t>(input_.Number()));
    declaration->set_job(input_.Text());
    declaration->add_pushes_before(input_.Number());
  }

  void Report() {
    const uint8_t how = input_.Byte();
    Progress progress;
    progress.set_slot(how < 240 ? how & 1 : input_.Number32());
    progress.set_generation(1 + ((how >> 1) & 1));
    progress.set_next_sequence(input_.Number());
    progress.set_holding((how & 4) != 0);
    progress.set_out_of_work((how & 8) != 0);
    progress.set_ending((how & 16) != 0);
    for (int i = 0; i < ((how >> 5) & 3); ++i) {
      ContributionReport* const report = progress.add_report();
      report->set_contribution(input_.Number());
      report->set_rows(input_.Number32());
      report->set_bad(input_.Byte() > 240);
      report->set_loss(static_cast<float>(input_.Byte()) / 0.0f);
    }
    if ((how & 128) != 0) {
      progress.set_message_number(input_.Number());
      progress.set_staleness_sum(input_.Number());
      progress.set_staleness_max(input_.Number());
      progress.set_bytes_pushed(input_.Number());
      progress.set_bytes_moved(input_.Number());
      progress.mutable_phases()->set_contributions(input_.Number());
      progress.mutable_phases()->set_step_ns(input_.Number());
      progress.set_error(input_.Text());
      progress.set_error_code(input_.Number32());
    }
    // Without its slot's grant a heartbeat goes no further.
    const auto worker = world_.workers.find(static_cast<int>(progress.slot()));
    if (how != 239 && worker != world_.workers.end() &&
        worker->second.grant.has_value()) {
      const Sender& sender = worker->second.grant->sender();
      progress.set_capability_high(sender.capability_high());
      progress.set_capability_low(sender.capability_low());
    }
    world_.chief().OnProgress(input_.Below(6), progress).IgnoreError();
    world_.Run(0.05);
  }

  void Hello() {
    const uint8_t how = input_.Byte();
    const int s = how & 1;
    const ChiefWorld::Shard& shard = world_.shards[static_cast<size_t>(s)];
    HelloReply reply;
    reply.set_incarnation((how & 2) == 0 ? shard.incarnation : input_.Number());
    reply.set_state(static_cast<ShardState>(input_.Below(5)));
    reply.set_job(shard.declaration.job());
    reply.set_history((how & 4) == 0 ? shard.declaration.history()
                                     : input_.Number());
    reply.set_shard((how & 8) == 0 ? static_cast<uint32_t>(s)
                                   : input_.Number32());
    reply.set_shard_count(kShards);
    reply.set_leaving(how > 250);
    for (int i = 0; i < ((how >> 4) & 3); ++i) {
      SlotStatus* const slot = reply.add_slot();
      slot->set_slot(input_.Number32());
      slot->set_generation(input_.Number32());
      slot->set_retired(input_.Flag());
      slot->set_next_sequence_min(input_.Number());
      slot->set_next_sequence_max(input_.Number());
    }
    world_.chief().OnHello(s, reply);
    world_.Run(0.05);
  }

  void Rare() {
    switch (input_.Below(4)) {
      case 0:
        world_.chief().OnStreamLost(input_.Below(6));
        break;
      case 1:
        world_.chief().RequestStop("a person");
        break;
      case 2:
        world_.shards[input_.Below(kShards)].down = input_.Flag();
        break;
      default:
        world_.LoseShards();
    }
    world_.Run(0.05);
  }

  FuzzInput& input_;
  ChiefWorld world_;
};

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weir::FuzzInput input(data, size);
  weir::Session(&input).Run();
  return 0;
}
