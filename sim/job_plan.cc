#include "sim/job_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/threads/scheduler.h"

namespace weir::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kTasks = 64;  // more than a job has
constexpr int kObjectsOfStart = 60;
// Of all its messages on one way.
constexpr uint64_t kBytesOfContribution = 5000;

// How often each kind comes, of the faults of a job that has them all.
struct Times {
  Fault::Kind kind;
  size_t times;
};
constexpr Times kTimes[] = {
    {Fault::kKill, 5},  {Fault::kPart, 4}, {Fault::kPause, 2},
    {Fault::kSlow, 2},  {Fault::kHang, 3}, {Fault::kSecond, 3},
    {Fault::kTerm, 3},  {Fault::kFull, 2}, {Fault::kTermAll, 2},
    {Fault::kPower, 1}, {Fault::kFail, 2}, {Fault::kRot, 1}};

// The kinds that a job has, each as often as it comes: every second job has one
// to three of them, which so come in numbers that no mix of all would have.
std::vector<Fault::Kind> DrawMix() {
  std::vector<Fault::Kind> all;
  for (const Times& each : kTimes) {
    all.insert(all.end(), each.times, each.kind);
  }
  if (RandomBelow(2) == 0) {
    return all;
  }
  std::vector<Fault::Kind> some(Pick<size_t>({1, 1, 2, 3}));
  for (Fault::Kind& kind : some) {
    kind = all[RandomBelow(all.size())];
  }
  return some;
}

Fault DrawFault(const JobPlan& plan, const std::vector<Fault::Kind>& mix) {
  Fault fault;
  fault.kind = mix[RandomBelow(mix.size())];
  if (RandomBelow(2) == 0) {
    fault.after_receipts = RandomBelow(plan.contributions());
  }
  fault.at =
      Pick({Fault::kAnything, Fault::kAnything, Fault::kAnything, Fault::kWrite,
            Fault::kWrite, Fault::kWrite, Fault::kCommand, Fault::kCommand,
            Fault::kCommand, Fault::kEnd, Fault::kQuiet, Fault::kQuiet});
  fault.on_same_host = RandomBelow(2) == 0;
  fault.role = RandomBelow(plan.evaluator ? 4 : 3);
  fault.task = RandomBelow(kTasks);
  fault.other = RandomBelow(kTasks);
  // At once or soon, or, of those that wait for nothing, much later.
  fault.after = milliseconds(RandomBelow(
      fault.at == Fault::kAnything ? Pick<uint64_t>({1, 50, 500, 5000, 20000})
                                   : Pick<uint64_t>({1, 1, 1, 50, 500, 5000})));
  fault.time = milliseconds(RandomBelow(Pick<uint64_t>({500, 20000, 60000})));
  if (RandomBelow(4) == 0) {
    fault.wall = seconds(static_cast<int64_t>(RandomBelow(200000)) - 100000);
  }
  if (fault.kind == Fault::kSlow) {
    fault.wait =
        Pick({milliseconds(20), milliseconds(1000), milliseconds(5000)});
    fault.time *= 5;
  } else if (fault.kind == Fault::kHang) {
    fault.wait = plan.disk ? Pick({seconds(1), seconds(60), seconds(400)})
                           : Pick({seconds(10), seconds(400)});
    fault.time *= 8;
  } else if (fault.kind == Fault::kTermAll) {
    fault.together = RandomBelow(2) == 0;
  } else if (fault.kind == Fault::kPart) {
    fault.one_way = RandomBelow(2) == 0;
  } else if (fault.kind == Fault::kKill && RandomBelow(4) == 0) {
    fault.time = std::chrono::nanoseconds(0);
  }
  return fault;
}

// Each waits for the one before: in the order of drawing most would wait for
// the end of the job.
void SpreadOut(std::vector<Fault>* faults) {
  std::vector<uint64_t> receipts;
  for (const Fault& fault : *faults) {
    receipts.push_back(fault.after_receipts);
  }
  std::sort(receipts.begin(), receipts.end());
  for (size_t i = 0; i < faults->size(); ++i) {
    (*faults)[i].after_receipts = receipts[i];
  }
}

}  // namespace

const char* KindName(Fault::Kind kind) {
  constexpr const char* kNames[] = {
      "kill",       "SIGTERM",     "SIGTERM to all", "part",
      "SIGSTOP",    "start twice", "slow host",      "full store",
      "power loss", "slow store",  "failing store",  "rot"};
  return kNames[kind];
}

bool MayBeDeaf(const Fault& fault) {
  return fault.kind != Fault::kFull && fault.kind != Fault::kHang &&
         fault.kind != Fault::kFail && fault.kind != Fault::kRot &&
         (fault.kind != Fault::kKill || fault.time.count() > 0);
}

std::string FaultWords(const Fault& fault) {
  constexpr const char* kEventNames[] = {
      "the one before", "the next write to the store",
      "the next command to a worker", "the next end of a task", "some quiet"};
  const auto ms = [](std::chrono::nanoseconds time) {
    return absl::StrCat(time / milliseconds(1), " ms");
  };
  return absl::StrCat(
      "with ", fault.after_receipts, " receipts, ", ms(fault.after), " after ",
      kEventNames[fault.at], ": ", KindName(fault.kind), ", role ", fault.role,
      ", task ", fault.task, ", other ", fault.other, ", for ", ms(fault.time),
      ", wait ", ms(fault.wait), ", wall ", ms(fault.wall),
      fault.together ? ", together" : "", fault.one_way ? ", one way" : "");
}

JobPlan DrawJobPlan() {
  JobPlan plan;
  plan.mode = Pick({Mode::kAsync, Mode::kSync, Mode::kStaleness});
  plan.ps = Pick({1, 2, 2, 3});
  plan.workers = Pick({1, 2, 2, 3});
  plan.steps = 4 + RandomBelow(Pick<uint64_t>({20, 20, 60}));
  plan.in_step = 1 + RandomBelow(4);
  plan.every_steps = 1 + RandomBelow(10);
  plan.block_elements = Pick({1024, 4096});
  plan.script = RandomBelow(4) == 0;
  plan.evaluator = !plan.script && RandomBelow(3) == 0;
  plan.table = RandomBelow(3) == 0;
  if (plan.script) {
    plan.in_step = static_cast<uint64_t>(plan.workers);
  }
  if (plan.script && plan.mode == Mode::kSync) {
    plan.optimizer = static_cast<int>(RandomBelow(6));
    plan.row_optimizer = static_cast<int>(RandomBelow(5));
  }
  plan.pace = Pick({milliseconds(0), milliseconds(20), milliseconds(200)});
  plan.batch_time =
      Pick({milliseconds(0), milliseconds(500), milliseconds(3000)});
  plan.network.delay_min = Pick({milliseconds(0), milliseconds(1)});
  plan.network.delay_max =
      plan.network.delay_min +
      Pick({milliseconds(1), milliseconds(20), milliseconds(500)});
  plan.network.bytes_per_second = Pick<uint64_t>({0, 0, 100'000, 10'000});
  // Less where messages are slow, and tries of a worker would by chance fail in
  // a row for as long as makes a ps a lost one.
  const bool slow_messages = plan.message_time() >= milliseconds(500);
  plan.network.reset_one_in =
      Pick<uint64_t>({0, 1000, 200, slow_messages ? 100U : 50U});
  plan.disk = RandomBelow(2) == 0;
  if (plan.disk) {
    plan.store.delay_max =
        Pick({milliseconds(0), milliseconds(1), milliseconds(20)});
  } else {
    plan.store.delay_max = Pick({milliseconds(1), milliseconds(50),
                                 milliseconds(200), milliseconds(1000)});
    plan.store.unavailable_one_in = Pick<uint64_t>({0, 0, 100, 50});
  }
  // Where tries take long, or many connections break, several may fail in a row
  // although nobody is lost.
  const bool slow = slow_messages || plan.pace >= milliseconds(200) ||
                    plan.network.reset_one_in == 50;
  plan.lost_after = Pick({seconds(slow ? 10 : 5), seconds(30)});
  const std::vector<Fault::Kind> mix = DrawMix();
  const uint64_t faults = Pick<uint64_t>({1, 2, 4, 8, 12, 16});
  for (uint64_t i = 0; i < faults; ++i) {
    plan.faults.push_back(DrawFault(plan, mix));
  }
  SpreadOut(&plan.faults);
  plan.late = RandomBelow(2) == 0;
  return plan;
}

std::chrono::nanoseconds JobPlan::message_time() const {
  return network.delay_max + network.TimeOf(kBytesOfContribution);
}

std::chrono::nanoseconds JobPlan::object_time() const {
  // Of a file its temporary one, its bytes, their sync, its name, and that of
  // its directory.
  return (disk ? 6 : 1) * store.delay_max;
}

std::chrono::nanoseconds JobPlan::start_time() const {
  return kObjectsOfStart * object_time();
}

uint64_t JobPlan::pushes_of_rank() const {
  const auto ranks = static_cast<uint64_t>(workers);
  return mode == Mode::kSync ? steps : (steps + ranks - 1) / ranks;
}

uint64_t JobPlan::contributions() const {
  if (script) {
    return pushes_of_rank() * static_cast<uint64_t>(workers);
  }
  return mode == Mode::kSync ? steps * in_step : steps;
}

bool JobPlan::HasAny(Fault::Kind kind) const {
  return std::any_of(faults.begin(), faults.end(),
                     [kind](const Fault& fault) { return fault.kind == kind; });
}

bool JobPlan::MayTear() const {
  return mode == Mode::kSync && !script &&
         (HasAny(Fault::kTermAll) ||
          (HasAny(Fault::kTerm) && HasAny(Fault::kKill)));
}

bool JobPlan::IsExact() const {
  return mode == Mode::kSync && !MayTear() &&
         !(script && (HasAny(Fault::kTerm) || HasAny(Fault::kTermAll)));
}

JobPlan JobPlan::Without(LeftOut left_out) const {
  JobPlan plan = *this;
  plan.faults.clear();
  for (size_t i = 0; i < faults.size(); ++i) {
    if ((left_out >> i & 1) == 0) {
      plan.faults.push_back(faults[i]);
    }
  }
  if ((left_out & kLeaveResets) != 0) {
    plan.network.reset_one_in = 0;
  }
  if ((left_out & kLeaveStoreFaults) != 0) {
    plan.store.unavailable_one_in = 0;
  }
  return plan;
}

LeftOut JobPlan::CanLeaveOut() const {
  return ((LeftOut{1} << faults.size()) - 1) |
         (network.reset_one_in > 0 ? kLeaveResets : 0) |
         (store.unavailable_one_in > 0 ? kLeaveStoreFaults : 0);
}

JobPlan JobPlan::Alone() const {
  JobPlan alone = *this;
  alone.ps = 1;
  alone.evaluator = false;
  if (!script) {
    alone.workers = 1;
  }
  alone.pace = std::chrono::nanoseconds(0);
  // In sync slowly, so that it saves at each step that is due.
  alone.batch_time = milliseconds(mode == Mode::kSync ? 2000 : 0);
  alone.network = Faults();
  alone.store = PlaceFaults();
  alone.faults.clear();
  return alone;
}

std::string JobPlan::SpecText() const {
  // Values begin at numbers that all floats hold exactly, and move so little
  // that each gradient is nearly the one at the beginning, whenever it is
  // computed. So also in async the end is the sum of all contributions.
  const std::string rows = absl::StrCat("table { name: 'rows' dim: ", kRowDim,
                                        " optimizer { sgd {} } ");
  const std::string model =
      table
          ? rows +
                "schedule { learning_rate: 1e-4 } initializer { zeros {} } "
                "expiry { seconds: 1000000000 } } "
                "model { layer { name: 'bag' embedding_bag { table: 'rows' } } "
                "layer { name: 'flat' flatten {} } "
                "layer { name: 'logit' dense { units: 1 "
                "kernel_initializer { constant: 0.5 } } } "
                "loss { sigmoid_cross_entropy {} } } "
                "data { train { csv { path: 'rows.csv' "
                "column { name: 'a' index: 1 numeric {} } "
                "column { name: 'b' index: 2 categorical {} } "
                "column { name: 'c' index: 3 categorical {} } } } } "
          : "model { layer { name: 'flat' flatten {} } "
            "layer { name: 'logits' dense { units: 10 "
            "kernel_initializer { zeros {} } } } "
            "loss { softmax_cross_entropy {} } } "
            "data { train { digits { count: 64 } } } ";
  return absl::StrCat(
      "name: 'sim' seed: 7 ", model,
      "train { batch_size: 4 log_every_steps: 1 steps: ", steps,
      " } optimizer { sgd {", mode == Mode::kSync ? " momentum: 0.5" : "",
      " } } schedule { learning_rate: ", table ? "1e-4" : "1e-6",
      " } update { ", UpdateOf(mode, in_step),
      " } checkpoint { every_steps: ", every_steps, " keep: 2 ",
      table ? "tables_full_every: 4 " : "",
      "} limits { block_elements: ", block_elements,
      " lost_after_seconds: ", lost_after / seconds(1),
      " out_of_order_bytes: 1048576 }");
}

std::string JobPlan::Words() const {
  return absl::StrCat(
      UpdateOf(mode, in_step), ", ", ps, " ps, ", workers, " workers, ", steps,
      " steps, saved every ", every_steps, ", ", block_elements,
      " elements a block, ", table ? "a table, " : "",
      evaluator ? "an evaluator, " : "", script ? "scripts, " : "",
      "optimizers ", optimizer, " and ", row_optimizer, ", ",
      "turns of workers take up to ", pace / milliseconds(1), " ms, batches ",
      batch_time / milliseconds(1), " ms, whoever is silent is lost after ",
      lost_after / seconds(1), " s, messages up to ",
      network.delay_max / milliseconds(1), " ms, ", network.bytes_per_second,
      " bytes a second, one in ", network.reset_one_in,
      " breaks its connection, the ", disk ? "disk" : "store", " takes up to ",
      store.delay_max / milliseconds(1), " ms and does not answer one call in ",
      store.unavailable_one_in,
      absl::StrJoin(faults, "", [](std::string* out, const Fault& fault) {
        absl::StrAppend(out, "\n  ", FaultWords(fault));
      }));
}

}  // namespace weir::sim
