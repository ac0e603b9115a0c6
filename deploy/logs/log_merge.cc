#include "deploy/logs/log_merge.h"

#include <algorithm>
#include <cctype>
#include <ctime>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/printable.h"
#include "nlohmann/json.hpp"

namespace weir {
namespace {

using Json = nlohmann::ordered_json;

// "2026-11-21T10:00:00.000Z": 9 is a digit, all else stands for itself.
constexpr absl::string_view kTimeShape = "9999-99-99T99:99:99.999Z";
constexpr absl::string_view kJsonStart = "{\"time\":\"";

std::string AllPrintable(absl::string_view text) {
  return Printable(text, std::numeric_limits<size_t>::max());
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// The number of `count` digits at text[at].
int Number(absl::string_view text, size_t at, size_t count) {
  int number = 0;
  for (const char c : text.substr(at, count)) {
    number = number * 10 + (c - '0');
  }
  return number;
}

// Returns the milliseconds since 1970 that `text` says.
std::optional<int64_t> ParseTime(absl::string_view text) {
  const bool fits = std::equal(text.begin(), text.end(), kTimeShape.begin(),
                               kTimeShape.end(), [](char c, char shape) {
                                 return shape == '9' ? IsDigit(c) : c == shape;
                               });
  if (!fits) {
    return std::nullopt;
  }
  std::tm utc = {};
  utc.tm_year = Number(text, 0, 4) - 1900;
  utc.tm_mon = Number(text, 5, 2) - 1;
  utc.tm_mday = Number(text, 8, 2);
  utc.tm_hour = Number(text, 11, 2);
  utc.tm_min = Number(text, 14, 2);
  utc.tm_sec = Number(text, 17, 2);
  const std::tm said = utc;
  const auto seconds = static_cast<int64_t>(timegm(&utc));
  // timegm turns February 30th into March 2nd: no such day is a time.
  const bool exists = said.tm_mon == utc.tm_mon &&
                      said.tm_mday == utc.tm_mday &&
                      said.tm_hour == utc.tm_hour &&
                      said.tm_min == utc.tm_min && said.tm_sec == utc.tm_sec;
  if (!exists || seconds < 0) {
    return std::nullopt;
  }
  return seconds * 1000 + Number(text, 20, 3);
}

std::optional<LogLevel> LevelOfLetter(absl::string_view letter) {
  for (const LogLevel level :
       {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarn, LogLevel::kError}) {
    const int name = std::toupper(LogLevelName(level)[0]);
    if (letter.size() == 1 && letter[0] == name) {
      return level;
    }
  }
  return std::nullopt;
}

// Cuts the first word and the space behind it off `text`.
absl::string_view TakeWord(absl::string_view* text) {
  const size_t end = std::min(text->find(' '), text->size());
  const absl::string_view word = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return word;
}

std::optional<LogEntry> ParseText(absl::string_view text) {
  const auto time = ParseTime(TakeWord(&text));
  const absl::string_view task = TakeWord(&text);
  const auto level = LevelOfLetter(TakeWord(&text));
  if (!time.has_value() || task.empty() || !level.has_value()) {
    return std::nullopt;
  }
  LogEntry line;
  line.time_ms = *time;
  line.level = *level;
  line.task = AllPrintable(task);
  line.message = AllPrintable(text);
  return line;
}

std::optional<LogEntry> ParseJson(absl::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, false);
  const auto read = [&](const char* key) -> std::optional<std::string> {
    const auto found = json.find(key);
    if (found == json.end() || !found->is_string()) {
      return std::nullopt;
    }
    return found->get<std::string>();
  };
  if (!json.is_object()) {
    return std::nullopt;
  }
  const auto time = ParseTime(read("time").value_or(""));
  const auto level = LogLevelNamed(read("level").value_or(""));
  const auto task = read("task");
  const auto message = read("message");
  if (!time.has_value() || !level.has_value() || !task.has_value() ||
      !message.has_value()) {
    return std::nullopt;
  }
  LogEntry line;
  line.time_ms = *time;
  line.level = *level;
  // An escape of JSON may have brought any character.
  line.task = AllPrintable(*task);
  line.module = AllPrintable(read("module").value_or(""));
  line.message = AllPrintable(*message);
  return line;
}

}  // namespace

std::optional<LogEntry> ParseLogEntry(absl::string_view text) {
  if (absl::ConsumePrefix(&text, kJsonStart)) {
    // Back to its begin: only what may be a head is worth a parser.
    return ParseJson(
        {text.data() - kJsonStart.size(), text.size() + kJsonStart.size()});
  }
  return ParseText(text);
}

std::string FormatMergedLine(const MergedLine& line, LogFormat format) {
  if (format == LogFormat::kText && !line.is_head) {
    return absl::StrCat("[", line.line.task, "] ", line.line.message);
  }
  if (!line.is_head && line.line.time_ms == 0) {
    return Json{{"task", line.line.task}, {"message", line.line.message}}
        .dump();
  }
  return FormatLogEntry(line.line, format);
}

size_t LogMerge::AddSource(const std::string& task) {
  Source source;
  source.task = task;
  source.head.task = task;
  sources_.push_back(std::move(source));
  return sources_.size() - 1;
}

bool LogMerge::IsHungry(size_t source) const {
  return !sources_[source].next.has_value();
}

void LogMerge::Offer(size_t source, absl::string_view text) {
  Source& to = sources_[source];
  MergedLine next;
  next.source = source;
  if (auto head = ParseLogEntry(text); head.has_value()) {
    next.is_head = true;
    next.line = *std::move(head);
    to.head = next.line;
    to.head.task = to.task;
    to.head.message.clear();
  } else {
    next.line = to.head;
    next.line.message = AllPrintable(text);
  }
  // I2. The time of text without a head is 0.
  queue_.emplace(next.line.time_ms, source);
  to.next = std::move(next);
}

std::optional<MergedLine> LogMerge::Take() {
  if (queue_.empty()) {
    return std::nullopt;
  }
  size_t source = queue_.begin()->second;
  // I3: another source may have the time of the head, too.
  if (last_.has_value() && sources_[*last_].next.has_value() &&
      !sources_[*last_].next->is_head) {
    source = *last_;
  }
  last_ = source;
  Source& from = sources_[source];  // I1: hungry from now on
  queue_.erase({from.next->line.time_ms, source});
  return std::exchange(from.next, std::nullopt);
}

}  // namespace weir
