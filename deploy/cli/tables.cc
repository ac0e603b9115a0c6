// weir tables report|shrink: asks the ps of a running job about its tables.
#include <algorithm>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cc/transport/grpc_transport.h"
#include "common/base/printable.h"
#include "common/base/status.h"
#include "deploy/cli/command.h"
#include "proto/job/tf_config.h"
#include "proto/task/security_flags.h"

namespace weir {
namespace {

// To find hot ids and to drop rows, a ps visits every row that it holds, so the
// deadline is far longer than that of other calls.
constexpr std::chrono::minutes kTimeout{5};
constexpr int kHotIdsMax = 1000;

struct Options {
  ClusterSources sources = ClusterSources::FromEnv();
  Security::Options security = Security::Options::FromEnvironment();
  std::string table;  // "" for all tables
  int hot_ids = 10;
  uint32_t age = 0;
  int64_t rows = -1;
};

// The ps of a job and what each of them answered.
struct Asked {
  std::unique_ptr<Transport> transport;
  std::vector<std::unique_ptr<ControlLink>> links;
  std::vector<PsStatus> status;
};

absl::StatusOr<Asked> Ask(const Options& options, int hot_ids) {
  ClusterSources sources = options.sources;
  sources.task_required = false;  // this program is no task of the job
  WEIR_ASSIGN_OR_RETURN(const ClusterSpec cluster, ResolveCluster(sources));
  if (cluster.ps_addresses().empty()) {
    return absl::InvalidArgumentError(
        "no ps is known; say --cluster 'ps=HOST:PORT,HOST:PORT' or set "
        "TF_CONFIG");
  }
  Asked asked;
  WEIR_ASSIGN_OR_RETURN(
      const auto security,
      Security::Create(options.security, PeerRole::kAdmin, 0));
  asked.transport = MakeGrpcTransport({.security = security});
  for (const std::string& address : cluster.ps_addresses()) {
    asked.links.push_back(asked.transport->Connect(address));
    GetStatusRequest request;
    request.set_hot_ids(static_cast<uint32_t>(hot_ids));
    WEIR_ASSIGN_OR_RETURN(asked.status.emplace_back(),
                          asked.links.back()->GetStatus(request, kTimeout));
    const PsStatus& status = asked.status.back();
    if (status.hello().state() != ACTIVE) {
      return absl::FailedPreconditionError(
          absl::StrCat("ps ", address, " holds no parameters yet"));
    }
    if (status.declaration().table_size() == 0) {
      return absl::NotFoundError(
          absl::StrCat("job '", Printable(status.hello().job()), "' on ps ",
                       address, " has no table"));
    }
    // Figures of two jobs must not be added up. The history is unique to a job,
    // which a job's name need not be.
    if (status.hello().history() != asked.status[0].hello().history()) {
      return absl::FailedPreconditionError(
          absl::StrCat("ps ", address, " serves another job than ",
                       asked.links[0]->address()));
    }
  }
  return asked;
}

void PrintLine(const std::string& who, const TableStatus& of) {
  absl::PrintF(
      "  %-24s %12d rows %14d bytes (%d of values and "
      "state)  made %d, dropped %d, looked up %d, "
      "updated %d\n",
      who, of.rows(), of.bytes(), of.payload_bytes(), of.rows_created(),
      of.rows_dropped(), of.rows_looked_up(), of.rows_updated());
}

void Add(const TableStatus& one, TableStatus* all) {
  all->set_rows(all->rows() + one.rows());
  all->set_bytes(all->bytes() + one.bytes());
  all->set_payload_bytes(all->payload_bytes() + one.payload_bytes());
  all->set_rows_created(all->rows_created() + one.rows_created());
  all->set_rows_dropped(all->rows_dropped() + one.rows_dropped());
  all->set_rows_looked_up(all->rows_looked_up() + one.rows_looked_up());
  all->set_rows_updated(all->rows_updated() + one.rows_updated());
}

void PrintHot(const std::vector<std::pair<uint32_t, uint64_t>>& hot) {
  if (hot.empty()) {
    return;
  }
  absl::PrintF("  hot ids (updates):");
  for (const auto& [updates, id] : hot) {
    absl::PrintF(" %d (%d)", id, updates);
  }
  absl::PrintF("\n");
}

void PrintTable(const Asked& asked, int t, int hot_ids) {
  const EmbeddingTable& table = asked.status[0].declaration().table(t);
  absl::PrintF("%s: dim %d, on %d ps\n", Printable(table.name()), table.dim(),
               asked.status.size());
  TableStatus all;
  std::vector<std::pair<uint32_t, uint64_t>> hot;
  for (size_t s = 0; s < asked.status.size(); ++s) {
    const TableStatus& one = asked.status[s].table(t);
    PrintLine(absl::StrCat("ps ", s, " ", asked.links[s]->address()), one);
    Add(one, &all);
    for (int i = 0; i < one.hot_id_size(); ++i) {
      hot.emplace_back(one.hot_updates(i), one.hot_id(i));
    }
  }
  PrintLine("all", all);
  // An id lives on one ps, so the ps's lists only have to be merged: by falling
  // updates, and equal ones by id, so that every report has the same order.
  std::sort(hot.begin(), hot.end(), [](const auto& a, const auto& b) {
    if (a.first != b.first) {
      return a.first > b.first;
    }
    return a.second < b.second;
  });
  hot.resize(std::min(hot.size(), static_cast<size_t>(hot_ids)));
  PrintHot(hot);
}

absl::StatusOr<int> Report(const Options& options) {
  WEIR_ASSIGN_OR_RETURN(const Asked asked, Ask(options, options.hot_ids));
  bool found = false;
  const Declaration& declaration = asked.status[0].declaration();
  for (int t = 0; t < declaration.table_size(); ++t) {
    if (options.table.empty() || options.table == declaration.table(t).name()) {
      found = true;
      PrintTable(asked, t, options.hot_ids);
    }
  }
  if (!found) {
    return absl::NotFoundError(
        absl::StrCat("job '", Printable(declaration.job()), "' has no table '",
                     options.table, "'"));
  }
  return 0;
}

absl::StatusOr<int> Shrink(const Options& options) {
  WEIR_ASSIGN_OR_RETURN(const Asked asked, Ask(options, 0));
  for (size_t s = 0; s < asked.links.size(); ++s) {
    const HelloReply& hello = asked.status[s].hello();
    // The identity that the ps itself gave: if another job has taken its place
    // since, the ps refuses.
    ShrinkRequest request;
    request.mutable_sender()->set_job(hello.job());
    request.mutable_sender()->set_history(hello.history());
    request.mutable_sender()->set_layout_fingerprint(
        hello.layout_fingerprint());
    request.set_table(options.table);
    request.set_age_max(options.age);
    if (options.rows >= 0) {  // -1 leaves it unset: no bound of rows
      request.set_rows_max(static_cast<uint64_t>(options.rows));
    }
    WEIR_ASSIGN_OR_RETURN(const ShrinkReply reply,
                          asked.links[s]->Shrink(request, kTimeout));
    absl::PrintF("ps %d %s: %d rows dropped, %d bytes free\n", s,
                 asked.links[s]->address(), reply.rows(), reply.bytes());
  }
  return 0;
}

}  // namespace

void AddTablesCommand(CLI::App* app, Command* command) {
  auto options = std::make_shared<Options>();
  CLI::App* tables =
      AddCommandGroup(app, "tables", "look at the tables of a running job");
  const auto add = [&](const char* name, const char* about,
                       absl::StatusOr<int> (*run)(const Options&)) {
    CLI::App* sub = AddSubcommand(tables, name, about, options, run, command);
    AddOption(sub, "--cluster", &options->sources.flag_cluster,
              "ps=host:port,...; default from TF_CONFIG");
    AddSecurityFlags(sub, &options->security);
    AddOption(sub, "--table", &options->table, "name; default all");
    return sub;
  };
  CLI::App* report =
      add("report", "rows, bytes, load of each ps, hot ids", Report);
  AddOption(report, "--hot_ids", &options->hot_ids,
            "ids with the most updates; 0: none, and no row is visited")
      .Range(0, kHotIdsMax)
      .ShowDefault();
  CLI::App* shrink = add("shrink", "drop rows and free their memory", Shrink);
  AddOption(shrink, "--age", &options->age,
            "drop what was not touched for longer, in steps, or "
            "seconds if the table's expiry has them; default the "
            "table's own bound");
  AddOption(shrink, "--rows", &options->rows,
            "keep so many of a table on each ps")
      .Range(int64_t{0}, std::numeric_limits<int64_t>::max());
}

}  // namespace weir
