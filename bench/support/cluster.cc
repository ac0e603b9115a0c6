#include "bench/support/cluster.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cc/job/shard_start.h"
#include "client/cc/transport/grpc_transport.h"
#include "common/base/status.h"
#include "proto/security/security.h"
#include "proto/wire/layout_io.h"

namespace weir {
namespace {

constexpr auto kCallTimeout = std::chrono::seconds(20);
constexpr double kStartSecondsMax = 30;

}  // namespace

std::string BinDir() {
  const char* dir = std::getenv("WEIR_BIN_DIR");  // NOLINT: nobody sets it
  return dir != nullptr ? dir : "bin";
}

std::string OwnBinary() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).string();
}

absl::StatusOr<std::unique_ptr<Transport>> BenchTransport(
    TransportChoice choice, int slot) {
  GrpcTransportOptions grpc;
  WEIR_ASSIGN_OR_RETURN(grpc.security,
                        Security::Create(Security::Options::FromEnvironment(),
                                         PeerRole::kWorker, slot));
  return MakeTransport(choice, grpc);
}

absl::StatusOr<std::vector<std::unique_ptr<Child>>> StartPs(
    const std::vector<std::string>& addresses, const Placement& place,
    const std::string& log_path) {
  std::vector<std::unique_ptr<Child>> children;
  for (size_t i = 0; i < addresses.size(); ++i) {
    const int index = static_cast<int>(i);
    WEIR_ASSIGN_OR_RETURN(
        auto child,
        Child::Start(
            place(index, {BinDir() + "/server/ps/weir_ps", "--cluster",
                          absl::StrCat("ps=", absl::StrJoin(addresses, ",")),
                          "--task_index", absl::StrCat(index)}),
            log_path));
    children.push_back(std::move(child));
  }
  return children;
}

absl::StatusOr<Sender> JoinJob(Transport* transport,
                               const std::vector<std::string>& addresses,
                               const Declaration& declaration, int slot,
                               bool first) {
  const double end = Now() + kStartSecondsMax;
  std::vector<std::unique_ptr<ControlLink>> links;
  std::vector<StartingShard> shards;
  for (const std::string& address : addresses) {
    links.push_back(transport->Connect(address));
    StartingShard& shard = shards.emplace_back();
    shard.index = static_cast<int>(shards.size()) - 1;
    shard.link = links.back().get();
    for (;;) {
      const auto hello = shard.link->Hello(kCallTimeout);
      // The first one needs a ps that answers, the others one that takes
      // pushes: a ps is ACTIVE once a slot was taken.
      if (hello.ok() && (first || hello->state() == ACTIVE)) {
        break;
      }
      if (Now() > end) {
        return absl::UnavailableError(absl::StrCat(
            shard.Name(), " does not start: ", hello.status().ToString()));
      }
      usleep(20000);
    }
    if (first) {
      WEIR_RETURN_IF_ERROR(DeclareShard(shard, declaration, kCallTimeout));
    }
  }
  WEIR_ASSIGN_OR_RETURN(const Layout layout,
                        LayoutFromDeclaration(declaration));
  Sender sender = JobSender(declaration, layout.fingerprint());
  const auto own = static_cast<uint32_t>(slot);
  WEIR_ASSIGN_OR_RETURN(
      const TakenSlot taken,
      TakeSlot(shards, sender, own, static_cast<uint64_t>(getpid())));
  sender.set_slot(own);
  sender.set_generation(taken.generation);
  sender.set_capability_high(taken.capability_high);
  sender.set_capability_low(taken.capability_low);
  return sender;
}

absl::Status Say(const std::string& path, const std::string& text) {
  // Hear takes the file as soon as it has its name, so it gets that last.
  const std::string temporary = path + ".part";
  std::ofstream file(temporary);
  file << text;
  file.close();
  std::error_code error;
  if (file) {
    std::filesystem::rename(temporary, path, error);
  }
  if (!file || error) {
    return absl::UnavailableError("cannot write " + path);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Hear(const std::string& path, double timeout_s) {
  for (const double end = Now() + timeout_s; Now() < end; usleep(5000)) {
    if (access(path.c_str(), R_OK) == 0) {
      std::ifstream file(path);
      return std::string(std::istreambuf_iterator<char>(file), {});
    }
  }
  return absl::DeadlineExceededError(
      absl::StrCat(path, " did not come within ", timeout_s, " s"));
}

absl::StatusOr<std::unique_ptr<RunDirectory>> RunDirectory::Create() {
  std::string path =
      (std::filesystem::temp_directory_path() / "weir_bench_XXXXXX").string();
  if (mkdtemp(path.data()) == nullptr) {
    return absl::ErrnoToStatus(errno, path);
  }
  auto directory = std::make_unique<RunDirectory>();
  directory->path_ = path;
  return directory;
}

RunDirectory::~RunDirectory() {
  std::error_code ignored;
  if (!path_.empty()) {
    std::filesystem::remove_all(path_, ignored);
  }
}

}  // namespace weir
