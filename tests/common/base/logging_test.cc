#include "common/base/logging.h"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using testing::HasSubstr;

// What `write` logs in a process of these options.
template <typename Write>
std::string Logged(const LogOptions& options, const Write& write) {
  EXPECT_TRUE(InitLogging("worker/7", options).ok());
  testing::internal::CaptureStderr();
  write();
  return testing::internal::GetCapturedStderr();
}

// "worker/7 I " of module "server/ps" becomes a line at each level.
void LogAllLevels(LogModule module) {
  Log(LogLevel::kDebug, module, "a");
  Log(LogLevel::kInfo, module, "b");
  Log(LogLevel::kWarn, module, "c");
  Log(LogLevel::kError, module, "d");
}

int LinesOf(const std::string& levels, LogModule module) {
  const std::string text =
      Logged({.levels = levels}, [&] { LogAllLevels(module); });
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

TEST(LoggingTest, LinesNameTheTaskAndTheLevelHidesTheRest) {
  const std::string text = Logged({.levels = "warn"}, [] {
    LOG_DEBUG("hidden {}", 1);
    LOG_INFO("hidden {}", 2);
    LOG_WARN("lost {} of {}", "ps/1", 3);
    LOG_ERROR("gone");
    LOG_ERROR("{}", "bye\n2026-01-01T10:00:00.000Z chief/0 I forged");
  });
  const std::regex want(
      "\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{3}Z worker/7 W lost "
      "ps/1 of 3\n[^\n]* worker/7 E gone\n"
      "[^\n]* worker/7 E bye\\\\n2026-01-01T10:00:00.000Z chief/0 I forged\n");
  EXPECT_TRUE(std::regex_match(text, want)) << text;
}

TEST(LoggingTest, TimesAreThoseOfUtcWhateverTheZoneHere) {
  ::setenv("TZ", "Asia/Kolkata", 1);
  ::tzset();
  EXPECT_EQ(FormatLogEntry({.time_ms = 1795255200007,
                            .level = LogLevel::kInfo,
                            .task = "worker/0",
                            .module = "server/ps",
                            .message = "message"},
                           LogFormat::kText),
            "2026-11-21T10:00:00.007Z worker/0 I message");
  ::unsetenv("TZ");
  ::tzset();
}

TEST(LoggingTest, ALineOfJsonIsOneObject) {
  EXPECT_EQ(FormatLogEntry({.time_ms = 1795255200000,
                            .level = LogLevel::kWarn,
                            .task = "worker/0",
                            .module = "server/ps",
                            .message = "message"},
                           LogFormat::kJson),
            R"({"time":"2026-11-21T10:00:00.000Z","level":"warn",)"
            R"("task":"worker/0","module":"server/ps","message":"message"})");
  EXPECT_EQ(FormatLogEntry({.time_ms = 0,
                            .level = LogLevel::kDebug,
                            .task = "x",
                            .module = "",
                            .message = "y"},
                           LogFormat::kJson),
            R"({"time":"1970-01-01T00:00:00.000Z","level":"debug",)"
            R"("task":"x","message":"y"})");
}

TEST(LoggingTest, WhateverIsLoggedIsJsonInUtf8) {
  std::string all_bytes;
  for (int i = 0; i < 256; ++i) {
    all_bytes += static_cast<char>(i);
  }
  for (const std::string& message :
       {all_bytes, std::string("\"},{\"a\":\"\\"), std::string("J\xc3\xb6rg"),
        std::string(1 << 20, '"')}) {
    const std::string text =
        Logged({.format = "json"}, [&] { LOG_INFO("{}", message); });
    ASSERT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
    const auto json = nlohmann::json::parse(text, nullptr, false);
    ASSERT_TRUE(json.is_object()) << text;
    EXPECT_EQ(json["level"], "info");
    EXPECT_EQ(json["task"], "worker/7");
    EXPECT_EQ(json["module"], "tests");
    // The message is the one of the text.
    EXPECT_THAT(
        Logged({}, [&] { LOG_INFO("{}", message); }),
        HasSubstr(" worker/7 I " + json["message"].get<std::string>() + "\n"));
  }
}

TEST(LoggingTest, AModuleIsTheFolderOfTheSource) {
  const auto name = [](LogModule module) {
    return std::string(kLogModules[static_cast<size_t>(module)]);
  };
  EXPECT_EQ(name(LogModuleOf("server/ps/store/store.cc")), "server/ps");
  EXPECT_EQ(name(LogModuleOf("./client/cc/sdk/client.cc")), "client/cc");
  EXPECT_EQ(name(LogModuleOf("worker/worker_main.cc")), "worker");
  EXPECT_EQ(name(LogModuleOf("worker/train/train_loop.cc")), "worker/train");
  EXPECT_EQ(name(LogModuleOf("tests/common/base/logging_test.cc")), "tests");
  EXPECT_EQ(name(LogModuleOf("/home/a/worker/b/common/io/files.cc")),
            "common/io");
}

TEST(LoggingTest, ModulesHaveLevelsOfTheirOwn) {
  constexpr LogModule kChief = LogModuleOf("server/chief/a.cc");
  constexpr LogModule kPs = LogModuleOf("server/ps/a.cc");
  constexpr LogModule kClient = LogModuleOf("client/cc/a.cc");
  const std::string levels = "info,server/chief=debug,client=error";
  EXPECT_EQ(LinesOf(levels, kChief), 4);
  EXPECT_EQ(LinesOf(levels, kPs), 3);
  EXPECT_EQ(LinesOf(levels, kClient), 1);
  // The longer name wins, wherever the parts stand.
  for (const char* const text : {"server/ps=warn,server=debug,error",
                                 "error,server=debug,server/ps=warn"}) {
    EXPECT_EQ(LinesOf(text, kPs), 2);
    EXPECT_EQ(LinesOf(text, kChief), 4);
    EXPECT_EQ(LinesOf(text, kClient), 1);
  }
  EXPECT_EQ(LinesOf("server/ps=debug", kClient), 3) << "info for the others";
  EXPECT_TRUE(InitLogging("worker/7", {.levels = levels}).ok());
  SetLogLevel(LogLevel::kError);
  EXPECT_FALSE(IsLogged(LogLevel::kWarn, kChief));
  EXPECT_TRUE(IsLogged(LogLevel::kError, kClient));
}

TEST(LoggingTest, AWrongValueIsNamed) {
  const auto error = [](const LogOptions& options) {
    const absl::Status status = InitLogging("worker/7", options);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_EQ(options.Validate(), status);
    return std::string(status.message());
  };
  EXPECT_EQ(error({.levels = "loud"}),
            "--log_level or WEIR_LOG_LEVEL 'loud': there is no level 'loud'; "
            "there are debug, info, warn, error");
  EXPECT_THAT(error({.levels = "info,serve=debug"}),
              HasSubstr("there is no module 'serve'; there are bench, client"));
  for (const char* const levels :
       {"", ",", "info,", "info,=debug", "server/ps=", "server/ps=loud",
        "server/ps/store=debug", "info,debug", "info, debug", "INFO",
        "server/=debug", "serv=debug", "=", "server/ps=debug=info"}) {
    EXPECT_THAT(error({.levels = levels}),
                HasSubstr("WEIR_LOG_LEVEL '" + std::string(levels) + "': "));
  }
  EXPECT_EQ(error({.format = "xml"}),
            "--log_format or WEIR_LOG_FORMAT 'xml': it is text or json");
  // The error itself can be logged.
  testing::internal::CaptureStderr();
  LOG_INFO("shown");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("I shown\n"));
}

TEST(LoggingTest, TheEnvironmentSaysWhatIsLogged) {
  ::unsetenv("WEIR_LOG_LEVEL");
  ::setenv("WEIR_LOG_FORMAT", "", 1);
  EXPECT_EQ(LogOptions::FromEnvironment().levels, "info");
  EXPECT_EQ(LogOptions::FromEnvironment("warn").levels, "warn");
  EXPECT_EQ(LogOptions::FromEnvironment().format, "text");
  ::setenv("WEIR_LOG_LEVEL", "debug", 1);
  ::setenv("WEIR_LOG_FORMAT", "json", 1);
  EXPECT_EQ(LogOptions::FromEnvironment("warn").levels, "debug");
  EXPECT_EQ(LogOptions::FromEnvironment().format, "json");
}

}  // namespace
}  // namespace weir
