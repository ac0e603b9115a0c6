#include "server/ps/ps_metrics.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "proto/wire/measures.h"

namespace weir {
namespace {

void AddUpdates(const PsStatus& status, MetricPage* page) {
  const auto add = [page](const char* result, uint64_t count) {
    page->AddCounter("weir_ps_updates_total",
                     "Pushed blocks by what became of them.",
                     {{"result", result}}, static_cast<double>(count));
  };
  add("accepted", status.chunks_accepted());
  add("duplicate", status.chunks_duplicate());
  add("left_out", status.chunks_left_out());
  add("deferred", status.chunks_deferred());
}

// Every bucket counts one staleness, so the sum is exact but for the last.
void AddStaleness(const PsStatus& status, MetricPage* page) {
  HistogramSnapshot staleness;
  const int count = status.staleness_bucket_size();
  for (int i = 0; i < count; ++i) {
    const uint64_t pushes = status.staleness_bucket(i);
    if (i + 1 < count) {
      staleness.bounds.push_back(i);
    }
    staleness.counts.push_back(pushes);
    staleness.count += pushes;
    staleness.sum += static_cast<double>(i) * static_cast<double>(pushes);
  }
  if (count > 0) {
    page->AddHistogram("weir_ps_staleness_steps",
                       "How many updates a block had taken since the values "
                       "that a push was computed from.",
                       {}, staleness);
  }
}

void AddTables(const PsStatus& status, MetricPage* page) {
  for (const TableStatus& table : status.table()) {
    const MetricLabels labels = {{"table", table.name()}};
    page->AddGauge("weir_ps_table_rows", "Rows that this ps holds.", labels,
                   static_cast<double>(table.rows()));
    page->AddGauge("weir_ps_table_bytes",
                   "Memory of a table with its index and optimizer state.",
                   labels, static_cast<double>(table.bytes()));
    page->AddCounter("weir_ps_table_evicted_total", "Rows that were dropped.",
                     labels, static_cast<double>(table.rows_dropped()));
    page->AddCounter("weir_ps_table_updated_total", "Updates of rows.", labels,
                     static_cast<double>(table.rows_updated()));
  }
}

}  // namespace

void AddPsMetrics(const PsStatus& status, MetricPage* page) {
  AddUpdates(status, page);
  page->AddCounter("weir_ps_received_bytes_total",
                   "Payloads of gradients that came in.", {},
                   static_cast<double>(status.bytes_received()));
  page->AddCounter("weir_ps_sent_bytes_total",
                   "Payloads of values that went out.", {},
                   static_cast<double>(status.bytes_sent()));
  page->AddHistogram("weir_ps_apply_seconds",
                     "Time to apply a pushed block, with the wait for it.", {},
                     FromProto(status.apply()));
  page->AddHistogram("weir_ps_park_seconds",
                     "Time for which pulls waited for a version or a clock.",
                     {}, FromProto(status.park()));
  page->AddHistogram("weir_ps_snapshot_seconds",
                     "Time from a snapshot's request to its file.", {},
                     FromProto(status.snapshot()));
  page->AddGauge("weir_ps_parked_pulls", "Pulls that wait now.", {},
                 static_cast<double>(status.waits_parked()));
  AddStaleness(status, page);
  page->AddGauge("weir_ps_resident_bytes",
                 "Memory of values, optimizer state and sums.", {},
                 static_cast<double>(status.bytes_resident()));
  page->AddGauge("weir_ps_out_of_order_bytes",
                 "Memory of contributions that came before their turn.", {},
                 static_cast<double>(status.out_of_order_bytes()));
  page->AddGauge("weir_ps_version",
                 "The version of the block that has the oldest one.", {},
                 static_cast<double>(status.version_min()));
  page->AddGauge("weir_ps_open_calls", "Streams and calls under way.", {},
                 static_cast<double>(status.open_calls()));
  for (int w = 0; w < status.last_contributor_size(); ++w) {
    page->AddCounter("weir_ps_last_contributor_total",
                     "Sync: blocks of steps that a slot completed, because it "
                     "came last.",
                     {{"slot", absl::StrCat(w)}},
                     static_cast<double>(status.last_contributor(w)));
  }
  page->AddCounter("weir_ps_connections_failed_total",
                   "Connections that ended before a call on them was admitted.",
                   {}, static_cast<double>(status.connections_failed()));
  AddTables(status, page);
}

}  // namespace weir
