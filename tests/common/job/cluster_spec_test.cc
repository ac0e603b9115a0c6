#include "common/job/cluster_spec.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Members = ClusterSpec::Members;

constexpr TaskRole kPs = TaskRole::kPs;
constexpr TaskRole kWorker = TaskRole::kWorker;
constexpr TaskRole kChief = TaskRole::kChief;
constexpr TaskRole kEvaluator = TaskRole::kEvaluator;

Members TwoByTwo() {
  return {{kPs, {{0, "a:1"}, {1, "b:2"}}}, {kWorker, {{0, "c:3"}, {1, "d:4"}}}};
}

std::string Error(const Members& members, std::optional<TaskId> task) {
  const auto spec = ClusterSpec::Create(members, task);
  if (spec.ok()) {
    return "OK";
  }
  EXPECT_TRUE(absl::IsInvalidArgument(spec.status()));
  return std::string(spec.status().message());
}

TEST(ClusterSpecTest, WithoutMembersItIsLocal) {
  const ClusterSpec local;
  EXPECT_TRUE(local.local());
  EXPECT_EQ(local.fingerprint(), 0u);
  EXPECT_FALSE(local.hosts_chief());
  EXPECT_THAT(local.ToString(), HasSubstr("local"));
}

TEST(ClusterSpecTest, WorkerZeroHostsTheChiefWhenThereIsNone) {
  const auto zero = ClusterSpec::Create(TwoByTwo(), TaskId{kWorker, 0});
  const auto one = ClusterSpec::Create(TwoByTwo(), TaskId{kWorker, 1});
  ASSERT_TRUE(zero.ok() && one.ok());
  EXPECT_TRUE(zero->hosts_chief());
  EXPECT_FALSE(one->hosts_chief());
  EXPECT_EQ(zero->chief_address(), "c:3");
  EXPECT_EQ(one->chief_address(), "c:3");
  EXPECT_EQ(one->own_address(), "d:4");
  EXPECT_EQ(one->ps_count(), 2);
  EXPECT_EQ(one->worker_count(), 2);
  EXPECT_THAT(one->ps_addresses(), ElementsAre("a:1", "b:2"));
}

TEST(ClusterSpecTest, AChiefOfItsOwnIsTheChief) {
  Members members = TwoByTwo();
  members[kChief] = {{0, "e:5"}};
  const auto chief = ClusterSpec::Create(members, TaskId{kChief, 0});
  const auto zero = ClusterSpec::Create(members, TaskId{kWorker, 0});
  ASSERT_TRUE(chief.ok() && zero.ok());
  EXPECT_TRUE(chief->hosts_chief());
  EXPECT_FALSE(zero->hosts_chief());
  EXPECT_EQ(zero->chief_address(), "e:5");
}

TEST(ClusterSpecTest, FingerprintIsOverThePsAddressesInOrder) {
  const auto fingerprint = [](const Members& members, TaskId task) {
    return ClusterSpec::Create(members, task)->fingerprint();
  };
  const uint64_t want = fingerprint(TwoByTwo(), {kWorker, 0});
  EXPECT_NE(want, 0u);
  EXPECT_EQ(fingerprint(TwoByTwo(), {kPs, 1}), want);
  Members other = TwoByTwo();
  other[kWorker] = {{0, "x:9"}};
  other[kPs][0] = "A:01";
  EXPECT_EQ(fingerprint(other, {kWorker, 0}), want);
  other[kPs] = {{0, "b:2"}, {1, "a:1"}};
  EXPECT_NE(fingerprint(other, {kWorker, 0}), want);
  other[kPs] = {{0, "a:1"}};
  EXPECT_NE(fingerprint(other, {kWorker, 0}), want);
  // The value is fixed, because tasks of two releases may meet. It is
  //   printf 'weir-cluster-1\na:1\nb:2' | sha256sum | head -c 16
  EXPECT_EQ(want, 0x647B6A617C689EC0);
}

TEST(ClusterSpecTest, APsThatSeesItselfOnlyHasAPartialView) {
  const Members list = {{kPs, {{0, "b:2"}}}, {kWorker, {}}};
  const auto spec = ClusterSpec::Create(list, TaskId{kPs, 1});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_FALSE(spec->full_view());
  EXPECT_EQ(spec->fingerprint(), 0u);
  EXPECT_EQ(spec->own_address(), "b:2");
  EXPECT_THAT(spec->ToString(), HasSubstr("ps/1 b:2"));
  const Members by_index = {{kPs, {{3, "b:2"}}}};
  EXPECT_FALSE(ClusterSpec::Create(by_index, TaskId{kPs, 3})->full_view());
  EXPECT_EQ(Error(list, TaskId{kWorker, 0}).substr(0, 22),
            "this task is worker/0,");
}

TEST(ClusterSpecTest, ADynamicWorkerSeesEveryPsAndItself) {
  Members members = {{kPs, {{0, "a:1"}, {1, "b:2"}}},
                     {kWorker, {{2, "c:3"}}},
                     {kChief, {{0, "e:5"}}}};
  const auto spec = ClusterSpec::Create(members, TaskId{kWorker, 2});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->full_view());
  EXPECT_EQ(spec->worker_count(), 3);
  members.erase(kChief);
  EXPECT_THAT(Error(members, TaskId{kWorker, 2}),
              HasSubstr("neither a chief nor worker 0"));
}

TEST(ClusterSpecTest, TheEvaluatorIsNoMember) {
  Members members = TwoByTwo();
  members[kEvaluator] = {{0, "c:3"}};  // I2: its address may even be in use
  const auto spec = ClusterSpec::Create(members, TaskId{kEvaluator, 7});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->own_address(), "");
  EXPECT_EQ(spec->bind_address(), "");
  EXPECT_THAT(spec->ToString(), testing::Not(HasSubstr("evaluator/0")));
  const auto blind = ClusterSpec::Create({}, TaskId{kEvaluator, 0});
  ASSERT_TRUE(blind.ok()) << blind.status();
  EXPECT_FALSE(blind->local());
}

TEST(ClusterSpecTest, ListensOnEveryInterfaceExceptForLoopback) {
  const auto bind = [](const std::string& address) {
    return ClusterSpec::Create({{kPs, {{0, address}}}}, TaskId{kPs, 0})
        ->bind_address();
  };
  EXPECT_EQ(bind("node7.example:2222"), "0.0.0.0:2222");
  EXPECT_EQ(bind("127.0.0.1:2222"), "127.0.0.1:2222");
  EXPECT_EQ(bind("LocalHost:2222"), "localhost:2222");
  EXPECT_EQ(bind("[fe80::1]:2222"), "[::]:2222");
  EXPECT_EQ(bind("[::1]:2222"), "[::1]:2222");
}

TEST(ClusterSpecTest, EveryMistakeIsNamedWithItsRemedy) {
  const auto ps = [](const std::string& address) {
    return Members{{kPs, {{0, address}}}};
  };
  const TaskId ps0 = {kPs, 0};
  EXPECT_THAT(
      Error(ps("host"), ps0),
      HasSubstr("address of ps/0: 'host' has no port; write host:port"));
  EXPECT_THAT(Error(ps("[::1]"), ps0), HasSubstr("has no port"));
  EXPECT_THAT(Error(ps(":1"), ps0), HasSubstr("has no host"));
  EXPECT_THAT(Error(ps("host:0"), ps0), HasSubstr("port '0'"));
  EXPECT_THAT(Error(ps("host:65536"), ps0), HasSubstr("[1, 65535]"));
  EXPECT_THAT(Error(ps("host:"), ps0), HasSubstr("port ''"));
  EXPECT_THAT(Error(ps("host:+1"), ps0), HasSubstr("port '+1'"));
  EXPECT_THAT(Error(ps("http://h:1"), ps0), HasSubstr("scheme"));
  EXPECT_THAT(Error(ps("fe80::1:1"), ps0), HasSubstr("brackets"));
  EXPECT_THAT(Error(ps("a b:1"), ps0), HasSubstr("not host:port"));

  Members twice = TwoByTwo();
  twice[kWorker][1] = "A:1";
  EXPECT_EQ(Error(twice, ps0),
            "address a:1 is given to both ps/0 and worker/1; every task needs "
            "its own");
  Members gap = TwoByTwo();
  gap[kPs] = {{0, "a:1"}, {2, "b:2"}};
  EXPECT_THAT(Error(gap, TaskId{kWorker, 0}),
              HasSubstr("lists ps 2 but no ps 1"));
  Members chiefs = TwoByTwo();
  chiefs[kChief] = {{0, "e:5"}, {1, "f:6"}};
  EXPECT_THAT(Error(chiefs, ps0), HasSubstr("lists 2 chiefs; keep one"));
  chiefs[kChief] = {{1, "f:6"}};
  EXPECT_THAT(Error(chiefs, ps0), HasSubstr("the chief has index 1"));
  Members evaluators = TwoByTwo();
  evaluators[kEvaluator] = {{0, "e:5"}, {1, "f:6"}};
  EXPECT_THAT(Error(evaluators, ps0), HasSubstr("lists 2 evaluators"));

  EXPECT_THAT(Error(TwoByTwo(), TaskId{kWorker, 2}),
              HasSubstr("the cluster lists worker 0, 1 only"));
  EXPECT_THAT(Error(TwoByTwo(), TaskId{kPs, 2}), HasSubstr("ps 0, 1 only"));
  EXPECT_THAT(Error(TwoByTwo(), TaskId{kChief, 0}),
              HasSubstr("lists no chief; add its address"));
  EXPECT_THAT(Error(TwoByTwo(), TaskId{kWorker, -1}),
              HasSubstr("task index -1"));
  EXPECT_THAT(Error({{kWorker, {{0, "c:3"}}}}, TaskId{kWorker, 0}),
              HasSubstr("lists no ps; add at least one or set WEIR_CLUSTER"));
  EXPECT_THAT(Error({}, TaskId{kChief, 0}), HasSubstr("lists no chief"));
}

TEST(ClusterSpecTest, RolesHaveOneNameAndOneAlias) {
  EXPECT_EQ(ParseRole("master"), kChief);
  EXPECT_EQ(ParseRole("evaluator"), kEvaluator);
  EXPECT_EQ(ParseRole("Worker"), std::nullopt);
  EXPECT_EQ((TaskId{kWorker, 3}).ToString(), "worker/3");
}

}  // namespace
}  // namespace weir
