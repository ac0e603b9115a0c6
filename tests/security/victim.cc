#include "tests/security/victim.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "proto/job/job_spec_text.h"
#include "proto/security/key_files.h"
#include "proto/security/security.h"
#include "proto/wire/wire_version.h"
#include "tests/integration/exit_oracle.h"

namespace weir {
namespace {

constexpr double kWaitSeconds = 60;
constexpr int kAttackersRank = 2;

JobSpec LoadSpec(const Victim::Options& options) {
  // Two contributions a step leave the third worker, the attacker, without any.
  std::vector<std::string> set = {"update.sync.contributions=2",
                                  "train.steps=100000000",
                                  "checkpoint.keep=1000"};
  set.insert(set.end(), options.set.begin(), options.set.end());
  return *LoadJobSpec(Binary("examples/" + options.example + ".textproto"),
                      set);
}

// The value of a line of /proc/PID/status, in MiB.
int64_t MiBOf(const std::string& status, const std::string& name) {
  const size_t at = status.find("\n" + name + ":");
  EXPECT_NE(at, std::string::npos) << name << " is not in " << status;
  return at == std::string::npos
             ? 0
             : std::stoll(status.substr(at + name.size() + 2)) / 1024;
}

}  // namespace

Victim::Victim(const Options& options)
    : secured_(options.secured),
      spec_(LoadSpec(options)),
      cluster_(FreshDir(options.name), CanonicalJobSpecText(spec_), /*ps=*/1,
               /*workers=*/3, /*chief=*/true) {
  const auto start = [&](const std::string& role, int index,
                         const std::vector<std::string>& flags = {}) {
    cluster_.Start(role, index, flags, Environment(role, index));
  };
  start("ps", 0, {"--audit_log", cluster_.dir() + "/audit-ps.jsonl"});
  start("chief", 0);
  start("worker", 0);
  // One of the workers is on the network, where the floods are.
  start("worker", 1, {"--transport", "grpc"});
}

std::vector<std::string> Victim::Environment(const std::string& role,
                                             int index) {
  if (!secured_) {
    return {"WEIR_INSECURE=1"};
  }
  const std::string directory =
      absl::StrCat(cluster_.dir(), "/tls-", role, "-", index);
  EXPECT_TRUE(
      WriteTaskCertificate(directory, Issue(*ParsePeerRole(role), index)).ok());
  return {"WEIR_TLS_DIR=" + directory};
}

TaskCertificate Victim::Issue(PeerRole role, int index) const {
  return authority_.Issue({.job = "victim", .role = role, .index = index});
}

Attacker Victim::Of(const std::string& name, PeerRole role, int index) const {
  Attacker attacker;
  attacker.name = name;
  attacker.credentials = grpc::InsecureChannelCredentials();
  if (secured_) {
    const TaskCertificate task = Issue(role, index);
    attacker.credentials =
        grpc::SslCredentials({task.authority, task.key, task.certificate});
  }
  attacker.ps = cluster_.address("ps", 0);
  attacker.chief = cluster_.address("chief", 0);
  attacker.rank = index;
  attacker.spec = spec_;
  attacker.checkpoints = cluster_.dir() + "/checkpoints";
  return attacker;
}

absl::StatusOr<PsStatus> Victim::Status() const {
  PsStatus status;
  const absl::Status called =
      Of("", PeerRole::kAdmin, 0)
          .Call("/weir.ParameterServer/GetStatus", GetStatusRequest(), &status);
  if (!called.ok()) {
    return called;
  }
  return status;
}

bool Victim::Trains(uint64_t steps) {
  return WaitUntil(kWaitSeconds, [&] {
    const auto status = Status();
    return !cluster_.checkpoints().empty() && status.ok() &&
           status->version_min() >= steps;
  });
}

std::vector<Victim::Client> Victim::Clients() {
  Attacker worker =
      Of(secured_ ? "worker" : "anyone", PeerRole::kWorker, kAttackersRank);
  PsStatus status;
  EXPECT_TRUE(
      worker
          .Call("/weir.ParameterServer/GetStatus", GetStatusRequest(), &status)
          .ok());
  HelloRequest hello;
  hello.set_wire_version(kWireVersion);
  HelloReply about;
  EXPECT_TRUE(worker.Call("/weir.ParameterServer/Hello", hello, &about).ok());
  worker.declaration = status.declaration();
  worker.shm_name = about.shm_name();
  worker.checkpoint = cluster_.checkpoints().front();
  RegisterReply registered;
  absl::Status why;
  EXPECT_TRUE(WaitUntil(kWaitSeconds, [&] {
    why =
        worker.Call("/weir.Chief/Register", worker.Registration(), &registered);
    return !why.ok() || registered.has_grant();
  }));
  EXPECT_TRUE(why.ok()) << why;
  worker.sender = registered.grant().sender();
  if (!secured_) {
    return {{worker, &Ends::anyone}};
  }

  // Those who hold no slot know everything else.
  Attacker other = worker;
  other.sender = worker.AsReader();
  std::vector<Client> clients;
  const auto add = [&](const std::string& name,
                       std::shared_ptr<grpc::ChannelCredentials> credentials,
                       std::optional<absl::StatusCode> Ends::*ends) {
    other.name = name;
    other.credentials = std::move(credentials);
    clients.push_back({other, ends});
  };
  const std::string trusted = authority_.certificate();
  const TaskCertificate stranger = CertificateAuthority::Draw().Issue(
      {.job = "victim", .role = PeerRole::kChief, .index = 0});
  add("without TLS", grpc::InsecureChannelCredentials(), nullptr);
  add("without a certificate", grpc::SslCredentials({trusted, "", ""}),
      nullptr);
  add("of another authority",
      grpc::SslCredentials({trusted, stranger.key, stranger.certificate}),
      nullptr);
  add("reader", Of("", PeerRole::kReader, 0).credentials, &Ends::reader);
  clients.push_back({worker, &Ends::worker});
  add("admin", Of("", PeerRole::kAdmin, 0).credentials, &Ends::admin);
  return clients;
}

std::vector<std::string> Victim::Ended() {
  std::vector<std::string> ended;
  for (auto& [name, process] : cluster_.tasks()) {
    if (!process.running()) {
      const std::string log = process.Log();
      ended.push_back(
          name + ": " +
          log.substr(log.size() - std::min<size_t>(log.size(), 1000)));
    }
  }
  return ended;
}

std::map<std::string, Victim::Memory> Victim::MemoryOf() {
  std::map<std::string, Memory> all;
  for (const char* role : {"ps", "chief"}) {
    const std::string status = ReadFile(
        absl::StrCat("/proc/", cluster_.task(role, 0).pid(), "/status"));
    all[role] = {.now = MiBOf(status, "RssAnon") + MiBOf(status, "RssShmem"),
                 .peak = MiBOf(status, "VmHWM")};
  }
  return all;
}

std::map<std::string, uint64_t> Victim::ConnectionsClosed() {
  uint64_t by_chief = 0;
  for (const auto& line : ReadJsonLines(cluster_.dir() + "/audit.jsonl")) {
    by_chief +=
        line.dump().find("the connection was closed") == std::string::npos ? 0
                                                                           : 1;
  }
  const auto status = Status();
  EXPECT_TRUE(status.ok()) << status.status();
  const uint64_t by_ps = status.ok() ? status->connections_closed() : 0;
  return {{"ps", by_ps}, {"chief", by_chief}};
}

double Victim::StepsPerSecond(std::chrono::seconds time) {
  const auto begin = std::chrono::steady_clock::now();
  const auto before = Status();
  std::this_thread::sleep_for(time);
  const auto after = Status();
  const std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - begin;
  if (!before.ok() || !after.ok()) {
    ADD_FAILURE() << before.status() << ", " << after.status();
    return 0;
  }
  EXPECT_GE(after->version_min(), before->version_min());
  return (static_cast<double>(after->version_min()) -
          static_cast<double>(before->version_min())) /
         took.count();
}

void Victim::Signal(int signal) {
  for (auto& [name, process] : cluster_.tasks()) {
    process.Signal(signal);
  }
}

void Victim::EndsWell(const std::string& metric, double floor, uint64_t steps) {
  cluster_.task("chief", 0).Signal(SIGTERM);
  EXPECT_TRUE(EndsRight(&cluster_, kWaitSeconds, {.signalled = {"chief/0"}}));
  uint64_t saved = 0;
  for (const std::string& name : cluster_.checkpoints()) {
    const auto manifest = nlohmann::json::parse(
        ReadFile(cluster_.dir() + "/checkpoints/" + name + "/manifest.json"));
    saved = std::max<uint64_t>(
        saved, std::stoull(manifest["step"].get<std::string>()));
  }
  EXPECT_GT(saved, 0);
  const TrainRun run =
      RunTrain(cluster_.dir(),
               {cluster_.dir() + "/job.textproto", "--ps", "1", "--workers",
                "2", "--resume", "--set",
                absl::StrCat("train.steps=", std::max(saved + 50, steps))});
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_GE(run.summary["final_metrics"].value(metric, 0.0), floor);
}

}  // namespace weir
