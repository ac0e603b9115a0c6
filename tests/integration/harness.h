// Starts the real binaries for integration tests and reads what they leave.
//
// Tests run in the runfiles folder, where the binaries lie at their paths in
// the tree. Every wait has a deadline; no sleep is a synchronisation.
#ifndef TESTS_INTEGRATION_HARNESS_H_
#define TESTS_INTEGRATION_HARNESS_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "proto/security/security.h"

namespace weir {

// How tasks that a test starts prove who they are: by one secret, or, where
// WEIR_TEST_CERTIFICATES is set, each by a certificate of its own.
//
inline constexpr char kTestSecret[] =
    "the secret of the tests, which is long enough";
// Of a client in the test's own process.
std::shared_ptr<const Security> TestSecurity(PeerRole role, int index = 0);
// "NAME=value" for the environment of such a task, and whether one is there.
std::string SecurityVariable(PeerRole role, int index = 0);
bool ChoosesSecurity(const std::vector<std::string>& environment);

// Makes a fresh directory under the test's temporary folder.
std::string FreshDir(const std::string& name);
// Returns a binary's absolute path: Binary("server/ps/weir_ps").
std::string Binary(const std::string& path);
// Returns that of the program that plays `role`: "ps", "worker" and so on.
std::string RoleBinary(const std::string& role);
// Returns WEIR_TEST_DATA, or "" when `file` is not in it; the test then skips.
std::string TestData(const std::string& file);
std::string ReadFile(const std::string& path);
void WriteFile(const std::string& path, const std::string& text);
// Returns a "127.0.0.1:port" that nobody listens on.
std::string FreeAddress();
// Polls until `condition` holds. Returns false after `seconds`.
bool WaitUntil(double seconds, const std::function<bool()>& condition);

// One child. The destructor kills it with SIGKILL if it still runs.
class Process {
 public:
  // Starts argv with "NAME=value" entries added to the environment. Output is
  // appended to `log`. Unless an entry chooses (WEIR_SECRET, WEIR_TLS_DIR,
  // WEIR_INSECURE) it has the SecurityVariable of worker 0; `weir` draws a
  // secret of its own, or has the certificates of all.
  Process(std::vector<std::string> argv, std::vector<std::string> environment,
          std::string log);
  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;
  ~Process();

  pid_t pid() const { return pid_; }
  bool running() { return !Poll().has_value(); }
  void Signal(int signal);
  // Returns the exit code (128 + signal), or -1 when it still runs after
  // `seconds`.
  int Wait(double seconds);
  std::string Log() const { return ReadFile(log_); }

 private:
  std::optional<int> Poll();

  std::string log_;
  pid_t pid_ = 0;
  std::optional<int> code_;
};

struct TrainRun {
  int exit_code = -1;
  nlohmann::json summary;  // null when the run wrote no summary.json
  std::string output;
  std::string workdir;
};

// Start `weir train` as a process; RunTrain waits for its end.
Process StartTrain(const std::string& workdir,
                   const std::vector<std::string>& arguments,
                   const std::vector<std::string>& environment = {});
TrainRun RunTrain(const std::string& workdir,
                  const std::vector<std::string>& arguments,
                  const std::vector<std::string>& environment = {},
                  double seconds = 300);
// How many tasks were started again, each as often as it was.
int Restarts(const TrainRun& run);
// Waits for a run started by StartTrain.
TrainRun FinishTrain(Process* process, const std::string& workdir,
                     double seconds = 300);

// Runs one `weir` command to its end.
struct CommandResult {
  int exit_code = -1;
  std::string output;
};
CommandResult RunWeir(const std::vector<std::string>& arguments,
                      const std::vector<std::string>& environment = {});

// Runs `weir checkpoint export` on dir/checkpoints/<name>. Returns the file's
// bytes.
std::string ExportModel(const std::string& dir, const std::string& name);

// Returns the objects of a .jsonl file.
std::vector<nlohmann::json> ReadJsonLines(const std::string& path);

// Returns the pids whose command line has every one of `words`.
std::vector<pid_t> FindProcesses(const std::vector<std::string>& words);

// Returns "TF_CONFIG=..." for one task.
std::string TfConfig(const nlohmann::json& cluster, const std::string& role,
                     int index);

}  // namespace weir

#endif  // TESTS_INTEGRATION_HARNESS_H_
