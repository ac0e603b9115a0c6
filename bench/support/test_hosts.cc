#include "bench/support/test_hosts.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/support/peers.h"
#include "bench/support/timing.h"
#include "common/base/status.h"

namespace weir {
namespace {

constexpr char kIp[] = "/usr/sbin/ip";
constexpr char kTc[] = "/usr/sbin/tc";
constexpr char kIperf3[] = "/usr/bin/iperf3";
constexpr int kIperf3Port = 5201;
constexpr double kStartSecondsMax = 30;

// A packet that segmentation offload made must fit the bucket whole; beyond
// that, a millisecond's worth is what a real interface sends back to back.
constexpr double kBurstBytesMin = 128 << 10;
constexpr double kBurstSeconds = 0.001;
// A switch's port queues about as much before it drops.
constexpr double kQueueSeconds = 0.02;
constexpr double kQueueBytesMin = 256 << 10;

// Runs a script. If it fails, what it printed becomes the error.
absl::Status RunScript(const std::string& script) {
  FILE* const pipe =
      popen(absl::StrCat("{ set -e\n", script, "\n} 2>&1").c_str(), "re");
  if (pipe == nullptr) {
    return absl::UnavailableError("popen failed");
  }
  std::string said;
  char buffer[1024];
  while (const size_t got = fread(buffer, 1, sizeof(buffer), pipe)) {
    said.append(buffer, got);
  }
  if (pclose(pipe) != 0) {
    return absl::UnavailableError(said);
  }
  return absl::OkStatus();
}

std::string Shape(const std::string& host, const std::string& device,
                  double bits_per_s) {
  const double bytes_per_s = bits_per_s / 8;
  const double burst = std::max(kBurstBytesMin, bytes_per_s * kBurstSeconds);
  const double queue = std::max(kQueueBytesMin, bytes_per_s * kQueueSeconds);
  return absl::StrCat(kTc, " -n ", host, " qdisc replace dev ", device,
                      " root tbf rate ", static_cast<int64_t>(bits_per_s),
                      "bit burst ", static_cast<int64_t>(burst), "b limit ",
                      static_cast<int64_t>(queue), "b\n");
}

}  // namespace

absl::StatusOr<std::unique_ptr<TestHosts>> TestHosts::Create(
    int count, double bits_per_s) {
  if (count < 1 || count > kHostsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(count, " test hosts, not 1 to ", kHostsMax));
  }
  if (geteuid() != 0) {
    return absl::PermissionDeniedError(
        "test hosts are network namespaces, which only root may make: run "
        "this with sudo");
  }
  if (access(kIp, X_OK) != 0 || access(kTc, X_OK) != 0) {
    return absl::UnavailableError("no ip or tc here: install iproute2");
  }
  static std::atomic<int> made{0};
  std::unique_ptr<TestHosts> hosts(new TestHosts);
  // I1: also two sets of hosts in one process differ.
  const std::string prefix = absl::StrCat("weir", getpid(), "x", made++);
  hosts->switch_ = prefix + "switch";
  for (int i = 0; i < count; ++i) {
    hosts->names_.push_back(absl::StrCat(prefix, "h", i));
  }
  // I2: the remover knows all names before one of them exists.
  WEIR_RETURN_IF_ERROR(hosts->StartRemover());
  const absl::Status allowed =
      RunScript(absl::StrCat(kIp, " netns add ", hosts->switch_));
  if (!allowed.ok()) {
    return absl::PermissionDeniedError(
        absl::StrCat("no network namespaces here: ", allowed.message()));
  }
  const std::string on_switch = absl::StrCat(kIp, " -n ", hosts->switch_, " ");
  std::string script = absl::StrCat(on_switch, "link add bridge type bridge\n",
                                    on_switch, "link set bridge up\n");
  for (int i = 0; i < count; ++i) {
    const std::string& name = hosts->names_[static_cast<size_t>(i)];
    const std::string on_host = absl::StrCat(kIp, " -n ", name, " ");
    absl::StrAppend(&script, kIp, " netns add ", name, "\n", on_host,
                    "link add eth0 type veth peer name port", i, " netns ",
                    hosts->switch_, "\n", on_switch, "link set port", i,
                    " master bridge up\n", on_host, "link set lo up\n", on_host,
                    "addr add ", hosts->address(i), "/24 dev eth0\n", on_host,
                    "link set eth0 up\n");
  }
  WEIR_RETURN_IF_ERROR(Annotate(RunScript(script), "test hosts"));
  WEIR_RETURN_IF_ERROR(hosts->SetRate(bits_per_s));
  return hosts;
}

// I2: the remover is forked before there is anything to remove. It is in a
// session of its own, so that Ctrl-C in the terminal ends us and not it.
absl::Status TestHosts::StartRemover() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return absl::ErrnoToStatus(errno, "pipe");
  }
  const std::string script =
      absl::StrCat("cat >/dev/null; for host; do for pid in $(", kIp,
                   " netns pids $host 2>/dev/null); do kill -9 $pid; done; ",
                   kIp, " netns del $host; done 2>/dev/null");
  std::vector<std::string> words = {"/bin/sh", "-c", script, "sh"};
  words.insert(words.end(), names_.begin(), names_.end());
  words.push_back(switch_);
  std::vector<char*> argv;
  for (std::string& word : words) {
    argv.push_back(word.data());
  }
  argv.push_back(nullptr);
  remover_ = fork();
  if (remover_ == 0) {
    setsid();
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    dup2(ends[0], STDIN_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(ends[0]);
  if (remover_ < 0) {
    close(ends[1]);
    return absl::ErrnoToStatus(errno, "fork");
  }
  remover_pipe_ = ends[1];
  return absl::OkStatus();
}

TestHosts::~TestHosts() {
  if (remover_ > 0) {
    close(remover_pipe_);
    waitpid(remover_, nullptr, 0);
  }
}

std::string TestHosts::address(int host) const {
  return absl::StrCat("10.97.0.", host + 1);
}

std::vector<std::string> TestHosts::Command(
    int host, std::vector<std::string> argv) const {
  std::vector<std::string> command = {kIp, "netns", "exec",
                                      names_[static_cast<size_t>(host)]};
  command.insert(command.end(), std::make_move_iterator(argv.begin()),
                 std::make_move_iterator(argv.end()));
  return command;
}

absl::Status TestHosts::SetRate(double bits_per_s) {
  std::string script;
  for (int i = 0; i < size(); ++i) {
    absl::StrAppend(&script,
                    Shape(names_[static_cast<size_t>(i)], "eth0", bits_per_s),
                    Shape(switch_, absl::StrCat("port", i), bits_per_s));
  }
  return Annotate(RunScript(script), "shaping");
}

absl::StatusOr<double> TestHosts::Goodput(int from, int to,
                                          double seconds) const {
  if (access(kIperf3, X_OK) != 0) {
    return absl::UnavailableError("no iperf3 here: install it");
  }
  WEIR_ASSIGN_OR_RETURN(const auto server,
                        Child::Start(Command(to, {kIperf3, "-s", "-p",
                                                  absl::StrCat(kIperf3Port)}),
                                     "/dev/null"));
  std::string client;
  for (const std::string& word :
       Command(from,
               {kIperf3, "-c", address(to), "-p", absl::StrCat(kIperf3Port),
                "-t", absl::StrCat(seconds), "-O", "1", "-J", "2>/dev/null"})) {
    absl::StrAppend(&client, word, " ");
  }
  std::string error = "it says nothing";
  for (const double end = Now() + kStartSecondsMax; Now() < end;) {
    usleep(50000);
    const nlohmann::json json = JsonOutputOf(client);
    const auto path = "/end/sum_received/bits_per_second"_json_pointer;
    if (json.is_object() && json.contains(path)) {
      return json[path].get<double>() / 8;
    }
    error = json.is_object() ? json.value("error", error) : error;
  }
  return absl::UnavailableError(
      absl::StrCat("iperf3 measures nothing between the hosts: ", error));
}

absl::StatusOr<double> ParseRate(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  double scale = 0;
  for (const auto& [name, factor] : {std::pair<const char*, double>{"", 1.0},
                                     {"bit", 1.0},
                                     {"kbit", 1e3},
                                     {"mbit", 1e6},
                                     {"gbit", 1e9}}) {
    scale = unit == name ? factor : scale;
  }
  if (value * scale < 1e5 || value * scale > 1e12) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is not a rate as in 200mbit or 1gbit, ",
                     "from 100kbit to 1000gbit"));
  }
  return value * scale;
}

}  // namespace weir
