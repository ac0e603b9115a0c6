#include "common/base/logging.h"

#include <cstdlib>

#include "spdlog/sinks/stdout_sinks.h"

namespace weir {

void InitLogging(const std::string& task) {
  auto logger = spdlog::stderr_logger_mt("weir");
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e " + task + " %L %v");
  logger->flush_on(spdlog::level::info);
  // Read once at start, before any thread exists.
  const char* level = std::getenv("WEIR_LOG_LEVEL");  // NOLINT
  if (level != nullptr) {
    logger->set_level(spdlog::level::from_str(level));
  }
  spdlog::set_default_logger(logger);
}

}  // namespace weir
