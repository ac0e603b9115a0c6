#include "server/chief/report/diagnosis.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace weir {
namespace {

// A cause that costs less is not worth a change.
constexpr double kCostMin = 0.12;
// A task is far worse than the others of its role from here on (I1).
constexpr double kWorse = 1.6;
// A host on which threads wake so late has too few processors for what runs
// there; where they are free it is about 0.1 ms.
constexpr double kLateSeconds = 0.005;
// Of its processors, above which a task has none left.
constexpr double kBusyShare = 0.85;
// Of a step, above which waits that no one task causes are worth a word.
constexpr double kWaitsMax = 0.5;
constexpr double kStallShare = 0.1;
constexpr double kFaultsPerSecond = 200.0;
// A step that is shorter is mostly round trips.
constexpr double kSmallStepSeconds = 0.003;
constexpr double kSmallBytesPerStep = 256.0 * 1024.0;

using Workers = std::vector<const WorkerReport*>;

double Median(std::vector<double> values) {
  if (values.empty()) {
    return 0.0;
  }
  const auto middle =
      values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <typename Reports, typename Value>
double MedianOf(const Reports& reports, const Value& value) {
  std::vector<double> values;
  for (const auto& report : reports) {
    values.push_back(value(report));
  }
  return Median(std::move(values));
}

std::string Percent(double share) {
  return absl::StrFormat("%.0f%%", 100.0 * share);
}

std::string Time(double seconds) {
  if (seconds >= 1.0) {
    return absl::StrFormat("%.1f s", seconds);
  }
  return seconds >= 0.001 ? absl::StrFormat("%.1f ms", seconds * 1e3)
                          : absl::StrFormat("%.0f us", seconds * 1e6);
}

Cause Make(const char* kind, std::string task, double cost,
           std::string sentence, std::string advice) {
  Cause cause;
  cause.set_kind(kind);
  cause.set_task(std::move(task));
  cause.set_share(cost);
  cause.set_sentence(std::move(sentence));
  cause.set_advice(std::move(advice));
  return cause;
}

Workers Active(const JobReport& report) {
  Workers active;
  for (const WorkerReport& worker : report.worker()) {
    if (worker.state() == "working" && worker.step_seconds() > 0.0) {
      active.push_back(&worker);
    }
  }
  return active;
}

std::string NameOf(const WorkerReport& worker) {
  return absl::StrCat("worker/", worker.slot());
}
std::string NameOf(const ShardReport& shard) {
  return absl::StrCat("ps/", shard.index());
}

// "it has 0.25 processors and waits 40 ms for one", or "".
std::string Shortage(const HostReport& host) {
  if (host.wake_late_seconds() < kLateSeconds) {
    return "";
  }
  return absl::StrFormat(
      "; it may use %.3g processors and its threads wake %s late",
      host.processors(), Time(host.wake_late_seconds()));
}

// What a worker does by itself, and what it waits for, in seconds of a step.
double Compute(const WorkerReport& worker) {
  return worker.compute_share() * worker.step_seconds();
}
double Data(const WorkerReport& worker) {
  return worker.data_share() * worker.step_seconds();
}
double Waits(const WorkerReport& worker) {
  return (worker.pull_share() + worker.push_share()) * worker.step_seconds();
}

// `worker`'s excess over the median of the other workers.
template <typename Value>
double Excess(const Workers& workers, const WorkerReport& worker,
              const Value& value, double* median) {
  std::vector<double> others;
  for (const WorkerReport* other : workers) {
    if (other != &worker) {
      others.push_back(value(*other));
    }
  }
  *median = Median(std::move(others));
  const double mine = value(worker);
  // Where the others need nothing, a little more is not far worse.
  return mine > kWorse * *median ? mine - *median : 0.0;
}

class Doctor {
 public:
  explicit Doctor(const JobReport& report)
      : report_(report),
        workers_(Active(report)),
        sync_(report.mode() == "sync") {}

  Cause Find() {
    if (workers_.empty()) {
      return Make("unknown", "", 0.0, "", "");
    }
    if (CheckMemory()) {
      return best_;  // it makes everything else slow
    }
    CheckHolds();
    CheckData();
    CheckStraggler();
    CheckShards();
    if (best_.share() >= kCostMin) {
      return best_;
    }
    return Rest();
  }

 private:
  void Take(Cause cause) {
    if (cause.share() > best_.share()) {
      best_ = std::move(cause);
    }
  }

  double Mean(double (WorkerReport::*share)() const) const {
    double sum = 0.0;
    for (const WorkerReport* worker : workers_) {
      sum += (worker->*share)();
    }
    return sum / static_cast<double>(workers_.size());
  }

  bool CheckHostMemory(const std::string& name, const HostReport& host) {
    const bool swaps = host.major_faults_per_second() > kFaultsPerSecond;
    if (host.memory_stall_share() < kStallShare && !swaps) {
      return false;
    }
    Take(Make(
        "memory", name, std::max(kCostMin, host.memory_stall_share()),
        absl::StrFormat(
            "%s is short of memory: it stands still for it %s of the "
            "time and reads %.0f pages a second from the disk; it uses "
            "%.0f MiB, and its limit is %.0f",
            name, Percent(host.memory_stall_share()),
            host.major_faults_per_second(), host.resident_bytes() / (1 << 20),
            host.memory_bytes_max() / (1 << 20)),
        "raise its memory limit, or spread the job over more tasks"));
    return true;
  }

  bool CheckMemory() {
    // The pressure may be of the whole host: the task that reads from the disk
    // most is the one.
    const auto faults = [](const HostReport& host) {
      return host.major_faults_per_second() + host.memory_stall_share();
    };
    std::string name;
    const HostReport* worst = nullptr;
    for (const WorkerReport* worker : workers_) {
      if (worst == nullptr || faults(worker->host_load()) > faults(*worst)) {
        worst = &worker->host_load();
        name = NameOf(*worker);
      }
    }
    for (const ShardReport& shard : report_.shard()) {
      if (worst == nullptr || faults(shard.host_load()) > faults(*worst)) {
        worst = &shard.host_load();
        name = NameOf(shard);
      }
    }
    return CheckHostMemory(name, *worst);
  }

  void CheckHolds() {
    const double held = Mean(&WorkerReport::hold_share);
    Take(Make("checkpoints", "", held,
              absl::StrCat("the job is held for checkpoints ", Percent(held),
                           " of the time; the newest took ",
                           Time(report_.checkpoint().last_seconds())),
              "write them less often (checkpoint.every_steps or "
              "every_seconds), or to a faster place"));
  }

  // Slow for everyone; for one worker CheckStraggler finds it.
  void CheckData() {
    const double share = MedianOf(workers_, [](const WorkerReport* worker) {
      return worker->data_share();
    });
    const bool gpu = workers_[0]->on_gpu();
    Take(Make(gpu ? "gpu_input" : "slow_data", "", share,
              absl::StrCat(gpu ? "the GPUs wait for their input "
                               : "the workers wait for their data ",
                           Percent(share), " of a step (",
                           Time(share * workers_[0]->step_seconds()), ")"),
              "move the files to a disk near the workers, in a format that "
              "costs less to read, or use more workers"));
  }

  void CheckStraggler() {
    if (workers_.size() < 2) {
      return;
    }
    for (const WorkerReport* worker : workers_) {
      CheckWorker(*worker);
    }
  }

  void CheckWorker(const WorkerReport& worker) {
    double compute_median = 0.0;
    double data_median = 0.0;
    double wait_median = 0.0;
    const double compute = Excess(workers_, worker, Compute, &compute_median);
    const double data = Excess(workers_, worker, Data, &data_median);
    const double waits = Excess(workers_, worker, Waits, &wait_median);
    const double step = worker.step_seconds();
    const std::string name = NameOf(worker);
    std::string last;
    double cost = std::max({compute, data, waits}) / step;
    if (sync_) {
      // Whatever its figures say: what costs is that the others wait for it.
      cost = worker.alone_share();
      last = absl::StrCat("is the last contributor of ",
                          Percent(worker.last_share()),
                          " of the steps, the others wait for it ",
                          Percent(cost), " of a step; ");
    }
    if (data > compute && data > 0.1 * step) {
      Take(Make(worker.on_gpu() ? "gpu_input" : "slow_data", name, cost,
                absl::StrCat(name, " ", last, "waits for its data ",
                             Percent(worker.data_share()),
                             " of its step, the others ", Time(data_median),
                             Shortage(worker.host_load())),
                "move its files to a faster disk, or give its host more "
                "processors"));
    } else if (compute > 0.1 * step) {
      Take(
          Make("slow_worker", name, cost,
               absl::StrCat(name, " ", last, "computes ", Time(Compute(worker)),
                            " a step, the others ", Time(compute_median),
                            Shortage(worker.host_load())),
               "look at what else runs on its host, at its CPU limit, or "
               "replace it"));
    } else if (sync_ ? worker.last_share() > 0.6 && Waits(worker) > 0.2 * step
                     : waits > 0.1 * step) {
      // It works as fast as the others, and yet comes last.
      Take(Make("slow_link", name, cost,
                absl::StrCat(name, " ", last, "waits ", Time(Waits(worker)),
                             " a step for values and receipts, though it "
                             "computes as fast as the others"),
                "look at its network, or move it nearer to the ps"));
    }
  }

  // The shard for which the workers wait most, if it is far worse than the
  // others.
  void CheckShards() {
    const int shards = report_.shard_size();
    std::vector<double> waits(static_cast<size_t>(shards), 0.0);
    for (const WorkerReport* worker : workers_) {
      for (int s = 0; s < std::min(shards, worker->shard_wait_share_size());
           ++s) {
        waits[static_cast<size_t>(s)] +=
            worker->shard_wait_share(s) / static_cast<double>(workers_.size());
      }
    }
    const auto worst = std::max_element(waits.begin(), waits.end());
    if (worst == waits.end()) {
      return;
    }
    const int s = static_cast<int>(worst - waits.begin());
    const ShardReport& shard = report_.shard(s);
    const HostReport& host = shard.host_load();
    std::vector<double> other_waits = waits;
    other_waits.erase(other_waits.begin() + s);
    const double others = Median(std::move(other_waits));
    const bool starved =
        host.processors() > 0.0 &&
        host.cpu_seconds_per_second() > kBusyShare * host.processors();
    const double apply = MedianOfOthers(
        s, [](const ShardReport& one) { return one.apply_seconds(); });
    const double late = MedianOfOthers(s, [](const ShardReport& one) {
      return one.host_load().wake_late_seconds();
    });
    const bool slow =
        starved || (shards > 1 && (shard.apply_seconds() > kWorse * apply ||
                                   (host.wake_late_seconds() > kLateSeconds &&
                                    host.wake_late_seconds() > 2.0 * late)));
    if (shards == 1 ? !starved : *worst < 2.0 * others + 0.05) {
      return;
    }
    const std::string name = NameOf(shard);
    const double cost = *worst - others;
    const std::string waited =
        absl::StrCat("the workers wait for ", name, " ", Percent(*worst),
                     " of a step, for the other ps ", Percent(others));
    if (slow) {
      Take(
          Make("slow_ps", name, cost,
               absl::StrCat(waited, "; it takes ", Time(shard.apply_seconds()),
                            " for a block, they ", Time(apply), Shortage(host)),
               shards == 1 ? "use more ps, or give it more processors"
                           : "look at what else runs on its host and at its "
                             "CPU limit, or use more ps"));
    } else {
      Take(Make("slow_link", name, cost,
                absl::StrCat(waited,
                             ", though it is as fast as they once a "
                             "block is there"),
                "look at the network between it and the workers"));
    }
  }

  template <typename Value>
  double MedianOfOthers(int shard, const Value& value) const {
    std::vector<double> values;
    for (int s = 0; s < report_.shard_size(); ++s) {
      if (s != shard) {
        values.push_back(value(report_.shard(s)));
      }
    }
    return Median(std::move(values));
  }

  // Nothing stands out.
  Cause Rest() const {
    const double waits =
        Mean(&WorkerReport::pull_share) + Mean(&WorkerReport::push_share);
    const double compute = Mean(&WorkerReport::compute_share);
    const double step = MedianOf(workers_, [](const WorkerReport* worker) {
      return worker->step_seconds();
    });
    const double bytes = MedianOf(workers_, [](const WorkerReport* worker) {
      return worker->contributions_per_second() > 0.0
                 ? worker->bytes_pulled_per_second() /
                       worker->contributions_per_second()
                 : 0.0;
    });
    const double late = MedianOf(workers_, [](const WorkerReport* worker) {
      return worker->host_load().wake_late_seconds();
    });
    double used = 0.0;
    double processors = 0.0;
    for (const WorkerReport* worker : workers_) {
      used += worker->host_load().cpu_seconds_per_second();
      processors = std::max(processors, worker->host_load().processors());
    }
    for (const ShardReport& shard : report_.shard()) {
      used += shard.host_load().cpu_seconds_per_second();
    }
    const bool one_host = OneHost();
    if (late > kLateSeconds ||
        (one_host && processors > 0.0 && used > kBusyShare * processors)) {
      return Make(
          "processors", "", compute,
          absl::StrFormat("the tasks compute %s of a step and use %.1f "
                          "processors; there are too few for all of them",
                          Percent(compute), used),
          "use more hosts, or fewer tasks on this one");
    }
    if (waits > kWaitsMax && step < kSmallStepSeconds &&
        bytes < kSmallBytesPerStep) {
      return Make("small_model", "", waits,
                  absl::StrFormat("the model is small: a step takes %s, and "
                                  "%s of it are round trips of %.0f KiB",
                                  Time(step), Percent(waits), bytes / 1024),
                  "use larger batches, fewer workers, or put the ps on the "
                  "workers' hosts");
    }
    if (waits > kWaitsMax) {
      return Make("slow_link", "", waits,
                  absl::StrFormat(
                      "all workers wait for values and receipts %s of a step "
                      "(%s) of %.1f MiB each way, and no task stands out",
                      Percent(waits), Time(waits * step), bytes / (1 << 20)),
                  "use more ps, a faster network, larger batches, or "
                  "compression (compression.push)");
    }
    return Make("compute", "", compute,
                absl::StrFormat("the workers compute %s of a step (%s); "
                                "nothing holds them back",
                                Percent(compute), Time(step)),
                "for more speed use more workers, or faster ones");
  }

  bool OneHost() const {
    return std::all_of(workers_.begin(), workers_.end(),
                       [this](const WorkerReport* worker) {
                         return worker->host() == workers_[0]->host();
                       });
  }

  const JobReport& report_;
  const Workers workers_;
  const bool sync_;
  Cause best_;
};

}  // namespace

Cause Diagnose(const JobReport& report) { return Doctor(report).Find(); }

}  // namespace weir
