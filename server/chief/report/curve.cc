#include "server/chief/report/curve.h"

namespace weir {

void Curve::Add(const CurvePoint& point) {
  // I1, I2: the newest point is replaced until its turn has come.
  if (!points_.empty() && since_ < every_) {
    points_.back() = point;
    ++since_;
    return;
  }
  if (points_.size() == kPointsMax) {
    for (size_t i = 0; i < kPointsMax / 2; ++i) {
      points_[i] = points_[2 * i + 1];
    }
    points_.resize(kPointsMax / 2);
    every_ *= 2;
  }
  points_.push_back(point);
  since_ = 1;
}

void Curve::Cut(double step) {
  while (!points_.empty() && points_.back().step > step) {
    points_.pop_back();
    since_ = every_;  // the last one that is left is one of its turn
  }
}

CurveReport Curve::Report() const {
  CurveReport report;
  for (const CurvePoint& point : points_) {
    report.add_step(point.step);
    report.add_seconds(point.seconds);
    report.add_loss(point.loss);
    report.add_examples_per_second(point.examples_per_second);
    report.add_staleness_mean(point.staleness_mean);
  }
  return report;
}

}  // namespace weir
