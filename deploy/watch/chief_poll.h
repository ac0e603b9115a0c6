// Asks a chief how its job is, again and again, by short calls.
//
// Place: `weir train` shows the answers while the job runs, `weir top` too.
//
// Threads: compatible.
#ifndef DEPLOY_WATCH_CHIEF_POLL_H_
#define DEPLOY_WATCH_CHIEF_POLL_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "proto/report.pb.h"
#include "proto/security/security.h"

namespace weir {

class ChiefStatus;

class ChiefPoll {
 public:
  ChiefPoll(const std::string& address, const Security& security);
  ~ChiefPoll();

  // The last answer where the chief does not answer now: it is not yet up, or
  // starts again.
  const ChiefStatus& Status();
  const JobReport& Report();
  // The same, but says why there is no new one.
  absl::StatusOr<JobReport> NewReport();

 private:
  // Hidden, because chief.proto's Command is also a name of deploy/cli.
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace weir

#endif  // DEPLOY_WATCH_CHIEF_POLL_H_
