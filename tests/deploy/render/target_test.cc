// What every target promises (target.h), and golden files of each: of a small
// job, and of a user's program.
#include "deploy/render/target.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/io/files.h"
#include "deploy/render/render.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/deploy/render/render_tester.h"

namespace weir {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

bool OnKubernetes(const std::string& target) {
  return target != "compose" && target != "slurm";
}

std::string Rendered(const RenderOptions& options) {
  const auto files = RenderFiles(options);
  EXPECT_TRUE(files.ok()) << files.status();
  return files.ok() ? files->manifest : "";
}

int Count(const std::string& text, const std::string& words) {
  return static_cast<int>(
             std::vector<std::string>(absl::StrSplit(text, words)).size()) -
         1;
}

// Compares with tests/deploy/render/goldens/NAME, or writes it where
// make_goldens.sh asks for it.
void ExpectGolden(const std::string& name, const std::string& text) {
  // The test has no other thread.
  const char* const folder = std::getenv("WEIR_WRITE_GOLDENS");  // NOLINT
  if (folder != nullptr) {
    auto writer = Files::Real()->Create(absl::StrCat(folder, "/", name));
    ASSERT_TRUE(writer.ok()) << writer.status();
    ASSERT_TRUE((*writer)->Append(text.data(), text.size()).ok());
    ASSERT_TRUE((*writer)->Close().ok());
    return;
  }
  const auto golden =
      Files::Real()->ReadAll("tests/deploy/render/goldens/" + name);
  ASSERT_TRUE(golden.ok()) << golden.status();
  // A line says more than two files do.
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  const std::vector<std::string> expected = absl::StrSplit(*golden, '\n');
  size_t line = 0;
  while (line < lines.size() && line < expected.size() &&
         lines[line] == expected[line]) {
    ++line;
  }
  EXPECT_TRUE(text == *golden)
      << name << " differs from line " << line + 1 << " on; now it is:\n"
      << (line < lines.size() ? lines[line] : "the end")
      << "\nIf that is right, run "
      << "tests/deploy/render/goldens/make_goldens.sh";
}

class TargetTest : public testing::TestWithParam<std::string> {
 protected:
  std::string Golden(const char* kind) const {
    return absl::StrCat(GetParam(), "_", kind,
                        GetParam() == "slurm" ? ".sh" : ".yaml");
  }
};

TEST_P(TargetTest, RendersAJob) {
  RenderOptions options = JobOptionsFor(GetParam());
  options.sets = {"train.epochs=2"};
  options.metrics = true;
  if (OnKubernetes(GetParam())) {
    options.name_space = "ml";
    options.queue = "team";
    options.tolerations = {"worker:spot=true:NoSchedule"};
    options.node_selectors = {"worker:pool=spot"};
  }
  ExpectGolden(Golden("job"), Rendered(options));
}

TEST_P(TargetTest, RendersAProgram) {
  ExpectGolden(Golden("program"), Rendered(ProgramOptionsFor(GetParam())));
}

// T1.
TEST_P(TargetTest, RunsEveryTask) {
  const std::string text = Rendered(JobOptionsFor(GetParam()));
  for (const char* words :
       {"task", "--job=", "--workdir=", "--grace_seconds=25",
        "--evaluator_expected", "--device=cpu",
        GetParam() == "slurm" ? "$((10000 + SLURM_JOB_ID % 1400 * 16))"
                              : "2222"}) {
    EXPECT_THAT(text, HasSubstr(words));
  }
  RenderOptions elsewhere = JobOptionsFor(GetParam());
  elsewhere.port = 2345;
  EXPECT_THAT(Rendered(elsewhere), HasSubstr("2345"));
  const std::string program = Rendered(ProgramOptionsFor(GetParam()));
  EXPECT_THAT(program, HasSubstr("train.py"));
  EXPECT_THAT(program, Not(HasSubstr("--job=")));
}

TEST_P(TargetTest, ShowsMetricsWhereThatIsAskedFor) {
  RenderOptions options = JobOptionsFor(GetParam());
  for (const char* words : {"admin_address", "prometheus.io", "9464"}) {
    EXPECT_THAT(Rendered(options), Not(HasSubstr(words)));
  }
  options.metrics = true;
  const std::string text = Rendered(options);
  EXPECT_THAT(text, HasSubstr("--admin_address=0.0.0.0"));
  if (!OnKubernetes(GetParam())) {
    return;
  }
  for (const char* words :
       {"prometheus.io/scrape: \"true\"", "prometheus.io/port: \"9464\"",
        "prometheus.io/path: /metrics", "containerPort: 9464",
        "- namespaceSelector: {}"}) {
    EXPECT_THAT(text, HasSubstr(words));
  }
  // Beside a user's program ps and chief have metrics.
  RenderOptions program = ProgramOptionsFor(GetParam());
  program.metrics = true;
  const std::vector<std::string> parts =
      absl::StrSplit(Rendered(program), "prometheus.io/scrape");
  EXPECT_EQ(parts.size(), 3u);
}

// T3. A value that happens to be in the environment gets into no file.
TEST_P(TargetTest, HasNoSecret) {
  const std::string secret(64, '7');
  ASSERT_EQ(setenv("WEIR_SECRET", secret.c_str(), 1), 0);
  EXPECT_THAT(Rendered(JobOptionsFor(GetParam())), Not(HasSubstr(secret)));
  ASSERT_EQ(unsetenv("WEIR_SECRET"), 0);
}

// T4.
TEST_P(TargetTest, GivesTheSameBytesForTheSameOptions) {
  EXPECT_EQ(Rendered(JobOptionsFor(GetParam())),
            Rendered(JobOptionsFor(GetParam())));
}

TEST_P(TargetTest, AChiefMayBeInWorker0) {
  RenderOptions options = JobOptionsFor(GetParam());
  options.chief = false;
  options.ps_count = 1;
  // The words in prose aside.
  EXPECT_THAT(Rendered(options), Not(HasSubstr("chief=")));
  EXPECT_THAT(Rendered(options), Not(HasSubstr("-chief")));
}

TEST_P(TargetTest, MayHaveGpus) {
  RenderOptions options = JobOptionsFor(GetParam());
  options.gpus = 1;
  options.image = "weir-cuda:1";
  std::string words = "nvidia.com/gpu: \"1\"";
  if (GetParam() == "compose") {
    words = "device_ids: [\"1\"]";
  } else if (GetParam() == "slurm") {
    words = "#SBATCH --gpus=2";
  }
  EXPECT_THAT(Rendered(options), HasSubstr(words));
}

TEST_P(TargetTest, ExplainsItsChoices) {
  const auto files = RenderFiles(JobOptionsFor(GetParam()));
  ASSERT_TRUE(files.ok()) << files.status();
  // With the bytes of each part.
  EXPECT_THAT(files->explanation, HasSubstr("ps memory request: "));
  EXPECT_THAT(files->explanation, HasSubstr("optimizer state 2.2 MiB"));
  EXPECT_THAT(files->explanation, HasSubstr("rows of tables 32.0 MiB"));
  EXPECT_THAT(files->explanation, HasSubstr("storage: 1Gi"));
  EXPECT_EQ(files->containerfile, "");
}

INSTANTIATE_TEST_SUITE_P(All, TargetTest, testing::ValuesIn(TargetNames()),
                         [](const auto& info) { return info.param; });

class KubernetesTest : public TargetTest {};

TEST_P(KubernetesTest, PodsHaveNoRightThatTheyDoNotNeed) {
  const std::string text = Rendered(JobOptionsFor(GetParam()));
  for (const char* words :
       {"runAsNonRoot: true", "runAsUser: 10001", "fsGroup: 10001",
        "type: RuntimeDefault", "readOnlyRootFilesystem: true",
        "allowPrivilegeEscalation: false", "drop: [ALL]",
        "automountServiceAccountToken: false", "defaultMode: 288",
        "kind: NetworkPolicy", "kind: PodDisruptionBudget", "minAvailable: 2",
        "kind: PersistentVolumeClaim", "[weir, probe]"}) {
    EXPECT_THAT(text, HasSubstr(words));
  }
}

// A worker that hosts the chief may read data for longer than any bound.
TEST_P(KubernetesTest, NoProbeEndsATask) {
  RenderOptions options = JobOptionsFor(GetParam());
  options.chief = false;
  const std::string text = Rendered(options);
  EXPECT_THAT(text, HasSubstr("readinessProbe:"));
  EXPECT_THAT(text, Not(HasSubstr("livenessProbe")));
  EXPECT_THAT(text, Not(HasSubstr("startupProbe")));
}

TEST_P(KubernetesTest, TakesCertificatesInPlaceOfASecret) {
  RenderOptions options = JobOptionsFor(GetParam());
  options.tls = true;
  options.name_space = "ml";
  const std::string text = Rendered(options);
  EXPECT_THAT(text, HasSubstr("secretName: small-job-ps-tls"));
  EXPECT_THAT(text, HasSubstr("value: /run/secrets/weir-tls"));
  EXPECT_THAT(text,
              HasSubstr("spiffe://cluster.local/ns/ml/sa/small-job-ps=ps,"));
  EXPECT_THAT(text, Not(HasSubstr("WEIR_SECRET")));
}

TEST_P(KubernetesTest, BringsTheData) {
  RenderOptions options = JobOptionsFor(GetParam());
  options.data_claim = "clicks";
  std::string text = Rendered(options);
  EXPECT_THAT(text, HasSubstr("claimName: clicks\n"));
  EXPECT_THAT(text, HasSubstr("--data_dir=/data"));
  options.data_claim = "";
  options.data_bucket = "s3://bucket/clicks";
  options.data_copy_image = "aws-cli:2";
  options.service_account = "reader";
  text = Rendered(options);
  EXPECT_THAT(text, HasSubstr("image: aws-cli:2"));
  EXPECT_THAT(text, HasSubstr("s3://bucket/clicks"));
  EXPECT_THAT(text, HasSubstr("serviceAccountName: reader"));
  EXPECT_THAT(text, HasSubstr("port: 443"));
  EXPECT_THAT(text, Not(HasSubstr("AWS_")));
  // Whoever copies needs the store's keys, and nobody else.
  options.store_endpoint = "http://minio.store:9000";
  options.store_region = "eu-central-1";
  options.store_secret = "keys";
  text = Rendered(options);
  const int copies = Count(text, "name: copy-data");
  EXPECT_GT(copies, 0);
  for (const char* words :
       {"value: http://minio.store:9000", "name: AWS_DEFAULT_REGION",
        "mountPath: /run/secrets/weir-store", "secretName: keys"}) {
    EXPECT_EQ(Count(text, words), copies) << words;
  }
  EXPECT_THAT(text, HasSubstr("port: 9000"));
  options.store_endpoint = "";
  options.store_region = "";
  options.store_secret = "";
  options.data_bucket = "gs://bucket/clicks";
  EXPECT_THAT(Rendered(options), HasSubstr("gcloud"));
  options.data_bucket = "";
  options.data_copy_image = "";
  options.data_image_path = "/opt/clicks";
  EXPECT_THAT(Rendered(options), HasSubstr("--data_dir=/opt/clicks"));
}

TEST_P(KubernetesTest, ReadsDataFromAnObjectStore) {
  RenderOptions options = JobOptionsFor(GetParam());
  options.data_dir = "s3://bucket/data";
  options.store_secret = "keys";
  const std::string text = Rendered(options);
  EXPECT_THAT(text, HasSubstr("- --data_dir=s3://bucket/data"));
  EXPECT_THAT(text, HasSubstr("port: 443"));
  EXPECT_THAT(text, HasSubstr("secretName: keys"));
  EXPECT_THAT(text, HasSubstr("kind: PersistentVolumeClaim"));
}

TEST_P(KubernetesTest, DollarsOfWordsAreNoVariables) {
  RenderOptions options = ProgramOptionsFor(GetParam());
  options.command.push_back("$(HOME) and $$");
  EXPECT_THAT(Rendered(options), HasSubstr("- \"$$(HOME) and $$$$\"\n"));
  options = JobOptionsFor(GetParam());
  options.data_bucket = "s3://bucket/$(HOME)";
  options.data_copy_image = "aws-cli:2";
  EXPECT_THAT(Rendered(options), HasSubstr("\"s3://bucket/$$(HOME)\""));
}

TEST_P(KubernetesTest, TakesAVolumeThatIsThere) {
  RenderOptions options = JobOptionsFor(GetParam());
  options.run_claim = "shared";
  const std::string text = Rendered(options);
  EXPECT_THAT(text, HasSubstr("claimName: shared\n"));
  EXPECT_THAT(text, Not(HasSubstr("kind: PersistentVolumeClaim")));
}

TEST_P(KubernetesTest, KeepsTheRunInAnObjectStore) {
  RenderOptions options = JobOptionsFor(GetParam());
  options.checkpoints = "s3://bucket/run";
  const std::string of_aws = Rendered(options);
  EXPECT_THAT(of_aws, HasSubstr("- --checkpoints=s3://bucket/run"));
  EXPECT_THAT(of_aws, Not(HasSubstr("ersistentVolumeClaim")));
  EXPECT_THAT(of_aws, HasSubstr("port: 443"));
  EXPECT_THAT(of_aws, Not(HasSubstr("AWS_")));
  options.store_endpoint = "http://minio.store:9000";
  options.store_region = "eu-central-1";
  options.store_secret = "keys";
  const std::string text = Rendered(options);
  for (const char* words :
       {"port: 9000", "value: http://minio.store:9000", "value: eu-central-1",
        "secretName: keys", "value: /run/secrets/weir-store/credentials",
        "create secret generic keys --from-file=credentials=FILE"}) {
    EXPECT_THAT(text, HasSubstr(words));
  }
}

// A policy counts the port of the pod behind a Service, which is another one.
TEST_P(KubernetesTest, LetsThePodsOutToServices) {
  RenderOptions options = JobOptionsFor(GetParam());
  options.checkpoints = "s3://bucket/run";
  const std::string anywhere = "    - to:\n        - namespaceSelector: {}\n";
  const std::string of_aws = Rendered(options);
  EXPECT_EQ(Count(of_aws, "port: 5353\n"), 2);  // OpenShift's DNS
  EXPECT_THAT(of_aws, Not(HasSubstr(anywhere)));
  options.store_endpoint = "https://minio.store";
  const std::string text = Rendered(options);
  const size_t egress = text.find("  egress:\n");
  ASSERT_NE(egress, std::string::npos);
  EXPECT_THAT(text.substr(egress, text.find("---", egress) - egress),
              EndsWith(anywhere));
}

// One cause fails all pods: of 1,000 workers each may need some new ones.
TEST_P(KubernetesTest, MakesMoreNewPodsForMoreTasks) {
  const bool volcano = GetParam() == "volcano";
  const std::string field = volcano ? "maxRetry: " : "backoffLimit: ";
  RenderOptions options = ProgramOptionsFor(GetParam());
  EXPECT_THAT(Rendered(options), HasSubstr(field + "1000\n"));
  options.worker_count = 1000;
  if (volcano) {
    EXPECT_THAT(Rendered(options), HasSubstr("maxRetry: 100300\n"));
  } else if (GetParam() != "tfjob") {  // which counts no new pod
    EXPECT_EQ(Count(Rendered(options), "backoffLimit: 1000\n"), 2);
    EXPECT_EQ(Count(Rendered(options), "backoffLimit: 100000\n"), 1);
  }
}

// One ps alone: a budget would block every drain of its node.
TEST_P(KubernetesTest, HasNoBudgetThatNobodyCanKeep) {
  RenderOptions options = JobOptionsFor(GetParam());
  options.chief = false;
  options.ps_count = 1;
  EXPECT_THAT(Rendered(options), Not(HasSubstr("PodDisruptionBudget\n")));
}

INSTANTIATE_TEST_SUITE_P(All, KubernetesTest,
                         testing::Values("k8s", "jobset", "volcano", "tfjob"),
                         [](const auto& info) { return info.param; });

TEST(ComposeTest, TakesAFolderOrAVolumeOfData) {
  RenderOptions options = JobOptionsFor("compose");
  options.data_claim = "../clicks";
  EXPECT_THAT(Rendered(options), HasSubstr("- \"../clicks:/data:ro\""));
  options.data_claim = "clicks";
  const std::string text = Rendered(options);
  EXPECT_THAT(text, HasSubstr("- data:/data:ro"));
  EXPECT_THAT(text, HasSubstr("    name: clicks\n    external: true\n"));
}

TEST(ComposeTest, WorkersHaveGpusOfTheirOwn) {
  RenderOptions options = JobOptionsFor("compose");
  options.image = "weir-cuda:1";
  options.gpus = 2;
  const std::string text = Rendered(options);
  const size_t second = text.find("  worker-1:");
  EXPECT_THAT(text.substr(0, second), HasSubstr("device_ids: [\"0\", \"1\"]"));
  EXPECT_THAT(text.substr(second), HasSubstr("device_ids: [\"2\", \"3\"]"));
}

TEST(ComposeTest, KeepsTheRunInAnObjectStore) {
  RenderOptions options = JobOptionsFor("compose");
  options.checkpoints = "s3://bucket/run";
  options.store_endpoint = "http://minio:9000";
  const std::string text = Rendered(options);
  EXPECT_THAT(text, HasSubstr("- --checkpoints=s3://bucket/run"));
  EXPECT_THAT(text, HasSubstr("AWS_ENDPOINT_URL: http://minio:9000"));
  EXPECT_THAT(text, HasSubstr("\"${AWS_SECRET_ACCESS_KEY:-}\""));
  EXPECT_THAT(text, Not(HasSubstr("run:/run/weir")));
}

TEST(SlurmTest, ReadsDataFromAnObjectStore) {
  RenderOptions options = JobOptionsFor("slurm");
  options.data_dir = "s3://bucket/data";
  options.store_endpoint = "http://minio:9000";
  const std::string text = Rendered(options);
  EXPECT_THAT(text, HasSubstr("export AWS_ENDPOINT_URL=http://minio:9000\n"));
  EXPECT_THAT(text, HasSubstr("--data_dir=s3://bucket/data"));
}

TEST(ComposeTest, DollarsOfAProgramAreNoVariables) {
  RenderOptions options = ProgramOptionsFor("compose");
  options.command.push_back("it's $HOME");
  EXPECT_THAT(Rendered(options), HasSubstr("- \"it's $$HOME\""));
}

TEST(SlurmTest, QuotesWordsForTheShell) {
  RenderOptions options = ProgramOptionsFor("slurm");
  options.command.push_back("a $HOME");
  EXPECT_THAT(Rendered(options),
              HasSubstr("-- python train.py --name 'it'\\''s' 'a $HOME' \\\n"));
}

TEST(SlurmTest, TakesAPartition) {
  RenderOptions options = JobOptionsFor("slurm");
  options.queue = "long";
  EXPECT_THAT(Rendered(options), HasSubstr("#SBATCH --partition=long\n"));
}

TEST(FactoryTest, ListsTheTargetsThatThereAre) {
  EXPECT_EQ(TargetNames().size(), 6u);
  for (const std::string& name : TargetNames()) {
    EXPECT_TRUE(MakeTarget(name).ok()) << name;
  }
}

}  // namespace
}  // namespace weir
