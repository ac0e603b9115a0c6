// Logging: spdlog behind four macros, so that every process writes one form.
//
//   LOG_INFO("pushed {} blocks", n);
//
// Lines go to stderr: "2026-11-21 10:00:00.000 worker/0 I message". A message
// is one line, whatever text of files or peers is in it
// (common/base/printable.h).
// Threads: safe.
#ifndef COMMON_BASE_LOGGING_H_
#define COMMON_BASE_LOGGING_H_

#include <string>

#include "fmt/core.h"

namespace weir {

enum class LogLevel { kDebug, kInfo, kWarn, kError };

// Names this process's task in every line, "worker/0". Call once, in main.
// WEIR_LOG_LEVEL (debug, info, warn, error) sets the level; default info.
void InitLogging(const std::string& task);

// Lines below `level` are dropped from now on.
void SetLogLevel(LogLevel level);

// Whether a line of `level` is written.
bool IsLogged(LogLevel level);

// Writes one line. spdlog's own header would take half a second of compiling in
// each source that logs; this one needs fmt's core alone.
void WriteLog(LogLevel level, fmt::string_view format, fmt::format_args args);

template <typename... Args>
void Log(LogLevel level, fmt::format_string<Args...> format,
         const Args&... args) {
  if (IsLogged(level)) {
    WriteLog(level, format, fmt::make_format_args(args...));
  }
}

}  // namespace weir

#define LOG_DEBUG(...) ::weir::Log(::weir::LogLevel::kDebug, __VA_ARGS__)
#define LOG_INFO(...) ::weir::Log(::weir::LogLevel::kInfo, __VA_ARGS__)
#define LOG_WARN(...) ::weir::Log(::weir::LogLevel::kWarn, __VA_ARGS__)
#define LOG_ERROR(...) ::weir::Log(::weir::LogLevel::kError, __VA_ARGS__)

#endif  // COMMON_BASE_LOGGING_H_
