#include "deploy/render/plan.h"

#include <algorithm>
#include <string>
#include <vector>

#include "deploy/render/quantity.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/job/job_spec_text.h"
#include "tests/common/expect_error.h"
#include "tests/deploy/render/render_tester.h"

namespace weir {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;

RenderJob Job(const std::vector<std::string>& sets = {}) {
  RenderJob job;
  job.text = "name: 'small_job'\n";
  job.spec = LoadJobSpec(kSmallJob, sets).value();
  job.memory = EstimateJobMemory(job.spec, JobMemoryOptions()).value();
  return job;
}

RenderPlan Plan(const RenderOptions& options) {
  const RenderJob job = Job();
  auto plan = MakeRenderPlan(options, options.command.empty() ? &job : nullptr);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.value();
}

std::vector<std::string> Words(const RenderPlan& plan, TaskRole role) {
  return TaskWords(plan, *plan.Find(role), "JOB", "RUN");
}

// I1.
TEST(PlanTest, HasEveryRoleOnce) {
  RenderOptions options = JobOptionsFor("k8s");
  const RenderPlan plan = Plan(options);
  ASSERT_EQ(plan.roles.size(), 4u);  // the job has an evaluation
  EXPECT_EQ(plan.roles[0].role, TaskRole::kPs);
  EXPECT_EQ(plan.roles[0].count, 2);
  EXPECT_EQ(plan.roles[1].role, TaskRole::kChief);
  EXPECT_EQ(plan.roles[2].role, TaskRole::kWorker);
  EXPECT_EQ(plan.roles[3].role, TaskRole::kEvaluator);
  EXPECT_EQ(plan.task_count(), 6);

  options.chief = false;
  options.evaluator = false;
  const RenderPlan hosted = Plan(options);
  EXPECT_EQ(hosted.roles.size(), 2u);
  EXPECT_TRUE(hosted.Find(TaskRole::kWorker)->hosts_chief);
  EXPECT_EQ(hosted.Find(TaskRole::kWorker)->run_volume, RunVolume::kReadWrite);
}

TEST(PlanTest, GivesEveryRoleTheWordsThatItNeeds) {
  RenderOptions options = JobOptionsFor("k8s");
  options.sets = {"train.epochs=2"};
  const RenderPlan plan = Plan(options);
  EXPECT_THAT(Words(plan, TaskRole::kPs),
              ElementsAre("task", "--job=JOB", "--set=train.epochs=2",
                          "--workdir=RUN", "--grace_seconds=25"));
  EXPECT_THAT(
      Words(plan, TaskRole::kChief),
      ElementsAre("task", "--job=JOB", "--set=train.epochs=2", "--workdir=RUN",
                  "--grace_seconds=25", "--evaluator_expected"));
  EXPECT_THAT(
      Words(plan, TaskRole::kWorker),
      ElementsAre("task", "--job=JOB", "--set=train.epochs=2", "--workdir=RUN",
                  "--grace_seconds=25", "--device=cpu"));
}

TEST(PlanTest, AWorkerThatHostsTheChiefHasItsWords) {
  RenderOptions options = JobOptionsFor("k8s");
  options.chief = false;
  EXPECT_THAT(Words(Plan(options), TaskRole::kWorker),
              Contains("--evaluator_expected"));
  options.evaluator = false;
  EXPECT_THAT(Words(Plan(options), TaskRole::kWorker),
              Not(Contains("--evaluator_expected")));
}

TEST(PlanTest, TheEvaluatorHasOneGpuOfThoseOfAWorker) {
  RenderOptions options = JobOptionsFor("k8s");
  options.image = "weir-cuda:1";
  for (const int gpus : {0, 1, 4}) {
    options.gpus = gpus;
    const RenderPlan plan = Plan(options);
    EXPECT_EQ(plan.Find(TaskRole::kWorker)->gpus, gpus);
    EXPECT_EQ(plan.Find(TaskRole::kEvaluator)->gpus, gpus == 0 ? 0 : 1);
    EXPECT_EQ(plan.Find(TaskRole::kPs)->gpus, 0);
  }
  options.device = "cuda:0,1";
  EXPECT_THAT(Words(Plan(options), TaskRole::kWorker),
              Contains("--device=cuda:0,1"));
  EXPECT_THAT(Words(Plan(options), TaskRole::kEvaluator),
              Contains("--device=cuda"));
}

TEST(PlanTest, TheChiefMayTakeAnOlderCheckpointAndAStoreWithoutAGuard) {
  RenderOptions options = JobOptionsFor("k8s");
  options.checkpoints = "s3://bucket/run";
  options.allow_older = true;
  options.allow_unguarded = true;
  const RenderPlan plan = Plan(options);
  for (const RolePlan& role : plan.roles) {
    for (const char* word : {"--allow_older", "--allow_unguarded"}) {
      const std::vector<std::string> words = TaskWords(plan, role, "", "");
      EXPECT_EQ(std::count(words.begin(), words.end(), word),
                role.role == TaskRole::kChief ? 1 : 0)
          << role.name() << " " << word;
    }
  }
  options.chief = false;
  EXPECT_THAT(Words(Plan(options), TaskRole::kWorker),
              IsSupersetOf({"--allow_older", "--allow_unguarded"}));
}

TEST(PlanTest, AProgramIsTheWorkerAndMayHaveAnEvaluator) {
  RenderOptions options = ProgramOptionsFor("k8s");
  options.evaluator_command = "python 'my eval.py'";
  const RenderPlan plan = Plan(options);
  EXPECT_EQ(plan.name, "train");
  EXPECT_EQ(plan.Find(TaskRole::kPs)->image, "weir:1.2.3");
  EXPECT_EQ(plan.Find(TaskRole::kWorker)->image, "registry.example/train:7");
  EXPECT_THAT(Words(plan, TaskRole::kWorker),
              ElementsAre("task", "--workdir=RUN", "--grace_seconds=25", "--",
                          "python", "train.py", "--name", "it's"));
  EXPECT_THAT(Words(plan, TaskRole::kEvaluator),
              ElementsAre("task", "--workdir=RUN", "--grace_seconds=25", "--",
                          "python", "my eval.py"));
  EXPECT_THAT(Words(plan, TaskRole::kChief),
              ElementsAre("task", "--workdir=RUN", "--grace_seconds=25"));
  // Codes of its own are permanent, too, but for that of a replaced process.
  EXPECT_THAT(plan.Find(TaskRole::kWorker)->permanent_codes, Contains(42));
  EXPECT_THAT(plan.Find(TaskRole::kWorker)->permanent_codes, Not(Contains(5)));
  EXPECT_THAT(plan.Find(TaskRole::kPs)->permanent_codes,
              ElementsAre(1, 2, 3, 4, 6, 126, 127));
}

TEST(PlanTest, NamesObjectsAsDnsDoes) {
  EXPECT_EQ(Plan(JobOptionsFor("k8s")).name, "small-job");
  for (const char* name : {"a", "job-2", "a1"}) {
    EXPECT_TRUE(CheckName(name).ok()) << name;
  }
  for (const char* name : {"", "Job", "2job", "-a", "a-", "a_b", "a.b", "ä"}) {
    ExpectInvalid(CheckName(name), "choose one with --name");
  }
  ExpectInvalid(CheckName(std::string(64, 'a')), "64 characters");
}

TEST(PlanTest, AsksForWhatTheJobTakes) {
  const RenderJob job = Job();
  const RenderPlan plan = Plan(JobOptionsFor("k8s"));
  const RolePlan& ps = *plan.Find(TaskRole::kPs);
  EXPECT_EQ(ps.memory_request, RoundUpMemory(job.memory.ps.total()));
  // What gRPC may hold of messages on their way: ps_server.h.
  EXPECT_EQ(ps.memory_limit - ps.memory_request, 512 * kMiB);
  const RolePlan& worker = *plan.Find(TaskRole::kWorker);
  EXPECT_EQ(worker.memory_request, RoundUpMemory(job.memory.worker.total()));
  EXPECT_EQ(worker.memory_limit, 2 * worker.memory_request);
  EXPECT_EQ(worker.milli_cpus, 1000);
  EXPECT_EQ(plan.storage, "1Gi");
}

TEST(PlanTest, TakesWhatIsGivenForARole) {
  RenderOptions options = JobOptionsFor("k8s");
  options.memories = {"ps=4Gi"};
  options.cpus = {"worker=2"};
  options.tolerations = {"worker:spot=true:NoSchedule"};
  options.node_selectors = {"worker:pool=gpu"};
  const RenderPlan plan = Plan(options);
  EXPECT_EQ(plan.Find(TaskRole::kPs)->memory_request, 4 * kGiB);
  EXPECT_EQ(plan.Find(TaskRole::kPs)->memory_limit, 4 * kGiB);
  const RolePlan& worker = *plan.Find(TaskRole::kWorker);
  EXPECT_EQ(worker.milli_cpus, 2000);
  EXPECT_EQ(worker.tolerations.size(), 1u);
  EXPECT_EQ(worker.node_selector.at("pool"), "gpu");
}

TEST(PlanTest, ChoosesTheDeviceByTheGpus) {
  RenderOptions options = JobOptionsFor("k8s");
  options.image = "weir-cuda:1";
  options.gpus = 1;
  EXPECT_EQ(Plan(options).device, "cuda");
  options.gpus = 4;
  EXPECT_EQ(Plan(options).device, "cuda:all");
  EXPECT_EQ(Plan(options).Find(TaskRole::kWorker)->gpus, 4);
  EXPECT_EQ(Plan(options).Find(TaskRole::kPs)->gpus, 0);
  options.target = "slurm";  // whose tasks see all GPUs of their node
  options.gpus = 1;
  EXPECT_EQ(Plan(options).device, "auto");
}

TEST(PlanTest, SaysThatMemoryIsNotComputed) {
  const RenderPlan plan = Plan(ProgramOptionsFor("k8s"));
  EXPECT_EQ(plan.Find(TaskRole::kPs)->memory_request, kGiB);
  ASSERT_EQ(plan.remarks.size(), 1u);
  EXPECT_THAT(plan.remarks[0], HasSubstr("set --memory"));
}

}  // namespace
}  // namespace weir
