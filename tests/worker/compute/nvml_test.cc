#include "worker/compute/nvml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weir {
namespace {

using testing::HasSubstr;

constexpr char kFake[] = "tests/worker/compute/libfake_nvml.so";
constexpr char kPoor[] = "tests/worker/compute/libfake_nvml_poor.so";
constexpr char kNoDriver[] = "tests/worker/compute/libfake_nvml_no_driver.so";

TEST(NvmlTest, ReadsEveryFigureByIndexAndByBusId) {
  const auto nvml = Nvml::Open(kFake);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  for (const char* device : {"0", "0000:3b:00.0"}) {
    const auto figures = (*nvml)->Read(device);
    ASSERT_TRUE(figures.ok()) << figures.status();
    EXPECT_EQ(figures->name, "NVIDIA H100");
    EXPECT_EQ(figures->driver_version, "550.54.15");
    EXPECT_DOUBLE_EQ(figures->gpu_utilization_percent, 93);
    EXPECT_EQ(figures->bytes_used, 2ull << 30);
    EXPECT_EQ(figures->bytes_total, 80ull << 30);
    EXPECT_DOUBLE_EQ(figures->power_watts, 412.5);
    EXPECT_DOUBLE_EQ(figures->temperature_celsius, 54);
    EXPECT_EQ(figures->sm_clock_mhz, 1980u);
    EXPECT_EQ(figures->Text(),
              "NVIDIA H100, 93% busy, 2.0 of 80 GiB used, 412 W, 54 C, SM at "
              "1980 MHz, driver 550.54.15");
  }
}

TEST(NvmlTest, AMissingSymbolOrARefusalLeavesItsFigureOut) {
  const auto nvml = Nvml::Open(kPoor);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  const auto figures = (*nvml)->Read("0");
  ASSERT_TRUE(figures.ok()) << figures.status();
  EXPECT_DOUBLE_EQ(figures->power_watts, 412.5);
  EXPECT_EQ(figures->name, "");
  EXPECT_EQ(figures->bytes_total, 0u);
  EXPECT_EQ(figures->sm_clock_mhz, 0u);
  EXPECT_EQ(figures->Text(), "a GPU, 0% busy, 412 W");
  EXPECT_EQ((*nvml)->Read("1").status().message(), "NVML: GPU '1': error 2");
  EXPECT_THAT(std::string((*nvml)->Read("0000:3b:00.0").status().message()),
              HasSubstr("cannot look it up"));
}

TEST(NvmlTest, AnUnknownDeviceIsNamedWithTheReason) {
  const auto nvml = Nvml::Open(kFake);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  for (const char* device : {"7", "", "0000:ff:00.0"}) {
    const absl::Status status = (*nvml)->Read(device).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(status.message(),
              "NVML: GPU '" + std::string(device) + "': Invalid Argument");
  }
}

TEST(NvmlTest, ItShutsDownWhatItStarted) {
  // The fake finds its device only while it was started exactly once.
  for (int i = 0; i < 2; ++i) {
    const auto nvml = Nvml::Open(kFake);
    ASSERT_TRUE(nvml.ok()) << nvml.status();
    EXPECT_TRUE((*nvml)->Read("0").ok());
  }
}

TEST(NvmlTest, WithoutLibraryOrDriverItSaysWhy) {
  const absl::Status missing = Nvml::Open("libno_such_nvml.so.9").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()),
              HasSubstr("libno_such_nvml.so.9"));
  const absl::Status other = Nvml::Open("libm.so.6").status();
  EXPECT_EQ(other.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(other.message()), HasSubstr("nvmlInit_v2"));
  const absl::Status driver = Nvml::Open(kNoDriver).status();
  EXPECT_EQ(driver.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(driver.message()), HasSubstr("Driver Not Loaded"));
}

}  // namespace
}  // namespace weir
