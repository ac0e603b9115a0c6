#include "server/chief/report/shard_meter.h"

#include <algorithm>
#include <vector>

#include "server/chief/report/host_load.h"

namespace weir {
namespace {

double Count(const Durations& of) {
  double count = 0.0;
  for (const uint64_t bucket : of.bucket()) {
    count += static_cast<double>(bucket);
  }
  return count;
}

// The mean of the times that came between two readings; 0 without any.
double MeanSeconds(const Durations& begin, const Durations& end) {
  const double count = Count(end) - Count(begin);
  return count > 0.0 ? GrownSeconds(begin.sum_ns(), end.sum_ns()) / count : 0.0;
}

void AddGrown(const google::protobuf::RepeatedField<uint64_t>& begin,
              const google::protobuf::RepeatedField<uint64_t>& end,
              double scale, std::vector<double>* sums) {
  const int count =
      std::min({begin.size(), end.size(), static_cast<int>(sums->size())});
  for (int i = 0; i < count; ++i) {
    (*sums)[i] += Grown(begin[i], end[i]) * scale;
  }
}

}  // namespace

void ShardMeter::Add(const PsStatus& status, int slots, int64_t now_ns) {
  newest_ = status;
  newest_.clear_declaration();
  newest_.clear_peer();
  newest_.mutable_last_contributor()->Truncate(
      std::min(slots, newest_.last_contributor_size()));
  newest_.mutable_last_alone_ns()->Truncate(
      std::min(slots, newest_.last_alone_ns_size()));
  // Another process, or a shard that was restored: its sums began anew.
  if (window_.known() &&
      (window_.end().hello().incarnation() != status.hello().incarnation() ||
       window_.end().hello().history() != status.hello().history())) {
    window_.Clear();
  }
  PsStatus kept = newest_;
  kept.clear_table();  // states, not sums
  window_.Add(now_ns, std::move(kept));
}

void ShardMeter::Fill(ShardReport* report) const {
  report->set_version(static_cast<double>(newest_.version_min()));
  report->set_parked_pulls(static_cast<double>(newest_.waits_parked()));
  report->set_resident_bytes(static_cast<double>(newest_.bytes_resident()));
  report->set_out_of_order_bytes(
      static_cast<double>(newest_.out_of_order_bytes()));
  report->set_open_calls(static_cast<double>(newest_.open_calls()));
  const double seconds = window_.known() ? window_.seconds() : 0.0;
  const PsStatus& begin = window_.known() ? window_.begin() : newest_;
  *report->mutable_host_load() =
      HostLoad(begin.usage(), newest_.usage(), seconds);
  if (seconds <= 0.0) {
    return;
  }
  report->set_updates_per_second(
      Grown(begin.chunks_accepted(), newest_.chunks_accepted()) / seconds);
  report->set_bytes_received_per_second(
      Grown(begin.bytes_received(), newest_.bytes_received()) / seconds);
  report->set_bytes_sent_per_second(
      Grown(begin.bytes_sent(), newest_.bytes_sent()) / seconds);
  report->set_apply_seconds(MeanSeconds(begin.apply(), newest_.apply()));
  report->set_park_seconds(MeanSeconds(begin.park(), newest_.park()));
}

void ShardMeter::AddLast(std::vector<double>* count,
                         std::vector<double>* seconds) const {
  if (window_.known()) {
    AddGrown(window_.begin().last_contributor(),
             window_.end().last_contributor(), 1.0, count);
    AddGrown(window_.begin().last_alone_ns(), window_.end().last_alone_ns(),
             1e-9, seconds);
  }
}

}  // namespace weir
