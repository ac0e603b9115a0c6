// One line of progress: redrawn on a terminal, now and then elsewhere.
#ifndef DEPLOY_LAUNCHER_PROGRESS_H_
#define DEPLOY_LAUNCHER_PROGRESS_H_

#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "proto/chief.pb.h"

namespace weir {

// Returns the words of one line, which is the chief's message while it waits:
// "step 1200/2500  loss 0.1234  12,345 examples/s  staleness 0.8 (max 3)  ETA
// 0:12". A negative `eta_seconds` leaves out the last part.
std::string ProgressText(const ChiefStatus& status, double eta_seconds);

// Returns a curve of `values` in one line of at most `columns` characters, each
// as high as the mean of its part: "█▅▃▂▁▁". Values that are not finite count
// as the highest.
std::string Sparkline(const std::vector<double>& values, int columns);

// On a terminal the line has the curve of the loss as well.
// Threads: compatible. Borrows `out`.
class ProgressLine {
 public:
  ProgressLine(std::FILE* out, bool terminal)
      : out_(out), terminal_(terminal) {}

  // Shows `status`. A file or a pipe gets a new line every 5 seconds at most.
  // On a terminal of `columns` columns the curve is cut, and then the words.
  void Show(const ChiefStatus& status, int64_t now_ns,
            int columns = std::numeric_limits<int>::max());
  // Prints a line of its own above the progress.
  void Note(const std::string& text);
  // Leaves the cursor at the start of an empty line.
  void Finish();

 private:
  // Adds a loss to the curve of the whole run so far.
  void AddLoss(const ChiefStatus& status);
  // Returns the seconds that are left at the speed so far; -1 when unknown.
  double Eta(const ChiefStatus& status, int64_t now_ns);

  std::FILE* const out_;
  const bool terminal_;
  std::string shown_;
  int64_t shown_ns_ = 0;
  uint64_t first_step_ = 0;
  int64_t first_ns_ = 0;
  // The curve: every so many losses one counts, so that they always fit.
  std::vector<double> losses_;
  uint64_t loss_step_ = 0;  // of the newest
  int losses_every_ = 1;
  int losses_skipped_ = 0;
};

}  // namespace weir

#endif  // DEPLOY_LAUNCHER_PROGRESS_H_
