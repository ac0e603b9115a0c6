// The environment's switches, for processes that no test runs in.
#include <cstdlib>
#include <limits>
#include <string>

#include "absl/strings/numbers.h"
#include "tests/worker/compute/cuda/emulator/scheduler.h"

namespace weir_emulator {
namespace {

// Leaves `value` where the variable is not set.
template <class T>
void Read(const char* name, int64_t max, T* value) {
  const char* const text = std::getenv(name);  // NOLINT: before any thread
  if (text == nullptr) {
    return;
  }
  int64_t number = 0;
  if (!absl::SimpleAtoi(text, &number) || number < 0 || number > max) {
    Die("%s is '%s'; it must be in 0..%s", name, text,
        std::to_string(max).c_str());
  }
  *value = static_cast<T>(number);
}

}  // namespace

Config ConfigFromEnvironment() {
  constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
  Config config;
  Read("WEIR_EMULATOR_DEVICES", 64, &config.devices);
  Read("WEIR_EMULATOR_BYTES", kAny, &config.bytes_per_device);
  Read("WEIR_EMULATOR_SEED", kAny, &config.seed);
  Read("WEIR_EMULATOR_DRIVER_MISSING", 1, &config.driver_missing);
  return config;
}

}  // namespace weir_emulator
