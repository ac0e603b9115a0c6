// Checks the tasks of a job against the rules of docs/exit_codes.md.
#ifndef TESTS_INTEGRATION_EXIT_ORACLE_H_
#define TESTS_INTEGRATION_EXIT_ORACLE_H_

#include <map>
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "tests/integration/hand_cluster.h"

namespace weir {

struct ExitFacts {
  // "ps/0" -> its exit code, or -1 if it still runs.
  std::map<std::string, int> codes = {};
  std::string workdir = {};
  // Tasks to which the test itself sent a signal.
  std::set<std::string> signalled = {};
  // Tasks whose place another process took.
  std::set<std::string> replaced = {};
  // The test planted what no restart mends: a wrong flag, bad data.
  bool permanent_cause = false;
};

// Returns success, or every rule that is broken, with the task and its code.
testing::AssertionResult ExitsAreRight(const ExitFacts& facts);

// Waits until every task of `cluster` has ended, for at most `seconds`, and
// checks the same. `facts` says what the test did; this function fills in its
// codes and workdir.
testing::AssertionResult EndsRight(HandCluster* cluster, double seconds,
                                   ExitFacts facts = {});

}  // namespace weir

#endif  // TESTS_INTEGRATION_EXIT_ORACLE_H_
