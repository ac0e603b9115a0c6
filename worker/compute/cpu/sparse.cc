// Operations on rows of tables: gathers over lists of rows, and interactions of
// vectors.
#include <algorithm>
#include <vector>

#include "worker/compute/cpu/operations.h"
#include "worker/compute/cpu/vectorize.h"

namespace weir::cpu {
namespace {

constexpr int64_t kChunk = 64;  // columns of one pass; stays in registers or L1
constexpr int64_t kBlock = 64;  // terms summed before their sum is added
constexpr int64_t kAhead = 16;  // entries that a row is fetched early by

#define WEIR_INLINE __attribute__((always_inline)) inline
// A lambda that is not inlined is compiled once, for the oldest machine.
#define WEIR_INLINE_LAMBDA __attribute__((always_inline))

// Calls f(first column, columns) with columns <= kChunk. The widths that tables
// have are constants here, so that their sums stay in registers.
template <typename F>
WEIR_INLINE void ForEachChunk(int64_t width, F f) {
  for (int64_t c = 0; c < width; c += kChunk) {
    switch (std::min(kChunk, width - c)) {
      case 1:
        f(c, 1);
        break;
      case 4:
        f(c, 4);
        break;
      case 8:
        f(c, 8);
        break;
      case 16:
        f(c, 16);
        break;
      case 32:
        f(c, 32);
        break;
      case 64:
        f(c, 64);
        break;
      default:
        f(c, std::min(kChunk, width - c));
    }
  }
}

// y[l] = the sum of term(list, entry, column) over list l, for `count` columns.
// fetch(entry) learns early which entry comes.
// I1 of operations.h: entries are added in their order. kBlock of them are
// summed on their own first, so the rounding error of a list of n grows with
// n / kBlock + kBlock in place of n.
template <typename Fetch, typename Term>
WEIR_INLINE void SumLists(const RowLists& lists, int64_t width, int64_t count,
                          bool add, float* y, Fetch fetch, Term term) {
  const int64_t last = lists.offsets[lists.count];
  for (int64_t l = 0; l < lists.count; ++l) {
    float total[kChunk];
    float* out = y + l * width;
    for (int64_t j = 0; j < count; ++j) {
      total[j] = add ? out[j] : 0.0f;
    }
    const int64_t end = lists.offsets[l + 1];
    for (int64_t b = lists.offsets[l]; b < end; b += kBlock) {
      float part[kChunk] = {};
      for (int64_t e = b; e < std::min(b + kBlock, end); ++e) {
        // Rows lie anywhere in a table that fits no cache. The end of the last
        // list asks for its last row again: there is no entry behind it.
        fetch(std::min(e + kAhead, last - 1));
        for (int64_t j = 0; j < count; ++j) {
          part[j] += term(l, e, j);
        }
      }
      for (int64_t j = 0; j < count; ++j) {
        total[j] += part[j];
      }
    }
    std::copy(total, total + count, out);
  }
}

// [vectors, dim] to [dim, vectors].
void TransposeSample(const VectorsShape& shape, const float* x, float* y) {
  for (int64_t i = 0; i < shape.vectors; ++i) {
    for (int64_t k = 0; k < shape.dim; ++k) {
      y[k * shape.vectors + i] = x[i * shape.dim + k];
    }
  }
}

// Where the products of vector i with those before it begin.
int64_t FirstPair(int64_t i) { return i * (i - 1) / 2; }

}  // namespace

WEIR_VECTORIZE
void Compute(const op::GatherSum& o) {
  const RowLists& lists = o.lists;
  const int64_t width = o.width;
  const float* x = o.x;
  const int32_t* index = lists.index;
  const float* weights = lists.weights;
  // A loop of its own for lists without weights: those are the common case, and
  // a test within would be made for every element.
  ForEachChunk(width, [&](int64_t c, int64_t count) WEIR_INLINE_LAMBDA {
    const auto row = [&](int64_t e) { return x + index[e] * width + c; };
    const auto fetch = [&](int64_t e) { __builtin_prefetch(row(e)); };
    if (weights == nullptr) {
      SumLists(lists, width, count, o.add, o.y + c, fetch,
               [&](int64_t, int64_t e, int64_t j) { return row(e)[j]; });
    } else {
      SumLists(lists, width, count, o.add, o.y + c, fetch,
               [&](int64_t, int64_t e, int64_t j) {
                 return weights[e] * row(e)[j];
               });
    }
  });
}

WEIR_VECTORIZE
void Compute(const op::GatherChosen& o) {
  const int64_t width = o.width;
  const float* x = o.x;
  const int32_t* chosen = o.chosen;
  const int32_t* index = o.lists.index;
  ForEachChunk(width, [&](int64_t c, int64_t count) WEIR_INLINE_LAMBDA {
    SumLists(
        o.lists, width, count, o.add, o.y + c,
        [&](int64_t e) { __builtin_prefetch(x + index[e] * width + c); },
        [&](int64_t l, int64_t e, int64_t j) {
          const int64_t i = index[e] * width + c + j;
          // A select, not a branch: which list was chosen differs from column
          // to column of a row.
          return chosen[i] == static_cast<int32_t>(l) ? x[i] : 0.0f;
        });
  });
}

WEIR_VECTORIZE
void Compute(const op::GatherMax& o) {
  const RowLists& lists = o.lists;
  const int64_t width = o.width;
  ForEachChunk(width, [&](int64_t c, int64_t count) WEIR_INLINE_LAMBDA {
    for (int64_t l = 0; l < lists.count; ++l) {
      // An empty list leaves zeros and -1.
      float best[kChunk] = {};
      int32_t which[kChunk];
      std::fill(which, which + count, -1);
      const int64_t begin = lists.offsets[l];
      for (int64_t e = begin; e < lists.offsets[l + 1]; ++e) {
        const int32_t row = lists.index[e];
        const float* in = o.x + row * width + c;
        // The first entry always wins over the zeros, which are no value.
        const bool first = e == begin;
        for (int64_t j = 0; j < count; ++j) {
          const bool larger = first || in[j] > best[j] || in[j] != in[j];
          best[j] = larger ? in[j] : best[j];
          which[j] = larger ? row : which[j];
        }
      }
      std::copy(best, best + count, o.y + l * width + c);
      std::copy(which, which + count, o.chosen + l * width + c);
    }
  });
}

namespace {

// By pairs (i, the sum of those before i), and not by the square of the sum
// less the sum of squares, which cancels.
WEIR_VECTORIZE
void SumOfProducts(const VectorsShape& shape, const float* x, float* y) {
  for (int64_t b = 0; b < shape.batch; ++b) {
    const float* sample = x + b * shape.vectors * shape.dim;
    double sum = 0.0;
    for (int64_t c = 0; c < shape.dim; c += kChunk) {
      const int64_t count = std::min(kChunk, shape.dim - c);
      float before[kChunk] = {};
      float products[kChunk] = {};
      for (int64_t i = 0; i < shape.vectors; ++i) {
        const float* v = sample + i * shape.dim + c;
        for (int64_t j = 0; j < count; ++j) {
          products[j] += v[j] * before[j];
          before[j] += v[j];
        }
      }
      for (int64_t j = 0; j < count; ++j) {
        sum += products[j];
      }
    }
    y[b] = static_cast<float>(sum);
  }
}

// Each vector is multiplied with every other one, so its gradient is dy times
// the sum of all vectors less itself.
WEIR_VECTORIZE
void SumOfProductsBackward(const VectorsShape& shape, const float* x,
                           const float* dy, float* dx) {
  for (int64_t b = 0; b < shape.batch; ++b) {
    const int64_t begin = b * shape.vectors * shape.dim;
    for (int64_t c = 0; c < shape.dim; c += kChunk) {
      const int64_t count = std::min(kChunk, shape.dim - c);
      float sum[kChunk] = {};
      for (int64_t i = 0; i < shape.vectors; ++i) {
        const float* v = x + begin + i * shape.dim + c;
        for (int64_t j = 0; j < count; ++j) {
          sum[j] += v[j];
        }
      }
      for (int64_t i = 0; i < shape.vectors; ++i) {
        const int64_t at = begin + i * shape.dim + c;
        for (int64_t j = 0; j < count; ++j) {
          dx[at + j] = dy[b] * (sum[j] - x[at + j]);
        }
      }
    }
  }
}

WEIR_VECTORIZE
void Products(const VectorsShape& shape, const float* x, float* y) {
  const int64_t n = shape.vectors;
  // One sample, [dim, vectors]. The inner loop then runs over neighbouring
  // vectors, each a lane with a dot product of its own: I1 of operations.h. A
  // loop along one dot product would add in as many parts as a register has
  // lanes.
  std::vector<float> columns(n * shape.dim);
  for (int64_t b = 0; b < shape.batch; ++b) {
    TransposeSample(shape, x + b * n * shape.dim, columns.data());
    for (int64_t i = 1; i < n; ++i) {
      float* out = y + b * shape.pairs() + FirstPair(i);
      for (int64_t c = 0; c < i; c += kChunk) {
        const int64_t count = std::min(kChunk, i - c);
        float dots[kChunk] = {};
        for (int64_t k = 0; k < shape.dim; ++k) {
          const float v = columns[k * n + i];
          const float* others = columns.data() + k * n + c;
          for (int64_t j = 0; j < count; ++j) {
            dots[j] += v * others[j];
          }
        }
        std::copy(dots, dots + count, out + c);
      }
    }
  }
}

// Every vector gathers from its pairs in the order of the others. Scattering a
// pair's gradient to both of its vectors would write dx once for every pair.
WEIR_VECTORIZE
void ProductsBackward(const VectorsShape& shape, const float* x,
                      const float* dy, float* dx) {
  const int64_t n = shape.vectors;
  for (int64_t b = 0; b < shape.batch; ++b) {
    const float* sample = x + b * n * shape.dim;
    const float* g = dy + b * shape.pairs();
    for (int64_t i = 0; i < n; ++i) {
      float* out = dx + (b * n + i) * shape.dim;
      ForEachChunk(shape.dim, [&](int64_t c, int64_t count) WEIR_INLINE_LAMBDA {
        float sum[kChunk] = {};
        for (int64_t other = 0; other < n; ++other) {
          if (other == i) {
            continue;
          }
          const float weight =
              g[FirstPair(std::max(i, other)) + std::min(i, other)];
          const float* v = sample + other * shape.dim + c;
          for (int64_t j = 0; j < count; ++j) {
            sum[j] += weight * v[j];
          }
        }
        std::copy(sum, sum + count, out + c);
      });
    }
  }
}

}  // namespace

void Compute(const op::PairForward& o) {
  o.kind == PairKind::kSum ? SumOfProducts(o.shape, o.x, o.y)
                           : Products(o.shape, o.x, o.y);
}

void Compute(const op::PairBackward& o) {
  o.kind == PairKind::kSum ? SumOfProductsBackward(o.shape, o.x, o.dy, o.dx)
                           : ProductsBackward(o.shape, o.x, o.dy, o.dx);
}

}  // namespace weir::cpu
