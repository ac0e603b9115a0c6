#include "common/job/initializer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/io/crc32c.h"
#include "common/math/random.h"

namespace weir {
namespace {

// Derives the key of initial values from the job's seed: "init".
constexpr uint64_t kStream = 0x696e6974;
// The same for rows of tables: "rows".
constexpr uint64_t kRowStream = 0x726f7773;

// I2: a polynomial of our own, in double, with one order of operations.
//
// Natural logarithm of x, a normal number in (0, 1]; error below 1e-15.
double Log(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  double exponent =
      static_cast<double>(static_cast<int64_t>(bits >> 52) - 1023);
  double m = std::bit_cast<double>((bits & 0x000fffffffffffffu) |
                                   0x3ff0000000000000u);  // [1, 2)
  if (m > M_SQRT2) {
    m *= 0.5;
    exponent += 1;
  }
  // ln m = 2 artanh(s), |s| <= 0.1716: the term of s^23 is below 1e-18.
  const double s = (m - 1) / (m + 1);
  const double s2 = s * s;
  double sum = 0;
  for (int k = 21; k >= 1; k -= 2) {
    sum = sum * s2 + 1.0 / k;
  }
  return exponent * M_LN2 + 2 * s * sum;
}

// Sine and cosine of `turns` full circles, turns in [0, 1); error below 1e-15.
void SinCos(double turns, double* sine, double* cosine) {
  const int quarter = static_cast<int>(turns * 4 + 0.5);
  const double x = (turns - quarter * 0.25) * (2 * M_PI);  // |x| <= pi / 4
  const double x2 = x * x;
  // Taylor: the first terms left out are below 1e-16.
  double s = 1;
  for (int k = 14; k >= 2; k -= 2) {
    s = 1 - s * x2 * (1.0 / (k * (k + 1)));
  }
  s *= x;
  double c = 1;
  for (int k = 15; k >= 1; k -= 2) {
    c = 1 - c * x2 * (1.0 / (k * (k + 1)));
  }
  const bool swapped = (quarter & 1) != 0;
  const double a = swapped ? c : s;
  const double b = swapped ? s : c;
  *sine = (quarter & 2) != 0 ? -a : a;
  *cosine = ((quarter + 1) & 2) != 0 ? -b : b;
}

using Quad = std::array<float, 4>;

Quad UniformQuad(const std::array<uint32_t, 4>& words, float limit) {
  Quad out;
  for (size_t k = 0; k < 4; ++k) {
    out[k] = limit * (2.0f * UnitFloat(words[k]) - 1.0f);
  }
  return out;
}

Quad NormalQuad(const std::array<uint32_t, 4>& words, float stddev) {
  Quad out;
  for (size_t k = 0; k < 4; k += 2) {
    const double u = (static_cast<double>(words[k]) + 1) * 0x1p-32;  // (0, 1]
    const double radius = std::sqrt(-2 * Log(u)) * static_cast<double>(stddev);
    double sine = 0;
    double cosine = 0;
    SinCos(static_cast<double>(words[k + 1]) * 0x1p-32, &sine, &cosine);
    out[k] = static_cast<float>(radius * cosine);
    out[k + 1] = static_cast<float>(radius * sine);
  }
  return out;
}

// Normal, but no further out than 2 stddev: such an element is drawn again,
// from counters that no element starts with.
Quad TruncatedNormalQuad(uint64_t key, uint64_t counter_high,
                         uint64_t counter_low, float stddev) {
  Quad out = NormalQuad(Philox(key, counter_high, counter_low), stddev);
  for (size_t k = 0; k < 4; ++k) {
    for (uint64_t draw = 1; std::fabs(out[k]) > 2 * stddev; ++draw) {
      out[k] = NormalQuad(Philox(key, counter_high, counter_low + (draw << 48)),
                          stddev)[k];
    }
  }
  return out;
}

// I1: elements 4q to 4q + 3 come from Philox's four words at counter q,
// wherever the range begins and ends.
template <class MakeQuad>
void FillQuads(int64_t begin, int64_t count, float* out, const MakeQuad& make) {
  const int64_t end = begin + count;
  for (int64_t i = begin; i < end;) {
    const int64_t q = i / 4;
    const Quad quad = make(static_cast<uint64_t>(q));
    const int64_t stop = std::min(end, q * 4 + 4);
    for (; i < stop; ++i) {
      *out++ = quad[static_cast<size_t>(i - q * 4)];
    }
  }
}

void Fill(const InitSpec& init, uint64_t key, uint64_t counter_high,
          int64_t begin, int64_t count, float* out) {
  const float scale = init.scale;
  switch (init.kind) {
    case InitKind::kConstant:
      std::fill(out, out + count, scale);
      return;
    case InitKind::kNormal:
      FillQuads(begin, count, out, [&](uint64_t q) {
        return NormalQuad(Philox(key, counter_high, q), scale);
      });
      return;
    case InitKind::kUniform:
      FillQuads(begin, count, out, [&](uint64_t q) {
        return UniformQuad(Philox(key, counter_high, q), scale);
      });
      return;
    case InitKind::kTruncatedNormal:
      FillQuads(begin, count, out, [&](uint64_t q) {
        return TruncatedNormalQuad(key, counter_high, q, scale);
      });
      return;
  }
}

}  // namespace

absl::Status ValidateInitializer(const VariableSpec& variable) {
  const std::string path =
      absl::StrCat("variable \"", variable.name, "\": initializer");
  if (variable.init.kind == InitKind::kTruncatedNormal) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": only rows of tables begin truncated normal"));
  }
  return ValidateRowInit(variable.init, path);
}

void FillInitial(const InitSpec& init, uint64_t seed, int variable,
                 int64_t begin, int64_t count, float* out) {
  Fill(init, MixKey(seed, kStream), static_cast<uint64_t>(variable), begin,
       count, out);
}

absl::Status ValidateRowInit(const InitSpec& init, const std::string& path) {
  const bool known = init.kind >= InitKind::kConstant &&
                     init.kind <= InitKind::kTruncatedNormal;
  if (known && std::isfinite(init.scale) &&
      (init.kind == InitKind::kConstant || init.scale >= 0)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": kind ", static_cast<int>(init.kind), " with scale ", init.scale,
      "; the scale must be finite, and >= 0 unless it is a constant"));
}

uint64_t TableSeed(uint64_t job_seed, const std::string& name) {
  return MixKey(job_seed, Crc32c(name.data(), name.size()));
}

uint64_t RowInitKey(uint64_t seed) { return MixKey(seed, kRowStream); }

void FillInitialRow(const InitSpec& init, uint64_t key, uint64_t id, int dim,
                    float* out) {
  Fill(init, key, id, 0, dim, out);
}

}  // namespace weir
