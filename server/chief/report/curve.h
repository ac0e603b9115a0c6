// The curve of a job in bounded memory.
//
// Place: the Reporter has one; the page draws it.
//
// Invariants
//   I1. It has at most kPointsMax points, and the newest one.
//   I2. But for the newest, points are evenly many lines apart.
// Threads: compatible.
#ifndef SERVER_CHIEF_REPORT_CURVE_H_
#define SERVER_CHIEF_REPORT_CURVE_H_

#include <cstddef>
#include <vector>

#include "proto/report.pb.h"

namespace weir {

struct CurvePoint {
  double step = 0.0;
  double seconds = 0.0;
  double loss = 0.0;
  double examples_per_second = 0.0;
  double staleness_mean = 0.0;
};

class Curve {
 public:
  static constexpr size_t kPointsMax = 2000;

  void Add(const CurvePoint& point);
  // Forgets what lies beyond `step`: the job has gone back to it.
  void Cut(double step);

  CurveReport Report() const;

 private:
  std::vector<CurvePoint> points_;  // the last one may be between two others
  size_t every_ = 1;                // lines from point to point
  size_t since_ = 0;                // lines since the last but one
};

}  // namespace weir

#endif  // SERVER_CHIEF_REPORT_CURVE_H_
