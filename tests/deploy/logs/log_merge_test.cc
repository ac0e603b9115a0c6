#include "deploy/logs/log_merge.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using testing::ElementsAre;

const LogEntry kLine = {.time_ms = 1795255200007,
                        .level = LogLevel::kWarn,
                        .task = "worker/0",
                        .module = "server/ps",
                        .message = "lost \"ps/1\"\\n of 3"};

// A head of that second after midnight.
std::string Head(int second, const std::string& task,
                 const std::string& message) {
  return FormatLogEntry({.time_ms = 1795219200000 + int64_t{1000} * second,
                         .level = LogLevel::kInfo,
                         .task = task,
                         .module = "",
                         .message = message},
                        LogFormat::kText);
}

// Merges whole sources, as a reader of files does.
std::vector<MergedLine> MergedLines(
    const std::vector<std::pair<std::string, std::vector<std::string>>>&
        sources) {
  LogMerge merge;
  std::vector<size_t> at(sources.size());
  const auto feed = [&](size_t i) {
    if (merge.IsHungry(i) && at[i] < sources[i].second.size()) {
      merge.Offer(i, sources[i].second[at[i]++]);
    }
  };
  for (const auto& [task, lines] : sources) {
    merge.AddSource(task);
  }
  for (size_t i = 0; i < sources.size(); ++i) {
    feed(i);
  }
  std::vector<MergedLine> merged;
  while (auto line = merge.Take()) {
    feed(line->source);
    merged.push_back(*std::move(line));
  }
  return merged;
}

std::vector<std::string> Messages(const std::vector<MergedLine>& lines) {
  std::vector<std::string> messages;
  for (const MergedLine& line : lines) {
    messages.push_back(line.line.message);
  }
  return messages;
}

TEST(LogMergeTest, WhatIsWrittenIsReadInBothForms) {
  for (const LogFormat format : {LogFormat::kText, LogFormat::kJson}) {
    for (const LogLevel level : {LogLevel::kDebug, LogLevel::kInfo,
                                 LogLevel::kWarn, LogLevel::kError}) {
      for (const char* const message : {"", " ", "a  b", "{\"time\":\"x\"}"}) {
        LogEntry line = kLine;
        line.level = level;
        line.message = message;
        const auto read = ParseLogEntry(FormatLogEntry(line, format));
        ASSERT_TRUE(read.has_value()) << message;
        EXPECT_EQ(read->time_ms, line.time_ms);
        EXPECT_EQ(read->level, level);
        EXPECT_EQ(read->task, line.task);
        EXPECT_EQ(read->message, message);
        EXPECT_EQ(read->module, format == LogFormat::kJson ? line.module : "");
      }
    }
  }
}

TEST(LogMergeTest, OtherTextIsNoHead) {
  const std::string text = FormatLogEntry(kLine, LogFormat::kText);
  ASSERT_TRUE(ParseLogEntry(text).has_value());
  const std::string json = FormatLogEntry(kLine, LogFormat::kJson);
  for (const std::string& other : std::vector<std::string>{
           "",
           "epoch 3 loss 0.25",
           " " + text,
           "2026-11-21",
           "{",
           "{}",
           "[]",
           json.substr(0, json.size() - 1),
           json + "}",
           "2026-11-21 10:00:00.000 worker/0 I of an older version",
           "2026-11-21T10:00:00.000Z worker/0 X message",
           "2026-11-21T10:00:00.000Z worker/0 WW message",
           "2026-11-21T10:00:00.000Z  I message",
           "2026-11-21T10:00:00.000Z",
           "2026-02-30T10:00:00.000Z worker/0 I message",
           "2026-11-21T24:00:00.000Z worker/0 I message",
           "2026-00-21T10:00:00.000Z worker/0 I message",
           "1969-11-21T10:00:00.000Z worker/0 I message",
           R"({"time":"2026-11-21T10:00:00.000Z"})",
           R"({"time":"2026-11-21T10:00:00.000Z","level":1,"task":"a",)"
           R"("message":"b"})",
           R"({"time":"2026-11-21T10:00:00.000Z","level":"info","task":[],)"
           R"("message":"b"})",
           R"({"time":"now","level":"info","task":"a","message":"b"})"}) {
    EXPECT_FALSE(ParseLogEntry(other).has_value()) << other;
  }
}

TEST(LogMergeTest, NothingThatIsReadMovesTheCursor) {
  const auto json = ParseLogEntry(
      "{\"time\":\"2026-11-21T10:00:00.000Z\",\"level\":\"info\","
      "\"task\":\"a\\u001b\",\"module\":\"\\n\",\"message\":\"\\u001b[2J\"}");
  ASSERT_TRUE(json.has_value());
  EXPECT_EQ(json->task, "a\\x1b");
  EXPECT_EQ(json->module, "\\n");
  EXPECT_EQ(json->message, "\\x1b[2J");
  const auto text =
      ParseLogEntry("2026-11-21T10:00:00.000Z a\x1b I \xff\x1b[2J");
  ASSERT_TRUE(text.has_value());
  EXPECT_EQ(text->task, "a\\x1b");
  EXPECT_EQ(text->message, "\\xff\\x1b[2J");
  const auto other = MergedLines({{"ps/0", {"\x1b[2J"}}});
  EXPECT_EQ(FormatMergedLine(other[0], LogFormat::kText), "[ps/0] \\x1b[2J");
}

TEST(LogMergeTest, AnyBytesAreALine) {
  for (const std::string& start : {std::string(), std::string("{\"time\":\""),
                                   std::string("2026-11-21T10:00:00.000Z ")}) {
    // Deep enough for a parser that calls itself to overflow its stack.
    for (const std::string& rest :
         {std::string(64 << 10, '['), std::string(1000, '\0'),
          std::string(64 << 10, '"'),
          std::string("\",\"a\":") + std::string(64 << 10, '[')}) {
      const auto lines = MergedLines({{"ps/0", {start + rest}}});
      ASSERT_EQ(lines.size(), 1);
      EXPECT_FALSE(lines[0].is_head);
      const auto json = nlohmann::json::parse(
          FormatMergedLine(lines[0], LogFormat::kJson), nullptr, false);
      EXPECT_TRUE(json.is_object());
    }
  }
}

TEST(LogMergeTest, SourcesAreMergedByTime) {
  const auto lines = MergedLines(
      {{"ps/0", {Head(1, "ps/0", "a"), Head(4, "ps/0", "d")}},
       {"worker/0", {Head(2, "worker/0", "b"), Head(5, "worker/0", "e")}},
       {"worker/1", {Head(3, "worker/1", "c")}},
       {"worker/2", {}}});
  EXPECT_THAT(Messages(lines), ElementsAre("a", "b", "c", "d", "e"));
}

TEST(LogMergeTest, EqualTimesKeepTheOrderOfSourcesAndLines) {
  const auto lines = MergedLines(
      {{"ps/0", {Head(1, "ps/0", "a"), Head(1, "ps/0", "b")}},
       {"worker/0", {Head(1, "worker/0", "c"), Head(1, "worker/0", "d")}}});
  EXPECT_THAT(Messages(lines), ElementsAre("a", "b", "c", "d"));
}

TEST(LogMergeTest, AClockThatWasSetBackLeavesTheOrderOfItsSource) {
  const auto lines = MergedLines(
      {{"ps/0",
        {Head(1, "ps/0", "a"), Head(9, "ps/0", "c"), Head(2, "ps/0", "d"),
         Head(3, "ps/0", "e")}},
       {"worker/0", {Head(5, "worker/0", "b"), Head(10, "worker/0", "f")}}});
  EXPECT_THAT(Messages(lines), ElementsAre("a", "b", "c", "d", "e", "f"));
  EXPECT_EQ(lines[3].line.time_ms, 1795219200000 + 2000) << "as it was written";
}

TEST(LogMergeTest, OtherTextFollowsItsHead) {
  const auto lines =
      MergedLines({{"ps/0", {Head(1, "ps/0", "a"), Head(1, "ps/0", "a2")}},
                   {"worker/0",
                    {"early", Head(1, "worker/0", "b"), "b1", "b2",
                     Head(3, "worker/0", "d")}},
                   {"worker/1", {Head(1, "worker/1", "c"), "c1"}}});
  EXPECT_THAT(Messages(lines),
              ElementsAre("early", "a", "a2", "b", "b1", "b2", "c", "c1", "d"));
  EXPECT_EQ(FormatMergedLine(lines[4], LogFormat::kText), "[worker/0] b1");
  EXPECT_EQ(FormatMergedLine(lines[4], LogFormat::kJson),
            R"({"time":"2026-11-21T00:00:01.000Z","level":"info",)"
            R"("task":"worker/0","message":"b1"})");
  EXPECT_EQ(FormatMergedLine(lines[0], LogFormat::kJson),
            R"({"task":"worker/0","message":"early"})");
  EXPECT_EQ(lines[0].line.level, LogLevel::kInfo);
}

TEST(LogMergeTest, WhatComesLaterIsMergedWithWhatIsAtHand) {
  LogMerge merge;
  merge.AddSource("ps/0");
  merge.Offer(0, Head(5, "ps/0", "b"));
  EXPECT_EQ(merge.Take()->line.message, "b");
  EXPECT_FALSE(merge.Take().has_value());
  EXPECT_TRUE(merge.IsHungry(0));
  EXPECT_EQ(merge.AddSource("worker/0"), 1);
  merge.Offer(1, Head(4, "worker/0", "late"));
  merge.Offer(0, "b1");
  EXPECT_FALSE(merge.IsHungry(0));
  EXPECT_EQ(merge.Take()->line.message, "b1") << "close to its head";
  EXPECT_EQ(merge.Take()->line.message, "late");
}

}  // namespace
}  // namespace weir
