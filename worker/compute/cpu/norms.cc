// Normalisations.
#include <algorithm>
#include <cmath>

#include "worker/compute/cpu/operations.h"
#include "worker/compute/cpu/vectorize.h"

namespace weir::cpu {
namespace {

constexpr int kLanes = 16;
constexpr int64_t kChunk = 64;  // channels of one pass; stays in L1
constexpr int64_t kBlock = 64;  // rows summed in float before double takes over

#define WEIR_INLINE __attribute__((always_inline)) inline

// Sum of f(i) over [0, count). I1 of operations.h: it always has kLanes lanes,
// a whole number of vectors of every instruction set, and a lane adds every
// kLanes-th term. The tail and then the lanes are added in double, in order.
template <typename F>
WEIR_INLINE double LaneSum(int64_t count, F f) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      lanes[l] += f(i + l);
    }
  }
  double sum = 0.0;
  for (; i < count; ++i) {
    sum += f(i);
  }
  for (int l = 0; l < kLanes; ++l) {
    sum += lanes[l];
  }
  return sum;
}

// totals[j] = sum over rows of f(row, j) for j in [0, count), count <= kChunk.
// I1 of operations.h: a block of rows is added in float, row by row, and the
// blocks in double; each column is a lane.
template <typename F>
WEIR_INLINE void ColumnSums(int64_t rows, int64_t count, double* totals, F f) {
  float part[kChunk];
  std::fill(totals, totals + count, 0.0);
  for (int64_t begin = 0; begin < rows; begin += kBlock) {
    std::fill(part, part + count, 0.0f);
    const int64_t end = std::min(begin + kBlock, rows);
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t j = 0; j < count; ++j) {
        part[j] += f(r, j);
      }
    }
    for (int64_t j = 0; j < count; ++j) {
      totals[j] += part[j];
    }
  }
}

WEIR_VECTORIZE
void NormaliseRows(const op::NormForward& o) {
  const int64_t width = o.width;
  for (int64_t r = 0; r < o.rows; ++r) {
    const float* in = o.x + r * width;
    float* out = o.y + r * width;
    const double n = static_cast<double>(width);
    const auto m = static_cast<float>(
        LaneSum(width, [&](int64_t i) { return in[i]; }) / n);
    // A second pass over the row: the mean of squares less the square of the
    // mean would cancel where the mean is far from zero.
    const double variance = LaneSum(width,
                                    [&](int64_t i) {
                                      const float d = in[i] - m;
                                      return d * d;
                                    }) /
                            n;
    const auto s = static_cast<float>(1.0 / std::sqrt(variance + o.epsilon));
    for (int64_t i = 0; i < width; ++i) {
      out[i] = (in[i] - m) * s * o.scale[i] + o.offset[i];
    }
    o.mean[r] = m;
    o.rstd[r] = s;
  }
}

WEIR_VECTORIZE
void RowGradients(const op::NormBackward& o) {
  const int64_t width = o.width;
  // Scale and offset are by column, so their gradients are sums over the rows:
  // doffset = sum of dy, dscale = sum of dy * xhat, xhat = (x - mean) * rstd.
  double totals[kChunk];
  for (int64_t c = 0; c < width; c += kChunk) {
    const int64_t count = std::min(kChunk, width - c);
    ColumnSums(o.rows, count, totals,
               [&](int64_t r, int64_t j) { return o.dy[r * width + c + j]; });
    std::copy(totals, totals + count, o.doffset + c);
    ColumnSums(o.rows, count, totals, [&](int64_t r, int64_t j) {
      const int64_t i = r * width + c + j;
      return o.dy[i] * ((o.x[i] - o.mean[r]) * o.rstd[r]);
    });
    std::copy(totals, totals + count, o.dscale + c);
  }
  if (o.dx == nullptr) {
    return;
  }
  // Mean and rstd depend on x, too. With g = dy * scale:
  // dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), means over the row.
  for (int64_t r = 0; r < o.rows; ++r) {
    const float* in = o.x + r * width;
    const float* g = o.dy + r * width;
    const float m = o.mean[r];
    const float s = o.rstd[r];
    const double n = static_cast<double>(width);
    const auto g_mean = static_cast<float>(
        LaneSum(width, [&](int64_t i) { return g[i] * o.scale[i]; }) / n);
    const auto gx_mean = static_cast<float>(LaneSum(width,
                                                    [&](int64_t i) {
                                                      return g[i] * o.scale[i] *
                                                             ((in[i] - m) * s);
                                                    }) /
                                            n);
    for (int64_t i = 0; i < width; ++i) {
      o.dx[r * width + i] =
          s * (g[i] * o.scale[i] - g_mean - (in[i] - m) * s * gx_mean);
    }
  }
}

WEIR_VECTORIZE
void NormaliseColumns(const op::NormForward& o) {
  const int64_t channels = o.width;
  double totals[kChunk];
  const double n = static_cast<double>(o.rows);
  for (int64_t c = 0; c < channels; c += kChunk) {
    const int64_t count = std::min(kChunk, channels - c);
    float m[kChunk];
    float factor[kChunk];
    const float* in = o.x + c;
    ColumnSums(o.rows, count, totals,
               [&](int64_t r, int64_t j) { return in[r * channels + j]; });
    for (int64_t j = 0; j < count; ++j) {
      m[j] = static_cast<float>(totals[j] / n);
    }
    // The second pass again, now that the mean is known: no cancellation.
    ColumnSums(o.rows, count, totals, [&](int64_t r, int64_t j) {
      const float d = in[r * channels + j] - m[j];
      return d * d;
    });
    for (int64_t j = 0; j < count; ++j) {
      const auto s =
          static_cast<float>(1.0 / std::sqrt(totals[j] / n + o.epsilon));
      o.mean[c + j] = m[j];
      o.rstd[c + j] = s;
      // The unbiased variance is for the moving average, as in PyTorch. With a
      // single row totals[j] is 0, and so is this.
      o.variance[c + j] =
          static_cast<float>(totals[j] / std::max(n - 1.0, 1.0));
      factor[j] = s * o.scale[c + j];
    }
    for (int64_t r = 0; r < o.rows; ++r) {
      for (int64_t j = 0; j < count; ++j) {
        o.y[r * channels + c + j] =
            (in[r * channels + j] - m[j]) * factor[j] + o.offset[c + j];
      }
    }
  }
}

WEIR_VECTORIZE
void ColumnGradients(const op::NormBackward& o) {
  const int64_t channels = o.width;
  double totals[kChunk];
  const double n = static_cast<double>(o.rows);
  for (int64_t c = 0; c < channels; c += kChunk) {
    const int64_t count = std::min(kChunk, channels - c);
    const float* in = o.x + c;
    const float* g = o.dy + c;
    const float* m = o.mean + c;
    const float* s = o.rstd + c;
    // dx = scale * rstd * (dy - mean(dy) - xhat * mean(dy * xhat)), means over
    // the rows; they are the gradients of offset and scale, divided by n.
    // Source: Ioffe, Szegedy, "Batch Normalization", 2015, section 3.
    float g_mean[kChunk];
    float x_factor[kChunk];
    ColumnSums(o.rows, count, totals,
               [&](int64_t r, int64_t j) { return g[r * channels + j]; });
    for (int64_t j = 0; j < count; ++j) {
      o.doffset[c + j] = static_cast<float>(totals[j]);
      g_mean[j] = static_cast<float>(totals[j] / n);
    }
    ColumnSums(o.rows, count, totals, [&](int64_t r, int64_t j) {
      return g[r * channels + j] * ((in[r * channels + j] - m[j]) * s[j]);
    });
    for (int64_t j = 0; j < count; ++j) {
      o.dscale[c + j] = static_cast<float>(totals[j]);
      x_factor[j] = static_cast<float>(totals[j] / n * s[j]);
    }
    if (o.dx == nullptr) {
      continue;
    }
    for (int64_t r = 0; r < o.rows; ++r) {
      for (int64_t j = 0; j < count; ++j) {
        const int64_t i = r * channels + j;
        o.dx[i + c] = o.scale[c + j] * s[j] *
                      (g[i] - g_mean[j] - (in[i] - m[j]) * x_factor[j]);
      }
    }
  }
}

}  // namespace

void Compute(const op::NormForward& o) {
  o.over == NormOver::kRow ? NormaliseRows(o) : NormaliseColumns(o);
}

void Compute(const op::NormBackward& o) {
  o.over == NormOver::kRow ? RowGradients(o) : ColumnGradients(o);
}

void Compute(const op::NormInference& o) {
  const auto [rows, channels, epsilon, x, scale, offset, mean, variance, y] = o;
  // Divides once for a channel, in double, and then passes over the rows in
  // float.
  for (int64_t c = 0; c < channels; c += kChunk) {
    const int64_t count = std::min(kChunk, channels - c);
    float factor[kChunk];
    for (int64_t j = 0; j < count; ++j) {
      factor[j] = static_cast<float>(
          scale[c + j] /
          std::sqrt(static_cast<double>(variance[c + j]) + epsilon));
    }
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t j = 0; j < count; ++j) {
        const int64_t i = r * channels + c + j;
        y[i] = (x[i] - mean[c + j]) * factor[j] + offset[c + j];
      }
    }
  }
}

}  // namespace weir::cpu
