// Brings the tables of a step to where the layers read them: lists and rows to
// the device, gradients back to the host.
//
// Place: Network calls it; the layers that read tables get its contexts.
// Threads: compatible.
// Owns/borrows: owns device memory and its pinned host side, so that a batch of
//   many small lists is one copy; borrows the backend and, from Begin to the
//   step's end, the inputs.
// Errors: INVALID_ARGUMENT    inputs that do not fit the model or the batch.
//         RESOURCE_EXHAUSTED  no device memory.
// Cost: the need differs from batch to batch, so memory grows to that of the
//   largest batch and a quarter more. None where the host's memory is shared.
#ifndef WORKER_MODEL_TABLE_STAGE_H_
#define WORKER_MODEL_TABLE_STAGE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "worker/compute/backend.h"
#include "worker/model/graph.h"
#include "worker/model/train_step.h"

namespace weir {

class TableStage {
 public:
  // `tables` must outlive this.
  TableStage(const std::vector<GraphTable>& tables, Backend* backend);
  ~TableStage();
  TableStage(const TableStage&) = delete;
  TableStage& operator=(const TableStage&) = delete;

  // Sends the inputs, which are by table. REQUIRES: the queue has passed the
  // step before.
  absl::Status Begin(std::span<const TableInput> inputs, int64_t rows,
                     bool training);
  // Returns the pointers for one use of a table. REQUIRES: Begin was OK.
  const TableContext& context(int table, int use) const {
    return contexts_[table][use];
  }
  // Sends the gradients of a table to the host.
  void Download(int table);

 private:
  absl::Status Check(std::span<const TableInput> inputs, int64_t rows,
                     bool training) const;
  // Makes room for the inputs and their gradients.
  absl::Status Reserve();
  // Returns where the device will have these floats; `host` itself where memory
  // is shared.
  const float* Floats(const float* host, int64_t elements);
  RowLists Lists(const TableBatch::Lists& lists);

  const std::vector<GraphTable>& tables_;
  Backend* const backend_;
  std::vector<std::vector<TableContext>> contexts_;  // by table and use
  std::vector<TableInput> inputs_;                   // the step's

  // The inputs, then the gradients. Unused where memory is shared.
  std::vector<float> host_;
  float* arena_ = nullptr;  // mirror of host_
  int64_t used_ = 0;        // floats of host_ that this step has taken
};

}  // namespace weir

#endif  // WORKER_MODEL_TABLE_STAGE_H_
