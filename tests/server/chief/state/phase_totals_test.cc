#include "server/chief/state/phase_totals.h"

#include <gtest/gtest.h>

#include "nlohmann/json.hpp"

namespace weir {
namespace {

Phases Contribution(bool on_gpu) {
  Phases phases;
  phases.set_contributions(2);
  phases.set_step_ns(1'000'000'000);
  phases.set_data_wait_ns(10'000'000);
  phases.set_pull_wait_ns(20'000'000);
  phases.set_push_wait_ns(30'000'000);
  phases.set_compute_ns(500'000'000);
  phases.set_on_gpu(on_gpu);
  return phases;
}

TEST(PhaseTotalsTest, NothingIsSaidBeforeTheFirstContribution) {
  PhaseTotals totals;
  totals.Add({});
  EXPECT_EQ(totals.Json(), "");
}

TEST(PhaseTotalsTest, TimesAddUpAndACpuHasNoDeviceFigures) {
  PhaseTotals totals;
  totals.Add(Contribution(false));
  totals.Add(Contribution(false));
  const auto json = nlohmann::json::parse(totals.Json());
  EXPECT_EQ(json.size(), 6u) << json;
  EXPECT_EQ(json["contributions"], 4);
  EXPECT_DOUBLE_EQ(json["step_seconds"], 2.0);
  EXPECT_DOUBLE_EQ(json["data_wait_seconds"], 0.02);
  EXPECT_DOUBLE_EQ(json["pull_wait_seconds"], 0.04);
  EXPECT_DOUBLE_EQ(json["push_wait_seconds"], 0.06);
  EXPECT_DOUBLE_EQ(json["compute_seconds"], 1.0);
}

TEST(PhaseTotalsTest, TheGpuShareIsOfWorkersOnAGpu) {
  PhaseTotals totals;
  Phases cpu = Contribution(false);
  cpu.set_compute_ns(1'000'000'000);
  totals.Add(cpu);
  Phases gpu = Contribution(true);
  gpu.set_device_bytes_used(7);
  gpu.set_device_bytes_reserved(20);
  totals.Add(gpu);
  gpu.set_device_bytes_used(5);
  gpu.set_device_bytes_reserved(30);
  totals.Add(gpu);
  const auto json = nlohmann::json::parse(totals.Json());
  EXPECT_DOUBLE_EQ(json["gpu_busy_share"], 0.5);
  EXPECT_EQ(json["device_bytes_used"], 7);
  EXPECT_EQ(json["device_bytes_reserved"], 30);
  EXPECT_FALSE(json.contains("device_bytes_total"));
  EXPECT_FALSE(json.contains("nvml_gpu_percent"));
  EXPECT_FALSE(json.contains("nvml_watts"));
}

TEST(PhaseTotalsTest, NvmlFiguresAreMeansOverReadings) {
  PhaseTotals totals;
  Phases reading = Contribution(true);
  reading.set_nvml_gpu_percent(90);
  reading.set_nvml_watts(300);
  reading.set_device_bytes_total(1000);
  totals.Add(reading);
  totals.Add(Contribution(true));  // no reading
  reading.set_nvml_gpu_percent(0);
  reading.set_nvml_watts(100);
  totals.Add(reading);
  const auto json = nlohmann::json::parse(totals.Json());
  EXPECT_DOUBLE_EQ(json["nvml_gpu_percent"], 45.0);
  EXPECT_DOUBLE_EQ(json["nvml_watts"], 200.0);
  EXPECT_EQ(json["device_bytes_total"], 1000);
}

}  // namespace
}  // namespace weir
