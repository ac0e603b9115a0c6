#include "common/base/logging.h"

#include <cstdlib>
#include <exception>
#include <string>

#include "common/base/printable.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace weir {
namespace {

spdlog::level::level_enum SpdlogLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      break;
  }
  return spdlog::level::err;
}

}  // namespace

void InitLogging(const std::string& task) {
  auto logger = spdlog::stderr_logger_mt("weir");
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e " + task + " %L %v");
  // A process that is killed a moment later must have said why.
  logger->flush_on(spdlog::level::info);
  // Read once at start, before any thread exists.
  const char* level = std::getenv("WEIR_LOG_LEVEL");  // NOLINT
  if (level != nullptr) {
    logger->set_level(spdlog::level::from_str(level));
  }
  spdlog::set_default_logger(logger);
}

void SetLogLevel(LogLevel level) { spdlog::set_level(SpdlogLevel(level)); }

bool IsLogged(LogLevel level) { return spdlog::should_log(SpdlogLevel(level)); }

void WriteLog(LogLevel level, fmt::string_view format, fmt::format_args args) {
  try {
    const std::string line = fmt::vformat(format, args);
    spdlog::log(SpdlogLevel(level), Printable(line, line.max_size()));
  } catch (const std::exception& error) {  // A log line ends no process.
    spdlog::error("a log line cannot be written: {}", error.what());
  }
}

}  // namespace weir
