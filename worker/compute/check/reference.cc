#include "worker/compute/check/reference.h"

#include <algorithm>
#include <cmath>

namespace weir::reference {
namespace {

// Calls f(output index, input index or -1 in the padding, position in the
// window) for every element of every window, for one channel.
template <typename F>
void ForEachTap(int64_t height, int64_t width, int64_t out_height,
                int64_t out_width, int64_t size, int64_t stride,
                int64_t padding, F f) {
  for (int64_t oi = 0; oi < out_height; ++oi) {
    for (int64_t oj = 0; oj < out_width; ++oj) {
      for (int64_t ki = 0; ki < size; ++ki) {
        for (int64_t kj = 0; kj < size; ++kj) {
          const int64_t i = oi * stride + ki - padding;
          const int64_t j = oj * stride + kj - padding;
          int64_t in = -1;
          if (i >= 0 && i < height && j >= 0 && j < width) {
            in = i * width + j;
          }
          f(oi * out_width + oj, in, ki * size + kj);
        }
      }
    }
  }
}

// Calls f(first element of y's pixel, of x's pixel, of the packed kernel's tap)
// wherever a convolution multiplies.
template <typename F>
void ForEachProduct(const Conv2dShape& s, F f) {
  const int64_t out_pixels = s.out_height() * s.out_width();
  for (int64_t b = 0; b < s.batch; ++b) {
    ForEachTap(s.height, s.width, s.out_height(), s.out_width(), s.kernel,
               s.stride, s.padding, [&](int64_t out, int64_t in, int64_t tap) {
                 if (in >= 0) {
                   f((b * out_pixels + out) * s.filters,
                     (b * s.height * s.width + in) * s.channels,
                     tap * s.channels * s.filters);
                 }
               });
  }
}

// [filters, channels, taps] to [taps, channels, filters]: the innermost loops
// then run over neighbours. Its own inverse but for the order of the counts.
Values Pack(int64_t filters, int64_t channels, int64_t taps,
            const Values& kernel) {
  Values packed(kernel.size());
  for (int64_t o = 0; o < filters; ++o) {
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t t = 0; t < taps; ++t) {
        packed[(t * channels + c) * filters + o] =
            kernel[(o * channels + c) * taps + t];
      }
    }
  }
  return packed;
}

// Calls f(y index, x index or -1) for every element of every pooling window.
template <typename F>
void ForEachPooled(const PoolShape& s, F f) {
  const int64_t out_pixels = s.out_height() * s.out_width();
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t c = 0; c < s.channels; ++c) {
      ForEachTap(s.height, s.width, s.out_height(), s.out_width(), s.size,
                 s.stride, s.padding, [&](int64_t out, int64_t in, int64_t) {
                   int64_t x = -1;
                   if (in >= 0) {
                     x = (b * s.height * s.width + in) * s.channels + c;
                   }
                   f((b * out_pixels + out) * s.channels + c, x);
                 });
    }
  }
}

int64_t PoolOutputs(const PoolShape& s) {
  return s.batch * s.out_height() * s.out_width() * s.channels;
}

// The input index of each output's maximum, the first of equals. A window
// always has an element outside of the padding.
std::vector<int64_t> FirstMaxima(const PoolShape& shape, const Values& x) {
  std::vector<int64_t> best(PoolOutputs(shape), -1);
  ForEachPooled(shape, [&](int64_t out, int64_t in) {
    if (in >= 0 && (best[out] < 0 || x[in] > x[best[out]])) {
      best[out] = in;
    }
  });
  return best;
}

double SigmoidOf(double x) { return 1.0 / (1.0 + std::exp(-x)); }

double ActivationOf(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::kRelu:
      return std::max(x, 0.0);
    case ActivationKind::kSigmoid:
      return SigmoidOf(x);
    case ActivationKind::kTanh:
      return std::tanh(x);
  }
  return 0.0;
}

// The derivative, from x itself: a backend has to compute it from y.
double SlopeOf(ActivationKind kind, double x) {
  const double s = SigmoidOf(x);
  const double c = std::cosh(x);
  switch (kind) {
    case ActivationKind::kRelu:
      return static_cast<double>(x > 0.0);
    case ActivationKind::kSigmoid:
      return s * (1.0 - s);
    case ActivationKind::kTanh:
      return 1.0 / (c * c);
  }
  return 0.0;
}

// The groups of elements of x [rows, width] that are normalised together.
struct Groups {
  Groups(NormOver over, int64_t rows, int64_t width)
      : by_row(over == NormOver::kRow),
        width(width),
        count(width),
        size(static_cast<double>(rows)) {
    if (by_row) {
      count = rows;
      size = static_cast<double>(width);
    }
  }
  int64_t Of(int64_t i) const {
    if (by_row) {
      return i / width;
    }
    return i % width;
  }

  const bool by_row;
  const int64_t width;
  int64_t count;
  double size;  // elements of a group
};

double WeightOf(const Lists& lists, int32_t entry) {
  if (lists.weights.empty()) {
    return 1.0;
  }
  return lists.weights[entry];
}

}  // namespace

Values MatMul(const MatMulShape& s, const Values& a, const Values& b,
              const Values& bias) {
  // How far a step along the rows, or the columns, of op(A) and op(B) goes.
  int64_t a_row = s.k;
  int64_t a_column = 1;
  if (s.transpose_a) {
    a_row = 1;
    a_column = s.m;
  }
  int64_t b_row = s.n;
  int64_t b_column = 1;
  if (s.transpose_b) {
    b_row = 1;
    b_column = s.k;
  }
  Values c(s.m * s.n);
  for (int64_t i = 0; i < s.m; ++i) {
    double* row = c.data() + i * s.n;
    if (!bias.empty()) {
      std::copy(bias.begin(), bias.end(), row);
    }
    for (int64_t k = 0; k < s.k; ++k) {
      const double factor = a[i * a_row + k * a_column];
      const double* others = b.data() + k * b_row;
      for (int64_t j = 0; j < s.n; ++j) {
        row[j] += factor * others[j * b_column];
      }
    }
  }
  return c;
}

Values Conv2d(const Conv2dShape& s, const Values& x, const Values& kernel,
              const Values& bias) {
  Values y(s.batch * s.out_height() * s.out_width() * s.filters);
  for (size_t i = 0; i < y.size() && !bias.empty(); ++i) {
    y[i] = bias[i % s.filters];
  }
  const Values packed =
      Pack(s.filters, s.channels, s.kernel * s.kernel, kernel);
  ForEachProduct(s, [&](int64_t out, int64_t in, int64_t tap) {
    for (int64_t c = 0; c < s.channels; ++c) {
      for (int64_t o = 0; o < s.filters; ++o) {
        y[out + o] += x[in + c] * packed[tap + c * s.filters + o];
      }
    }
  });
  return y;
}

Conv2dGradients Conv2dBackward(const Conv2dShape& s, const Values& x,
                               const Values& kernel, const Values& dy) {
  Conv2dGradients d{Values(x.size()), {}, Values(s.filters)};
  const int64_t taps = s.kernel * s.kernel;
  const Values packed = Pack(s.filters, s.channels, taps, kernel);
  Values dpacked(kernel.size());
  ForEachProduct(s, [&](int64_t out, int64_t in, int64_t tap) {
    for (int64_t c = 0; c < s.channels; ++c) {
      double sum = 0.0;
      for (int64_t o = 0; o < s.filters; ++o) {
        const int64_t k = tap + c * s.filters + o;
        sum += dy[out + o] * packed[k];
        dpacked[k] += dy[out + o] * x[in + c];
      }
      d.x[in + c] += sum;
    }
  });
  d.kernel = Pack(taps, s.channels, s.filters, dpacked);
  for (size_t i = 0; i < dy.size(); ++i) {
    d.bias[i % s.filters] += dy[i];
  }
  return d;
}

Values Pool(PoolKind kind, const PoolShape& shape, const Values& x) {
  Values y(PoolOutputs(shape));
  if (kind == PoolKind::kMax) {
    const std::vector<int64_t> best = FirstMaxima(shape, x);
    for (size_t i = 0; i < y.size(); ++i) {
      y[i] = x[best[i]];
    }
  } else {
    // Padding counts in the divisor, as operations.h says, and adds nothing.
    ForEachPooled(shape, [&](int64_t out, int64_t in) {
      if (in >= 0) {
        y[out] += x[in] / (shape.size * shape.size);
      }
    });
  }
  return y;
}

Values PoolBackward(PoolKind kind, const PoolShape& shape, const Values& x,
                    const Values& dy) {
  Values dx(x.size());
  if (kind == PoolKind::kMax) {
    const std::vector<int64_t> best = FirstMaxima(shape, x);
    for (size_t i = 0; i < dy.size(); ++i) {
      dx[best[i]] += dy[i];
    }
  } else {
    ForEachPooled(shape, [&](int64_t out, int64_t in) {
      if (in >= 0) {
        dx[in] += dy[out] / (shape.size * shape.size);
      }
    });
  }
  return dx;
}

Values Activation(ActivationKind kind, const Values& x) {
  Values y;
  for (const double v : x) {
    y.push_back(ActivationOf(kind, v));
  }
  return y;
}

Values ActivationBackward(ActivationKind kind, const Values& x,
                          const Values& dy) {
  Values dx;
  for (size_t i = 0; i < x.size(); ++i) {
    dx.push_back(dy[i] * SlopeOf(kind, x[i]));
  }
  return dx;
}

NormResult Norm(NormOver over, int64_t rows, int64_t width, double epsilon,
                const Values& x, const Values& scale, const Values& offset) {
  const Groups groups(over, rows, width);
  NormResult result{Values(x.size()), Values(groups.count),
                    Values(groups.count)};
  for (int64_t i = 0; i < rows * width; ++i) {
    result.mean[groups.Of(i)] += x[i] / groups.size;
  }
  for (int64_t i = 0; i < rows * width; ++i) {
    const double d = x[i] - result.mean[groups.Of(i)];
    result.variance[groups.Of(i)] += d * d / groups.size;
  }
  for (int64_t i = 0; i < rows * width; ++i) {
    const int64_t g = groups.Of(i);
    result.y[i] = (x[i] - result.mean[g]) /
                      std::sqrt(result.variance[g] + epsilon) *
                      scale[i % width] +
                  offset[i % width];
  }
  return result;
}

NormGradients NormBackward(NormOver over, int64_t rows, int64_t width,
                           double epsilon, const Values& x, const Values& scale,
                           const Values& dy) {
  const Groups groups(over, rows, width);
  const double n = groups.size;
  // With scale 1 and offset 0 the result is xhat, the normalised x.
  const NormResult forward = Norm(over, rows, width, epsilon, x,
                                  Values(width, 1.0), Values(width, 0.0));
  NormGradients d{Values(x.size()), Values(width), Values(width)};
  Values sum(groups.count);
  Values sum_y(groups.count);
  for (int64_t i = 0; i < rows * width; ++i) {
    d.scale[i % width] += dy[i] * forward.y[i];
    d.offset[i % width] += dy[i];
    sum[groups.Of(i)] += dy[i] * scale[i % width];
    sum_y[groups.Of(i)] += dy[i] * scale[i % width] * forward.y[i];
  }
  // dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), g = dy * scale.
  for (int64_t i = 0; i < rows * width; ++i) {
    const int64_t g = groups.Of(i);
    d.x[i] =
        (dy[i] * scale[i % width] - sum[g] / n - forward.y[i] * sum_y[g] / n) /
        std::sqrt(forward.variance[g] + epsilon);
  }
  return d;
}

Values LossRows(LossKind kind, int64_t rows, int64_t width, const Values& x,
                const Values& labels) {
  Values loss(rows);
  for (int64_t r = 0; r < rows; ++r) {
    const double* row = x.data() + r * width;
    if (kind == LossKind::kSoftmaxCrossEntropy) {
      double sum = 0.0;
      for (int64_t j = 0; j < width; ++j) {
        sum += std::exp(row[j]);
      }
      loss[r] = std::log(sum) - row[static_cast<int64_t>(labels[r])];
    } else if (kind == LossKind::kSigmoidCrossEntropy) {
      const double p = SigmoidOf(row[0]);
      loss[r] = -(labels[r] * std::log(p) + (1 - labels[r]) * std::log(1 - p));
    } else {
      for (int64_t j = 0; j < width; ++j) {
        const double e = row[j] - labels[r * width + j];
        loss[r] += e * e / static_cast<double>(width);
      }
    }
  }
  return loss;
}

Values LossBackward(LossKind kind, int64_t rows, int64_t width, const Values& x,
                    const Values& labels) {
  Values dx(x.size());
  const double n = static_cast<double>(rows);
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0.0;
    for (int64_t j = 0; j < width; ++j) {
      sum += std::exp(x[r * width + j]);
    }
    for (int64_t j = 0; j < width; ++j) {
      const int64_t i = r * width + j;
      if (kind == LossKind::kSoftmaxCrossEntropy) {
        const bool hit = j == static_cast<int64_t>(labels[r]);
        dx[i] = (std::exp(x[i]) / sum - static_cast<double>(hit)) / n;
      } else if (kind == LossKind::kSigmoidCrossEntropy) {
        dx[i] = (SigmoidOf(x[i]) - labels[r]) / n;
      } else {
        dx[i] = 2.0 * (x[i] - labels[i]) / (n * static_cast<double>(width));
      }
    }
  }
  return dx;
}

Values GatherSum(const Lists& lists, int64_t width, const Values& x) {
  Values y(lists.count() * width);
  for (int64_t l = 0; l < lists.count(); ++l) {
    for (int32_t e = lists.offsets[l]; e < lists.offsets[l + 1]; ++e) {
      for (int64_t j = 0; j < width; ++j) {
        y[l * width + j] += WeightOf(lists, e) * x[lists.index[e] * width + j];
      }
    }
  }
  return y;
}

Values GatherSumBackward(const Lists& lists, int64_t rows, int64_t width,
                         const Values& dy) {
  Values dx(rows * width);
  for (int64_t l = 0; l < lists.count(); ++l) {
    for (int32_t e = lists.offsets[l]; e < lists.offsets[l + 1]; ++e) {
      for (int64_t j = 0; j < width; ++j) {
        dx[lists.index[e] * width + j] +=
            WeightOf(lists, e) * dy[l * width + j];
      }
    }
  }
  return dx;
}

MaxResult GatherMax(const Lists& lists, int64_t width, const Values& x) {
  MaxResult max{Values(lists.count() * width),
                std::vector<int32_t>(lists.count() * width, -1)};
  for (int64_t i = 0; i < lists.count() * width; ++i) {
    const int64_t l = i / width;
    for (int32_t e = lists.offsets[l]; e < lists.offsets[l + 1]; ++e) {
      const double value = x[lists.index[e] * width + i % width];
      if (max.chosen[i] < 0 || value > max.y[i]) {
        max.y[i] = value;
        max.chosen[i] = lists.index[e];
      }
    }
  }
  return max;
}

Values GatherMaxBackward(const std::vector<int32_t>& chosen, int64_t rows,
                         int64_t width, const Values& dy) {
  Values dx(rows * width);
  for (size_t i = 0; i < dy.size(); ++i) {
    if (chosen[i] >= 0) {
      dx[chosen[i] * width + static_cast<int64_t>(i) % width] += dy[i];
    }
  }
  return dx;
}

Values PairDots(const VectorsShape& shape, const Values& x) {
  Values y;
  for (int64_t b = 0; b < shape.batch; ++b) {
    const double* v = x.data() + b * shape.vectors * shape.dim;
    for (int64_t i = 0; i < shape.vectors; ++i) {
      for (int64_t j = 0; j < i; ++j) {
        double dot = 0.0;
        for (int64_t k = 0; k < shape.dim; ++k) {
          dot += v[i * shape.dim + k] * v[j * shape.dim + k];
        }
        y.push_back(dot);
      }
    }
  }
  return y;
}

Values PairDotsBackward(const VectorsShape& shape, const Values& x,
                        const Values& dy) {
  Values dx(x.size());
  size_t pair = 0;
  for (int64_t b = 0; b < shape.batch; ++b) {
    const int64_t begin = b * shape.vectors;
    for (int64_t i = begin; i < begin + shape.vectors; ++i) {
      for (int64_t j = begin; j < i; ++j, ++pair) {
        for (int64_t k = 0; k < shape.dim; ++k) {
          dx[i * shape.dim + k] += dy[pair] * x[j * shape.dim + k];
          dx[j * shape.dim + k] += dy[pair] * x[i * shape.dim + k];
        }
      }
    }
  }
  return dx;
}

}  // namespace weir::reference
