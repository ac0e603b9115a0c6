// The report of a job as text for a terminal.
//
// Threads: safe; pure functions.
#ifndef DEPLOY_WATCH_REPORT_TEXT_H_
#define DEPLOY_WATCH_REPORT_TEXT_H_

#include <cstdint>
#include <limits>
#include <string>

#include "deploy/watch/terminal.h"
#include "proto/report.pb.h"

namespace weir {

// One screen: where the job stands, what holds it back, its workers and ps.
// At most `rows` workers are listed, the slowest ones, in the order of their
// slots. Rows of the two lists are cut to `columns`, other lines are as long as
// they are; a name of a host is cut to 20 bytes.
std::string ReportText(const JobReport& report, int rows,
                       int columns = std::numeric_limits<int>::max());

// The same for a terminal of `size`, with as many workers and ps as it has
// lines for, but at least 3. A long sentence goes on in its next line.
std::string ReportScreen(const JobReport& report, const TerminalSize& size);

// The sentence and the advice of a cause that is worth a line while the job
// runs; "" where nothing is off.
std::string CauseText(const Cause& cause);

// Decides when a cause is worth a line above the progress: when it has been the
// same for a while, and once until another one comes.
// Threads: compatible.
class CauseNotes {
 public:
  // Returns the line that is due, or "".
  std::string Next(const Cause& cause, int64_t now_ns);

 private:
  std::string cause_;  // kind and task
  int64_t since_ns_ = 0;
  bool said_ = false;
};

}  // namespace weir

#endif  // DEPLOY_WATCH_REPORT_TEXT_H_
