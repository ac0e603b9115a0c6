// What the lines of a run become.
#include "proto/tensorboard/board.h"

#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "proto/job/job_spec_text.h"
#include "tests/common/temp_dir.h"

namespace weir {
namespace {

using Points = std::map<std::string, std::vector<std::pair<int64_t, float>>>;

// The points of all curves, and the texts under their tags.
struct Curves {
  Points points;
  std::map<std::string, std::string> texts;
  std::map<std::string, std::vector<int64_t>> histograms;  // their steps
  size_t files = 0;
};

Curves Read(const std::string& directory) {
  Curves curves;
  const auto names = Files::Real()->List(directory);
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    ++curves.files;
    const std::string text =
        Files::Real()->ReadAll(directory + "/" + name).value_or("");
    for (size_t at = 0; at < text.size();) {
      const size_t bytes = static_cast<unsigned char>(text[at]) |
                           static_cast<unsigned char>(text[at + 1]) << 8 |
                           static_cast<unsigned char>(text[at + 2]) << 16;
      tensorboard::Event event;
      EXPECT_TRUE(event.ParseFromString(text.substr(at + 12, bytes)));
      for (const tensorboard::SummaryValue& value : event.summary().value()) {
        if (value.tensor().float_val_size() > 0) {
          curves.points[value.tag()].emplace_back(event.step(),
                                                  value.tensor().float_val(0));
        } else if (!value.tensor().content().empty()) {
          curves.histograms[value.tag()].push_back(event.step());
        } else {
          curves.texts[value.tag()] = value.tensor().string_val(0);
        }
      }
      at += bytes + 16;
    }
  }
  return curves;
}

TEST(BoardTest, EveryNumberOfALineIsAPoint) {
  Board::Options options;
  options.directory = MakeTempDir() + "/train";
  options.job_text = "name: \"digits\"";
  options.hparams["train.batch_size"].set_number_value(64);
  Board board(options);
  board.End(true);  // nothing yet, so no file
  EXPECT_EQ(Read(options.directory).files, 0U);
  board.AddLine(
      R"({"step":10,"loss":0.5,"staleness_mean":1.5,"bytes_pushed":4,)"
      R"("phases":{"contributions":20,"step_seconds":2,)"
      R"("pull_wait_seconds":0.5,"compute_seconds":1.5}})");
  board.AddLine(R"({"step":20,"loss":null,"learning_rate":0.1,)"
                R"("phases":{"contributions":30,"step_seconds":6,)"
                R"("pull_wait_seconds":3.5,"compute_seconds":2.5,)"
                R"("gpu_busy_share":0.9}})");
  board.AddLine("no JSON");
  board.AddLine(R"({"loss":1})");
  board.End(true);
  const Curves curves = Read(options.directory);
  EXPECT_EQ(curves.files, 1U);
  EXPECT_EQ(curves.points.at("loss"), (Points::mapped_type{{10, 0.5F}}));
  EXPECT_EQ(curves.points.at("staleness/mean"),
            (Points::mapped_type{{10, 1.5F}}));
  EXPECT_EQ(curves.points.at("bytes/pushed"),
            (Points::mapped_type{{10, 4.0F}}));
  EXPECT_EQ(curves.points.at("learning_rate"),
            (Points::mapped_type{{20, 0.1F}}));
  // Of what came since the line before.
  EXPECT_EQ(curves.points.at("phases/pull_wait"),
            (Points::mapped_type{{10, 0.25F}, {20, 0.75F}}));
  EXPECT_EQ(curves.points.at("phases/compute"),
            (Points::mapped_type{{10, 0.75F}, {20, 0.25F}}));
  EXPECT_EQ(curves.points.at("phases/step_ms"),
            (Points::mapped_type{{10, 100.0F}, {20, 400.0F}}));
  EXPECT_EQ(curves.points.at("phases/gpu_busy_share"),
            (Points::mapped_type{{20, 0.9F}}));
  EXPECT_EQ(curves.texts.at("job"), "```\nname: \"digits\"\n```");
  EXPECT_EQ(curves.points.count("_hparams_/session_start_info"), 1U);
  EXPECT_EQ(curves.points.count("_hparams_/session_end_info"), 1U);
}

TEST(BoardTest, WhatBeginsEarlierAgainIsAFileOfItsOwn) {
  Board::Options options;
  options.directory = MakeTempDir() + "/train";
  Board board(options);
  board.AddLine(R"({"step":10,"loss":0.5})");
  board.Restart();
  board.AddLine(R"({"step":5,"loss":0.7})");
  EXPECT_EQ(Read(options.directory).files, 2U);
}

TEST(BoardTest, ACurveThatCannotBeWrittenIsNoError) {
  Board::Options options;
  options.directory = "/dev/null/train";
  Board board(options);
  board.AddLine(R"({"step":10,"loss":0.5})");
  board.AddLine(R"({"step":20,"loss":0.5})");
  board.End(false);
  Board none(Board::Options{});
  none.AddLine(R"({"step":10,"loss":0.5})");
}

TEST(BoardTest, HyperparametersAreHowAJobTrains) {
  const auto spec = ParseJobSpec(
      "name: 'a' seed: 3 train { batch_size: 64 } "
      "optimizer { adam { beta1: 0.8 } } schedule { learning_rate: 0.5 } "
      "update { sync { contributions: 4 } }",
      "a.textproto");
  ASSERT_TRUE(spec.ok()) << spec.status();
  Hparams hparams = HparamsOfJob(*spec, 2, 3);
  EXPECT_EQ(hparams["train.batch_size"].number_value(), 64);
  EXPECT_FLOAT_EQ(
      static_cast<float>(hparams["optimizer.adam.beta1"].number_value()), 0.8F);
  EXPECT_EQ(hparams["schedule.learning_rate"].number_value(), 0.5);
  EXPECT_EQ(hparams["update.sync.contributions"].number_value(), 4);
  EXPECT_EQ(hparams["seed"].number_value(), 3);
  EXPECT_EQ(hparams["ps"].number_value(), 2);
  EXPECT_EQ(hparams["workers"].number_value(), 3);
}

TEST(BoardTest, HistogramsComeByRisingSteps) {
  Histogram histogram;
  histogram.add_count(3);
  histogram.set_not_finite(2);
  Histogram nothing;
  nothing.set_not_finite(5);
  Board::Options options;
  options.directory = MakeTempDir() + "/train";
  options.job_text = "name: \"digits\"";
  Board board(options);
  board.AddHistograms(10, {{"values/w", histogram}, {"values/n", nothing}});
  board.AddLine(R"({"step":10,"loss":0.5})");
  board.AddHistograms(30, {{"values/w", histogram}});
  for (const uint64_t late : {20, 30}) {  // another worker was faster
    board.AddHistograms(late, {{"values/w", histogram}});
  }
  const Curves curves = Read(options.directory);
  EXPECT_EQ(curves.files, 1U);
  EXPECT_EQ(curves.texts.count("job"), 1U);  // although no line came before
  EXPECT_EQ(curves.histograms.at("values/w"), (std::vector<int64_t>{10, 30}));
  EXPECT_EQ(curves.histograms.count("values/n"), 0U);
  EXPECT_EQ(curves.points.at("not_finite/values/w"),
            (Points::mapped_type{{10, 2.0F}, {30, 2.0F}}));
  EXPECT_EQ(curves.points.at("not_finite/values/n"),
            (Points::mapped_type{{10, 5.0F}}));
  // After a resume they go on behind the step that it went back to.
  board.Restart();
  board.AddHistograms(20, {{"values/w", histogram}});
  EXPECT_EQ(Read(options.directory).histograms.at("values/w").size(), 3U);
  EXPECT_EQ(Read(options.directory).files, 2U);
}

}  // namespace
}  // namespace weir
