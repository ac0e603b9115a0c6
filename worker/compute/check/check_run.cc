#include "worker/compute/check/check_run.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace weir {
namespace {

// I2 of operation_checks.h: quiet NaNs that no arithmetic makes.
constexpr uint32_t kPoisonBits = 0x7fc5a5a5;
constexpr uint32_t kGuardBits = 0x7fe11e55;

// A reference with a smaller norm is zero but for the rounding of doubles.
constexpr double kNormMin = 1e-6;

// From so many results on, sums may have terms of both signs: the norm of all
// results is then near its expectation (within a factor of two in all but 1e-6
// of the draws).
constexpr int64_t kManyResults = 64;

double Norm(const reference::Values& values) {
  double sum = 0.0;
  for (const double v : values) {
    sum += v * v;
  }
  return std::sqrt(sum);
}

// FNV-1a. std::hash may differ between machines, and a seed in a log has to
// give the same inputs everywhere.
uint64_t HashOf(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return hash;
}

bool SameBits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

}  // namespace

std::vector<float> AsFloats(const std::vector<int32_t>& integers) {
  std::vector<float> floats(integers.size());
  if (!floats.empty()) {
    std::memcpy(floats.data(), integers.data(), floats.size() * sizeof(float));
  }
  return floats;
}

CheckRun::CheckRun(const std::string& name, Backend* backend,
                   const CheckOptions& options, float* room, int64_t elements)
    : name_(name),
      backend_(backend),
      options_(options),
      room_(room),
      elements_(elements),
      // I1: nothing else goes into the seed, so a check draws the same however
      // many others ran before it.
      random_(MixKey(options.seed, HashOf(name))) {}

double CheckRun::product_bound() const {
  switch (options_.precision) {
    case Precision::kFp32:
      return 1e-5;
    case Precision::kTf32:
      return 1e-3;  // 10 bits of mantissa
    case Precision::kBf16:
      return 2e-2;  // 7 bits
  }
  return 0.0;
}

float CheckRun::Poison() { return std::bit_cast<float>(kPoisonBits); }

void CheckRun::Begin(std::string shape) {
  EndShape();
  shape_ = std::move(shape);
}

std::vector<CheckResult> CheckRun::Finish() {
  EndShape();
  return std::move(results_);
}

void CheckRun::EndShape() {
  // All downloads are in the queue before the one wait. A deque, since they
  // write to memory that must not move.
  std::deque<std::vector<float>> now;
  for (const Buffer& buffer : buffers_) {
    now.emplace_back(buffer.host.size());
    backend_->Download(now.back().data(), buffer.device, buffer.host.size());
  }
  // The next shape uploads to the same memory, and an upload may overtake the
  // operations of this one.
  backend_->Wait(backend_->Mark());
  TakeStatus();
  for (size_t i = 0; i < buffers_.size(); ++i) {
    ExpectUntouched(buffers_[i], now[i]);
  }
  buffers_.clear();
  used_ = 0;
}

void CheckRun::ExpectUntouched(const Buffer& buffer,
                               const std::vector<float>& now) {
  const auto end = static_cast<int64_t>(now.size()) - kGuard;
  for (int64_t i = 0; i < end + kGuard; ++i) {
    const bool inside = i >= kGuard && i < end;
    if ((inside && buffer.may_change) || SameBits(now[i], buffer.host[i])) {
      continue;
    }
    const std::string size = absl::StrCat(" of ", end - kGuard, " floats");
    // I2. One result for a buffer: more elements would say nothing new.
    if (inside) {
      Add(1.0, 0.0, absl::StrCat("an input", size, " was written"));
    } else {
      Add(1.0, 0.0,
          absl::StrCat("written outside a buffer", size, ", at element ",
                       i - kGuard));
    }
    return;
  }
}

void CheckRun::TakeStatus() {
  const absl::Status status = backend_->TakeStatus();
  if (!status.ok()) {
    Add(1.0, 0.0, absl::StrCat("the backend failed: ", status.message()));
  }
}

// ------------------------------------------------------------- buffers

float* CheckRun::Place(const std::vector<float>& values, bool may_change) {
  const auto count = static_cast<int64_t>(values.size());
  Buffer& buffer = buffers_.emplace_back();
  buffer.device = room_ + used_;
  buffer.may_change = may_change;
  buffer.host.assign(count + 2 * kGuard, std::bit_cast<float>(kGuardBits));
  std::copy(values.begin(), values.end(), buffer.host.begin() + kGuard);
  // Whole guards, so that the next buffer is aligned to 64 bytes as well.
  used_ += (count + kGuard - 1) / kGuard * kGuard + 2 * kGuard;
  WEIR_CHECK(used_ <= elements_);
  backend_->Upload(buffer.device, buffer.host.data(), buffer.host.size());
  return buffer.device + kGuard;
}

CheckRun::Input CheckRun::Exactly(const std::vector<float>& values) {
  return {Place(values, false),
          reference::Values(values.begin(), values.end())};
}

std::vector<float> CheckRun::Draw(int64_t count, float low, float high) {
  std::vector<float> values(count);
  for (float& value : values) {
    value = random_.NextFloat(low, high);
  }
  return values;
}

CheckRun::Input CheckRun::Random(int64_t count, float low, float high) {
  return Exactly(Draw(count, low, high));
}

float CheckRun::LowestFactor(int64_t result_count) {
  if (result_count < kManyResults) {
    return 0.1f;
  }
  return -1.0f;
}

CheckRun::Input CheckRun::Factors(int64_t count, int64_t result_count) {
  return Random(count, LowestFactor(result_count), 1.0f);
}

CheckRun::Input CheckRun::Scale(int64_t count) {
  std::vector<float> values = Draw(count, 0.5f, 1.5f);
  for (float& value : values) {
    if (random_.NextBelow(2) != 0) {
      value = -value;
    }
  }
  return Exactly(values);
}

float* CheckRun::Output(int64_t count) {
  return Place(std::vector<float>(count, Poison()), true);
}

float* CheckRun::InPlace(const Input& input) {
  for (Buffer& buffer : buffers_) {
    if (buffer.device + kGuard == input.device) {
      buffer.may_change = true;
    }
  }
  return input.device;
}

std::vector<float> CheckRun::Read(const float* device, int64_t count) {
  // Poison: a download that does nothing must not pass for a right one.
  std::vector<float> host(count, Poison());
  backend_->Download(host.data(), device, count);
  backend_->Wait(backend_->Mark());
  TakeStatus();
  return host;
}

// --------------------------------------------------------- comparisons

void CheckRun::Add(double error, double bound, std::string detail) {
  results_.push_back(
      // False for an error that is NaN, too.
      {name_, shape_, error, bound, std::move(detail), error <= bound});
}

void CheckRun::Compare(const char* what, const float* device,
                       const reference::Values& expected, double scale,
                       double bound) {
  const std::vector<float> actual = Read(device, expected.size());
  double sum = 0.0;
  size_t worst = 0;
  double worst_difference = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double difference = std::fabs(actual[i] - expected[i]);
    sum += difference * difference;
    // The first NaN stays the worst.
    if (!std::isnan(worst_difference) && !(difference <= worst_difference)) {
      worst = i;
      worst_difference = difference;
    }
  }
  const double error = std::sqrt(sum) / std::max(scale, kNormMin);
  std::string detail = what;
  if (!(error <= bound)) {
    absl::StrAppend(&detail, ": element ", worst, " is ", actual[worst],
                    ", not ", expected[worst]);
  }
  Add(error, bound, std::move(detail));
}

void CheckRun::Near(const char* what, const float* device,
                    const reference::Values& expected, double bound) {
  Compare(what, device, expected, Norm(expected), bound);
}

void CheckRun::NearSum(const char* what, const float* device,
                       const reference::Values& expected,
                       const reference::Values& terms) {
  Compare(what, device, expected, std::max(Norm(expected), Norm(terms)),
          kBound);
}

void CheckRun::Equal(const char* what, const float* device,
                     const std::vector<float>& expected) {
  const std::vector<float> actual = Read(device, expected.size());
  size_t different = 0;
  std::string detail = what;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (!SameBits(actual[i], expected[i]) && ++different == 1) {
      absl::StrAppend(&detail, ": element ", i, " is ", actual[i], ", not ",
                      expected[i]);
    }
  }
  Add(static_cast<double>(different) / static_cast<double>(expected.size()),
      0.0, std::move(detail));
}

void CheckRun::Expect(const char* what, bool holds) {
  if (holds) {
    Add(0.0, 0.0, what);
  } else {
    Add(1.0, 0.0, absl::StrCat("it does not hold that ", what));
  }
}

}  // namespace weir
