// Logging: spdlog behind three calls, so that every process writes one form.
//
//   LOG_INFO("pushed {} blocks", n);
// Lines go to stderr: "2026-11-21 10:00:00.000 worker/0 I message".
// Threads: safe.
#ifndef COMMON_BASE_LOGGING_H_
#define COMMON_BASE_LOGGING_H_

#include <string>

#include "spdlog/spdlog.h"

namespace weir {

// Names this process's task in every line, "worker/0". Call once, in main.
// WEIR_LOG_LEVEL (debug, info, warn, error) sets the level; default info.
void InitLogging(const std::string& task);

}  // namespace weir

#define LOG_DEBUG(...) ::spdlog::debug(__VA_ARGS__)
#define LOG_INFO(...) ::spdlog::info(__VA_ARGS__)
#define LOG_WARN(...) ::spdlog::warn(__VA_ARGS__)
#define LOG_ERROR(...) ::spdlog::error(__VA_ARGS__)

#endif  // COMMON_BASE_LOGGING_H_
