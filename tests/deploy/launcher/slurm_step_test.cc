#include "deploy/launcher/slurm_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace weir {
namespace {

using testing::ElementsAre;

TEST(SlurmStepTest, ExpandsTheListsThatSlurmWrites) {
  EXPECT_THAT(*ExpandNodeList("n1"), ElementsAre("n1"));
  EXPECT_THAT(*ExpandNodeList("n[0-2,7]"), ElementsAre("n0", "n1", "n2", "n7"));
  EXPECT_THAT(*ExpandNodeList("a-1,b[08-10].x,c"),
              ElementsAre("a-1", "b08.x", "b09.x", "b10.x", "c"));
  EXPECT_THAT(*ExpandNodeList("r[1-2]n[5,6]"),
              ElementsAre("r1n5", "r1n6", "r2n5", "r2n6"));
}

TEST(SlurmStepTest, WhatIsNoListIsNamed) {
  for (const char* list : {"", "n[", "n[]", "n[3-1]", "n[a]", "n[1-]", "a,,b",
                           "n[0-99999]", "n[1-4000],m[1-4000]"}) {
    const auto hosts = ExpandNodeList(list);
    ASSERT_FALSE(hosts.ok()) << list;
    EXPECT_THAT(std::string(hosts.status().message()),
                testing::HasSubstr("SLURM_STEP_NODELIST"))
        << list;
  }
  for (const char* text :
       {"", "0", "2(x", "2(x0)", "2(3)", "x", "1,,1", "1(x5000)", "1(x3)x"}) {
    const auto counts = ParseTasksPerNode(text);
    ASSERT_FALSE(counts.ok()) << text;
    EXPECT_THAT(std::string(counts.status().message()),
                testing::HasSubstr("SLURM_STEP_TASKS_PER_NODE"))
        << text;
  }
}

TEST(SlurmStepTest, TasksOfANodeHavePortsOfTheirOwn) {
  EXPECT_THAT(*ParseTasksPerNode("2,1(x3)"), ElementsAre(2, 1, 1, 1));
  EXPECT_THAT(
      *SlurmAddresses("n[0-1],m", "2(x2),1", 7000),
      ElementsAre("n0:7000", "n0:7001", "n1:7000", "n1:7001", "m:7000"));
  EXPECT_FALSE(SlurmAddresses("n[0-1]", "2", 7000).ok());
}

}  // namespace
}  // namespace weir
