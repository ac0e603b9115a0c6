// Layers with several inputs: the sum, and concatenation.
#include "common/base/status.h"
#include "worker/model/layers/layers.h"

namespace weir {
namespace {

class AddOp : public LayerOp {
 public:
  using LayerOp::LayerOp;

  void Forward(const LayerContext& c) override {
    const int64_t count = OutputElements(c);
    c.backend->Run(op::Add{count, c.inputs[0], c.inputs[1], c.output});
    for (size_t i = 2; i < c.inputs.size(); ++i) {
      c.backend->Run(op::Add{count, c.output, c.inputs[i], c.output});
    }
  }

  void Backward(const LayerContext& c) override {
    // The derivative by each input is 1. An input that is named twice has two
    // gradients here, which the network adds.
    const int64_t count = OutputElements(c);
    for (float* dx : c.input_gradients) {
      if (dx != nullptr) {
        c.backend->Run(
            op::CopyColumns{1, count, c.output_gradient, count, dx, count});
      }
    }
  }
};

class ConcatOp : public LayerOp {
 public:
  // All dimensions but the last are taken for rows of a matrix, in which an
  // input is some of the columns.
  ConcatOp(LayerTraits traits, std::vector<int64_t> widths)
      : LayerOp(std::move(traits)), widths_(std::move(widths)) {}

  void Forward(const LayerContext& c) override {
    JoinColumns(c, Rows(c), widths_, c.output);
  }

  void Backward(const LayerContext& c) override {
    SplitColumns(c, Rows(c), widths_, c.output_gradient);
  }

 private:
  int64_t Rows(const LayerContext& c) const {
    return OutputElements(c) / traits().output.dims.back();
  }

  const std::vector<int64_t> widths_;  // last dimension of each input
};

}  // namespace

MadeLayer MakeAdd(const LayerSource& source) {
  const std::vector<TensorInfo>& inputs = source.inputs;
  for (const TensorInfo& input : inputs) {
    if (input.dims != inputs[0].dims) {
      return Invalid("add takes inputs of one shape, not ",
                     inputs[0].ToString(), " and ", input.ToString());
    }
  }
  return std::make_unique<AddOp>(LayerTraits{.output = inputs[0]});
}

MadeLayer MakeConcat(const LayerSource& source) {
  const std::vector<TensorInfo>& inputs = source.inputs;
  std::vector<int64_t> widths;
  TensorInfo output = inputs[0];
  output.dims.back() = 0;
  for (const TensorInfo& input : inputs) {
    // Equal but for the last dimension: compared with that one put in.
    std::vector<int64_t> head = input.dims;
    widths.push_back(head.back());
    head.back() = inputs[0].dims.back();
    if (head != inputs[0].dims) {
      return Invalid(
          "concat takes inputs that differ in the last dimension only, not ",
          inputs[0].ToString(), " and ", input.ToString());
    }
    output.dims.back() += widths.back();
  }
  return std::make_unique<ConcatOp>(LayerTraits{.output = std::move(output)},
                                    std::move(widths));
}

}  // namespace weir
