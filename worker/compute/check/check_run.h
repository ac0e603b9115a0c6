// The tools of a check of operation_checks.h: guarded device buffers, random
// inputs, and comparisons that become results.
//
// Place: between the checks (product_checks, pointwise_checks, row_checks,
// sparse_checks, memory_checks) and RunCheck.
// Threads: compatible.
// Owns/borrows: borrows the backend and its memory; owns the host sides of
//   copies until the shape's end.
#ifndef WORKER_COMPUTE_CHECK_CHECK_RUN_H_
#define WORKER_COMPUTE_CHECK_CHECK_RUN_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "common/math/random.h"
#include "worker/compute/backend.h"
#include "worker/compute/check/operation_checks.h"
#include "worker/compute/check/reference.h"

namespace weir {

class CheckRun {
 public:
  // Bounds the error of float32 sums of up to some thousand terms, in any
  // sensible order.
  static constexpr double kBound = 1e-5;

  // `room`: device memory of `elements` floats, aligned to 64 bytes, for all
  // buffers of one shape.
  CheckRun(const std::string& name, Backend* backend,
           const CheckOptions& options, float* room, int64_t elements);

  Backend* backend() { return backend_; }
  RandomStream* random() { return &random_; }
  void Run(const Operation& operation) { backend_->Run(operation); }
  // Returns `cases`, with `large` behind them where large ones were asked for.
  template <typename Case, size_t n, size_t m>
  std::vector<Case> Cases(const Case (&cases)[n],
                          const Case (&large)[m]) const {
    std::vector<Case> all(cases, cases + n);
    all.insert(all.end(), large, large + (options_.large ? m : 0));
    return all;
  }
  double product_bound() const;

  // Ends the shape before and begins one: waits for the queue, compares guards
  // and inputs with what they were, and forgets all buffers.
  void Begin(std::string shape);
  // Ends the last shape and returns all results.
  std::vector<CheckResult> Finish();

  // ----------------------------------------------------------- buffers

  // Device memory, and what it holds in double for the reference.
  struct Input {
    float* device = nullptr;
    reference::Values values;
  };
  Input Exactly(const std::vector<float>& values);
  Input Random(int64_t count, float low = -1.0f, float high = 1.0f);
  // The lowest factor of sums: -1 where `result_count` is large, else a
  // positive one, so that ||reference|| cannot be small by chance.
  static float LowestFactor(int64_t result_count);
  // Factors of sums, from LowestFactor(result_count) to 1.
  Input Factors(int64_t count, int64_t result_count);
  // A multiplier or offset of either sign, never near zero.
  Input Scale(int64_t count);
  std::vector<float> Draw(int64_t count, float low, float high);
  // Memory that is full of NaN.
  float* Output(int64_t count);
  // Returns the memory of the input as an output: it may change from here on.
  float* InPlace(const Input& input);
  // Moves all later buffers of this shape by 64 bytes `times` times.
  void Shift(int64_t times) { used_ += times * kGuard; }
  // The NaN with which Output() fills.
  static float Poison();

  std::vector<float> Read(const float* device, int64_t count);

  // ------------------------------------------------------- comparisons

  void Near(const char* what, const float* device,
            const reference::Values& expected, double bound = kBound);
  // Compares a sum that may cancel: the error is relative to the norm of its
  // terms where that is larger.
  void NearSum(const char* what, const float* device,
               const reference::Values& expected,
               const reference::Values& terms);
  // Compares bit for bit.
  void Equal(const char* what, const float* device,
             const std::vector<float>& expected);
  void Expect(const char* what, bool holds);

 private:
  static constexpr int64_t kGuard = 16;  // floats: 64 bytes

  struct Buffer {
    float* device = nullptr;  // where the first guard begins
    std::vector<float> host;  // guard, values, guard
    bool may_change = false;
  };

  float* Place(const std::vector<float>& values, bool may_change);
  void EndShape();
  void ExpectUntouched(const Buffer& buffer, const std::vector<float>& now);
  void TakeStatus();
  void Compare(const char* what, const float* device,
               const reference::Values& expected, double scale, double bound);
  void Add(double error, double bound, std::string detail);

  const std::string name_;
  Backend* const backend_;
  const CheckOptions options_;
  float* const room_;
  const int64_t elements_;
  RandomStream random_;

  std::string shape_;
  int64_t used_ = 0;
  std::deque<Buffer> buffers_;
  std::vector<CheckResult> results_;
};

// Returns the same bits, as device memory holds both types.
std::vector<float> AsFloats(const std::vector<int32_t>& integers);

// The checks, by kind of operation.
std::vector<OperationCheck> ProductChecks();    // products, convolutions, sums
std::vector<OperationCheck> PointwiseChecks();  // pools, activations, copies
std::vector<OperationCheck> RowChecks();        // norms, losses
std::vector<OperationCheck> SparseChecks();     // gathers, interactions
std::vector<OperationCheck> MemoryChecks();     // host memory, same bits

}  // namespace weir

#endif  // WORKER_COMPUTE_CHECK_CHECK_RUN_H_
