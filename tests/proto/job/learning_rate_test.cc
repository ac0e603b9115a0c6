#include "proto/job/learning_rate.h"

#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "proto/job/field_rules.h"

namespace weir {
namespace {

Schedule Parse(const std::string& text) {
  Schedule schedule;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &schedule));
  return schedule;
}

std::string Error(const std::string& text) {
  const Schedule schedule = Parse(text);
  absl::Status status = CheckFields(schedule, "schedule");
  if (status.ok()) {
    status = CheckLearningRate(schedule, "schedule");
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(LearningRateTest, FollowsPyTorchsSchedulers) {
  const std::map<std::string, std::string> specs = {
      {"constant", ""},
      {"step", "step { every: 30 factor: 0.1 }"},
      {"exponential", "exponential { every: 1 factor: 0.97 }"},
      {"cosine", "cosine { steps: 100 final_fraction: 0.1 }"},
      {"warmup", "warmup_steps: 10"},
  };
  std::ifstream in("tests/server/ps/optimizer/goldens/schedules.txt");
  std::string line;
  size_t seen = 0;
  while (std::getline(in, line)) {
    std::stringstream words(line);
    std::string name;
    words >> name;
    ASSERT_EQ(specs.count(name), 1u) << name;
    const Schedule schedule = Parse("learning_rate: 0.4 " + specs.at(name));
    ASSERT_TRUE(CheckFields(schedule, "schedule").ok());
    ASSERT_TRUE(CheckLearningRate(schedule, "schedule").ok());
    double expected = 0;
    uint64_t t = 0;
    for (; words >> expected; ++t) {
      // PyTorch multiplies step by step; the sum of 120 roundings.
      EXPECT_NEAR(LearningRate(schedule, t), expected, 1e-13) << name << t;
    }
    EXPECT_GT(t, 100u);
    ++seen;
  }
  EXPECT_EQ(seen, specs.size());
}

TEST(LearningRateTest, WarmsUpIntoTheDecay) {
  const Schedule schedule =
      Parse("learning_rate: 2 warmup_steps: 4 step { every: 2 factor: 0.5 }");
  const std::vector<double> expected = {0.5, 1.0, 0.75, 1.0, 0.5};
  for (size_t t = 0; t < expected.size(); ++t) {
    EXPECT_DOUBLE_EQ(LearningRate(schedule, t), expected[t]) << t;
  }
}

TEST(LearningRateTest, DecaysExponentiallyBetweenItsPoints) {
  const Schedule schedule =
      Parse("learning_rate: 1 exponential { every: 2 factor: 0.25 }");
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 1), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 2), 0.25);
}

TEST(LearningRateTest, StaysAtTheFloorAfterTheCosine) {
  const Schedule schedule =
      Parse("learning_rate: 1 cosine { steps: 10 final_fraction: 0.125 }");
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 10), 0.125);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 15), 0.125);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, UINT64_MAX), 0.125);
}

TEST(LearningRateTest, NeverLeavesTheRangeOfFloat) {
  const Schedule schedule =
      Parse("learning_rate: 1 exponential { every: 1 factor: 10 }");
  EXPECT_LE(LearningRate(schedule, 100000), 3.1e38);
}

TEST(LearningRateTest, NamesTheBadField) {
  EXPECT_EQ(Error(""), "schedule.learning_rate: 0 is not > 0");
  EXPECT_EQ(Error("learning_rate: nan"),
            "schedule.learning_rate: nan is not finite");
  EXPECT_EQ(Error("learning_rate: 1 step { factor: 1 }"),
            "schedule.step.every: 0 is not >= 1");
  EXPECT_EQ(Error("learning_rate: 1 step { every: 1 }"),
            "schedule.step.factor: 0 is not > 0");
  EXPECT_EQ(Error("learning_rate: 1 exponential { every: 1 factor: -1 }"),
            "schedule.exponential.factor: -1 is not > 0");
  EXPECT_EQ(Error("learning_rate: 1 cosine { steps: 0 }"),
            "schedule.cosine.steps: 0 is not >= 1");
  EXPECT_EQ(Error("learning_rate: 1 cosine { steps: 5 final_fraction: 1.5 }"),
            "schedule.cosine.final_fraction: 1.5 is not in [0, 1]");
}

TEST(LearningRateTest, WarmsUpLinearly) {
  Schedule schedule;
  schedule.set_learning_rate(0.5);
  schedule.set_warmup_steps(4);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 0), 0.125);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 3), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 400), 0.5);
}

TEST(LearningRateTest, Decays) {
  Schedule schedule;
  schedule.set_learning_rate(1.0);
  schedule.mutable_step()->set_every(10);
  schedule.mutable_step()->set_factor(0.5);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 9), 1.0);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 20), 0.25);
  schedule.mutable_exponential()->set_every(10);
  schedule.mutable_exponential()->set_factor(0.5);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 5), std::sqrt(0.5));
  schedule.mutable_cosine()->set_steps(10);
  schedule.mutable_cosine()->set_final_fraction(0.2);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 0), 1.0);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 5), 0.6);
  EXPECT_NEAR(LearningRate(schedule, 50), 0.2, 1e-15);
}

}  // namespace
}  // namespace weir
