#include "sim/job_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/threads/scheduler.h"

namespace weir::sim {
namespace {

using std::chrono::milliseconds;

constexpr size_t kTasks = 64;  // more than a job has

Fault DrawFault() {
  Fault fault;
  fault.kind = Pick({Fault::kKill, Fault::kKill, Fault::kKill, Fault::kTerm,
                     Fault::kTermAll, Fault::kPart, Fault::kPause,
                     Fault::kSecond, Fault::kWall});
  fault.at_write = RandomBelow(2) == 0;
  fault.task = RandomBelow(kTasks);
  fault.other = RandomBelow(kTasks);
  // Soon after the one before, or much later.
  fault.after =
      milliseconds(RandomBelow(Pick<uint64_t>({50, 500, 5000, 20000})));
  fault.time = milliseconds(RandomBelow(Pick<uint64_t>({500, 5000, 30000})));
  fault.wall =
      std::chrono::seconds(static_cast<int64_t>(RandomBelow(200000)) - 100000);
  return fault;
}

}  // namespace

const char* KindName(Fault::Kind kind) {
  constexpr const char* kNames[] = {
      "kill",    "SIGTERM",     "SIGTERM to all", "part",
      "SIGSTOP", "start twice", "step the clock"};
  return kNames[kind];
}

JobPlan DrawJobPlan() {
  JobPlan plan;
  plan.mode = Pick({Mode::kAsync, Mode::kSync, Mode::kStaleness});
  plan.ps = 1 + static_cast<int>(RandomBelow(3));
  plan.workers = 1 + static_cast<int>(RandomBelow(3));
  plan.steps = 4 + RandomBelow(20);
  plan.in_step = 1 + RandomBelow(4);
  plan.every_steps = 1 + RandomBelow(10);
  plan.block_elements = Pick({1024, 4096});
  // Seldom: of its worlds most of the time goes into making the data set.
  plan.table = RandomBelow(8) == 0;
  plan.network.delay_min = Pick({milliseconds(0), milliseconds(1)});
  plan.network.delay_max =
      plan.network.delay_min +
      Pick({milliseconds(1), milliseconds(20), milliseconds(500)});
  plan.network.reset_one_in = Pick<uint64_t>({0, 1000, 200, 50});
  plan.store.delay_max =
      Pick({milliseconds(1), milliseconds(50), milliseconds(2000)});
  plan.store.unavailable_one_in = Pick<uint64_t>({0, 0, 100, 20});
  const uint64_t faults = Pick<uint64_t>({0, 1, 2, 3, 6});
  for (uint64_t i = 0; i < faults; ++i) {
    plan.faults.push_back(DrawFault());
  }
  plan.late = RandomBelow(2) == 0;
  return plan;
}

bool JobPlan::OnlyKills() const {
  return std::all_of(faults.begin(), faults.end(), [](const Fault& fault) {
    return fault.kind == Fault::kKill || fault.kind == Fault::kWall;
  });
}

JobPlan JobPlan::Alone() const {
  JobPlan alone = *this;
  alone.ps = 1;
  alone.workers = 1;
  alone.network = Faults();
  alone.store = StoreFaults();
  alone.faults.clear();
  return alone;
}

std::string JobPlan::SpecText() const {
  const char* const model =
      table ? "table { name: 'rows' dim: 2 optimizer { sgd {} } "
              "schedule { learning_rate: 0.05 } initializer { zeros {} } } "
              "model { layer { name: 'bag' embedding_bag { table: 'rows' } } "
              "layer { name: 'flat' flatten {} } "
              "layer { name: 'logit' dense { units: 1 } } "
              "loss { sigmoid_cross_entropy {} } } "
              "data { train { click_log { count: 64 numeric: 2 categorical: 4 "
              "ids_per_feature: 20 } } } "
            : "model { layer { name: 'flat' flatten {} } "
              "layer { name: 'logits' dense { units: 10 } } "
              "loss { softmax_cross_entropy {} } } "
              "data { train { digits { count: 64 } } } ";
  return absl::StrCat("name: 'sim' seed: 7 ", model,
                      "train { batch_size: 4 log_every_steps: 1 steps: ", steps,
                      " } optimizer { sgd { momentum: 0.5 } } "
                      "schedule { learning_rate: 0.05 } update { ",
                      UpdateOf(mode, in_step),
                      " } checkpoint { every_steps: ", every_steps,
                      " keep: 2 } limits { block_elements: ", block_elements,
                      " lost_after_seconds: 5 out_of_order_bytes: 1048576 }");
}

std::string JobPlan::Words() const {
  return absl::StrCat(
      UpdateOf(mode, in_step), ", ", ps, " ps, ", workers, " workers, ", steps,
      " steps, saved every ", every_steps, ", ", block_elements,
      " elements a block, ", table ? "a table, " : "", "messages take up to ",
      network.delay_max / milliseconds(1), " ms, one in ", network.reset_one_in,
      " breaks its connection, the store takes up to ",
      store.delay_max / milliseconds(1), " ms and does not answer one call in ",
      store.unavailable_one_in, ", ", faults.size(), " faults",
      late ? " at the end" : "");
}

}  // namespace weir::sim
