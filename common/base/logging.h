// Logging: spdlog behind four macros, so that every process writes one form.
//
//   LOG_INFO("pushed {} blocks", n);
//
// Place: lines go to stderr, as text or as JSON (docs/formats.md, "A line of
// the log"). A message is one line, whatever text of files or peers is in it
// (common/base/printable.h).
//
// Terms
//   module   the folder of the source that logs, "server/ps": one of
//            kLogModules. Each has a level of its own.
//
// Threads: safe, but InitLogging and SetLogLevel hold for lines that begin
// after them.
// Cost: a line that is not written costs a call and the read of one byte.
#ifndef COMMON_BASE_LOGGING_H_
#define COMMON_BASE_LOGGING_H_

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "fmt/core.h"

namespace weir {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarn, kError };
enum class LogFormat : uint8_t { kText, kJson };

// "debug", "info", "warn", "error".
const char* LogLevelName(LogLevel level);
// The level of that name.
std::optional<LogLevel> LogLevelNamed(std::string_view name);

// Every module. A folder whose sources log must be here, or they do not
// compile. What gRPC itself says is the module "grpc".
inline constexpr const char* kLogModules[] = {
    "bench",         "client/cc",
    "client/python", "common/base",
    "common/io",     "common/job",
    "common/math",   "common/objects",
    "deploy/cli",    "deploy/launcher",
    "deploy/render", "examples",
    "grpc",          "proto/checkpoint",
    "proto/job",     "proto/security",
    "proto/task",    "proto/tensorboard",
    "proto/wire",    "server/chief",
    "server/ps",     "tests",
    "worker",        "worker/compute",
    "worker/data",   "worker/evaluate",
    "worker/model",  "worker/train",
};
// A number of kLogModules.
enum class LogModule : uint8_t {};

namespace internal {

// Not constexpr: to get here is an error of the compiler.
inline void AddTheFolderOfThisSourceToLogModules() {}

constexpr bool IsInFolder(std::string_view path, std::string_view folder) {
  return path.size() > folder.size() &&
         path.substr(0, folder.size()) == folder && path[folder.size()] == '/';
}

}  // namespace internal

// Returns the module of the source `path`, which is a __FILE__: the longest one
// whose folder holds it. A path that begins with '/' may have any folders
// before that.
consteval LogModule LogModuleOf(std::string_view path) {
  const bool absolute = !path.empty() && path[0] == '/';
  if (path.substr(0, 2) == "./") {
    path.remove_prefix(2);
  }
  size_t longest = 0;
  size_t module = 0;
  for (size_t at = 0; at != std::string_view::npos;) {
    for (size_t i = 0; i < std::size(kLogModules); ++i) {
      const std::string_view folder = kLogModules[i];
      if (folder.size() > longest &&
          internal::IsInFolder(path.substr(at), folder)) {
        longest = folder.size();
        module = i;
      }
    }
    const size_t slash = path.find('/', at);
    const bool go_on = absolute && slash != std::string_view::npos;
    at = go_on ? slash + 1 : std::string_view::npos;
  }
  if (longest == 0) {
    internal::AddTheFolderOfThisSourceToLogModules();
  }
  return static_cast<LogModule>(module);
}

// How a process logs, as its user says it.
struct LogOptions {
  // The least level that is written, "info"; then, if wanted, that of single
  // modules or of all in a folder: "info,server/chief=debug,client=warn".
  std::string levels = "info";
  std::string format = "text";  // or "json"

  // WEIR_LOG_LEVEL and WEIR_LOG_FORMAT. A variable that is empty or not set
  // leaves the default, which for levels is `levels`. To be called in mains.
  static LogOptions FromEnvironment(const std::string& levels = "info");
  // Errors: INVALID_ARGUMENT that names what is wrong.
  absl::Status Validate() const;
};

// Names this process's task, "worker/0", in every line from now on, and sets
// form and levels. To be called in mains. Errors: those of Validate; then
// levels and form are the defaults, so that the error can be logged.
absl::Status InitLogging(const std::string& task, const LogOptions& options);

// Lines below `level` are dropped from now on, in every module.
void SetLogLevel(LogLevel level);

// Whether a line of `level` and `module` is written.
bool IsLogged(LogLevel level, LogModule module);

// One line of a log, taken apart.
struct LogEntry {
  int64_t time_ms = 0;  // since 1970, UTC
  LogLevel level = LogLevel::kInfo;
  std::string task;
  std::string module;  // "" if it is not known; a line of text has none
  std::string message;
};

// Returns `line` in that form, without an end. REQUIRES: its texts are as
// Printable makes them, and the year of its time has four digits.
std::string FormatLogEntry(const LogEntry& line, LogFormat format);

// Writes one line. spdlog's own header would take half a second of compiling in
// each source that logs, so it is not included here.
void WriteLog(LogLevel level, LogModule module, fmt::string_view format,
              fmt::format_args args);

template <typename... Args>
void Log(LogLevel level, LogModule module, fmt::format_string<Args...> format,
         const Args&... args) {
  if (IsLogged(level, module)) {
    WriteLog(level, module, format, fmt::make_format_args(args...));
  }
}

}  // namespace weir

#define WEIR_LOG_AT(level, ...) \
  ::weir::Log(level, ::weir::LogModuleOf(__FILE__), __VA_ARGS__)
#define LOG_DEBUG(...) WEIR_LOG_AT(::weir::LogLevel::kDebug, __VA_ARGS__)
#define LOG_INFO(...) WEIR_LOG_AT(::weir::LogLevel::kInfo, __VA_ARGS__)
#define LOG_WARN(...) WEIR_LOG_AT(::weir::LogLevel::kWarn, __VA_ARGS__)
#define LOG_ERROR(...) WEIR_LOG_AT(::weir::LogLevel::kError, __VA_ARGS__)

#endif  // COMMON_BASE_LOGGING_H_
