// What is refused, and in which words. Everything goes through RenderFiles, as
// from the command line.
#include "deploy/render/plan_checks.h"

#include <functional>
#include <string>
#include <vector>

#include "deploy/render/render.h"
#include "deploy/render/target.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/deploy/render/render_tester.h"

namespace weir {
namespace {

using testing::HasSubstr;
using testing::Not;

using Change = std::function<void(RenderOptions*)>;

struct Case {
  Change change;
  std::string words;
};

void ExpectRefused(const RenderOptions& good, const std::vector<Case>& cases) {
  const auto files = RenderFiles(good);
  ASSERT_TRUE(files.ok()) << files.status();
  for (const Case& c : cases) {
    RenderOptions options = good;
    c.change(&options);
    const absl::Status status = RenderFiles(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.words;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.words));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("\n")));
  }
}

TEST(PlanChecksTest, NamesTheNumberThatCannotBe) {
  ExpectRefused(
      JobOptionsFor("k8s"),
      {{[](auto* o) { o->target = "helm"; },
        "'helm' is no target; there are k8s, jobset, volcano, tfjob, compose, "
        "slurm"},
       {[](auto* o) { o->ps_count = 0; }, "--ps 0"},
       {[](auto* o) { o->worker_count = 0; }, "--workers 0"},
       {[](auto* o) { o->ps_count = 5000; }, "5000"},
       {[](auto* o) { o->port = 80; }, "--port 80: choose one from 1024"},
       {[](auto* o) { o->grace_seconds = 0; }, "--grace 0: choose 1 to"},
       {[](auto* o) { o->gpus = -1; }, "--gpu -1"},
       {[](auto* o) { o->gpus = 65; }, "--gpu 65: choose 0 to 64"},
       {[](auto* o) { o->storage = "ten"; }, "--storage: 'ten' is not"}});
}

TEST(PlanChecksTest, NamesTheTaskWhoseNameIsTooLong) {
  ExpectRefused(
      JobOptionsFor("k8s"),
      {{[](auto* o) { o->name = std::string(46, 'a'); },
        "evaluator-0 has a name of 58 characters and 6 random ones, more than "
        "63; shorten --name by 1"},
       {[](auto* o) { o->name = "My_Job"; }, "name 'My_Job'"},
       {[](auto* o) { o->name = std::string(64, 'a'); }, "64 characters"}});
  RenderOptions fits = JobOptionsFor("k8s");
  fits.name = std::string(45, 'a');
  EXPECT_TRUE(RenderFiles(fits).ok());
}

TEST(PlanChecksTest, ComparesWithTheJob) {
  ExpectRefused(
      JobOptionsFor("k8s"),
      {{[](auto* o) { o->worker_count = 5; },
        "--workers 5: update.sync.contributions is 4, so no more than that "
        "many workers have work"},
       {[](auto* o) {
          o->target = "jobset";
          o->sets = {"update.sync.contributions=1"};
        },
        "update.sync.contributions is 1"},
       {[](auto* o) { o->sets = {"data.train.idx={images: 'i' labels: 'l'}"}; },
        "reads files: say where its tasks find them, with --data_claim"},
       {[](auto* o) {
          o->sets = {"data.train.idx={images: 'i' labels: 'l'}"};
          o->target = "slurm";
        },
        "with --data_dir"},
       {[](auto* o) { o->evaluator_command = "python eval.py"; },
        "--evaluator_command is for a user's program"},
       {[](auto* o) { o->job_path = "no/such/file"; }, "no/such/file"},
       {[](auto* o) { o->job_path = ""; }, "name a job file"},
       {[](auto* o) { o->sets = {"train.nothing=1"}; }, "train.nothing"}});
}

TEST(PlanChecksTest, AnEvaluatorNeedsAnEvaluation) {
  RenderJob job;
  job.spec.set_name("a");
  RenderOptions options = JobOptionsFor("k8s");
  options.evaluator = true;
  EXPECT_THAT(std::string(CheckRenderOptions(options, &job).message()),
              HasSubstr("small_job.textproto has no evaluation section"));
}

TEST(PlanChecksTest, AJobFileHasToFitIntoAConfigMap) {
  RenderJob job;
  job.text = std::string(2 << 20, '#');
  EXPECT_THAT(
      std::string(CheckRenderOptions(JobOptionsFor("k8s"), &job).message()),
      HasSubstr("has 2097152 bytes, and a ConfigMap holds"));
}

TEST(PlanChecksTest, AGpuNeedsAnImageWithThePlugIn) {
  ExpectRefused(
      JobOptionsFor("k8s"),
      {{[](auto* o) { o->gpus = 1; },
        "--gpu 1: the image weir:1.2.3 has no CUDA libraries; name one that "
        "has them, such as --image weir:1.2.3-gpu of weir image --gpu"},
       {[](auto* o) {
          o->gpus = 1;
          o->image = "weir:1.2.3";
        },
        "has no CUDA libraries"},
       {[](auto* o) { o->device = "cuda"; }, "with --gpu"},
       {[](auto* o) {
          o->device = "cpu";
          o->gpus = 1;
          o->image = "weir-cuda:1";
        },
        "leave one out"}});
}

TEST(PlanChecksTest, TakesOneOfThingsThatExcludeOneAnother) {
  ExpectRefused(JobOptionsFor("k8s"),
                {{[](auto* o) {
                    o->data_claim = "a";
                    o->data_image_path = "/b";
                  },
                  "the data comes from one of them"},
                 {[](auto* o) {
                    o->data_claim = "a";
                    o->data_dir = "s3://bucket/data";
                  },
                  "the data comes from one of them"},
                 {[](auto* o) { o->data_bucket = "s3://b"; }, "go together"},
                 {[](auto* o) {
                    o->data_bucket = "https://b";
                    o->data_copy_image = "i";
                  },
                  "write s3://BUCKET/FOLDER or gs://BUCKET/FOLDER"},
                 {[](auto* o) {
                    o->data_claim = "a";
                    o->data_dir = "data";
                  },
                  "write a path from / on"},
                 {[](auto* o) {
                    o->run_claim = "a";
                    o->storage = "1Gi";
                  },
                  "leave --storage and --storage_class out"},
                 {[](auto* o) {
                    o->tls = true;
                    o->name_space = "ml";
                    o->secret = "a";
                  },
                  "leave one out"},
                 {[](auto* o) { o->tls = true; }, "add --namespace"}});
}

TEST(PlanChecksTest, AnObjectStoreTakesTheVolumesPlace) {
  ExpectRefused(
      JobOptionsFor("k8s"),
      {{[](auto* o) { o->checkpoints = "/shared/run"; },
        "--checkpoints /shared/run: write s3://BUCKET/PREFIX"},
       {[](auto* o) {
          o->checkpoints = "s3://bucket/run";
          o->run_claim = "a";
        },
        "leave --run_claim, --storage and --storage_class out"},
       {[](auto* o) { o->store_secret = "keys"; },
        "--store_secret: name the place as well, by --checkpoints, --data_"},
       {[](auto* o) { o->checkpoints = "s3://"; }, "--checkpoints: bucket ''"},
       {[](auto* o) { o->data_dir = "s3://bucket/../a"; }, "--data_dir: 's3"},
       {[](auto* o) { o->data_image_path = "s3://bucket/a"; }, "from / on"},
       {[](auto* o) { o->store_endpoint = "http://a"; }, "--store_endpoint: n"},
       {[](auto* o) { o->store_region = "eu"; }, "--store_region: name"},
       {[](auto* o) {
          o->checkpoints = "s3://bucket/run";
          o->store_endpoint = "minio:9000";
        },
        "--store_endpoint minio:9000: write https://HOST or http://HOST:PORT"},
       {[](auto* o) {
          o->checkpoints = "s3://bucket/run";
          o->store_endpoint = "http://minio:port";
        },
        "--store_endpoint http://minio:port: write"}});
}

TEST(PlanChecksTest, NamesTheRoleThatIsNotThere) {
  ExpectRefused(
      JobOptionsFor("k8s"),
      {{[](auto* o) { o->tolerations = {"server:a"}; }, "'server' is no role"},
       {[](auto* o) { o->node_selectors = {"gpu:a=b"}; }, "'gpu' is no role"},
       {[](auto* o) { o->cpus = {"all=2"}; }, "'all' is no role"},
       {[](auto* o) { o->memories = {"p=2Gi"}; }, "'p' is no role"},
       {[](auto* o) {
          o->chief = false;
          o->memories = {"chief=2Gi"};
        },
        "--memory chief: this job has no chief"}});
}

TEST(PlanChecksTest, SaysWhatAProgramLacks) {
  ExpectRefused(
      ProgramOptionsFor("k8s"),
      {{[](auto* o) { o->image = ""; },
        "a user's program needs an image that holds it"},
       {[](auto* o) { o->sets = {"a=b"}; }, "--set and --local_data are for"},
       {[](auto* o) { o->evaluator = true; }, "--evaluator_command"},
       {[](auto* o) { o->evaluator_command = "python '"; }, "is not closed"},
       {[](auto* o) { o->job_path = kSmallJob; },
        "write a job file or a command"},
       {[](auto* o) {
          o->command = {"python", "9.py"};
        },
        "name '9'"}});
}

TEST(PlanChecksTest, EachTargetSaysWhatItHasNot) {
  for (const char* target : {"compose", "slurm"}) {
    ExpectRefused(
        JobOptionsFor(target),
        {{[](auto* o) { o->name_space = "ml"; }, "--namespace: a"},
         {[](auto* o) { o->tolerations = {"ps:a"}; }, "--tolerate: a"},
         {[](auto* o) { o->node_selectors = {"ps:a=b"}; }, "--node: a"},
         {[](auto* o) { o->storage = "1Gi"; }, "--storage: a"},
         {[](auto* o) { o->storage_class = "nfs"; }, "--storage_class: a"},
         {[](auto* o) { o->secret = "s"; }, "--secret: a"},
         {[](auto* o) { o->tls = true; }, "--tls: a"},
         {[](auto* o) { o->service_account = "s"; }, "--service_account: a"},
         {[](auto* o) {
            o->data_bucket = "s3://b";
            o->data_copy_image = "aws";
          },
          "--data_bucket: a"}});
  }
  ExpectRefused(
      JobOptionsFor("slurm"),
      {{[](auto* o) { o->run_claim = "a"; }, "--run_claim: a batch script"},
       {[](auto* o) { o->checkpoints = "s3://bucket/c"; },
        "--checkpoints: a batch"},
       {[](auto* o) { o->allow_unguarded = true; },
        "--allow_unguarded: a batch"},
       {[](auto* o) { o->data_claim = "a"; }, "--data_claim: a batch script"},
       {[](auto* o) { o->port = 61001; }, "--port 61001: under Slurm"},
       {[](auto* o) { o->gpus = 2; },
        "--gpu 2: under Slurm a worker has one"}});
  ExpectRefused(JobOptionsFor("compose"),
                {{[](auto* o) { o->queue = "q"; }, "--queue: a compose file"},
                 {[](auto* o) {
                    o->checkpoints = "s3://bucket/c";
                    o->store_secret = "keys";
                  },
                  "--store_secret: a compose file"}});
  ExpectRefused(ProgramOptionsFor("slurm"),
                {{[](auto* o) { o->evaluator_command = "python e.py"; },
                  "--evaluator_command: a batch script"}});
}

}  // namespace
}  // namespace weir
