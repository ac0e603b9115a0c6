#include "tests/integration/exit_oracle.h"

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "common/base/exit_code.h"

namespace weir {
namespace {

// Says why `code` is wrong for `task`; "" when it is right.
std::string Wrong(const ExitFacts& facts, bool done, const std::string& task,
                  int code) {
  const bool signalled = facts.signalled.count(task) > 0;
  if (code == -1) {
    return "still runs";
  }
  if (signalled && code > 128) {
    return "";  // whatever the job did
  }
  if (code == kExitReplaced) {
    return facts.replaced.count(task) > 0 ? "" : "says that it was replaced";
  }
  if (done) {
    return code == kExitOk ? "" : "DONE exists: every task ends with 0";
  }
  const bool is_ps = task.rfind("ps/", 0) == 0;
  if (code == kExitOk) {
    // The chief ended a ps that it no longer needs: no start mends the job.
    return is_ps && facts.permanent_cause
               ? ""
               : "there is no DONE: whoever starts tasks again leaves it out";
  }
  if (code < 64) {
    return facts.permanent_cause ? "" : "another start could mend the cause";
  }
  const bool known =
      code == kExitRetry || code == kExitInterrupted || code == kExitTerminated;
  return known ? "" : "no code of docs/exit_codes.md";
}

}  // namespace

testing::AssertionResult ExitsAreRight(const ExitFacts& facts) {
  const bool done = std::filesystem::exists(facts.workdir + "/DONE");
  testing::AssertionResult result = testing::AssertionSuccess();
  for (const auto& [task, code] : facts.codes) {
    const std::string wrong = Wrong(facts, done, task, code);
    if (wrong.empty()) {
      continue;
    }
    if (result) {
      result = testing::AssertionFailure();
    }
    result << task << " ended with " << code << ": " << wrong << "\n";
  }
  return result;
}

testing::AssertionResult EndsRight(HandCluster* cluster, double seconds,
                                   ExitFacts facts) {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  facts.workdir = cluster->dir();
  for (auto& [name, process] : cluster->tasks()) {
    const std::chrono::duration<double> left =
        deadline - std::chrono::steady_clock::now();
    facts.codes[name] = process.Wait(std::max(left.count(), 0.0));
  }
  testing::AssertionResult result = ExitsAreRight(facts);
  for (auto& [name, process] : cluster->tasks()) {
    if (!result && facts.codes[name] != kExitOk) {
      const std::string log = process.Log();
      result << "--- " << name << "\n"
             << log.substr(log.size() - std::min<size_t>(log.size(), 2000));
    }
  }
  return result;
}

}  // namespace weir
