// Files of events: how they begin, and what becomes of a failure.
#include "proto/tensorboard/event_file.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"

namespace weir {
namespace {

// Reads the events of a file; stops at a record that is not whole.
std::vector<tensorboard::Event> EventsOf(const std::string& path) {
  const std::string text = Files::Real()->ReadAll(path).value_or("");
  std::vector<tensorboard::Event> events;
  size_t at = 0;
  while (at + 12 <= text.size()) {
    size_t bytes = 0;
    for (int i = 7; i >= 0; --i) {
      bytes = bytes << 8 | static_cast<unsigned char>(text[at + i]);
    }
    if (at + 16 + bytes > text.size()) {
      break;
    }
    const std::string event = text.substr(at + 12, bytes);
    EXPECT_EQ(EventRecord(event), text.substr(at, bytes + 16));
    events.emplace_back();
    EXPECT_TRUE(events.back().ParseFromString(event));
    at += bytes + 16;
  }
  EXPECT_EQ(at, text.size());
  return events;
}

TEST(EventFileTest, EachFileBeginsWithItsVersion) {
  const std::string directory = MakeTempDir() + "/tensorboard/train";
  EventFile file(Files::Real(), Clock::Real(), directory);
  EXPECT_TRUE(file.closed());
  ASSERT_TRUE(file.Write(7, {}).ok());
  ASSERT_TRUE(file.Write(8, {}).ok());
  file.Close();
  ASSERT_TRUE(file.Write(3, {}).ok());
  const auto names = Files::Real()->List(directory);
  ASSERT_TRUE(names.ok());
  ASSERT_EQ(names->size(), 2U);
  std::vector<std::vector<int64_t>> steps;
  for (const std::string& name : *names) {
    EXPECT_EQ(name.rfind("events.out.tfevents.", 0), 0U) << name;
    const auto events = EventsOf(directory + "/" + name);
    ASSERT_FALSE(events.empty());
    EXPECT_EQ(events[0].file_version(), "brain.Event:2");
    EXPECT_GT(events[0].wall_time(), 1.7e9);
    steps.emplace_back();
    for (const tensorboard::Event& event : events) {
      steps.back().push_back(event.step());
    }
  }
  EXPECT_EQ(steps, (std::vector<std::vector<int64_t>>{{0, 7, 8}, {0, 3}}));
}

TEST(EventFileTest, WithoutADirectoryItSaysSo) {
  EventFile file(Files::Real(), Clock::Real(), "/dev/null/tensorboard");
  EXPECT_FALSE(file.Write(1, {}).ok());
  EXPECT_TRUE(file.closed());
}

}  // namespace
}  // namespace weir
