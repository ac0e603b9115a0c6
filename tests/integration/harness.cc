#include "tests/integration/harness.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "deploy/launcher/child_process.h"
#include "proto/security/certificates.h"
#include "proto/security/key_files.h"

namespace weir {

std::string FreshDir(const std::string& name) {
  const std::string dir = testing::TempDir() + "/weir_" + name;
  std::filesystem::remove_all(dir);
  std::filesystem::create_directories(dir);
  return dir;
}

std::string Binary(const std::string& path) {
  return std::filesystem::absolute(path).string();
}

std::string RoleBinary(const std::string& role) {
  std::string folder = "worker";  // holds the evaluator, too
  if (role == "ps") {
    folder = "server/ps";
  } else if (role == "chief") {
    folder = "server/chief";
  }
  return Binary(folder + "/weir_" + role);
}

std::string TestData(const std::string& file) {
  const char* root = std::getenv("WEIR_TEST_DATA");  // NOLINT
  if (root == nullptr ||
      !std::filesystem::exists(std::string(root) + "/" + file)) {
    return "";
  }
  return root;
}

std::string ReadFile(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

void WriteFile(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string FreeAddress() {
  return "127.0.0.1:" + std::to_string(FreePort().value());
}

bool WaitUntil(double seconds, const std::function<bool()>& condition) {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

namespace {

// DIR/<role>-<index>/ of every task, as `weir certs` makes them; "" unless
// WEIR_TEST_CERTIFICATES asks for them.
const std::string& CertificatesDir() {
  static const auto* const made = new std::string([]() -> std::string {
    if (std::getenv("WEIR_TEST_CERTIFICATES") == nullptr) {  // NOLINT
      return "";
    }
    const std::string dir = FreshDir("certificates");
    const CertificateAuthority authority = CertificateAuthority::Draw();
    for (const PeerRole role :
         {PeerRole::kPs, PeerRole::kChief, PeerRole::kWorker, PeerRole::kReader,
          PeerRole::kAdmin}) {
      for (int index = 0; index < 8; ++index) {
        const absl::Status written = WriteTaskCertificate(
            dir + "/" + PeerRoleName(role) + "-" + std::to_string(index),
            authority.Issue({.job = "tests", .role = role, .index = index}));
        EXPECT_TRUE(written.ok()) << written;
      }
    }
    return dir;
  }());
  return *made;
}

std::string CertificateDir(PeerRole role, int index) {
  return CertificatesDir() + "/" + PeerRoleName(role) + "-" +
         std::to_string(index);
}

}  // namespace

std::shared_ptr<const Security> TestSecurity(PeerRole role, int index) {
  Security::Options options;
  if (CertificatesDir().empty()) {
    options.secret = kTestSecret;
  } else {
    options.tls_dir = CertificateDir(role, index);
  }
  return *Security::Create(options, role, index);
}

bool ChoosesSecurity(const std::vector<std::string>& environment) {
  return std::any_of(environment.begin(), environment.end(),
                     [](const std::string& entry) {
                       return entry.starts_with("WEIR_SECRET") ||
                              entry.starts_with("WEIR_TLS_DIR=") ||
                              entry.starts_with("WEIR_INSECURE=");
                     });
}

std::string SecurityVariable(PeerRole role, int index) {
  return CertificatesDir().empty()
             ? std::string("WEIR_SECRET=") + kTestSecret
             : "WEIR_TLS_DIR=" + CertificateDir(role, index);
}

Process::Process(std::vector<std::string> argv,
                 std::vector<std::string> environment, std::string log)
    : log_(std::move(log)) {
  ChildCommand command;
  command.argv = std::move(argv);
  command.environment = std::move(environment);
  if (!ChoosesSecurity(command.environment)) {
    if (!command.argv[0].ends_with("/weir_cli")) {
      command.environment.push_back(SecurityVariable(PeerRole::kWorker));
    } else if (!CertificatesDir().empty()) {
      command.environment.push_back("WEIR_TLS_DIR=" + CertificatesDir());
    }
  }
  command.log_path = log_;
  const absl::StatusOr<pid_t> pid = StartChild(command);
  EXPECT_TRUE(pid.ok()) << pid.status();
  pid_ = pid.ok() ? *pid : 0;
}

Process::Process(Process&& other) noexcept
    : log_(other.log_), pid_(other.pid_), code_(other.code_) {
  other.pid_ = 0;
}

Process::~Process() {
  if (pid_ > 0 && running()) {
    Signal(SIGKILL);
    Wait(10);
  }
}

void Process::Signal(int signal) {
  if (pid_ > 0 && !code_.has_value()) {
    kill(pid_, signal);
  }
}

std::optional<int> Process::Poll() {
  if (!code_.has_value() && pid_ > 0) {
    code_ = ReapChild(pid_);
  }
  return code_;
}

int Process::Wait(double seconds) {
  WaitUntil(seconds, [this] { return Poll().has_value(); });
  return code_.value_or(-1);
}

Process StartTrain(const std::string& workdir,
                   const std::vector<std::string>& arguments,
                   const std::vector<std::string>& environment) {
  std::vector<std::string> argv = {Binary("deploy/cli/weir_cli"), "train"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  argv.insert(argv.end(), {"--workdir", workdir});
  std::vector<std::string> variables = environment;
  variables.push_back("WEIR_BIN_DIR=" + Binary("."));
  return Process(std::move(argv), std::move(variables), workdir + ".train.log");
}

TrainRun FinishTrain(Process* process, const std::string& workdir,
                     double seconds) {
  TrainRun run;
  run.workdir = workdir;
  run.exit_code = process->Wait(seconds);
  run.output = process->Log();
  run.summary = nlohmann::json::parse(ReadFile(workdir + "/summary.json"),
                                      nullptr, /*allow_exceptions=*/false);
  if (run.exit_code != 0) {
    std::error_code missing;
    for (const auto& log :
         std::filesystem::directory_iterator(workdir + "/logs", missing)) {
      const std::string text = ReadFile(log.path());
      run.output +=
          "--- " + log.path().filename().string() + "\n" +
          text.substr(text.size() - std::min<size_t>(text.size(), 2000));
    }
  }
  return run;
}

TrainRun RunTrain(const std::string& workdir,
                  const std::vector<std::string>& arguments,
                  const std::vector<std::string>& environment, double seconds) {
  Process process = StartTrain(workdir, arguments, environment);
  return FinishTrain(&process, workdir, seconds);
}

int Restarts(const TrainRun& run) {
  int restarts = 0;
  for (const auto& task : run.summary["tasks"]) {
    restarts += task["restarts"].get<int>();
  }
  return restarts;
}

CommandResult RunWeir(const std::vector<std::string>& arguments,
                      const std::vector<std::string>& environment) {
  std::vector<std::string> argv = {Binary("deploy/cli/weir_cli")};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  std::vector<std::string> variables = environment;
  variables.push_back("WEIR_BIN_DIR=" + Binary("."));
  const std::string log = FreshDir("command") + "/log";
  Process process(std::move(argv), std::move(variables), log);
  CommandResult result;
  result.exit_code = process.Wait(60);
  result.output = process.Log();
  return result;
}

std::string ExportModel(const std::string& dir, const std::string& name) {
  const std::string out = dir + "/" + name + ".safetensors";
  const CommandResult result = RunWeir(
      {"checkpoint", "export", dir + "/checkpoints/" + name, "--out", out});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  return ReadFile(out);
}

std::vector<nlohmann::json> ReadJsonLines(const std::string& path) {
  std::vector<nlohmann::json> lines;
  std::istringstream stream(ReadFile(path));
  for (std::string line; std::getline(stream, line);) {
    nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_object()) {
      lines.push_back(std::move(json));
    }
  }
  return lines;
}

std::vector<pid_t> FindProcesses(const std::vector<std::string>& words) {
  std::vector<pid_t> pids;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (!std::all_of(name.begin(), name.end(), ::isdigit)) {
      continue;
    }
    std::string text = ReadFile(entry.path().string() + "/cmdline") +
                       ReadFile(entry.path().string() + "/environ");
    std::replace(text.begin(), text.end(), '\0', ' ');
    if (std::all_of(words.begin(), words.end(),
                    [&text](const std::string& word) {
                      return text.find(word) != std::string::npos;
                    })) {
      pids.push_back(static_cast<pid_t>(std::stol(name)));
    }
  }
  return pids;
}

std::string TfConfig(const nlohmann::json& cluster, const std::string& role,
                     int index) {
  const nlohmann::json config = {{"cluster", cluster},
                                 {"task", {{"type", role}, {"index", index}}}};
  return "TF_CONFIG=" + config.dump();
}

}  // namespace weir
