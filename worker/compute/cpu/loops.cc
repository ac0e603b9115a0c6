// Sums of rows, pools, operations on single elements, copies and losses.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/math/random.h"
#include "worker/compute/cpu/operations.h"
#include "worker/compute/cpu/vectorize.h"

namespace weir::cpu {
namespace {

// Channels that one pass of a pooling window keeps in registers or L1.
constexpr int64_t kChunk = 64;

// The window of output row or column `out`, clipped to the image.
struct Window {
  int64_t begin = 0;
  int64_t end = 0;
};

// Padding lies outside of a clipped window and is never read, so it never wins
// a maximum and adds nothing to an average.
Window ClipWindow(const PoolShape& shape, int64_t out, int64_t extent) {
  const int64_t begin = out * shape.stride - shape.padding;
  return {std::max<int64_t>(begin, 0), std::min(begin + shape.size, extent)};
}

// One output pixel of max pooling over `count` <= kChunk channels. `index` gets
// the window position of the first largest.
WEIR_VECTORIZE
void MaxWindow(const PoolShape& shape, const Window& h, const Window& w,
               const float* image, int64_t count, float* best, int* index) {
  // Begins with the window's first pixel, at position 0. The comparisons below
  // are strict, so the first of equals stays.
  std::memcpy(best, image + (h.begin * shape.width + w.begin) * shape.channels,
              count * sizeof(float));
  std::fill(index, index + count, 0);
  int position = 0;
  for (int64_t i = h.begin; i < h.end; ++i) {
    for (int64_t j = w.begin; j < w.end; ++j, ++position) {
      const float* x = image + (i * shape.width + j) * shape.channels;
      for (int64_t c = 0; c < count; ++c) {
        // NaN wins, as in PyTorch. Selects in place of branches let the loop
        // over channels become vector instructions.
        const bool larger = x[c] > best[c] || x[c] != x[c];
        best[c] = larger ? x[c] : best[c];
        index[c] = larger ? position : index[c];
      }
    }
  }
}

// Windows overlap where the stride is smaller than the window, so a pixel's
// gradient is a sum. Adding 0 where another pixel won keeps the loop free of
// branches.
WEIR_VECTORIZE
void MaxScatter(const PoolShape& shape, const Window& h, const Window& w,
                const float* dy, int64_t count, const int* index,
                float* image) {
  int position = 0;
  for (int64_t i = h.begin; i < h.end; ++i) {
    for (int64_t j = w.begin; j < w.end; ++j, ++position) {
      float* dx = image + (i * shape.width + j) * shape.channels;
      for (int64_t c = 0; c < count; ++c) {
        dx[c] += index[c] == position ? dy[c] : 0.0f;
      }
    }
  }
}

WEIR_VECTORIZE
void AverageWindow(const PoolShape& shape, const Window& h, const Window& w,
                   const float* image, int64_t count, float* y) {
  // Padding counts in the divisor (operations.h), so it is the same for a
  // window that was clipped.
  const float factor = 1.0f / static_cast<float>(shape.size * shape.size);
  std::fill(y, y + count, 0.0f);
  for (int64_t i = h.begin; i < h.end; ++i) {
    for (int64_t j = w.begin; j < w.end; ++j) {
      const float* x = image + (i * shape.width + j) * shape.channels;
      for (int64_t c = 0; c < count; ++c) {
        y[c] += x[c];
      }
    }
  }
  for (int64_t c = 0; c < count; ++c) {
    y[c] *= factor;
  }
}

WEIR_VECTORIZE
void AverageScatter(const PoolShape& shape, const Window& h, const Window& w,
                    const float* dy, int64_t count, float* image) {
  const float factor = 1.0f / static_cast<float>(shape.size * shape.size);
  for (int64_t i = h.begin; i < h.end; ++i) {
    for (int64_t j = w.begin; j < w.end; ++j) {
      float* dx = image + (i * shape.width + j) * shape.channels;
      for (int64_t c = 0; c < count; ++c) {
        dx[c] += factor * dy[c];
      }
    }
  }
}

// Calls f(input offset of the image, output offset of the pixel, rows window,
// columns window, channel offset, channel count) for every output pixel and
// chunk of channels. I1: the order is that of the output, so a pixel under
// several windows gets its gradients in one order.
template <typename F>
void ForEachWindow(const PoolShape& s, F f) {
  const int64_t out_height = s.out_height();
  const int64_t out_width = s.out_width();
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t i = 0; i < out_height; ++i) {
      const Window h = ClipWindow(s, i, s.height);
      for (int64_t j = 0; j < out_width; ++j) {
        const Window w = ClipWindow(s, j, s.width);
        const int64_t out = ((b * out_height + i) * out_width + j) * s.channels;
        for (int64_t c = 0; c < s.channels; c += kChunk) {
          f(b * s.height * s.width * s.channels + c, out + c, h, w,
            std::min(kChunk, s.channels - c));
        }
      }
    }
  }
}

}  // namespace

WEIR_VECTORIZE
void Compute(const op::SumRows& o) {
  const auto [rows, width, x, sums] = o;
  // I1: a block of rows is added in float, row by row, and the blocks in
  // double. Each column is a lane, so no order depends on the width of a
  // vector.
  constexpr int64_t kBlock = 64;
  float part[kChunk];
  double total[kChunk];
  for (int64_t c = 0; c < width; c += kChunk) {
    const int64_t count = std::min(kChunk, width - c);
    std::fill(total, total + count, 0.0);
    for (int64_t begin = 0; begin < rows; begin += kBlock) {
      std::fill(part, part + count, 0.0f);
      const int64_t end = std::min(begin + kBlock, rows);
      for (int64_t r = begin; r < end; ++r) {
        const float* row = x + r * width + c;
        for (int64_t j = 0; j < count; ++j) {
          part[j] += row[j];
        }
      }
      for (int64_t j = 0; j < count; ++j) {
        total[j] += part[j];
      }
    }
    for (int64_t j = 0; j < count; ++j) {
      sums[c + j] = static_cast<float>(total[j]);
    }
  }
}

void Compute(const op::PoolForward& o) {
  ForEachWindow(o.shape, [&](int64_t image, int64_t out, const Window& h,
                             const Window& w, int64_t count) {
    if (o.kind == PoolKind::kMax) {
      int index[kChunk];
      MaxWindow(o.shape, h, w, o.x + image, count, o.y + out, index);
    } else {
      AverageWindow(o.shape, h, w, o.x + image, count, o.y + out);
    }
  });
}

void Compute(const op::PoolBackward& o) {
  std::fill_n(o.dx, o.shape.x_elements(), 0.0f);
  ForEachWindow(o.shape, [&](int64_t image, int64_t out, const Window& h,
                             const Window& w, int64_t count) {
    if (o.kind == PoolKind::kMax) {
      float best[kChunk];
      int index[kChunk];
      // Finds the winners again: the forward pass keeps no indexes, and reading
      // x costs less than storing them.
      MaxWindow(o.shape, h, w, o.x + image, count, best, index);
      MaxScatter(o.shape, h, w, o.dy + out, count, index, o.dx + image);
    } else {
      AverageScatter(o.shape, h, w, o.dy + out, count, o.dx + image);
    }
  });
}

namespace {

WEIR_VECTORIZE
void ReluForward(int64_t count, const float* x, float* y) {
  for (int64_t i = 0; i < count; ++i) {
    y[i] = x[i] <= 0.0f ? 0.0f : x[i];  // NaN stays NaN
  }
}

// From y in place of x: y is positive exactly where x was, so the layer may
// overwrite its input.
WEIR_VECTORIZE
void ReluBackward(int64_t count, const float* y, const float* dy, float* dx) {
  for (int64_t i = 0; i < count; ++i) {
    dx[i] = y[i] <= 0.0f ? 0.0f : dy[i];
  }
}

float Sigmoid(float x) {
  // exp of a negative number only, which never overflows. For x < 0 this is
  // e^x / (1 + e^x), the same value.
  const float e = std::exp(-std::fabs(x));
  return (x >= 0.0f ? 1.0f : e) / (1.0f + e);
}

}  // namespace

void Compute(const op::ActivationForward& o) {
  const auto [kind, count, x, y] = o;
  switch (kind) {
    case ActivationKind::kRelu:
      ReluForward(count, x, y);
      break;
    case ActivationKind::kSigmoid:
      for (int64_t i = 0; i < count; ++i) {
        y[i] = Sigmoid(x[i]);
      }
      break;
    case ActivationKind::kTanh:
      for (int64_t i = 0; i < count; ++i) {
        y[i] = std::tanh(x[i]);
      }
      break;
  }
}

WEIR_VECTORIZE
void Compute(const op::ActivationBackward& o) {
  const auto [kind, count, y, dy, dx] = o;
  switch (kind) {
    case ActivationKind::kRelu:
      ReluBackward(count, y, dy, dx);
      break;
    case ActivationKind::kSigmoid:
      for (int64_t i = 0; i < count; ++i) {
        dx[i] = dy[i] * (y[i] * (1.0f - y[i]));
      }
      break;
    case ActivationKind::kTanh:
      for (int64_t i = 0; i < count; ++i) {
        dx[i] = dy[i] * (1.0f - y[i] * y[i]);
      }
      break;
  }
}

void Compute(const op::Dropout& o, uint64_t key) {
  // Kept elements grow by 1 / (1 - rate), so that the expectation stays and
  // nothing is scaled when the model is evaluated.
  const float factor = 1.0f / (1.0f - o.rate);
  for (int64_t i = 0; i < o.count; i += 4) {
    // Word i % 4 of draw i / 4, as operations.h says. The mask follows from the
    // key alone, so the backward pass draws it again and nobody stores it.
    const std::array<uint32_t, 4> words =
        Philox(key, 0, static_cast<uint64_t>(i / 4));
    const int64_t n = std::min<int64_t>(4, o.count - i);
    for (int64_t j = 0; j < n; ++j) {
      o.y[i + j] = UnitFloat(words[j]) >= o.rate ? o.x[i + j] * factor : 0.0f;
    }
  }
}

WEIR_VECTORIZE
void Compute(const op::Add& o) {
  const auto [count, a, b, y] = o;
  for (int64_t i = 0; i < count; ++i) {
    y[i] = a[i] + b[i];
  }
}

WEIR_VECTORIZE
void Compute(const op::MultiplyAdd& o) {
  const auto [count, a, b, c, y] = o;
  if (c == nullptr) {
    for (int64_t i = 0; i < count; ++i) {
      y[i] = a[i] * b[i];
    }
    return;
  }
  // I1: contraction is off (vectorize.h), so every instruction set rounds the
  // product before it adds.
  for (int64_t i = 0; i < count; ++i) {
    y[i] = a[i] * b[i] + c[i];
  }
}

void ScaleAdd(int64_t count, float a, const float* x, float b, float* y) {
  for (int64_t i = 0; i < count; ++i) {
    y[i] = a * x[i] + b * y[i];
  }
}

void Compute(const op::CopyColumns& o) {
  for (int64_t r = 0; r < o.rows; ++r) {
    std::memcpy(o.y + r * o.y_stride, o.x + r * o.x_stride,
                o.width * sizeof(float));
  }
}

void Compute(const op::BytesToFloats& o) {
  for (int64_t i = 0; i < o.count; ++i) {
    o.y[i] = o.value_of_byte[o.x[i]];
  }
}

void Compute(const op::Transpose& o) {
  const auto [batch, rows, columns, x, y] = o;
  // Reads a tile of x by columns and writes it by rows. The lines of a tile
  // stay in L1, so each is loaded once although its floats are read one by one.
  constexpr int64_t kTile = 16;
  for (int64_t b = 0; b < batch; ++b) {
    const float* in = x + b * rows * columns;
    float* out = y + b * rows * columns;
    for (int64_t i = 0; i < rows; i += kTile) {
      const int64_t i_end = std::min(i + kTile, rows);
      for (int64_t j = 0; j < columns; j += kTile) {
        const int64_t j_end = std::min(j + kTile, columns);
        for (int64_t c = j; c < j_end; ++c) {
          for (int64_t r = i; r < i_end; ++r) {
            out[c * rows + r] = in[r * columns + c];
          }
        }
      }
    }
  }
}

namespace {

void SoftmaxCrossEntropy(const op::Loss& o) {
  const auto [kind, rows, width, x, labels, row_loss, row_correct, dx] = o;
  // dx is the gradient of the mean over the rows.
  const double scale = 1.0 / static_cast<double>(rows);
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x + r * width;
    const auto label = static_cast<int64_t>(labels[r]);
    // max_element gives the first of equals, as row_correct wants it.
    const int64_t best = std::max_element(row, row + width) - row;
    // log(sum exp(x)) = max + log(sum exp(x - max)): no exponent is above 0, so
    // nothing overflows. I1: the sum may be of many thousand classes.
    double sum = 0.0;
    for (int64_t j = 0; j < width; ++j) {
      sum += static_cast<double>(std::exp(row[j] - row[best]));
    }
    row_loss[r] = static_cast<float>(
        std::log(sum) - (static_cast<double>(row[label]) - row[best]));
    row_correct[r] = static_cast<float>(best == label);
    if (dx != nullptr) {
      // d loss / d x[j] = softmax(x)[j] - (j is the label).
      const auto factor = static_cast<float>(scale / sum);
      for (int64_t j = 0; j < width; ++j) {
        const float p = std::exp(row[j] - row[best]) * factor;
        dx[r * width + j] = j == label ? p - static_cast<float>(scale) : p;
      }
    }
  }
}

// The width is 1 by contract.
void SigmoidCrossEntropy(const op::Loss& o) {
  const auto [kind, rows, width, x, labels, row_loss, row_correct, dx] = o;
  const float scale = 1.0f / static_cast<float>(rows);
  for (int64_t r = 0; r < rows; ++r) {
    const float z = labels[r];
    // -z log(s(x)) - (1 - z) log(1 - s(x)), in a form whose exponent is never
    // above 0.
    row_loss[r] = std::max(x[r], 0.0f) - x[r] * z +
                  std::log1p(std::exp(-std::fabs(x[r])));
    row_correct[r] = static_cast<float>((x[r] > 0.0f) == (z > 0.5f));
    if (dx != nullptr) {
      // s(x) - z without the difference: where z is 1 it is -s(-x), which keeps
      // its digits when s(x) is nearly 1.
      dx[r] = scale * (z * -Sigmoid(-x[r]) + (1.0f - z) * Sigmoid(x[r]));
    }
  }
}

void MeanSquaredError(const op::Loss& o) {
  const auto [kind, rows, width, x, labels, row_loss, row_correct, dx] = o;
  // A row's loss is its mean over width, and dx belongs to the mean of the
  // rows.
  const auto factor =
      static_cast<float>(2.0 / static_cast<double>(rows * width));
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0.0;
    for (int64_t j = 0; j < width; ++j) {
      const float d = x[r * width + j] - labels[r * width + j];
      sum += static_cast<double>(d) * d;
      if (dx != nullptr) {
        dx[r * width + j] = factor * d;
      }
    }
    row_loss[r] = static_cast<float>(sum / static_cast<double>(width));
    row_correct[r] = 0.0f;
  }
}

}  // namespace

void Compute(const op::Loss& o) {
  switch (o.kind) {
    case LossKind::kSoftmaxCrossEntropy:
      return SoftmaxCrossEntropy(o);
    case LossKind::kSigmoidCrossEntropy:
      return SigmoidCrossEntropy(o);
    case LossKind::kMeanSquaredError:
      return MeanSquaredError(o);
  }
}

}  // namespace weir::cpu
