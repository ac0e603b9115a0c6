// Weir for any C++ program: named float tensors on parameter servers.
//
// The public C++ SDK. It uses standard types only, so a program needs no header
// of gRPC, protobuf or Abseil, and none of Weir's versions of them.
//
//   auto client = weir::sdk::Client::Connect(options);
//   client->Declare({{.name = "w", .shape = {10}}});
//   client->Pull();                          // values of "w" are there now
//   ... read client->Values("w"), write client->Gradient("w") ...
//   client->PushPull();                      // apply it, fetch the new values
//
// No chief is needed: the client with rank 0 declares the tensors, the
// others wait for it. With one (weir_chief without --job) the job has
// checkpoints: the chief declares what the first client brings, or restores it,
// and ends the job once every client has finished.
//
// Terms
//   push   a gradient of this worker, number 0, 1, ...; applied exactly once
//          per element, whatever happens to connections or to this process.
//          Tensors and rows not named are left alone.
//   rows   of embedding tables, by id: client/cc/weir_tables.h. They never are
//          in a worker as a whole: Lookup fetches some, a push brings gradients
//          of some.
//
// Threads: compatible; one thread at a time.
// Errors (Status::code as the numbers of gRPC's codes):
//   1 CANCELLED            Options.keep_waiting said so; the call may be
//                          repeated.
//   3 INVALID_ARGUMENT     an option, tensor or name is wrong.
//   6 ALREADY_EXISTS       the job has other tensors or tables; names the
//   first. 7 PERMISSION_DENIED    another process has this rank. 9
//   FAILED_PRECONDITION  a ps is lost, or holds another job; a call that
//                          comes too early or too late.
//   10 ABORTED             the chief ended the job, or is gone.
//   11 OUT_OF_RANGE        a gradient has NaN or Inf and was left out; the next
//                          push may follow.
//   14 UNAVAILABLE         a ps does not answer at the start.
#ifndef CLIENT_CC_WEIR_H_
#define CLIENT_CC_WEIR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/cc/weir_tables.h"

namespace weir::sdk {

class Status {
 public:
  Status() = default;
  Status(int code, std::string message)
      : code_(code), message_(std::move(message)) {}
  bool ok() const { return code_ == 0; }
  int code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  int code_ = 0;
  std::string message_;
};

template <typename T>
class Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT
  Result(Status status) : status_(std::move(status)) {}  // NOLINT
  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  // REQUIRES: ok().
  T& operator*() { return *value_; }
  T* operator->() { return &*value_; }

 private:
  Status status_;
  std::optional<T> value_;
};

enum class Mode { kAsync, kSync, kBoundedStaleness };

// What the servers do with a gradient: PyTorch's arithmetic, in its words and
// with its defaults (docs/optimizers.md). Each kind reads its own members.
struct Optimizer {
  enum class Kind { kSgd, kAdagrad, kRmsProp, kAdadelta, kAdam, kAdamW };
  Kind kind = Kind::kSgd;
  double learning_rate = 0.01;
  double weight_decay = 0.0;         // kAdamW: decoupled; else L2
  double momentum = 0.0;             // kSgd, kRmsProp
  double dampening = 0.0;            // kSgd
  bool nesterov = false;             // kSgd
  double lr_decay = 0.0;             // kAdagrad
  double initial_accumulator = 0.0;  // kAdagrad
  double alpha = 0.99;               // kRmsProp
  bool centered = false;             // kRmsProp
  double rho = 0.9;                  // kAdadelta
  double beta1 = 0.9;                // kAdam, kAdamW
  double beta2 = 0.999;              // kAdam, kAdamW
  bool amsgrad = false;              // kAdam, kAdamW
  // All but kSgd. Unset: 1e-10 of kAdagrad, 1e-6 of kAdadelta, else 1e-8.
  std::optional<double> epsilon;
};

struct Options {
  std::vector<std::string> ps;  // "host:port" of every ps, in order
  std::string chief;            // "host:port"; empty: the job has none
  int rank = 0;
  int worker_count = 1;
  std::string job = "sdk";  // programs of one name share their tensors
  Mode mode = Mode::kAsync;
  int staleness_bound = 0;  // kBoundedStaleness: steps ahead of the slowest
  // Of the tensors by their group; all of one kind.
  std::vector<Optimizer> groups = {Optimizer()};
  uint64_t seed = 0;                // of the initial values
  int64_t block_elements = 262144;  // unit of transfer; a multiple of 16
  double lost_after_seconds = 10.0;
  // For the ps, for worker 0, and for a chief that is away.
  double start_wait_seconds = 60.0;
  // "auto": shared memory to every ps on this host; "grpc", "shm": that alone.
  std::string transport = "auto";
  // CRC32C of what travels, which finds damage that TCP does not: "auto": to ps
  // on other hosts; "on", "off".
  std::string checksum = "auto";
  // What travels in place of float32: "f32", "bf16", "f16", "int8", and for
  // pushes "top_k": that share of the gradients with the largest magnitude.
  // What a push loses is added to the next one of this worker.
  std::string push_encoding = "f32";
  std::string pull_encoding = "f32";
  double top_k_fraction = 0.01;
  // Asked about ten times a second while a call waits, on its thread; false
  // ends the call. Unset: waits are ended by what they wait for alone.
  std::function<bool()> keep_waiting;

  // Fills `ps`, `chief`, `rank` and `worker_count` from TF_CONFIG or
  // WEIR_* (a chief only where the cluster names one), and
  // `transport` from WEIR_TRANSPORT where it is set.
  Status FromEnv();
};

struct Tensor {
  std::string name;
  std::vector<int64_t> shape = {};  // empty: a scalar
  // Initial values: uniform in [-init_scale, init_scale), or `values`.
  float init_scale = 0.0f;
  std::vector<float> values = {};
  int group = 0;  // index into Options::groups
  // A push brings its new values, not a gradient. Sync: the mean of those that
  // were pushed.
  bool buffer = false;
  // How checkpoints export it: a safetensors dtype, and further names.
  std::string export_dtype = "F32";
  std::vector<std::string> aliases = {};
};

// Replaces what Options::groups says of a group, for one push.
struct GroupSettings {
  int group = 0;
  std::optional<double> learning_rate = std::nullopt;
  std::optional<double> weight_decay = std::nullopt;
  std::optional<double> momentum = std::nullopt;  // beta1 of kAdam and kAdamW
};

struct PushOptions {
  // Sync: of this gradient among those of its step. In every mode 0 changes
  // nothing, but counts as a push.
  float weight = 1.0f;
  std::vector<GroupSettings> settings = {};
  bool pull = true;  // fetch the new values behind it
  std::vector<TableSettings> tables = {};
  // Read before BeginPush returns. Those known later: PushRows.
  std::vector<RowGradients> rows = {};
};

// One parameter server.
struct ServerStatus {
  std::string address;
  bool ready = false;  // holds tensors, takes pushes
  std::string job;
  uint64_t version_min = 0;  // updates applied, over its blocks
  uint64_t version_max = 0;
  uint64_t blocks_accepted = 0;
  uint64_t blocks_duplicate = 0;  // repeated after a broken connection
  uint64_t blocks_left_out = 0;   // with NaN or Inf
  uint64_t staleness_max = 0;     // async: updates between pull and push
  uint64_t bytes_resident = 0;
  std::vector<TableStatus> tables = {};
};

class Client {
 public:
  // Reaches every ps; nothing is declared yet.
  static Result<Client> Connect(const Options& options);
  Client(Client&& other) noexcept;
  Client& operator=(Client&& other) noexcept;
  ~Client();

  // Names the tensors and tables, the same on every worker. If the ps hold this
  // job already, their values stay.
  Status Declare(const std::vector<Tensor>& tensors,
                 const std::vector<Table>& tables = {});

  // Row-major. Values() is rewritten by Pull and PushPull; Gradient() is the
  // caller's to write between calls. Empty for an unknown name.
  std::span<const float> Values(const std::string& name) const;
  std::span<float> Gradient(const std::string& name);
  // While it is held, what Values and Gradient returned stays readable, even
  // after Close.
  std::shared_ptr<const void> Buffers() const;

  // Fetches the newest values (sync: of the step that comes next).
  Status Pull();
  // Applies the gradients of `names`, or of every tensor, and those of `rows`.
  Status Push(const std::vector<std::string>& names = {},
              const std::vector<RowGradients>& rows = {});
  // Push, then Pull; one round trip. Sync: waits for every worker.
  Status PushPull(const std::vector<std::string>& names = {},
                  const std::vector<RowGradients>& rows = {});
  // PushPull in two halves, to compute in between. No other call but those for
  // lookups, and no access to Values or Gradient, until Wait returned.
  Status StartPushPull(const std::vector<std::string>& names = {},
                       const std::vector<RowGradients>& rows = {});

  // Reads rows, newest (sync: of the step that comes next; bounded staleness:
  // waits as Pull does). With `train` an id without a row gets one, where the
  // table's admission lets it, and rows count as touched; without, nothing
  // changes on the servers.
  Status Lookup(const std::vector<RowsWanted>& wanted, bool train = true);
  // Lookup in two halves, one at a time: the rows of the next batch, say, while
  // this one's push is under way. `ids` are read at once, `rows` are written by
  // WaitLookup. Sync: start it after EndPush (or StartPushPull) of the step
  // before, for rows have a step.
  Status StartLookup(const std::vector<RowsWanted>& wanted, bool train = true);
  Status WaitLookup();

  // A push tensor by tensor, so that the first gradients travel while others
  // are computed: BeginPush, Ready for each, EndPush, Wait. With `pull` a
  // tensor's values may change as soon as it is ready.
  Status BeginPush(const PushOptions& options);
  // The gradient of Declare's tensor number `tensor` is final.
  Status Ready(int tensor);
  // The same of several that are not in Gradient() but where the pairs say: of
  // the tensors' shapes, row-major, unchanged until Wait returns OK or the
  // client is closed.
  Status Ready(std::span<const std::pair<int, const float*>> gradients);
  // The gradients of rows, all of this push; read before it returns.
  Status PushRows(const std::vector<RowGradients>& rows);
  // Leaves the other tensors and rows alone.
  Status EndPush();
  // Ends StartPushPull and EndPush.
  Status Wait();

  // Pushes of this rank that every ps has taken, by its earlier
  // processes, too.
  uint64_t pushes() const;

  // This worker pushes no more: the others go on without it.
  Status Finish();

  Result<std::vector<ServerStatus>> Servers();

  // Ends every ps. With a chief: FAILED_PRECONDITION, it does that.
  Status ShutdownServers();
  // Also done by the destructor. To the others it is a worker that will be
  // started again, unless Finish came first.
  void Close();

 private:
  class Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weir::sdk

#endif  // CLIENT_CC_WEIR_H_
