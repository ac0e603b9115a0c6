// The flags of a task's admin port, its token, and the start of its server.
//
// Place: TaskMain starts the port of a task; `weir page` makes the link to it.
#ifndef PROTO_TASK_ADMIN_FLAGS_H_
#define PROTO_TASK_ADMIN_FLAGS_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/cluster_spec.h"
#include "proto/admin/admin_server.h"
#include "proto/security/job_secret.h"
#include "proto/security/security.h"

namespace CLI {
class App;
}  // namespace CLI

namespace weir {

struct AdminFlags {
  // Without both there is no admin port; without the first it is kAdminPort.
  std::optional<int> port;
  std::string address;  // "": this host's loopback
  // Go on without it if it cannot be opened.
  bool may_miss = false;
  // A secret that lets in who may look at the task, and nothing else.
  std::string secret_file;

  // WEIR_ADMIN_SECRET_FILE.
  static AdminFlags FromEnvironment();
  bool wanted() const { return port.has_value() || !address.empty(); }
  // The flags that say the same to another program. The file of the secret is
  // not among them: a program finds its own variable.
  std::vector<std::string> Words() const;
};

// Adds --admin_port and --admin_address.
void AddAdminFlags(CLI::App* app, AdminFlags* flags);
// Adds these and --admin_may_miss, as the program of a task has them.
void AddTaskAdminFlags(CLI::App* app, AdminFlags* flags);

// 64 hexadecimal digits that whoever has the secret can compute.
std::string AdminToken(const JobSecret& secret);

// The token of the file in `flags`, else that of the job's secret, else "".
absl::StatusOr<std::string> AdminTokenOf(const AdminFlags& flags,
                                         const Security::Options& security);

// Starts the port of `task`; null where none is asked for.
absl::StatusOr<std::unique_ptr<AdminServer>> StartAdmin(
    const AdminFlags& flags, const TaskId& task,
    const Security::Options& security);

}  // namespace weir

#endif  // PROTO_TASK_ADMIN_FLAGS_H_
