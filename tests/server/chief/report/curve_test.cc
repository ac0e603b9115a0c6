#include "server/chief/report/curve.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace weir {
namespace {

CurvePoint At(int step) {
  CurvePoint point;
  point.step = step;
  point.loss = 1.0 / step;
  return point;
}

TEST(CurveTest, KeepsEveryPointWhileThereIsRoom) {
  Curve curve;
  for (int i = 1; i <= 2000; ++i) {
    curve.Add(At(i));
  }
  const CurveReport report = curve.Report();
  ASSERT_EQ(report.step_size(), 2000);
  for (int i = 0; i < 2000; ++i) {
    EXPECT_EQ(report.step(i), i + 1);
  }
}

TEST(CurveTest, ThinsOutEvenlyAndKeepsTheNewest) {
  Curve curve;
  for (int i = 1; i <= 100'000; ++i) {
    curve.Add(At(i));
    if (i % 997 != 0) {
      continue;
    }
    const CurveReport report = curve.Report();
    ASSERT_LE(report.step_size(), int{Curve::kPointsMax});
    ASSERT_GE(report.step_size(), std::min(i, 1000));
    ASSERT_EQ(report.step(report.step_size() - 1), i);
    const double apart = report.step(1) - report.step(0);
    for (int k = 2; k + 1 < report.step_size(); ++k) {
      ASSERT_EQ(report.step(k) - report.step(k - 1), apart) << i << " " << k;
    }
  }
}

TEST(CurveTest, AJobThatGoesBackDrawsTheStepsAgain) {
  Curve curve;
  for (int i = 1; i <= 500; ++i) {
    curve.Add(At(i));
  }
  curve.Cut(300);
  for (int i = 301; i <= 400; ++i) {
    curve.Add(At(i));
  }
  const CurveReport report = curve.Report();
  ASSERT_EQ(report.step_size(), 400);
  for (int i = 0; i < 400; ++i) {
    EXPECT_EQ(report.step(i), i + 1);
  }
}

}  // namespace
}  // namespace weir
