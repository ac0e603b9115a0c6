// The SDK's example, as a user runs it.
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/integration/harness.h"

namespace weir {
namespace {

Process StartPs(const std::string& cluster, int index, const std::string& log) {
  return Process({Binary("server/ps/weir_ps"), "--cluster", cluster,
                  "--task_index", std::to_string(index)},
                 {}, log);
}

TEST(SdkTest, LinearRegressionLearnsOnTwoServers) {
  const std::string dir = FreshDir("sdk");
  const std::string first = FreeAddress();
  const std::string second = FreeAddress();
  const std::string cluster = "ps=" + first + "," + second;
  Process ps0 = StartPs(cluster, 0, dir + "/ps-0.log");
  Process ps1 = StartPs(cluster, 1, dir + "/ps-1.log");
  // The example waits for the servers by itself.
  Process client({Binary("examples/sdk_linear"), first, second}, {},
                 dir + "/client.log");
  EXPECT_EQ(client.Wait(60), 0) << client.Log();
  EXPECT_NE(client.Log().find("y = 3.000 x0 + -2.000 x1 + 0.500"),
            std::string::npos)
      << client.Log();
}

TEST(SdkTest, WithoutServersTheErrorSaysWhatToDo) {
  const std::string dir = FreshDir("sdk_alone");
  Process client({Binary("examples/sdk_linear")}, {"TF_CONFIG="},
                 dir + "/client.log");
  EXPECT_EQ(client.Wait(60), 1);
  EXPECT_NE(client.Log().find("set TF_CONFIG"), std::string::npos)
      << client.Log();
}

}  // namespace
}  // namespace weir
