#include "proto/admin/process_metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

std::string Page() {
  MetricPage page;
  AddTaskMetrics({.role = "ps", .index = 3, .host = "node-1"}, &page);
  AddProcessMetrics(&page);
  return page.Text();
}

double Value(const std::string& page, const std::string& name) {
  const size_t at = page.find(absl::StrCat("\n", name, " "));
  if (at == std::string::npos) {
    ADD_FAILURE() << name << " is not in\n" << page;
    return -1;
  }
  const size_t begin = at + name.size() + 2;
  double value = -1;
  EXPECT_TRUE(absl::SimpleAtod(
      page.substr(begin, page.find('\n', begin) - begin), &value));
  return value;
}

TEST(ProcessMetricsTest, SaysWhoTheTaskIs) {
  const std::string page = Page();
  EXPECT_NE(page.find("weir_task_info{role=\"ps\",index=\"3\","
                      "host=\"node-1\"} 1\n"),
            std::string::npos)
      << page;
  EXPECT_NE(page.find("weir_build_info{version=\""), std::string::npos);
}

TEST(ProcessMetricsTest, SaysWhatTheProcessHolds) {
  const std::string page = Page();
  EXPECT_GT(Value(page, "process_cpu_seconds_total"), -0.001);
  EXPECT_GT(Value(page, "process_resident_memory_bytes"), 1 << 20);
  EXPECT_GT(Value(page, "process_virtual_memory_bytes"),
            Value(page, "process_resident_memory_bytes"));
  EXPECT_GT(Value(page, "weir_task_memory_limit_bytes"),
            Value(page, "process_resident_memory_bytes"));
  EXPECT_GE(Value(page, "process_max_fds"), Value(page, "process_open_fds"));
  const auto now = std::chrono::duration<double>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  // The system's start is known by whole seconds.
  EXPECT_NEAR(Value(page, "process_start_time_seconds"), now, 60);
}

TEST(ProcessMetricsTest, CountsDescriptors) {
  const double before = Value(Page(), "process_open_fds");
  const int one = open("/dev/null", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(Value(Page(), "process_open_fds"), before + 1);
  close(one);
  EXPECT_EQ(Value(Page(), "process_open_fds"), before);
}

TEST(ProcessMetricsTest, CountsProcessorTime) {
  const double before = Value(Page(), "process_cpu_seconds_total");
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (Value(Page(), "process_cpu_seconds_total") < before + 0.1) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
  }
}

}  // namespace
}  // namespace weir
