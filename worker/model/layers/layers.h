// Every layer, and how a JobSpec's Layer becomes one.
//
// Place: the graph's builder calls MakeLayer, whose table in factory.cc has
// every kind. The makers stand here with what is particular to their layer;
// what all layers promise is in layer_op.h.
// Threads: safe.
// Errors: INVALID_ARGUMENT  no kind is set, the number of inputs is wrong, or
//   what the maker says. The graph adds the layer's path.
#ifndef WORKER_MODEL_LAYERS_LAYERS_H_
#define WORKER_MODEL_LAYERS_LAYERS_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job_spec.pb.h"
#include "worker/model/layers/layer_op.h"

namespace weir {

// What a model may look up.
struct SparseSpec {
  std::vector<EmbeddingTable> tables = {};  // the job's
  std::vector<std::string> features = {};   // categorical, in the data's order
};

// What a layer is made of.
struct LayerSource {
  const Layer& spec;
  const std::vector<TensorInfo>& inputs;
  const SparseSpec& sparse;

  // REQUIRES: there is an input.
  const TensorInfo& input() const { return inputs[0]; }
};
using MadeLayer = absl::StatusOr<std::unique_ptr<LayerOp>>;

// Returns the format in which the layer takes images; nullopt when it takes
// any, if all its inputs have the same.
std::optional<Format> WantedFormat(const Layer& spec);

// REQUIRES: images are in the format that WantedFormat returns.
MadeLayer MakeLayer(const LayerSource& source);

// Makes the same image in the other format; a view where both formats have the
// same order of elements. The graph puts it between layers which want different
// ones. REQUIRES: input.is_image().
std::unique_ptr<LayerOp> MakeFormatChange(const TensorInfo& input);

// ----------------------------------------------- makers, for the table

// y = x W + b, with x [batch, in], W [in, units], b [units].
// Variables: kernel, and bias unless no_bias.
// Errors: units is 0, or the input is not [batch, in].
MadeLayer MakeDense(const LayerSource& source);

// Cross-correlation over images that are padded with zeros.
// Variables: kernel [filters, channels, size, size], and bias [filters] unless
//   no_bias.
// Errors: a field is 0 or too large, the input is not an image, or the kernel
//   does not fit into the padded image.
MadeLayer MakeConv2d(const LayerSource& source);

// The maximum or the average over windows of an image.
// Errors: size is 0, padding is over size / 2, the input is not an image, or
//   the window does not fit into the padded image.
MadeLayer MakePool(const LayerSource& source);

// A function of single elements: relu, sigmoid, tanh. It takes any format, and
// works in place where the graph allows it.
MadeLayer MakeActivation(const LayerSource& source);

// Zeroes elements at random in training, and scales the rest. In evaluation it
// changes nothing. The mask is a function of (contribution seed, layer index,
// element index). Backward makes it again, so it takes no memory and is the
// same on every backend.
// Errors: rate outside [0, 1).
MadeLayer MakeDropout(const LayerSource& source);

// [batch, product] of [batch, ...]; a view. REQUIRES: a plain input.
MadeLayer MakeFlatten(const LayerSource& source);

// Normalises every sample over its last dimension.
// Variables: scale, offset, both [last].
// Errors: epsilon is not > 0.
// Source: Ba et al., "Layer Normalization", 2016, eq. 3 and 4.
MadeLayer MakeLayerNorm(const LayerSource& source);

// Normalises every channel over all other dimensions, the batch included.
// Training takes the batch's own statistics, evaluation the moving ones.
// Variables, all [channels]: scale and offset, and the buffers moving_mean and
//   moving_variance. A step puts the batch's mean and unbiased variance (as
//   PyTorch does) where the buffers' gradients would be, and the ps moves the
//   buffers by `momentum` towards them.
// Errors: epsilon is not > 0, momentum is not in [0, 1], or the input is
//   neither [batch, channels] nor an image.
// Source: Ioffe and Szegedy, "Batch Normalization", 2015, algorithm 1.
MadeLayer MakeBatchNorm(const LayerSource& source);

// The sum of the inputs, element by element.
// Errors: two shapes do not fit; the message has both.
// REQUIRES: two inputs or more, of one format.
MadeLayer MakeAdd(const LayerSource& source);

// The inputs, joined along the last dimension, in which alone they may differ.
// Errors: two shapes do not fit; the message has both.
// REQUIRES: two inputs or more, all plain.
MadeLayer MakeConcat(const LayerSource& source);

// The rows of a table, pooled by bags of ids. Its input is the ids of the
// batch, not a tensor. Its output is [batch, features, dim].
// Errors: the job has no such table, the data has no such feature or none at
//   all, or a feature is named twice.
MadeLayer MakeEmbeddingBag(const LayerSource& source);

// The dot products of all pairs of the inputs' vectors: [batch, pairs], or for
// a factorization machine their sum: [batch, 1].
// Errors: those of vector_inputs.h.
MadeLayer MakePairs(const LayerSource& source);

// Crosses the input with itself, layer by layer: x_{l+1} = x_0 (x_l W_l + b_l)
// + x_l. Variables kernel_0, bias_0, kernel_1, ...
// Errors: an input that is not [batch, width].
// Source: Wang et al., "DCN V2", WWW 2021, eq. 1.
MadeLayer MakeCross(const LayerSource& source);

}  // namespace weir

#endif  // WORKER_MODEL_LAYERS_LAYERS_H_
