#include "server/chief/report/reporter.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "common/base/limits.h"
#include "common/base/printable.h"
#include "server/chief/report/diagnosis.h"

namespace weir {

void Reporter::AddProgress(const Progress& progress, int64_t now_ns) {
  if (progress.slot() < workers_.size()) {
    workers_[progress.slot()].Add(progress, static_cast<int>(shards_.size()),
                                  now_ns);
  }
}

void Reporter::AddShard(int shard, const PsStatus& status, int64_t now_ns) {
  shards_[static_cast<size_t>(shard)].Add(
      status, static_cast<int>(workers_.size()), now_ns);
}

void Reporter::AddEvent(bool warning, const std::string& text,
                        int64_t wall_ns) {
  EventReport event;
  event.set_unix_seconds(static_cast<double>(wall_ns) / 1e9);
  event.set_warning(warning);
  event.set_text(Printable(text, kPeerMessageBytesMax));
  events_.push_back(std::move(event));
  if (events_.size() > kEventsMax) {
    events_.pop_front();  // I1
  }
}

void Reporter::CheckpointCommitted(const std::string& name, double bytes,
                                   double seconds, int64_t now_ns) {
  checkpoint_.set_newest(name);
  checkpoint_.set_bytes(bytes);
  checkpoint_.set_last_seconds(seconds);
  checkpoint_committed_ns_ = now_ns;
}

void Reporter::Fill(const std::vector<std::string>& variables, int64_t now_ns,
                    JobReport* report) const {
  report->set_window_seconds(static_cast<double>(kReportWindowNs) / 1e9);
  for (size_t w = 0; w < workers_.size(); ++w) {
    workers_[w].Fill(report->mutable_worker(static_cast<int>(w)));
  }
  for (size_t s = 0; s < shards_.size(); ++s) {
    shards_[s].Fill(report->mutable_shard(static_cast<int>(s)));
  }
  FillLast(report);
  FillLayers(variables, report);
  FillTables(report);
  CheckpointReport* const checkpoint = report->mutable_checkpoint();
  *checkpoint = checkpoint_;
  checkpoint->set_failures(static_cast<double>(checkpoint_failures_));
  if (checkpoint_committed_ns_ != 0) {
    checkpoint->set_age_seconds(
        static_cast<double>(now_ns - checkpoint_committed_ns_) / 1e9);
  }
  double held = 0.0;
  for (const WorkerReport& worker : report->worker()) {
    held = std::max(held, worker.hold_share());
  }
  checkpoint->set_hold_share(held);
  report->mutable_event()->Assign(events_.begin(), events_.end());
  *report->mutable_cause() = Diagnose(*report);
}

void Reporter::FillLast(JobReport* report) const {
  std::vector<double> count(workers_.size());
  std::vector<double> seconds(workers_.size());
  for (const ShardMeter& shard : shards_) {
    shard.AddLast(&count, &seconds);
  }
  const double all = std::accumulate(count.begin(), count.end(), 0.0);
  if (all <= 0.0) {
    return;
  }
  for (size_t w = 0; w < workers_.size(); ++w) {
    WorkerReport* const worker = report->mutable_worker(static_cast<int>(w));
    worker->set_last_share(count[w] / all);
    if (worker->step_seconds() > 0.0) {
      // Of the mean block, which is not ready before.
      worker->set_alone_share(
          std::min(1.0, seconds[w] / all / worker->step_seconds()));
    }
  }
}

void Reporter::FillLayers(const std::vector<std::string>& variables,
                          JobReport* report) const {
  double step_seconds = 0.0;
  std::vector<double> waits;
  for (const WorkerMeter& worker : workers_) {
    worker.AddWaits(&step_seconds, &waits);
  }
  const size_t count = std::min(waits.size(), variables.size());
  if (step_seconds <= 0.0 || count == 0) {
    return;
  }
  std::vector<size_t> slowest(count);
  std::iota(slowest.begin(), slowest.end(), 0);
  if (count > kLayersMax) {
    std::nth_element(slowest.begin(), slowest.begin() + kLayersMax,
                     slowest.end(),
                     [&](size_t a, size_t b) { return waits[a] > waits[b]; });
    slowest.resize(kLayersMax);
    std::sort(slowest.begin(), slowest.end());
  }
  for (const size_t v : slowest) {
    LayerReport* const layer = report->add_layer();
    layer->set_name(variables[v]);
    layer->set_wait_share(std::min(1.0, waits[v] / step_seconds));
  }
}

void Reporter::FillTables(JobReport* report) const {
  std::map<std::string, TableReport> tables;
  for (const ShardMeter& shard : shards_) {
    for (const TableStatus& status : shard.newest().table()) {
      TableReport& table = tables[Printable(status.name())];
      table.set_rows(table.rows() + static_cast<double>(status.rows()));
      table.set_bytes(table.bytes() + static_cast<double>(status.bytes()));
    }
  }
  for (auto& [name, table] : tables) {
    table.set_name(name);
    *report->add_table() = std::move(table);
  }
}

}  // namespace weir
