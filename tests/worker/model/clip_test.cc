#include "worker/model/clip.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

// "a" [3] at 0, "b" [2] at 16, buffer "m" [2] at 32.
Layout SmallLayout() {
  std::vector<VariableSpec> variables(3);
  variables[0].name = "a";
  variables[0].shape = {3};
  variables[1].name = "m";
  variables[1].shape = {2};
  variables[1].kind = VariableKind::kBuffer;
  variables[2].name = "b";
  variables[2].shape = {2};
  return Layout::Create(variables, 1, 1024).value();
}

// Garbage in the padding and in the buffer's place must not count.
std::vector<float> Gradients() {
  std::vector<float> g(48, 1e6f);
  g[0] = 1, g[1] = -2, g[2] = 2;
  g[16] = 4, g[17] = 0;
  return g;
}

TEST(ClipTest, NormIsOverTrainedVariablesOnly) {
  EXPECT_DOUBLE_EQ(GradientNorm(SmallLayout(), Gradients().data()), 5.0);
}

TEST(ClipTest, ScalesDownToTheNorm) {
  std::vector<float> g = Gradients();
  Clip clip;
  clip.set_norm(2.5f);
  ClipGradients(clip, SmallLayout(), g.data());
  EXPECT_EQ(g[0], 0.5f);
  EXPECT_EQ(g[1], -1.0f);
  EXPECT_EQ(g[16], 2.0f);
  EXPECT_EQ(g[3], 1e6f);
  EXPECT_EQ(g[32], 1e6f);
  EXPECT_DOUBLE_EQ(GradientNorm(SmallLayout(), g.data()), 2.5);
}

TEST(ClipTest, LeavesASmallerNormAlone) {
  std::vector<float> g = Gradients();
  Clip clip;
  clip.set_norm(5.0f);
  ClipGradients(clip, SmallLayout(), g.data());
  EXPECT_EQ(g, Gradients());
  ClipGradients(Clip(), SmallLayout(), g.data());
  EXPECT_EQ(g, Gradients());
}

// The norm is 10 = sqrt(25 + 49 + 26), with rows of norms 7 and sqrt(26).
TEST(ClipTest, RowsOfTablesCountAndChange) {
  std::vector<float> g = Gradients();
  std::vector<float> first = {7};
  std::vector<float> second = {1, -5};
  const std::vector<std::span<float>> rows = {first, second};
  EXPECT_DOUBLE_EQ(GradientNorm(SmallLayout(), g.data(), rows), 10.0);
  Clip clip;
  clip.set_norm(5.0f);
  ClipGradients(clip, SmallLayout(), g.data(), rows);
  EXPECT_EQ(g[16], 2.0f);
  EXPECT_EQ(first, std::vector<float>({3.5f}));
  EXPECT_EQ(second, std::vector<float>({0.5f, -2.5f}));
  clip.set_value(1.0f);
  ClipGradients(clip, SmallLayout(), g.data(), rows);
  EXPECT_EQ(g[16], 1.0f);
  EXPECT_EQ(first, std::vector<float>({1.0f}));
  EXPECT_EQ(second, std::vector<float>({0.5f, -1.0f}));
}

TEST(ClipTest, WhatIsFrozenNeitherCountsNorChanges) {
  std::vector<float> g = Gradients();
  g[17] = std::numeric_limits<float>::infinity();
  const std::vector<int> frozen = {2};  // "b"
  EXPECT_DOUBLE_EQ(GradientNorm(SmallLayout(), g.data(), {}, frozen), 3.0);
  Clip clip;
  clip.set_norm(1.5f);
  ClipGradients(clip, SmallLayout(), g.data(), {}, frozen);
  EXPECT_EQ(g[0], 0.5f);
  EXPECT_EQ(g[16], 4.0f);
  clip.set_value(0.25f);
  ClipGradients(clip, SmallLayout(), g.data(), {}, frozen);
  EXPECT_EQ(g[0], 0.25f);
  EXPECT_EQ(g[16], 4.0f);
}

TEST(ClipTest, LeavesNanToThePs) {
  std::vector<float> g = Gradients();
  g[1] = std::numeric_limits<float>::quiet_NaN();
  Clip clip;
  clip.set_norm(1.0f);
  ClipGradients(clip, SmallLayout(), g.data());
  EXPECT_EQ(g[0], 1.0f);
  clip.set_value(0.5f);
  ClipGradients(clip, SmallLayout(), g.data());
  EXPECT_TRUE(std::isnan(g[1]));
}

TEST(ClipTest, ClipsEachElementByValue) {
  std::vector<float> g = Gradients();
  Clip clip;
  clip.set_value(1.5f);
  ClipGradients(clip, SmallLayout(), g.data());
  EXPECT_EQ(g[0], 1.0f);
  EXPECT_EQ(g[1], -1.5f);
  EXPECT_EQ(g[2], 1.5f);
  EXPECT_EQ(g[16], 1.5f);
  EXPECT_EQ(g[3], 1e6f);
  EXPECT_EQ(g[32], 1e6f);
}

TEST(ClipTest, RefusesBoundsThatClipEverythingOrNothing) {
  for (const float bad :
       {0.0f, -1.0f, std::numeric_limits<float>::infinity()}) {
    Clip clip;
    clip.set_norm(bad);
    EXPECT_THAT(std::string(ValidateClip(clip).message()),
                HasSubstr("train.clip.norm"));
    clip.set_value(bad);
    EXPECT_THAT(std::string(ValidateClip(clip).message()),
                HasSubstr("train.clip.value"));
  }
  EXPECT_TRUE(ValidateClip(Clip()).ok());
}

}  // namespace
}  // namespace weir
