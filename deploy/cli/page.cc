// weir page: prints the link to the page of a running job's chief.
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/exit_code.h"
#include "common/base/status.h"
#include "common/io/files.h"
#include "common/objects/http.h"
#include "deploy/cli/command.h"
#include "deploy/launcher/workdir.h"
#include "proto/task/admin_file.h"
#include "proto/task/admin_flags.h"

namespace weir {
namespace {

constexpr int kConnectSeconds = 3;

struct Options {
  std::string workdir;
  std::string address;
  AdminFlags admin;  // the file of a secret only
  Security::Options security;
};

// The run below `runs` whose chief has said last where its page is.
absl::StatusOr<std::string> NewestRun() {
  std::string newest;
  std::filesystem::file_time_type when;
  std::error_code ignored;
  for (const auto& entry :
       std::filesystem::directory_iterator("runs", ignored)) {
    std::error_code missing;
    const auto time = std::filesystem::last_write_time(
        entry.path() / kAdminFileName, missing);
    if (!missing && (newest.empty() || time > when)) {
      newest = entry.path().string();
      when = time;
    }
  }
  if (newest.empty()) {
    return absl::NotFoundError(
        "no run in runs/ has a page: give the directory of one that was "
        "started with --admin_port, or the address of a page with --address");
  }
  return newest;
}

absl::StatusOr<std::string> AddressIn(const std::string& workdir) {
  const auto text = Files::Real()->ReadAll(JoinPath(workdir, kAdminFileName));
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(
        absl::StrCat(workdir,
                     " names no page: the run is over, or was started without "
                     "--admin_port"));
  }
  WEIR_RETURN_IF_ERROR(text.status());
  return std::string(absl::StripAsciiWhitespace(*text));
}

// The token for that page. A run of this machine keeps its secret beside the
// page's address.
absl::StatusOr<std::string> TokenOf(Options options,
                                    const std::string& workdir) {
  const bool knows = options.security.any() ||
                     !options.admin.secret_file.empty() || workdir.empty();
  if (!knows) {
    const std::string kept = JoinPath(workdir, ".secret");
    WEIR_ASSIGN_OR_RETURN(const bool exists, Files::Real()->Exists(kept));
    options.security.secret_file = exists ? kept : "";
  }
  WEIR_ASSIGN_OR_RETURN(const std::string token,
                        AdminTokenOf(options.admin, options.security));
  if (token.empty() && !options.security.insecure) {
    return absl::InvalidArgumentError(
        "the page asks for a secret: set WEIR_SECRET_FILE or WEIR_SECRET to "
        "the job's, or WEIR_ADMIN_SECRET_FILE to the one that the chief has; "
        "WEIR_INSECURE=1 for an insecure job");
  }
  return token;
}

absl::Status CheckAnswers(const std::string& address) {
  HttpRequest request;
  request.scheme = "http";
  request.host = address;
  request.path = "/healthz";
  request.connect_seconds = kConnectSeconds;
  HttpClient::Options client;
  client.stalled_seconds = kConnectSeconds;
  const auto response = HttpClient::Create(client)->Do(request);
  if (!response.ok()) {
    return Annotate(response.status(),
                    absl::StrCat("no page answers at ", address));
  }
  return absl::OkStatus();
}

absl::StatusOr<int> Print(const Options& options) {
  std::string workdir = options.workdir;
  std::string address = options.address;
  if (address.empty()) {
    if (workdir.empty()) {
      WEIR_ASSIGN_OR_RETURN(workdir, NewestRun());
    }
    WEIR_ASSIGN_OR_RETURN(address, AddressIn(workdir));
  }
  WEIR_ASSIGN_OR_RETURN(const std::string token, TokenOf(options, workdir));
  WEIR_RETURN_IF_ERROR(CheckAnswers(address));
  absl::PrintF("%s\n", PageLink(address, token));
  return kExitOk;
}

}  // namespace

void AddPageCommand(CLI::App* app, Command* command) {
  auto options = std::make_shared<Options>();
  options->admin = AdminFlags::FromEnvironment();
  options->security = Security::Options::FromEnvironment();
  CLI::App* page = AddSubcommand(
      app, "page",
      "print the link to the page of a running job, which lets in whoever has "
      "it",
      options, Print, command);
  AddOption(page, "directory", &options->workdir,
            "the run's; default the newest in runs/ that has a page");
  AddOption(page, "--address", &options->address,
            "HOST:PORT of the page, such as of a port-forward; the "
            "secret then comes by WEIR_SECRET_FILE or WEIR_SECRET");
}

}  // namespace weir
