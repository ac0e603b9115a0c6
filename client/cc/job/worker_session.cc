#include "client/cc/job/worker_session.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace weir {

absl::StatusOr<std::shared_ptr<WorkerMemory>> WorkerMemory::Create(
    std::vector<VariableSpec> variables, int shards, int64_t block_elements,
    Transport* transport) {
  WEIR_ASSIGN_OR_RETURN(Layout layout, Layout::Create(std::move(variables),
                                                      shards, block_elements));
  const auto elements = static_cast<size_t>(layout.flat_elements());
  auto memory = std::make_shared<WorkerMemory>(
      WorkerMemory{std::move(layout), NewPrivateBuffer(elements),
                   transport->NewBuffer(elements)});
  if (memory->parameters == nullptr || memory->gradients == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "no memory for ", elements, " parameters and their gradients"));
  }
  return memory;
}

absl::StatusOr<std::unique_ptr<WorkerSession>> WorkerSession::Create(
    Options options) {
  std::unique_ptr<WorkerSession> session(
      new WorkerSession(options.bounded_staleness, options.compression.pull()));
  if (!options.tables.empty()) {
    TableClient::Options rows;
    static_cast<ShardClientOptions&>(rows) = options;
    rows.tables = std::move(options.tables);
    WEIR_ASSIGN_OR_RETURN(session->rows_, TableClient::Create(std::move(rows)));
  }
  WEIR_ASSIGN_OR_RETURN(session->blocks_,
                        ParameterClient::Create(std::move(options)));
  return session;
}

Want WorkerSession::WantFor(uint64_t sequence,
                            std::optional<uint64_t> version) const {
  Want want;
  want.set_encoding(pull_encoding_);
  if (version.has_value()) {
    want.set_version(*version);  // I2
    return want;
  }
  want.set_latest(true);
  if (bounded_staleness_) {
    want.set_clock(sequence);
  }
  return want;
}

absl::StatusOr<ContributionResult> WorkerSession::WaitReceipts() {
  WEIR_ASSIGN_OR_RETURN(ContributionResult result, blocks_->WaitReceipts());
  if (rows_ != nullptr) {  // I1
    WEIR_ASSIGN_OR_RETURN(const ContributionResult of_rows,
                          rows_->WaitUpdate());
    result.Add(of_rows);
  }
  const ClientCounters now = counters();
  result.bytes_sent = now.bytes_sent - reported_.bytes_sent;
  result.bytes_received = now.bytes_received - reported_.bytes_received;
  reported_ = now;
  return result;
}

void WorkerSession::Interrupt(const absl::Status& status) {
  blocks_->Interrupt(status);
  if (rows_ != nullptr) {
    rows_->Interrupt(status);
  }
}

ClientCounters WorkerSession::counters() const {
  ClientCounters counters = blocks_->counters();
  if (rows_ != nullptr) {
    const ClientCounters of_rows = rows_->counters();
    counters.bytes_sent += of_rows.bytes_sent;
    counters.bytes_received += of_rows.bytes_received;
    counters.reconnects += of_rows.reconnects;
    std::vector<int64_t>& waits = counters.shard_wait_ns;
    waits.resize(std::max(waits.size(), of_rows.shard_wait_ns.size()));
    for (size_t s = 0; s < of_rows.shard_wait_ns.size(); ++s) {
      waits[s] += of_rows.shard_wait_ns[s];
    }
  }
  return counters;
}

}  // namespace weir
