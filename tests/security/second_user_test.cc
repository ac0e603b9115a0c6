// Another user of a host on which a job runs gets nothing of it: no answer of a
// task, nothing of its memory, and no file.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cc/transport/grpc_transport.h"
#include "proto/security/certificates.h"
#include "proto/security/job_secret.h"
#include "proto/security/key_files.h"
#include "proto/security/security.h"
#include "tests/integration/hand_cluster.h"
#include "tests/integration/harness.h"
#include "tests/security/another_user.h"

namespace weir {
namespace {

constexpr char kWhySkipped[] =
    "only root can be another user, and this container may not let it";

// A directory that every user can reach and enter.
class OpenDirectory {
 public:
  OpenDirectory() {
    EXPECT_NE(mkdtemp(path_.data()), nullptr);
    EXPECT_EQ(chmod(path_.c_str(), 0755), 0);
  }
  ~OpenDirectory() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_ = "/tmp/weir_second_user_XXXXXX";
};

TEST(SecondUserTest, NoFileOfARunOpens) {
  AnotherUser* const other = AnotherUser::Get();
  if (other == nullptr) {
    GTEST_SKIP() << kWhySkipped;
  }
  const OpenDirectory open;
  const std::string run = open.path() + "/run";
  const std::string job = open.path() + "/job.textproto";
  WriteFile(job, DigitsJob(200,
                           "update { async {} } checkpoint { every_steps: 50 } "
                           "evaluation { source { digits { count: 100 } } }"));
  const TrainRun train = RunTrain(run, {job, "--ps", "2", "--workers", "2"});
  ASSERT_EQ(train.exit_code, 0) << train.output;
  // The other user comes as far as the run's directory.
  ASSERT_EQ(chmod(job.c_str(), 0644), 0);
  EXPECT_NE(other->Try({.target = job}), "");
  int files = 0;
  std::string names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(run)) {
    const std::string path = entry.path();
    EXPECT_NE(Try({.target = path}), "") << path;
    EXPECT_EQ(other->Try({.target = path}), "") << path;
    names += path + "\n";
    if (!entry.is_directory()) {
      // Its own mode must keep it, not only that of the directories.
      const std::string link = open.path() + "/" + std::to_string(++files);
      std::filesystem::create_hard_link(path, link);
      EXPECT_EQ(other->Try({.target = link}), "") << path;
    }
  }
  EXPECT_EQ(other->Try({.target = run}), "");
  for (const char* name :
       {"/.secret", "/audit.jsonl", "/logs/audit-ps-0.jsonl", "/logs/ps-0.log",
        "/checkpoints/.chief_secret", "/shard-0-of-2.safetensors",
        "/train.jsonl", "/eval.jsonl"}) {
    EXPECT_NE(names.find(name), std::string::npos) << name;
  }
}

// A job whose tasks run for as long as the object lives.
class RunningJob {
 public:
  RunningJob(const std::string& dir, bool insecure)
      : cluster_(dir, DigitsJob(1000000, "update { async {} }"), 2, 1, true) {
    const std::vector<std::string> mode = {
        insecure ? "WEIR_INSECURE=1"
                 : absl::StrCat("WEIR_SECRET=", kTestSecret)};
    for (int i = 0; i < 2; ++i) {
      cluster_.Start("ps", i, {}, mode);
    }
    cluster_.Start("chief", 0, {}, mode);
    cluster_.Start("worker", 0, {}, mode);
    EXPECT_TRUE(WaitUntil(60, [this] { return cluster_.step() > 0; }))
        << cluster_.task("worker", 0).Log();
  }

  std::vector<std::string> servers() const {
    return {cluster_.address("ps", 0), cluster_.address("ps", 1),
            cluster_.address("chief", 0)};
  }
  // What would tell of the tasks' memory.
  std::vector<std::string> memory() {
    std::vector<std::string> paths;
    for (auto& [name, task] : cluster_.tasks()) {
      const std::string directory = "/proc/" + std::to_string(task.pid());
      for (const char* file :
           {"/environ", "/mem", "/maps", "/smaps", "/auxv", "/fd"}) {
        paths.push_back(directory + file);
      }
    }
    return paths;
  }

 private:
  HandCluster cluster_;
};

// Where a ps's shared memory is, and a good ticket for it.
Attempt ShmAttempt(const std::string& ps, bool insecure) {
  GrpcTransportOptions options;
  if (!insecure) {
    options.security = TestSecurity(PeerRole::kWorker);
  }
  const auto hello =
      MakeGrpcTransport(options)->Connect(ps)->Hello(std::chrono::seconds(20));
  EXPECT_TRUE(hello.ok()) << hello.status();
  return {.kind = Attempt::kShm,
          .target = hello->shm_name(),
          .proof = hello->shm_ticket()};
}

// A directory of certificates that holders of the secret accept.
std::string WorkersProof() {
  const JobSecret secret = *JobSecret::Parse(kTestSecret);
  const std::string directory = FreshDir("second_user_proof");
  EXPECT_TRUE(WriteTaskCertificate(
                  directory, CertificateAuthority::FromSecret(secret).Issue(
                                 {.job = Security::JobOf(secret),
                                  .role = PeerRole::kWorker,
                                  .index = 0}))
                  .ok());
  return directory;
}

TEST(SecondUserTest, NoTaskAnswersAndNoneShowsItsMemory) {
  AnotherUser* const other = AnotherUser::Get();
  if (other == nullptr) {
    GTEST_SKIP() << kWhySkipped;
  }
  RunningJob job(FreshDir("second_user"), /*insecure=*/false);
  const std::string proof = WorkersProof();
  for (const std::string& server : job.servers()) {
    EXPECT_EQ(other->Try({Attempt::kPlain, server}), "") << server;
    EXPECT_EQ(other->Try({Attempt::kTls, server}), "") << server;
    EXPECT_NE(Try({Attempt::kTls, server, proof}), "") << server;
  }
  for (const std::string& path : job.memory()) {
    EXPECT_EQ(other->Try({.target = path}), "") << path;
  }
  const Attempt shm = ShmAttempt(job.servers()[0], /*insecure=*/false);
  EXPECT_EQ(other->Try(shm), "");
  EXPECT_NE(Try(shm), "");  // the ticket was good, and still is
}

// An insecure job answers everybody, and its tasks' memory is open to its user.
// So the same attempts get something where there is something to get.
TEST(SecondUserTest, AnInsecureJobAnswersButKeepsItsMemoryToItsUser) {
  AnotherUser* const other = AnotherUser::Get();
  if (other == nullptr) {
    GTEST_SKIP() << kWhySkipped;
  }
  RunningJob job(FreshDir("second_user_insecure"), /*insecure=*/true);
  for (const std::string& server : job.servers()) {
    EXPECT_NE(other->Try({Attempt::kPlain, server}), "") << server;
  }
  for (const std::string& path : job.memory()) {
    EXPECT_EQ(other->Try({.target = path}), "") << path;
    EXPECT_NE(Try({.target = path}), "") << path;
  }
  const Attempt shm = ShmAttempt(job.servers()[0], /*insecure=*/true);
  EXPECT_EQ(other->Try(shm), "");
  EXPECT_NE(Try(shm), "");
}

}  // namespace
}  // namespace weir
