#include "common/base/logging.h"

#include <cstdlib>
#include <regex>
#include <string>

#include "gtest/gtest.h"

namespace weir {
namespace {

// One test: a process sets its logger up once.
TEST(LoggingTest, LinesNameTheTaskAndTheLevelHidesTheRest) {
  ::setenv("WEIR_LOG_LEVEL", "warn", 1);
  InitLogging("worker/7");
  testing::internal::CaptureStderr();
  LOG_DEBUG("hidden {}", 1);
  LOG_INFO("hidden {}", 2);
  LOG_WARN("lost {} of {}", "ps/1", 3);
  LOG_ERROR("gone");
  LOG_ERROR("{}", "bye\n2026-01-01 10:00:00.000 chief/0 I forged");
  const std::string text = testing::internal::GetCapturedStderr();
  const std::regex want(
      "\\d{4}-\\d\\d-\\d\\d \\d\\d:\\d\\d:\\d\\d\\.\\d{3} worker/7 W lost ps/1 "
      "of 3\n[^\n]* worker/7 E gone\n"
      "[^\n]* worker/7 E bye\\\\n2026-01-01 10:00:00.000 chief/0 I forged\n");
  EXPECT_TRUE(std::regex_match(text, want)) << text;
}

}  // namespace
}  // namespace weir
