// SGD and Adagrad of rows: the kernels of the dense optimizers.
#include "common/base/status.h"
#include "server/ps/optimizer/hyper_parameters.h"
#include "server/ps/optimizer/step_kernels.h"
#include "server/ps/table/row_loop.h"
#include "server/ps/table/row_optimizer.h"

namespace weir {

absl::Status RowSgd::Check(const std::string& /*path*/) const {
  return absl::OkStatus();
}

std::vector<RowState> RowSgd::State() const { return {}; }

void RowSgd::Move(const RowStep& step, const RowBatch& batch) const {
  ApplyRows(ElementwiseRow<SgdKernel<false>>{{0.0f, static_cast<float>(
                                                        -step.learning_rate)}},
            batch);
}

absl::Status RowAdagrad::Check(const std::string& path) const {
  WEIR_RETURN_IF_ERROR(
      CheckNonNegative(path, "initial_accumulator", initial_accumulator));
  return CheckNonNegative(path, "epsilon", epsilon);
}

std::vector<RowState> RowAdagrad::State() const {
  return {{"sum", static_cast<float>(initial_accumulator)}};
}

void RowAdagrad::Move(const RowStep& step, const RowBatch& batch) const {
  ApplyRows(
      ElementwiseRow<AdagradKernel<false>>{
          {0.0f, static_cast<float>(-step.learning_rate),
           static_cast<float>(epsilon)}},
      batch);
}

}  // namespace weir
