#include "server/ps/optimizer/moving_average.h"

#include <cstring>

#include "common/base/status.h"
#include "server/ps/optimizer/apply_loop.h"
#include "server/ps/optimizer/hyper_parameters.h"

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

absl::StatusOr<std::unique_ptr<Optimizer>> MakeMovingAverage(
    double rate, const std::string& path) {
  WEIR_RETURN_IF_ERROR(CheckUnitClosed(path, "buffer_rate", rate));
  return std::make_unique<MovingAverage>(rate);
}

}  // namespace weir
