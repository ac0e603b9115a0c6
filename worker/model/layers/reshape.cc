// Layers that compute nothing: flatten, and the change of an image's format.
#include <utility>

#include "worker/model/layers/layers.h"

namespace weir {
namespace {

class ViewOp : public LayerOp {
 public:
  using LayerOp::LayerOp;

  void Forward(const LayerContext&) override {}  // the memory is the input's

  void Backward(const LayerContext& c) override {
    // Gradients share memory only where this is the input's sole consumer.
    float* dx = c.input_gradients[0];
    if (dx != nullptr && dx != c.output_gradient) {
      const int64_t count = OutputElements(c);
      c.backend->Run(
          op::CopyColumns{1, count, c.output_gradient, count, dx, count});
    }
  }
};

class FormatChangeOp : public LayerOp {
 public:
  // Each sample is a [rows, columns] matrix, to be transposed.
  FormatChangeOp(LayerTraits traits, int64_t rows, int64_t columns)
      : LayerOp(std::move(traits)), rows_(rows), columns_(columns) {}

  void Forward(const LayerContext& c) override {
    c.backend->Run(
        op::Transpose{c.rows, rows_, columns_, c.inputs[0], c.output});
  }

  void Backward(const LayerContext& c) override {
    if (c.input_gradients[0] != nullptr) {
      c.backend->Run(op::Transpose{c.rows, columns_, rows_, c.output_gradient,
                                   c.input_gradients[0]});
    }
  }

 private:
  const int64_t rows_;
  const int64_t columns_;
};

}  // namespace

MadeLayer MakeFlatten(const LayerSource& source) {
  return std::make_unique<ViewOp>(LayerTraits{
      .output = {.dims = {source.input().elements()}}, .view = true});
}

std::unique_ptr<LayerOp> MakeFormatChange(const TensorInfo& input) {
  LayerTraits traits{.output = input};
  const int64_t channels = input.dims[0];
  const int64_t pixels = input.dims[1] * input.dims[2];
  // A plain sample is the matrix [channels, pixels], and its transpose has the
  // channels last.
  int64_t rows = channels;
  int64_t columns = pixels;
  traits.output.format = Format::kChannelsLast;
  if (input.format == Format::kChannelsLast) {
    std::swap(rows, columns);
    traits.output.format = Format::kPlain;
  }
  // A matrix of one row or column lies in memory as its transpose does.
  if (channels == 1 || pixels == 1) {
    traits.view = true;
    return std::make_unique<ViewOp>(std::move(traits));
  }
  return std::make_unique<FormatChangeOp>(std::move(traits), rows, columns);
}

}  // namespace weir
