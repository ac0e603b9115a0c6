#include "common/base/logging.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/printable.h"
#include "common/base/status.h"
#include "spdlog/formatter.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace weir {
namespace {

constexpr size_t kModuleCount = std::size(kLogModules);
constexpr const char* kLevelNames[] = {"debug", "info", "warn", "error"};

// The least level that each module writes.
using Levels = std::array<LogLevel, kModuleCount>;

struct LeastLevel {
  std::atomic<LogLevel> level{LogLevel::kInfo};
};
constinit LeastLevel least_levels[kModuleCount];

void SetLevels(const Levels& levels) {
  for (size_t i = 0; i < kModuleCount; ++i) {
    least_levels[i].level.store(levels[i], std::memory_order_relaxed);
  }
}

Levels AllAt(LogLevel level) {
  Levels levels;
  levels.fill(level);
  return levels;
}

absl::StatusOr<LogLevel> ReadLevel(const std::string& name) {
  const std::optional<LogLevel> level = LogLevelNamed(name);
  if (!level.has_value()) {
    return Invalid("there is no level '", name, "'; there are ",
                   absl::StrJoin(kLevelNames, ", "));
  }
  return *level;
}

// "server/ps=debug" or "server=debug": sets the level of these modules in
// `levels`, unless a longer name has set it (`set_by`: the length of that).
absl::Status ReadModuleLevel(const std::string& name,
                             const std::string& level_name, Levels* levels,
                             std::array<size_t, kModuleCount>* set_by) {
  WEIR_ASSIGN_OR_RETURN(const LogLevel level, ReadLevel(level_name));
  bool found = false;
  for (size_t i = 0; i < kModuleCount; ++i) {
    if (kLogModules[i] == name || internal::IsInFolder(kLogModules[i], name)) {
      found = true;
      if (name.size() >= (*set_by)[i]) {
        (*levels)[i] = level;
        (*set_by)[i] = name.size();
      }
    }
  }
  if (!found) {
    return Invalid("there is no module '", name, "'; there are ",
                   absl::StrJoin(kLogModules, ", "));
  }
  return absl::OkStatus();
}

absl::StatusOr<Levels> ReadLevels(const std::string& text) {
  const auto wrong = [&](const absl::Status& status) {
    return Annotate(status,
                    absl::StrCat("--log_level or WEIR_LOG_LEVEL '", text, "'"));
  };
  const std::vector<std::string> parts = absl::StrSplit(text, ',');
  // The level without a module comes first, wherever it stands.
  Levels levels = AllAt(LogLevel::kInfo);
  int general = 0;
  for (const std::string& part : parts) {
    if (part.find('=') == std::string::npos) {
      const absl::StatusOr<LogLevel> level = ReadLevel(part);
      if (!level.ok()) {
        return wrong(level.status());
      }
      levels = AllAt(*level);
      ++general;
    }
  }
  if (general > 1) {
    return wrong(Invalid("only one level may stand without a module"));
  }
  std::array<size_t, kModuleCount> set_by = {};
  for (const std::string& part : parts) {
    const std::pair<std::string, std::string> words =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (part.find('=') != std::string::npos) {
      WEIR_RETURN_IF_ERROR(
          wrong(ReadModuleLevel(words.first, words.second, &levels, &set_by)));
    }
  }
  return levels;
}

absl::StatusOr<LogFormat> ReadFormat(const std::string& text) {
  if (text == "text") {
    return LogFormat::kText;
  }
  if (text == "json") {
    return LogFormat::kJson;
  }
  return Invalid("--log_format or WEIR_LOG_FORMAT '", text,
                 "': it is text or json");
}

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

// `text` as a string of JSON. What Printable made has no control characters, so
// only two characters have a meaning there.
std::string JsonString(const std::string& text) {
  std::string json = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      json += '\\';
    }
    json += c;
  }
  return json + '"';
}

// Gives a line of spdlog our form. The name of the module comes as the name of
// the source, and the level in the place of its line: spdlog's own has others.
class Formatter : public spdlog::formatter {
 public:
  Formatter(std::string task, LogFormat format)
      : task_(std::move(task)), format_(format) {}

  void format(const spdlog::details::log_msg& message,
              spdlog::memory_buf_t& to) override {
    LogEntry line;
    line.time_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                       message.time.time_since_epoch())
                       .count();
    line.level = static_cast<LogLevel>(message.source.line);
    line.task = task_;
    line.module = message.source.filename;
    line.message.assign(message.payload.data(), message.payload.size());
    const std::string text = FormatLogEntry(line, format_) + "\n";
    to.append(text.data(), text.data() + text.size());
  }

  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<Formatter>(task_, format_);
  }

 private:
  const std::string task_;
  const LogFormat format_;
};

// Ours alone: a program that uses the SDK may have spdlog for itself. It is
// never destroyed, since threads may log until the process is gone.
spdlog::logger& Logger() {
  static auto* const logger = [] {
    auto* const made = new spdlog::logger(
        "weir", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_level(spdlog::level::trace);  // IsLogged decides
    // A process that is killed a moment later must have said why.
    made->flush_on(spdlog::level::info);
    made->set_formatter(std::make_unique<Formatter>("weir", LogFormat::kText));
    return made;
  }();
  return *logger;
}

}  // namespace

const char* LogLevelName(LogLevel level) {
  return kLevelNames[static_cast<size_t>(level)];
}

std::optional<LogLevel> LogLevelNamed(std::string_view name) {
  const auto* const found =
      std::find(std::begin(kLevelNames), std::end(kLevelNames), name);
  if (found == std::end(kLevelNames)) {
    return std::nullopt;
  }
  return static_cast<LogLevel>(found - std::begin(kLevelNames));
}

LogOptions LogOptions::FromEnvironment(const std::string& levels) {
  LogOptions options;
  options.levels = levels;
  const auto read = [](const char* name, std::string* value) {
    // Only the main thread reads the environment, before any other exists.
    const char* const text = std::getenv(name);  // NOLINT
    if (text != nullptr && *text != 0) {
      *value = text;
    }
  };
  read("WEIR_LOG_LEVEL", &options.levels);
  read("WEIR_LOG_FORMAT", &options.format);
  return options;
}

absl::Status LogOptions::Validate() const {
  WEIR_RETURN_IF_ERROR(ReadLevels(levels).status());
  return ReadFormat(format).status();
}

absl::Status InitLogging(const std::string& task, const LogOptions& options) {
  const auto levels = ReadLevels(options.levels);
  const auto format = ReadFormat(options.format);
  SetLevels(levels.value_or(AllAt(LogLevel::kInfo)));
  Logger().set_formatter(std::make_unique<Formatter>(
      Printable(task), format.value_or(LogFormat::kText)));
  WEIR_RETURN_IF_ERROR(levels.status());
  return format.status();
}

void SetLogLevel(LogLevel level) { SetLevels(AllAt(level)); }

bool IsLogged(LogLevel level, LogModule module) {
  return level >= least_levels[static_cast<size_t>(module)].level.load(
                      std::memory_order_relaxed);
}

std::string FormatLogEntry(const LogEntry& line, LogFormat format) {
  const auto seconds = static_cast<std::time_t>(line.time_ms / 1000);
  std::tm utc = {};
  gmtime_r(&seconds, &utc);
  const std::string time =
      fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
                  utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour,
                  utc.tm_min, utc.tm_sec, line.time_ms % 1000);
  const char* const level = LogLevelName(line.level);
  if (format == LogFormat::kText) {
    // The level is one letter: D, I, W or E.
    return fmt::format("{} {} {} {}", time, line.task,
                       static_cast<char>(level[0] - 'a' + 'A'), line.message);
  }
  std::string module;
  if (!line.module.empty()) {
    module = fmt::format("\"module\":{},", JsonString(line.module));
  }
  return fmt::format(
      "{{\"time\":\"{}\",\"level\":\"{}\",\"task\":{},{}\"message\":{}}}", time,
      level, JsonString(line.task), module, JsonString(line.message));
}

void WriteLog(LogLevel level, LogModule module, fmt::string_view format,
              fmt::format_args args) {
  const spdlog::source_loc source(kLogModules[static_cast<size_t>(module)],
                                  static_cast<int>(level), "");
  try {
    const std::string line = fmt::vformat(format, args);
    Logger().log(source, SpdlogLevel(level),
                 spdlog::string_view_t(Printable(line, line.max_size())));
  } catch (const std::exception& error) {  // A log line ends no process.
    Logger().log(source, spdlog::level::err,
                 std::string("a log line cannot be written: ") + error.what());
  }
}

}  // namespace weir
