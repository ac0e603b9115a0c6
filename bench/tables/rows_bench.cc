// Rows of an embedding table a second, through a real ps process, beside
// PyTorch RPC: gRPC is compared with its TCP, shared memory with its own.
//
//   weir bench rows [--json FILE] [--rounds 5] [--rows 10000000] [--batches 40]
//                   [--samples 4096] [--no_peers]
//
// There are one worker (this process) and one ps; the table has dim 16 and
// Adagrad. A batch is `samples` samples of 26 features with one id each, by a
// power law of exponent 1.05. All rows are made before. There are two ways:
//   rows  from distinct ids, ascending, to their rows in memory, and back.
//         PyTorch gets the same lists.
//   bags  from all ids to the pooled [samples, 26, dim] and back, with all that
//         a worker does. PyTorch has an nn.EmbeddingBag behind its RPC. Ids
//         count with their repeats.
// Each way has three operations:
//   lookup  one batch after another
//   update  the gradients of one batch after another
//   loop    as in training: batch i + 1 is looked up while the update of batch
//           i is under way; an id counts once
// No list comes twice to a ps except in a loop, which updates what it looked
// up. PyTorch's side is bench/tables/torch_rows.py. All operations run in every
// round; a ratio is the median over the rounds of quotients within a round.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/support/bench_main.h"
#include "bench/support/cluster.h"
#include "bench/support/peers.h"
#include "bench/support/timing.h"
#include "bench/tables/rows_draws.h"
#include "client/cc/parameters/table_client.h"
#include "client/cc/transport/shm_transport.h"
#include "common/base/malloc_settings.h"
#include "common/base/status.h"
#include "common/math/random.h"
#include "deploy/launcher/child_process.h"
#include "nlohmann/json.hpp"
#include "worker/compute/backend.h"
#include "worker/compute/factory.h"
#include "worker/model/table_batch.h"

namespace weir {
namespace {

constexpr char kLogPath[] = "/tmp/weir_rows_bench.log";
constexpr uint32_t kDim = 16;
constexpr double kTarget = 5;
constexpr size_t kFillIds = size_t{1} << 18;

struct Flags {
  std::string json;
  std::string script;  // torch_rows.py; empty: no peer
  std::string python = "/usr/bin/python3";
  int rounds = 5;
  int64_t rows = 10'000'000;
  int batches = 40;
  int64_t samples = 4096;
  int queues = 1;
  int64_t piece_bytes = TableClient::Options().piece_bytes;
};

RowLists ListsOf(const TableBatch::Lists& lists) {
  return {.count = lists.count(),
          .offsets = lists.offsets.data(),
          .index = lists.index.data(),
          .weights = lists.weights.empty() ? nullptr : lists.weights.data()};
}

// A worker and its ps.
class Worker {
 public:
  static absl::StatusOr<std::unique_ptr<Worker>> Create(
      const Flags& flags, TransportChoice transport) {
    auto worker = std::make_unique<Worker>();
    WEIR_ASSIGN_OR_RETURN(worker->transport_, BenchTransport(transport));
    WEIR_RETURN_IF_ERROR(worker->Start(flags));
    return worker;
  }

  absl::Status LookUpRows(const DrawnBatches& batches) {
    for (const DrawnBatch& batch : batches) {
      WEIR_RETURN_IF_ERROR(Lookup(batch.ids));
    }
    return absl::OkStatus();
  }

  absl::Status UpdateRows(const DrawnBatches& batches) {
    for (const DrawnBatch& batch : batches) {
      WEIR_RETURN_IF_ERROR(StartUpdate(batch.ids));
      WEIR_RETURN_IF_ERROR(client_->WaitUpdate().status());
    }
    return absl::OkStatus();
  }

  absl::Status LoopRows(const DrawnBatches& batches) {
    WEIR_RETURN_IF_ERROR(Lookup(batches[0].ids));
    for (size_t i = 0; i < batches.size(); ++i) {
      const bool more = i + 1 < batches.size();
      WEIR_RETURN_IF_ERROR(StartUpdate(batches[i].ids));
      if (more) {
        WEIR_RETURN_IF_ERROR(StartLookup(batches[i + 1].ids));
      }
      WEIR_RETURN_IF_ERROR(client_->WaitUpdate().status());
      if (more) {
        WEIR_RETURN_IF_ERROR(WaitLookup());
      }
    }
    return absl::OkStatus();
  }

  absl::Status LookUpBags(const DrawnBatches& batches) {
    for (const DrawnBatch& batch : batches) {
      WEIR_RETURN_IF_ERROR(Sort(batch, 0));
      WEIR_RETURN_IF_ERROR(Lookup(sorted_[0].ids()));
      Pool(0);
    }
    return absl::OkStatus();
  }

  absl::Status UpdateBags(const DrawnBatches& batches) {
    for (const DrawnBatch& batch : batches) {
      WEIR_RETURN_IF_ERROR(Sort(batch, 0));
      SumGradients(0);
      WEIR_RETURN_IF_ERROR(StartUpdate(sorted_[0].ids()));
      WEIR_RETURN_IF_ERROR(client_->WaitUpdate().status());
    }
    return absl::OkStatus();
  }

  // Does what the train loop does with train.prefetch.
  absl::Status LoopBags(const DrawnBatches& batches) {
    WEIR_RETURN_IF_ERROR(Sort(batches[0], 0));
    WEIR_RETURN_IF_ERROR(Lookup(sorted_[0].ids()));
    for (size_t i = 0; i < batches.size(); ++i) {
      const size_t now = i % 2;
      const bool more = i + 1 < batches.size();
      if (more) {
        WEIR_RETURN_IF_ERROR(Sort(batches[i + 1], 1 - now));
        WEIR_RETURN_IF_ERROR(StartLookup(sorted_[1 - now].ids(), 1 - now));
      }
      Pool(now);
      SumGradients(now);
      WEIR_RETURN_IF_ERROR(StartUpdate(sorted_[now].ids()));
      WEIR_RETURN_IF_ERROR(client_->WaitUpdate().status());
      if (more) {
        WEIR_RETURN_IF_ERROR(WaitLookup());
      }
    }
    return absl::OkStatus();
  }

  // Returns the CPU seconds of this process and of the ps.
  std::pair<double, double> Cpu() const {
    return {CpuSeconds(getpid()), CpuSeconds(ps_[0]->pid())};
  }

 private:
  absl::Status Start(const Flags& flags) {
    WEIR_ASSIGN_OR_RETURN(const int port, FreePort());
    const std::vector<std::string> addresses = {
        absl::StrCat("127.0.0.1:", port)};
    WEIR_ASSIGN_OR_RETURN(
        ps_,
        StartPs(
            addresses,
            [&flags](int, std::vector<std::string> argv) {
              argv.insert(argv.end(), {"--queues", absl::StrCat(flags.queues)});
              return argv;
            },
            kLogPath));
    Declaration declaration;
    declaration.set_job("rows");
    declaration.set_history(1);
    declaration.set_shard_count(1);
    declaration.set_block_elements(1024);
    declaration.set_slot_count(1);
    declaration.mutable_update()->mutable_async();
    Variable* const variable = declaration.add_variable();
    variable->set_name("w");
    variable->add_shape(16);
    Group* const group = declaration.add_group();
    group->mutable_optimizer()->mutable_sgd();
    group->mutable_schedule()->set_learning_rate(0.1);
    EmbeddingTable* const table = declaration.add_table();
    table->set_name("rows");
    table->set_dim(kDim);
    table->mutable_optimizer()->mutable_adagrad();
    table->mutable_schedule()->set_learning_rate(1e-3);
    WEIR_ASSIGN_OR_RETURN(sender_,
                          JoinJob(transport_.get(), addresses, declaration,
                                  /*slot=*/0, /*first=*/true));
    TableClient::Options options;
    options.transport = transport_.get();
    options.addresses = addresses;
    options.tables = {*table};
    options.piece_bytes = flags.piece_bytes;
    WEIR_ASSIGN_OR_RETURN(client_, TableClient::Create(std::move(options)));
    want_.set_latest(true);
    RandomStream random(1);
    const size_t most =
        std::max(kFillIds, static_cast<size_t>(flags.samples * kFeatures));
    rows_[0].resize(most * kDim);
    rows_[1].resize(most * kDim);
    gradients_ = transport_->NewBuffer(most * kDim);
    if (gradients_ == nullptr) {
      return absl::ResourceExhaustedError("no memory for gradients");
    }
    std::generate_n(gradients_.get(), most * kDim,
                    [&random] { return random.NextFloat(-1, 1); });
    samples_ = flags.samples;
    WEIR_ASSIGN_OR_RETURN(backend_, CreateBackend({}));
    use_.features.resize(kFeatures);
    std::iota(use_.features.begin(), use_.features.end(), 0);
    pooled_.resize(static_cast<size_t>(flags.samples * kFeatures) * kDim);
    pooled_gradients_.resize(pooled_.size());
    for (float& gradient : pooled_gradients_) {
      gradient = random.NextFloat(-1, 1);
    }
    return Fill(static_cast<uint64_t>(flags.rows));
  }

  // Makes all rows: a training lookup of an unknown id does.
  absl::Status Fill(uint64_t rows) {
    for (uint64_t begin = 0; begin < rows; begin += kFillIds) {
      std::vector<uint64_t> ids(std::min(kFillIds, rows - begin));
      std::iota(ids.begin(), ids.end(), begin);
      WEIR_RETURN_IF_ERROR(Lookup(ids));
    }
    return absl::OkStatus();
  }

  absl::Status Sort(const DrawnBatch& batch, size_t slot) {
    return sorted_[slot].Fill({&use_, 1}, batch.samples, samples_);
  }
  void Pool(size_t slot) {
    backend_->Run(op::GatherSum{ListsOf(sorted_[slot].uses()[0].bags), kDim,
                                rows_[slot].data(), /*add=*/false,
                                pooled_.data()});
  }
  void SumGradients(size_t slot) {
    backend_->Run(op::GatherSum{ListsOf(sorted_[slot].uses()[0].rows), kDim,
                                pooled_gradients_.data(), /*add=*/false,
                                gradients_.get()});
  }

  absl::Status Lookup(const std::vector<uint64_t>& ids) {
    WEIR_RETURN_IF_ERROR(StartLookup(ids));
    return WaitLookup();
  }

  absl::Status StartLookup(const std::vector<uint64_t>& ids, size_t slot = 0) {
    const TableClient::Wanted wanted = {0, ids, rows_[slot].data()};
    return client_->StartLookup(sender_, want_, /*train=*/true, {&wanted, 1});
  }

  absl::Status WaitLookup() {
    WEIR_ASSIGN_OR_RETURN(versions_, client_->WaitLookup());
    return absl::OkStatus();
  }

  absl::Status StartUpdate(const std::vector<uint64_t>& ids) {
    ContributionPush push;
    push.sender = sender_;
    push.sequence = sequence_++;
    const TableClient::Gradients gradients = {0, ids, gradients_.get()};
    return client_->StartUpdate(push, versions_, {&gradients, 1});
  }

  Sender sender_;
  std::vector<std::unique_ptr<Child>> ps_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<TableClient> client_;
  Want want_;
  TableClient::Versions versions_;
  uint64_t sequence_ = 0;
  std::vector<float> rows_[2];  // rows_[i] are those of sorted_[i]
  std::shared_ptr<float> gradients_;

  int64_t samples_ = 0;
  std::unique_ptr<Backend> backend_;
  TableUse use_;
  // With a batch ahead, batch i is in [i % 2].
  TableBatch sorted_[2];
  std::vector<float> pooled_;            // [samples, features, dim]
  std::vector<float> pooled_gradients_;  // [samples, features, dim]
};

// One way to a ps, and PyTorch's of the same kind.
struct Way {
  const char* name;
  TransportChoice transport;
  const char* torch;  // torch_rows.py's --transport
};
constexpr Way kWays[] = {{"grpc", TransportChoice::kGrpc, "tcp"},
                         {"shm", TransportChoice::kShm, "default"}};

// The figures of one operation on one way, one for each round.
struct Figures {
  std::vector<double> weir;   // ids/s
  std::vector<double> torch;  // ids/s
  std::vector<double> ratio;
  std::vector<double> client_cpu;  // ns an id
  std::vector<double> ps_cpu;
  std::vector<double> torch_cpu;  // both processes
};
using Key = std::pair<std::string, std::string>;  // way, operation

void Print(const std::map<Key, Figures>& figures) {
  std::printf("%-5s %-12s %12s %12s %9s %36s\n", "", "", "weir", "PyTorch RPC",
              "ratio", "CPU ns an id: worker, ps; RPC");
  for (const auto& [key, of] : figures) {
    const auto [least, most] =
        std::minmax_element(of.ratio.begin(), of.ratio.end());
    std::printf(
        "%-5s %-12s %10.2f M %10.2f M %6.1f (%.1f to %.1f) %10.0f %6.0f "
        "%6.0f\n",
        key.first.c_str(), key.second.c_str(), 1e-6 * Median(of.weir),
        1e-6 * Median(of.torch), Median(of.ratio),
        of.ratio.empty() ? 0 : *least, of.ratio.empty() ? 0 : *most,
        Median(of.client_cpu), Median(of.ps_cpu), Median(of.torch_cpu));
  }
  std::printf("ids/s, medians; the target of the ratio is %.0f\n", kTarget);
}

constexpr struct {
  const char* name;
  absl::Status (Worker::*run)(const DrawnBatches&);
} kOperations[] = {
    {"rows_lookup", &Worker::LookUpRows}, {"rows_update", &Worker::UpdateRows},
    {"rows_loop", &Worker::LoopRows},     {"bags_lookup", &Worker::LookUpBags},
    {"bags_update", &Worker::UpdateBags}, {"bags_loop", &Worker::LoopBags}};

// PyTorch's turn, with the lists in `directory`.
absl::Status RunTorch(const Flags& flags, const std::string& directory,
                      const Way& way, std::map<Key, Figures>* figures) {
  const nlohmann::json torch = JsonOutputOf(absl::StrCat(
      flags.python, " '", flags.script, "' --rows ", flags.rows, " --lists ",
      directory, " --transport ", way.torch, " 2>/dev/null"));
  if (!torch.is_object()) {
    return absl::UnavailableError(
        absl::StrCat(flags.script, " gave nothing; python3-torch is needed"));
  }
  for (const auto& operation : kOperations) {
    const std::string name = operation.name;
    Figures& of = (*figures)[{way.name, name}];
    of.torch.push_back(torch.value(name, 0.0));
    of.torch_cpu.push_back(torch.value(name + "_cpu", 0.0));
    of.ratio.push_back(of.weir.back() / of.torch.back());
  }
  return absl::OkStatus();
}

// `workers`: one for each way.
absl::Status RunRound(const Flags& flags, Draws* draws,
                      const std::vector<std::unique_ptr<Worker>>& workers,
                      std::map<Key, Figures>* figures) {
  WEIR_ASSIGN_OR_RETURN(const auto directory, RunDirectory::Create());
  for (const auto& [name, run] : kOperations) {
    const bool repeats = std::string(name).starts_with("bags");
    WEIR_ASSIGN_OR_RETURN(const DrawnBatches warm, draws->Next(2));
    WEIR_ASSIGN_OR_RETURN(const DrawnBatches batches,
                          draws->Next(flags.batches));
    double rows = CountRows(batches);
    if (repeats) {
      rows = static_cast<double>(flags.samples) * kFeatures * flags.batches;
    }
    for (size_t w = 0; w < workers.size(); ++w) {
      Worker& worker = *workers[w];
      Figures& of = (*figures)[{kWays[w].name, name}];
      // Brings both processes' caches and buffers to where they stay.
      WEIR_RETURN_IF_ERROR((worker.*run)(warm));
      const std::pair<double, double> cpu = worker.Cpu();
      const double begin = Now();
      WEIR_RETURN_IF_ERROR((worker.*run)(batches));
      of.weir.push_back(rows / (Now() - begin));
      const std::pair<double, double> spent = worker.Cpu();
      of.client_cpu.push_back(1e9 * (spent.first - cpu.first) / rows);
      of.ps_cpu.push_back(1e9 * (spent.second - cpu.second) / rows);
    }
    WEIR_RETURN_IF_ERROR(WriteLists(absl::StrCat(directory->path(), "/", name),
                                    batches, repeats));
  }
  for (size_t w = 0; w < workers.size() && !flags.script.empty(); ++w) {
    WEIR_RETURN_IF_ERROR(RunTorch(flags, directory->path(), kWays[w], figures));
  }
  return absl::OkStatus();
}

absl::Status Run(const Flags& flags) {
  WEIR_ASSIGN_OR_RETURN(Draws draws, Draws::Create(flags.rows, flags.samples));
  std::vector<std::unique_ptr<Worker>> workers;
  for (const Way& way : kWays) {
    WEIR_ASSIGN_OR_RETURN(workers.emplace_back(),
                          Worker::Create(flags, way.transport));
  }
  WEIR_ASSIGN_OR_RETURN(const DrawnBatches sample, draws.Next(4));
  std::printf("%.0f distinct of %lld ids in a batch\n",
              CountRows(sample) / static_cast<double>(sample.size()),
              static_cast<long long>(flags.samples * kFeatures));
  std::map<Key, Figures> figures;
  for (int round = 0; round < flags.rounds; ++round) {
    std::fprintf(stderr, "round %d of %d\n", round + 1, flags.rounds);
    WEIR_RETURN_IF_ERROR(RunRound(flags, &draws, workers, &figures));
  }
  Print(figures);
  if (!flags.json.empty()) {
    nlohmann::json json;
    for (const auto& [key, of] : figures) {
      json[key.first][key.second] = {{"weir_ids_per_s", of.weir},
                                     {"torch_ids_per_s", of.torch},
                                     {"ratio", of.ratio},
                                     {"worker_cpu_ns_per_id", of.client_cpu},
                                     {"ps_cpu_ns_per_id", of.ps_cpu},
                                     {"torch_cpu_ns_per_id", of.torch_cpu}};
    }
    return Say(flags.json, json.dump(2) + "\n");
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  weir::SetMallocForBulk();
  weir::Flags flags;
  bool no_peers = false;
  CLI::App app("Rows a second through a ps.");
  app.add_option("--json", flags.json, "write the figures here too");
  app.add_option("--rounds", flags.rounds, "")->capture_default_str();
  app.add_option("--rows", flags.rows, "of the table")->capture_default_str();
  app.add_option("--batches", flags.batches, "an operation and round")
      ->capture_default_str();
  app.add_option("--samples", flags.samples, "of a batch")
      ->capture_default_str();
  app.add_option("--queues", flags.queues, "of the ps")->capture_default_str();
  app.add_option("--piece_bytes", flags.piece_bytes, "rows of a message")
      ->capture_default_str();
  app.add_option("--python", flags.python, "has PyTorch")
      ->capture_default_str();
  app.add_flag("--no_peers", no_peers, "without PyTorch RPC");
  return weir::BenchMain(&app, argc, argv, [&] {
    if (!no_peers) {
      const char* root = std::getenv("WEIR_ROOT");  // NOLINT: one thread
      flags.script = absl::StrCat(root != nullptr ? root : ".",
                                  "/bench/tables/torch_rows.py");
    }
    return weir::Run(flags);
  });
}
