#include "proto/task/admin_flags.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/identity.h"
#include "common/base/logging.h"
#include "common/base/status.h"
#include "common/flags/flags.h"
#include "common/io/close_memory.h"
#include "proto/admin/admin_port.h"

namespace weir {
namespace {

constexpr size_t kTokenBytes = 32;

}  // namespace

AdminFlags AdminFlags::FromEnvironment() {
  AdminFlags flags;
  // Only the main thread reads the environment, before any other exists.
  const char* const file = std::getenv("WEIR_ADMIN_SECRET_FILE");  // NOLINT
  flags.secret_file = file == nullptr ? "" : file;
  return flags;
}

std::vector<std::string> AdminFlags::Words() const {
  std::vector<std::string> words;
  if (port.has_value()) {
    words.insert(words.end(), {"--admin_port", absl::StrCat(*port)});
  }
  if (!address.empty()) {
    words.insert(words.end(), {"--admin_address", address});
  }
  if (may_miss) {
    words.emplace_back("--admin_may_miss");
  }
  return words;
}

void AddAdminFlags(CLI::App* app, AdminFlags* flags) {
  AddOption(app, "--admin_port", &flags->port,
            "serve health, metrics and pages about this task here, over "
            "HTTP; 0 takes a free port, which the log names")
      .Range(0, 65535);
  AddOption(app, "--admin_address", &flags->address,
            "do so at this address in place of 127.0.0.1, with the "
            "metrics open to everybody; 0.0.0.0 for all of this host");
}

void AddTaskAdminFlags(CLI::App* app, AdminFlags* flags) {
  AddAdminFlags(app, flags);
  AddFlag(app, "--admin_may_miss", &flags->may_miss,
          "only warn if the admin port is in use");
}

std::string AdminToken(const JobSecret& secret) {
  return absl::BytesToHexString(secret.Derive("weir admin", kTokenBytes));
}

absl::StatusOr<std::string> AdminTokenOf(const AdminFlags& flags,
                                         const Security::Options& security) {
  if (!flags.secret_file.empty()) {
    const auto secret = JobSecret::FromFile(flags.secret_file);
    if (!secret.ok()) {
      return Annotate(secret.status(), "WEIR_ADMIN_SECRET_FILE");
    }
    return AdminToken(*secret);
  }
  if (security.secret.empty() && security.secret_file.empty()) {
    return "";
  }
  WEIR_ASSIGN_OR_RETURN(const JobSecret secret, Security::SecretOf(security));
  return AdminToken(secret);
}

absl::StatusOr<std::unique_ptr<AdminServer>> StartAdmin(
    const AdminFlags& flags, const TaskId& task,
    const Security::Options& security) {
  if (!flags.wanted()) {
    return nullptr;
  }
  AdminServer::Options options;
  options.port = flags.port.value_or(kAdminPort);
  if (!flags.address.empty()) {
    options.address = flags.address;
    options.metrics_open = true;
  }
  WEIR_ASSIGN_OR_RETURN(options.token, AdminTokenOf(flags, security));
  if (!options.token.empty()) {
    CloseMemory();
  }
  options.insecure = security.insecure;
  options.task = {
      .role = RoleName(task.role), .index = task.index, .host = HostName()};
  auto server = AdminServer::Start(std::move(options));
  if (!server.ok() && flags.may_miss) {
    LOG_WARN("there is no admin port: {}",
             std::string(server.status().message()));
    return nullptr;
  }
  if (server.ok()) {
    LOG_INFO("admin port at http://{}", (*server)->address());
  }
  return server;
}

}  // namespace weir
