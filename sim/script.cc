#include "sim/script.h"

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "client/cc/sdk/session.h"
#include "client/cc/weir.h"
#include "common/base/status.h"
#include "common/threads/scheduler.h"
#include "sim/job_plan.h"

namespace weir::sim {
namespace {

// Sums of whole numbers are the same in any order.
constexpr int kOptimizerRate = 1;
constexpr int64_t kBlockElements = 16;
// A tensor of several blocks and a small one.
constexpr int64_t kElements[] = {100, 7};
constexpr const char* kNames[] = {"w", "b"};
constexpr char kTable[] = "rows";
constexpr uint64_t kIds = 23;  // of the table
constexpr uint64_t kIdsOfPush = 5;

sdk::Mode ModeOf(Mode mode) {
  switch (mode) {
    case Mode::kSync:
      return sdk::Mode::kSync;
    case Mode::kStaleness:
      return sdk::Mode::kBoundedStaleness;
    default:
      return sdk::Mode::kAsync;
  }
}

sdk::Options OptionsOf(const JobPlace& place, int rank) {
  sdk::Options options;
  options.ps = place.ps_addresses;
  options.chief = kChief;
  options.rank = rank;
  options.worker_count = place.worker_count;
  options.job = "script";
  options.mode = ModeOf(place.script->mode);
  options.staleness_bound = 2;
  options.groups[0].kind =
      static_cast<sdk::Optimizer::Kind>(place.script->optimizer);
  options.groups[0].learning_rate = kOptimizerRate;
  options.block_elements = kBlockElements;
  return options;
}

std::vector<sdk::Table> TablesOf(const JobPlace& place) {
  if (!place.script->table) {
    return {};
  }
  sdk::Table table;
  table.name = kTable;
  table.dim = kRowDim;
  table.optimizer.kind =
      static_cast<sdk::RowOptimizer::Kind>(place.script->row_optimizer);
  table.optimizer.learning_rate = kOptimizerRate;
  table.init = sdk::Table::Init::kConstant;
  table.init_scale = 0.0f;
  return {table};
}

void Fill(std::span<float> gradient, int rank, uint64_t push) {
  for (size_t i = 0; i < gradient.size(); ++i) {
    gradient[i] = static_cast<float>(
        1 + (i + 3 * push + 5 * static_cast<uint64_t>(rank)) % 11);
  }
}

// The rows of a push: reads them first, as a program does that computes with
// them.
class RowsOfPush {
 public:
  absl::Status Read(sdk::Session* session, int rank, uint64_t push) {
    for (size_t i = 0; i < ids_.size(); ++i) {
      ids_[i] = (push * 7 + static_cast<uint64_t>(rank) * 3 + i * i) % kIds;
    }
    Fill(gradients_, rank, push);
    const sdk::RowsWanted wanted = {kTable, ids_, rows_};
    WEIR_RETURN_IF_ERROR(session->StartLookup({&wanted, 1}, /*train=*/true));
    return session->WaitLookup();
  }
  absl::Status Push(sdk::Session* session) const {
    const sdk::RowGradients gradients = {kTable, ids_, gradients_};
    return session->Rows({&gradients, 1});
  }

 private:
  std::vector<uint64_t> ids_ = std::vector<uint64_t>(kIdsOfPush);
  std::vector<float> rows_ = std::vector<float>(kIdsOfPush * kRowDim);
  std::vector<float> gradients_ = std::vector<float>(kIdsOfPush * kRowDim);
};

}  // namespace

absl::Status RunScript(const JobPlace& place, int rank, ProcessRun* run) {
  const auto stopped = std::make_shared<bool>(false);
  sdk::Options options = OptionsOf(place, rank);
  options.keep_waiting = [stopped] { return !*stopped; };
  sdk::Session::Wire wire;
  wire.transport = place.network->NewTransport();
  wire.chief = place.network->NewChiefLink(kChief);
  // Never deleted, as a process that ends deletes nothing.
  auto* const session = new sdk::Session(std::move(options), std::move(wire));
  run->OnTerm([stopped] { *stopped = true; });
  WEIR_RETURN_IF_ERROR(session->Connect());
  std::vector<sdk::Tensor> tensors(2);
  for (size_t t = 0; t < tensors.size(); ++t) {
    tensors[t].name = kNames[t];
    tensors[t].shape = {kElements[t]};
  }
  const std::vector<sdk::Table> tables = TablesOf(place);
  WEIR_RETURN_IF_ERROR(session->Declare(tensors, tables));
  WEIR_RETURN_IF_ERROR(session->Pull());
  RowsOfPush rows;
  for (;;) {
    const uint64_t pushes = session->pushes();
    place.script->on_pushes(rank, pushes);
    if (pushes >= place.script->pushes) {
      break;
    }
    SleepFor(place.script->rest);
    for (const char* const name : kNames) {
      Fill(session->Gradient(name), rank, pushes);
    }
    if (!tables.empty()) {
      WEIR_RETURN_IF_ERROR(rows.Read(session, rank, pushes));
    }
    WEIR_RETURN_IF_ERROR(session->Begin({}));
    for (size_t t = 0; t < tensors.size(); ++t) {
      WEIR_RETURN_IF_ERROR(session->Ready(static_cast<int>(t)));
    }
    if (!tables.empty()) {
      WEIR_RETURN_IF_ERROR(rows.Push(session));
    }
    WEIR_RETURN_IF_ERROR(session->End());
    WEIR_RETURN_IF_ERROR(session->Wait());
  }
  return session->Finish();
}

}  // namespace weir::sim
