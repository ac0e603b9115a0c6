#include "worker/model/table_stage.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace weir {
namespace {

constexpr int64_t kAlignment = 64;  // in floats, the same as StepMemory's

int64_t Aligned(int64_t elements) {
  return (elements + kAlignment - 1) / kAlignment * kAlignment;
}

int64_t ElementsOf(const TableBatch::Lists& lists) {
  return Aligned(static_cast<int64_t>(lists.offsets.size())) +
         Aligned(static_cast<int64_t>(lists.index.size())) +
         Aligned(static_cast<int64_t>(lists.weights.size()));
}

int64_t RowElements(const GraphTable& table, const TableBatch& batch) {
  return static_cast<int64_t>(batch.ids().size()) * table.dim;
}

}  // namespace

TableStage::TableStage(const std::vector<GraphTable>& tables, Backend* backend)
    : tables_(tables), backend_(backend) {
  for (const GraphTable& table : tables_) {
    contexts_.emplace_back(table.uses.size());
  }
}

TableStage::~TableStage() { backend_->Release(arena_); }

absl::Status TableStage::Check(std::span<const TableInput> inputs, int64_t rows,
                               bool training) const {
  if (inputs.size() != tables_.size()) {
    return Invalid("the batch has the rows of ", inputs.size(),
                   " tables; the model reads ", tables_.size());
  }
  for (size_t t = 0; t < inputs.size(); ++t) {
    const TableInput& input = inputs[t];
    const std::string path = absl::StrCat("table '", tables_[t].name, "': ");
    if (input.batch == nullptr || input.batch->samples() != rows ||
        input.batch->uses().size() != tables_[t].uses.size()) {
      return Invalid(path, "its ids are not those of ", rows, " samples and ",
                     tables_[t].uses.size(), " layers");
    }
    if (!input.batch->ids().empty() &&
        (input.rows == nullptr || (training && input.gradients == nullptr))) {
      return Invalid(path,
                     "there is no memory for its rows or for their gradients");
    }
  }
  return absl::OkStatus();
}

absl::Status TableStage::Reserve() {
  int64_t elements = 0;
  // The sizes that Begin takes below, in any order: lists, rows and gradients.
  for (size_t t = 0; t < inputs_.size(); ++t) {
    elements += 2 * Aligned(RowElements(tables_[t], *inputs_[t].batch));
    for (const TableBatch::Use& use : inputs_[t].batch->uses()) {
      elements += ElementsOf(use.bags) + ElementsOf(use.rows);
    }
  }
  used_ = 0;
  if (elements <= static_cast<int64_t>(host_.size()) ||
      backend_->shares_host_memory()) {
    return absl::OkStatus();
  }
  backend_->Release(arena_);
  arena_ = nullptr;
  host_.clear();
  // A quarter more: the next batch may need some more, and pinning is slow.
  std::vector<float> host(elements + elements / 4);
  WEIR_ASSIGN_OR_RETURN(
      arena_,
      backend_->MirrorHost(host.data(), static_cast<int64_t>(host.size())));
  // Moving keeps the address that MirrorHost was given.
  host_ = std::move(host);
  return absl::OkStatus();
}

absl::Status TableStage::Begin(std::span<const TableInput> inputs, int64_t rows,
                               bool training) {
  WEIR_RETURN_IF_ERROR(Check(inputs, rows, training));
  inputs_.assign(inputs.begin(), inputs.end());
  WEIR_RETURN_IF_ERROR(Reserve());
  for (size_t t = 0; t < inputs_.size(); ++t) {
    const TableInput& input = inputs_[t];
    const float* values =
        Floats(input.rows, RowElements(tables_[t], *input.batch));
    for (size_t u = 0; u < contexts_[t].size(); ++u) {
      const TableBatch::Use& use = input.batch->uses()[u];
      contexts_[t][u] = {.rows = values,
                         .bags = Lists(use.bags),
                         .users = Lists(use.rows),
                         .gradients = input.gradients,
                         // Backward meets the last use first: that one
                         // overwrites, the others add.
                         .adds = u + 1 < contexts_[t].size()};
    }
  }
  if (arena_ == nullptr) {
    return absl::OkStatus();
  }
  // One copy for all lists and rows. The gradients behind them are the layers'
  // to write, so they are not sent.
  backend_->Upload(arena_, host_.data(), used_);
  for (size_t t = 0; t < inputs_.size(); ++t) {
    for (TableContext& context : contexts_[t]) {
      context.gradients = arena_ + used_;
    }
    used_ += Aligned(RowElements(tables_[t], *inputs_[t].batch));
  }
  return absl::OkStatus();
}

void TableStage::Download(int table) {
  const TableInput& input = inputs_[table];
  const int64_t count = RowElements(tables_[table], *input.batch);
  if (count > 0) {
    backend_->Download(input.gradients, contexts_[table][0].gradients, count);
  }
}

const float* TableStage::Floats(const float* host, int64_t elements) {
  if (arena_ == nullptr) {
    return host;
  }
  const int64_t begin = used_;
  // Not an assignment of floats, which may quieten bits that are integers.
  if (elements > 0) {
    std::memcpy(host_.data() + begin, host,
                static_cast<size_t>(elements) * sizeof(float));
  }
  used_ += Aligned(elements);
  return arena_ + begin;
}

RowLists TableStage::Lists(const TableBatch::Lists& lists) {
  const auto integers = [&](const std::vector<int32_t>& host) {
    // Device memory holds either, and copies keep all bits.
    return reinterpret_cast<const int32_t*>(
        Floats(reinterpret_cast<const float*>(host.data()),
               static_cast<int64_t>(host.size())));
  };
  RowLists placed{.count = lists.count(),
                  .offsets = integers(lists.offsets),
                  .index = integers(lists.index),
                  .weights = nullptr};  // null: every weight is 1
  if (!lists.weights.empty()) {
    placed.weights = Floats(lists.weights.data(),
                            static_cast<int64_t>(lists.weights.size()));
  }
  return placed;
}

}  // namespace weir
