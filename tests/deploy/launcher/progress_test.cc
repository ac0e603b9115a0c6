// The progress line's words.
#include "deploy/launcher/progress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace weir {
namespace {

ChiefStatus Training() {
  ChiefStatus status;
  status.set_phase(ChiefStatus::TRAINING);
  status.set_step(1200);
  status.set_step_count(2500);
  status.set_examples(60000);
  status.set_loss(0.1234);
  status.set_examples_per_second(1234567.8);
  return status;
}

TEST(ProgressTest, SaysStepLossSpeedAndWhatIsLeft) {
  EXPECT_EQ(ProgressText(Training(), 72.4),
            "step 1200/2500  loss 0.1234  1,234,568 examples/s  ETA 1:12");
}

TEST(ProgressTest, SaysNoLossBeforeTheFirstReport) {
  ChiefStatus status;
  status.set_phase(ChiefStatus::TRAINING);
  status.set_step_count(2500);
  EXPECT_EQ(ProgressText(status, -1), "step 0/2500");
}

TEST(ProgressTest, TheChiefsWordsDoNotMoveTheCursor) {
  ChiefStatus status;
  status.set_phase(ChiefStatus::WAITING);
  status.set_message("for ps 1\x1b[2J\nforged");
  EXPECT_EQ(ProgressText(status, -1), "for ps 1\\x1b[2J\\nforged");
  status = Training();
  status.set_phase(ChiefStatus::FINISHING);
  status.set_message("\r");
  EXPECT_NE(ProgressText(status, -1).find("examples/s  \\r"),
            std::string::npos);
}

TEST(ProgressTest, NamesStalenessWhenThereIsAny) {
  ChiefStatus status = Training();
  status.set_staleness_mean(0.75);
  status.set_staleness_max(3);
  EXPECT_EQ(ProgressText(status, -1),
            "step 1200/2500  loss 0.1234  1,234,568 examples/s  "
            "staleness 0.8 (max 3)");
}

TEST(ProgressTest, WaitingShowsWhatTheChiefWaitsFor) {
  ChiefStatus status;
  status.set_message("waiting for ps 1 (127.0.0.1:5), 12 s");
  EXPECT_EQ(ProgressText(status, -1), status.message());
}

TEST(ProgressTest, ASparklineIsAsHighAsItsValues) {
  EXPECT_EQ(Sparkline({}, 10), "");
  EXPECT_EQ(Sparkline({7, 3.5, 0}, 10), "█▅▁");
  EXPECT_EQ(Sparkline({5, 5, 5}, 10), "▁▁▁");
  EXPECT_EQ(Sparkline({4, 4, 0, 0}, 2), "█▁");
}

TEST(ProgressTest, ASparklineTakesWhatIsNotFinite) {
  EXPECT_EQ(Sparkline({NAN, 1, 0}, 3), "██▁");
  EXPECT_EQ(Sparkline({NAN, INFINITY}, 2), "██");
}

TEST(ProgressTest, OnATerminalTheLineHasTheCurve) {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* const out = open_memstream(&text, &size);
  {
    ProgressLine line(out, /*terminal=*/true);
    ChiefStatus status = Training();
    for (int i = 0; i < 10'000; ++i) {
      status.set_step(static_cast<uint64_t>(i));
      status.set_loss(10'000 - i);
      line.Show(status, int64_t{i} * 1'000'000);
    }
  }
  std::fclose(out);
  const std::string shown(text, size);
  std::free(text);
  const std::string last = shown.substr(shown.rfind("\033[K") + 3);
  EXPECT_NE(last.find("█"), std::string::npos);
  EXPECT_EQ(last.substr(last.size() - 3), "▁");
}

// Returns what a terminal of `columns` columns gets in a whole run.
std::string ShownOn(int columns) {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* const out = open_memstream(&text, &size);
  {
    ProgressLine line(out, /*terminal=*/true);
    ChiefStatus status = Training();
    for (int i = 0; i < 1000; ++i) {
      status.set_step(static_cast<uint64_t>(i));
      status.set_loss(1000 - i);
      line.Show(status, int64_t{i} * 1'000'000, columns);
    }
  }
  std::fclose(out);
  std::string shown(text, size);
  std::free(text);
  return shown;
}

TEST(ProgressTest, ALineIsShorterThanTheTerminalsAndLosesItsCurveFirst) {
  const std::string start = "\r\033[K";
  for (const int columns : {100, 80, 66, 20}) {
    const std::string shown = ShownOn(columns);
    for (size_t at = 0; at < shown.size();) {
      ASSERT_EQ(shown.compare(at, start.size(), start), 0);
      at += start.size();
      const size_t end = std::min(shown.find('\r', at), shown.size());
      int characters = 0;
      for (; at < end; ++at) {
        characters += (static_cast<unsigned char>(shown[at]) >> 6) != 2 ? 1 : 0;
      }
      ASSERT_LT(characters, columns);
    }
    EXPECT_EQ(shown.find("█") != std::string::npos, columns >= 80) << columns;
    EXPECT_EQ(shown.find("ETA") != std::string::npos, columns >= 66) << columns;
  }
}

}  // namespace
}  // namespace weir
