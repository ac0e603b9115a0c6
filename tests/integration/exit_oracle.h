// The rules of docs/exit_codes.md, asked of a job's tasks.
#ifndef TESTS_INTEGRATION_EXIT_ORACLE_H_
#define TESTS_INTEGRATION_EXIT_ORACLE_H_

#include <map>
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "tests/integration/hand_cluster.h"

namespace weir {

struct ExitFacts {
  // "ps/0" -> exit code, -1: it still runs.
  std::map<std::string, int> codes = {};
  std::string workdir = {};
  // Tasks that the test itself sent a signal to.
  std::set<std::string> signalled = {};
  // Tasks that another process took the place of.
  std::set<std::string> replaced = {};
  // Something that no restart mends was planted: a wrong flag, bad data.
  bool permanent_cause = false;
};

// Success, or every rule that is broken, with the task and its code.
testing::AssertionResult ExitsAreRight(const ExitFacts& facts);

// Waits until every task of `cluster` has ended, `seconds` at most, and asks
// the same. `facts` says what the test did; codes and workdir are filled in.
testing::AssertionResult EndsRight(HandCluster* cluster, double seconds,
                                   ExitFacts facts = {});

}  // namespace weir

#endif  // TESTS_INTEGRATION_EXIT_ORACLE_H_
