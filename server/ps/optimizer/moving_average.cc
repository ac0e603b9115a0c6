// The optimizer of buffers: w = w + rate (s - w), where the contribution brings
// a sample s (a batch's mean, say) in place of a gradient. No state; learning
// rate, weight decay and t do not count.
#include <cstring>

#include "server/ps/optimizer/apply_loop.h"
#include "server/ps/optimizer/optimizer.h"

namespace weir {
namespace {

struct MovingAverageKernel {
  static constexpr int kStateArrays = 0;
  float rate;

  WEIR_KERNEL void Step(float sample, float& w) const {
    w = w + rate * (sample - w);
  }
};

class MovingAverage : public Optimizer {
 public:
  explicit MovingAverage(double rate)
      : Optimizer("moving_average", {}), rate_(static_cast<float>(rate)) {}

  void Apply(const StepContext&, float* values, float* const* state,
             const char* gradient, int64_t count) const override {
    // w = w + rate (s - w). At rate 1 that is s, but w + (s - w) would round.
    if (rate_ == 1.0f) {
      std::memcpy(values, gradient, static_cast<size_t>(count) * sizeof(float));
    } else if (rate_ != 0) {
      ApplyKernel(MovingAverageKernel{rate_}, values, state, gradient, count);
    }
  }

 private:
  const float rate_;
};

}  // namespace

std::unique_ptr<Optimizer> CreateMovingAverage(double rate) {
  return std::make_unique<MovingAverage>(rate);
}

}  // namespace weir
