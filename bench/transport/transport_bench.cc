// Pull, push and push-pull on one host, over gRPC and through shared memory,
// beside iperf3, bare sockets and memcpy.
//
//   weir bench transport [--json FILE] [--rounds 5] [--seconds 0.5] [--peers]
//
// One client (this process) and one weir_ps on loopback. Push has SGD applied;
// pull copies into place; push-pull counts the bytes of one way. All three go
// over the stream that workers use, with as much in flight as they have.
// Everything is measured again in each round, so that a drifting machine drifts
// for all; the ratios are medians over the rounds of quotients within a round.
// --transport grpc --transport grpc_checksum shows what checksums of payloads
// cost, grpc_tls what encryption does, and shm_tls that shared memory does not
// notice it. With --peers PyTorch RPC does the same, also with TCP alone.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/support/bench_main.h"
#include "bench/support/peers.h"
#include "bench/support/timing.h"
#include "client/cc/parameters/shard_exchange.h"
#include "client/cc/transport/shm_transport.h"
#include "common/base/malloc_settings.h"
#include "common/base/status.h"
#include "deploy/launcher/child_process.h"
#include "nlohmann/json.hpp"
#include "proto/security/job_secret.h"
#include "proto/security/security.h"

namespace weir {
namespace {

constexpr auto kTimeout = std::chrono::seconds(60);
constexpr char kLogPath[] = "/tmp/weir_transport_bench.log";
constexpr size_t kTargetBytes = size_t{64} << 20;
// gRPC whose payloads carry checksums, and gRPC between tasks with a secret.
constexpr char kChecksum[] = "grpc_checksum";
constexpr char kTls[] = "grpc_tls";
constexpr char kShmTls[] = "shm_tls";

struct Flags {
  std::string json;
  std::string ps;
  int rounds = 5;
  double seconds = 0.5;
  int64_t in_flight_bytes = ShardExchange::kInFlightBytesMax;
  int queues = 1;
  size_t block_elements = size_t{256} << 10;
  size_t min_bytes = 1024;
  size_t max_bytes = size_t{256} << 20;
  std::string operation;  // empty: all
  std::vector<std::string> transports = {"grpc", "shm"};
  std::string torch_rpc;  // the script; empty: not measured
};

// How the ps that starts next and its client prove who they are.
absl::StatusOr<std::shared_ptr<const Security>> ChooseSecurity(bool secured) {
  Security::Options options;
  if (secured) {
    options.secret = JobSecret::Draw().text();
  }
  options.insecure = !secured;
  // The ps reads them. NOLINTBEGIN(concurrency-mt-unsafe)
  setenv("WEIR_SECRET", options.secret.c_str(), /*overwrite=*/1);
  setenv("WEIR_INSECURE", secured ? "" : "1", /*overwrite=*/1);
  // NOLINTEND(concurrency-mt-unsafe)
  return Security::Create(options, PeerRole::kWorker, /*index=*/0);
}

// One declared shard in a weir_ps of its own, and the client's buffers.
class Bench {
 public:
  static absl::StatusOr<std::unique_ptr<Bench>> Create(const Flags& flags,
                                                       const std::string& kind,
                                                       size_t bytes) {
    GrpcTransportOptions grpc;
    WEIR_ASSIGN_OR_RETURN(grpc.security,
                          ChooseSecurity(kind == kTls || kind == kShmTls));
    grpc.checksum =
        kind == kChecksum ? ChecksumChoice::kOn : ChecksumChoice::kOff;
    // "grpc_tls" is "grpc", and "shm_tls" is "shm".
    WEIR_ASSIGN_OR_RETURN(const TransportChoice choice,
                          ParseTransportChoice(kind.substr(0, kind.find('_'))));
    std::unique_ptr<Bench> bench(
        new Bench(flags, MakeTransport(choice, grpc), bytes));
    WEIR_RETURN_IF_ERROR(bench->Start());
    return bench;
  }

  pid_t ps_pid() const { return ps_->pid(); }

  absl::Status Hello() { return link_->Hello(kTimeout).status(); }

  absl::Status Pull() { return Exchange(/*push=*/false, /*want=*/true); }
  absl::Status Push() { return Exchange(/*push=*/true, /*want=*/false); }
  absl::Status PushPull() { return Exchange(/*push=*/true, /*want=*/true); }

  // The values are what so many applied gradients make of zeros.
  absl::Status Check() {
    WEIR_RETURN_IF_ERROR(Pull());
    const float expected = -static_cast<float>(sequence_);
    for (const float value : parameters_) {
      if (value != expected) {
        return absl::InternalError(
            absl::StrCat("a parameter is ", value, ", not ", expected));
      }
    }
    return absl::OkStatus();
  }

 private:
  Bench(const Flags& flags, std::unique_ptr<Transport> transport, size_t bytes)
      : flags_(flags),
        elements_(bytes / sizeof(float)),
        block_elements_(std::min(elements_, flags.block_elements)),
        block_count_(static_cast<uint32_t>(elements_ / block_elements_)),
        window_(static_cast<uint32_t>(
            std::max<size_t>(1, static_cast<size_t>(flags.in_flight_bytes) /
                                    (block_elements_ * sizeof(float))))),
        transport_(std::move(transport)),
        parameters_(elements_),
        gradients_(transport_->NewBuffer(elements_)) {
    std::fill_n(gradients_.get(), elements_, 1.0f);
  }

  absl::Status Start() {
    WEIR_ASSIGN_OR_RETURN(const int port, FreePort());
    const std::string address = absl::StrCat("127.0.0.1:", port);
    WEIR_ASSIGN_OR_RETURN(
        ps_,
        Child::Start({flags_.ps, "--cluster", "ps=" + address, "--task_index",
                      "0", "--queues", absl::StrCat(flags_.queues)},
                     kLogPath));
    link_ = transport_->Connect(address);
    const double end = Now() + 20;
    while (!link_->Hello(kTimeout).ok()) {
      if (Now() > end) {
        return absl::UnavailableError(
            absl::StrCat(flags_.ps, " does not answer at ", address,
                         "; its log is ", kLogPath));
      }
      usleep(20000);
    }
    WEIR_RETURN_IF_ERROR(Declare());
    data_ = transport_->ConnectData(address);
    stream_ = data_->OpenPushPull();
    return absl::OkStatus();
  }

  absl::Status Declare() {
    DeclareRequest request;
    Declaration* declaration = request.mutable_declaration();
    declaration->set_job("bench");
    declaration->set_history(1);
    declaration->set_shard_count(1);
    declaration->set_block_elements(block_elements_);
    declaration->set_slot_count(1);
    Variable* variable = declaration->add_variable();
    variable->set_name("w");
    variable->add_shape(static_cast<int64_t>(elements_));
    Group* group = declaration->add_group();
    group->mutable_optimizer()->mutable_sgd();
    group->mutable_schedule()->set_learning_rate(1.0);
    declaration->mutable_update()->mutable_async();
    WEIR_ASSIGN_OR_RETURN(const DeclareReply reply,
                          link_->Declare(request, kTimeout));
    sender_.set_job("bench");
    sender_.set_history(1);
    sender_.set_layout_fingerprint(reply.layout_fingerprint());
    sender_.set_generation(1);
    SetSlotsRequest slots;
    *slots.mutable_sender() = sender_;
    slots.add_slot()->set_generation(1);
    return link_->SetSlots(slots, kTimeout);
  }

  // Sends one message and takes one answer for each block, with a bounded
  // number of them under way, as ShardExchange does.
  absl::Status Exchange(bool push, bool want) {
    GradientChunk header;
    *header.mutable_sender() = sender_;
    if (push) {
      header.mutable_push()->set_sequence(sequence_++);
    }
    if (want) {
      header.mutable_want()->set_latest(true);
    }
    header.set_block_count(push ? 0 : 1);
    uint32_t sent = 0;
    for (uint32_t received = 0; received < block_count_; ++received) {
      for (; sent < block_count_ && sent - received < window_; ++sent) {
        header.set_block(sent);
        WEIR_RETURN_IF_ERROR(stream_->Send(
            header, push ? GradientOf(sent) : std::span<const char>(),
            nullptr));
      }
      ValueChunk answer;
      Payload payload;
      WEIR_RETURN_IF_ERROR(stream_->Receive(&answer, &payload));
      if (push && answer.receipt().outcome() != Receipt::ACCEPTED) {
        return absl::InternalError("a block was not accepted");
      }
      if (want) {
        payload.CopyTo(reinterpret_cast<char*>(
            parameters_.data() + answer.block() * block_elements_));
      }
    }
    return absl::OkStatus();
  }

  std::span<const char> GradientOf(uint32_t block) const {
    return {reinterpret_cast<const char*>(gradients_.get() +
                                          block * block_elements_),
            block_elements_ * sizeof(float)};
  }

  const Flags& flags_;
  const size_t elements_;
  const size_t block_elements_;
  const uint32_t block_count_;
  const uint32_t window_;
  const std::unique_ptr<Transport> transport_;
  std::vector<float> parameters_;
  const std::shared_ptr<float> gradients_;
  std::unique_ptr<Child> ps_;
  std::unique_ptr<ControlLink> link_;
  std::unique_ptr<DataLink> data_;
  std::unique_ptr<PushPullStream> stream_;
  Sender sender_;
  uint64_t sequence_ = 0;
};

std::string SizeName(size_t bytes) {
  return bytes >= (1 << 20) ? absl::StrCat(bytes >> 20, " MiB")
                            : absl::StrCat(bytes >> 10, " KiB");
}

// Per (size, operation): medians over the rounds.
struct Row {
  std::vector<double> us;
  std::vector<double> cpu;
};

class Report {
 public:
  void Add(size_t bytes, const std::string& operation, const Sample& sample) {
    rows_[bytes][operation].us.push_back(sample.us);
    rows_[bytes][operation].cpu.push_back(sample.cpu_s_per_gb);
  }
  void AddNumber(const std::string& name, double value) {
    numbers_[name].push_back(value);
  }

  nlohmann::json Json() const {
    nlohmann::json json;
    for (const auto& [bytes, operations] : rows_) {
      for (const auto& [operation, row] : operations) {
        json["rows"].push_back({
            {"bytes", bytes},
            {"operation", operation},
            {"latency_us_median", Median(row.us)},
            {"gb_per_s_median", GbPerS(bytes, Median(row.us))},
            {"gb_per_s_rounds", Each(bytes, row.us)},
            {"cpu_s_per_gb_median", Median(row.cpu)},
        });
      }
    }
    for (const auto& [name, values] : numbers_) {
      json[name] = Median(values);
      json[name + "_rounds"] = values;
    }
    return json;
  }

  void Print() const {
    std::printf("%-9s %-14s %12s %8s %10s\n", "size", "operation", "median us",
                "GB/s", "CPU s/GB");
    for (const auto& [bytes, operations] : rows_) {
      for (const auto& [operation, row] : operations) {
        std::printf("%-9s %-14s %12.1f %8.3f %10.2f\n", SizeName(bytes).c_str(),
                    operation.c_str(), Median(row.us),
                    GbPerS(bytes, Median(row.us)), Median(row.cpu));
      }
    }
    for (const auto& [name, values] : numbers_) {
      std::printf("%-44s %8.3f  (%.3f-%.3f)\n", name.c_str(), Median(values),
                  *std::min_element(values.begin(), values.end()),
                  *std::max_element(values.begin(), values.end()));
    }
  }

  static double GbPerS(size_t bytes, double us) {
    return 1e-3 * static_cast<double>(bytes) / us;
  }

 private:
  static std::vector<double> Each(size_t bytes, const std::vector<double>& us) {
    std::vector<double> rates;
    for (const double value : us) {
      rates.push_back(GbPerS(bytes, value));
    }
    return rates;
  }

  std::map<size_t, std::map<std::string, Row>> rows_;
  std::map<std::string, std::vector<double>> numbers_;
};

// The figures with which one size is compared: GB/s, 0 if not measured.
struct Peers {
  double iperf3_gb_per_s = 0;
  double memcpy_gb_per_s = 0;
  TorchRpc torch_tcp;
  TorchRpc torch_best;                 // its best transport, per operation
  std::map<std::string, double> grpc;  // Weir's gRPC, by operation
};

absl::Status MeasureTorch(const Flags& flags, size_t bytes, Peers* peers,
                          Report* report) {
  for (const std::string transport : {"tcp", "default"}) {
    WEIR_ASSIGN_OR_RETURN(
        const TorchRpc rates,
        MeasureTorchRpc(flags.torch_rpc, flags.seconds, bytes, transport));
    const std::string name =
        absl::StrCat("torch_rpc_", transport, "_", bytes >> 20, "mib_");
    report->AddNumber(name + "pull_gb_per_s", rates.pull);
    report->AddNumber(name + "push_gb_per_s", rates.push);
    TorchRpc& best = peers->torch_best;
    best = {std::max(best.pull, rates.pull), std::max(best.push, rates.push)};
    if (transport == "tcp") {
      peers->torch_tcp = rates;
    }
  }
  return absl::OkStatus();
}

// Ratios of `rate` to what was measured beside it.
void Compare(const std::string& transport, const std::string& operation,
             size_t bytes, double rate, const Peers& peers, Report* report) {
  const auto add = [&](const std::string& peer, double peer_rate) {
    if (peer_rate > 0) {
      report->AddNumber(absl::StrCat("ratio_", bytes >> 20, "mib_", transport,
                                     "_", operation, "_over_", peer),
                        rate / peer_rate);
    }
  };
  if ((transport == kChecksum || transport == kTls) &&
      peers.grpc.contains(operation)) {
    add("grpc", peers.grpc.at(operation));
  }
  add("memcpy", peers.memcpy_gb_per_s);
  if (bytes == kTargetBytes) {
    add("iperf3", peers.iperf3_gb_per_s);
  }
  const bool shm = transport == "shm";
  const TorchRpc& torch = shm ? peers.torch_best : peers.torch_tcp;
  if (operation != "push_pull") {
    add(shm ? "best_torch_rpc" : "torch_rpc_tcp",
        operation == "pull" ? torch.pull : torch.push);
  }
}

absl::Status MeasureSize(const Flags& flags, const std::string& transport,
                         size_t bytes, Peers* peers, Report* report) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Bench> bench,
                        Bench::Create(flags, transport, bytes));
  double hello_us = 0;
  if (bytes == 1024) {
    WEIR_ASSIGN_OR_RETURN(const Sample hello,
                          Measure(flags.seconds, bench->ps_pid(), bytes,
                                  [&] { return bench->Hello(); }));
    hello_us = hello.us;
    report->AddNumber("empty_unary_us", hello_us);
  }
  const std::vector<std::pair<const char*, std::function<absl::Status()>>>
      operations = {{"pull", [&] { return bench->Pull(); }},
                    {"push", [&] { return bench->Push(); }},
                    {"push_pull", [&] { return bench->PushPull(); }}};
  for (const auto& [name, operation] : operations) {
    if (!flags.operation.empty() && flags.operation != name) {
      continue;
    }
    WEIR_ASSIGN_OR_RETURN(
        const Sample sample,
        Measure(flags.seconds, bench->ps_pid(), bytes, operation));
    report->Add(bytes, absl::StrCat(transport, " ", name), sample);
    const double rate = Report::GbPerS(bytes, sample.us);
    if (transport == "grpc") {
      peers->grpc[name] = rate;
    }
    if (bytes >= kTargetBytes) {
      Compare(transport, name, bytes, rate, *peers, report);
    }
    if (bytes == 1024 && std::string(name) == "push_pull") {
      report->AddNumber(
          absl::StrCat("ratio_1kib_", transport, "_push_pull_over_empty_unary"),
          sample.us / hello_us);
    }
  }
  return bench->Check();
}

absl::Status Run(const Flags& flags) {
  Report report;
  for (int round = 0; round < flags.rounds; ++round) {
    std::fprintf(stderr, "round %d of %d: sockets, iperf3\n", round + 1,
                 flags.rounds);
    report.AddNumber("tcp_sockets_64mib_gb_per_s",
                     MeasureSockets(flags.seconds, kTargetBytes));
    Peers peers;
    peers.iperf3_gb_per_s = MeasureIperf3();
    if (peers.iperf3_gb_per_s > 0) {
      report.AddNumber("iperf3_gb_per_s", peers.iperf3_gb_per_s);
    } else if (round == 0) {
      std::fprintf(stderr, "no iperf3 here: no ratios against it\n");
    }
    for (size_t bytes = flags.min_bytes; bytes <= flags.max_bytes; bytes *= 4) {
      std::fprintf(stderr, "round %d of %d: %s\n", round + 1, flags.rounds,
                   SizeName(bytes).c_str());
      if (bytes >= kTargetBytes) {
        peers.memcpy_gb_per_s = MeasureMemcpy(flags.seconds, bytes);
        report.AddNumber(absl::StrCat("memcpy_", bytes >> 20, "mib_gb_per_s"),
                         peers.memcpy_gb_per_s);
        peers.torch_best = {};
        if (!flags.torch_rpc.empty()) {
          WEIR_RETURN_IF_ERROR(MeasureTorch(flags, bytes, &peers, &report));
        }
      }
      for (const std::string& transport : flags.transports) {
        WEIR_RETURN_IF_ERROR(
            Annotate(MeasureSize(flags, transport, bytes, &peers, &report),
                     absl::StrCat(SizeName(bytes), ", ", transport)));
      }
    }
  }
  report.Print();
  if (!flags.json.empty()) {
    std::ofstream file(flags.json);
    file << report.Json().dump(2) << "\n";
    if (!file.flush()) {
      return absl::UnavailableError("cannot write " + flags.json);
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  weir::SetUpTls();
  weir::SetMallocForBulk();
  weir::Flags flags;
  const char* bin_dir = std::getenv("WEIR_BIN_DIR");  // NOLINT: one thread
  flags.ps =
      std::string(bin_dir != nullptr ? bin_dir : "bin") + "/server/ps/weir_ps";
  const char* root = std::getenv("WEIR_ROOT");  // NOLINT: one thread
  bool peers = false;
  CLI::App app("Bulk transfer on one host");
  app.add_flag("--peers", peers, "PyTorch RPC, too (Debian's python3-torch)");
  app.add_option("--json", flags.json, "write the results here too");
  app.add_option("--ps", flags.ps, "the weir_ps binary")->capture_default_str();
  app.add_option("--rounds", flags.rounds, "")->capture_default_str();
  app.add_option("--seconds", flags.seconds, "per operation and round")
      ->capture_default_str();
  app.add_option("--in_flight_bytes", flags.in_flight_bytes, "without answer")
      ->capture_default_str();
  app.add_option("--block_elements", flags.block_elements, "of a chunk")
      ->capture_default_str();
  app.add_option("--queues", flags.queues, "of the ps")->capture_default_str();
  app.add_option(
         "--transport", flags.transports,
         "grpc, grpc_checksum, grpc_tls, shm, shm_tls; several; default "
         "grpc and shm")
      ->check(CLI::IsMember(
          {"grpc", "grpc_checksum", "grpc_tls", "shm", "shm_tls"}));
  app.add_option("--operation", flags.operation, "pull, push or push_pull");
  app.add_option("--min_bytes", flags.min_bytes, "smallest size")
      ->capture_default_str();
  app.add_option("--max_bytes", flags.max_bytes, "largest size")
      ->capture_default_str();
  return weir::BenchMain(&app, argc, argv, [&] {
    if (peers) {
      flags.torch_rpc = std::string(root != nullptr ? root : ".") +
                        "/bench/transport/torch_rpc.py";
    }
    return weir::Run(flags);
  });
}
