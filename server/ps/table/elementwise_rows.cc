// SGD, Adagrad and FTRL of rows: the kernels of the dense optimizers.

#include "server/ps/optimizer/step_kernels.h"
#include "server/ps/table/row_loop.h"
#include "server/ps/table/row_rules.h"

namespace weir {
namespace {

class SgdRows : public RowOptimizer {
 public:
  SgdRows() : RowOptimizer("sgd", {}) {}

  void Apply(const RowStep& step, const RowBatch& batch) const override {
    ApplyRows(
        ElementwiseRow<SgdKernel<false>>{
            {0.0f, static_cast<float>(-step.learning_rate)}},
        batch);
  }
};

class AdagradRows : public RowOptimizer {
 public:
  explicit AdagradRows(const TableAdagrad& spec)
      : RowOptimizer("adagrad",
                     {{"sum", static_cast<float>(spec.initial_accumulator())}}),
        epsilon_(static_cast<float>(spec.epsilon())) {}

  void Apply(const RowStep& step, const RowBatch& batch) const override {
    ApplyRows(
        ElementwiseRow<AdagradKernel<false>>{
            {0.0f, static_cast<float>(-step.learning_rate), epsilon_}},
        batch);
  }

 private:
  const float epsilon_;
};

class FtrlRows : public RowOptimizer {
 public:
  explicit FtrlRows(const TableFtrl& spec)
      : RowOptimizer("ftrl", {{"accumulator",
                               static_cast<float>(spec.initial_accumulator())},
                              {"linear", 0.0f}}),
        spec_(spec) {}

  void Apply(const RowStep& step, const RowBatch& batch) const override {
    const double rate = step.learning_rate;
    // The equations divide by the rate. In float, as the kernel does: a rate
    // that is too small for it is 0 there.
    if (static_cast<float>(rate) == 0) {
      return;
    }
    WithFlag(spec_.learning_rate_power() == -0.5, [&](auto root) {
      ApplyRows(
          ElementwiseRow<FtrlKernel<root>>{FtrlKernelOf<root>(spec_, rate)},
          batch);
    });
  }

 private:
  const TableFtrl spec_;
};

}  // namespace

std::unique_ptr<RowOptimizer> MakeSgdRows() {
  return std::make_unique<SgdRows>();
}

std::unique_ptr<RowOptimizer> MakeAdagradRows(const TableAdagrad& spec) {
  return std::make_unique<AdagradRows>(spec);
}

std::unique_ptr<RowOptimizer> MakeFtrlRows(const TableFtrl& spec) {
  return std::make_unique<FtrlRows>(spec);
}

}  // namespace weir
