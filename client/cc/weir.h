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
// A job needs no chief: the client with rank 0 declares the tensors, and the
// others wait for it. A job with a chief (weir_chief without --job) has
// checkpoints: the chief declares what the first client brings, or restores it
// from a checkpoint, and ends the job once every client has finished.
//
// Terms
//   push   one gradient of this worker; pushes are numbered 0, 1, ... Each is
//          applied exactly once per element, whatever happens to connections
//          or to this process. A push leaves alone the tensors and rows that
//          it does not name.
//   rows   the contents of embedding tables, found by id (weir_tables.h). A
//          worker never holds a whole table: Lookup fetches some rows, and a
//          push brings the gradients of some.
//
// Threads: compatible; one thread at a time.
// Errors (Status::code has the numbers of gRPC's codes):
//    1 CANCELLED            Options.keep_waiting returned false; the call may
//                           be repeated. But where pushes() has grown, Push or
//                           PushPull has sent its push: call Wait.
//    3 INVALID_ARGUMENT     an option, tensor or name is wrong.
//    6 ALREADY_EXISTS       the job has other tensors or tables; names one.
//    7 PERMISSION_DENIED    another process has this rank.
//    8 RESOURCE_EXHAUSTED   no memory for the tensors, here or in a ps.
//    9 FAILED_PRECONDITION  a ps is lost or holds another job, or the call
//                           comes too early or too late.
//   10 ABORTED              the chief ended the job, or is gone.
//   11 OUT_OF_RANGE         a gradient has NaN or Inf and was left out; the
//                           next push may follow.
//   13 INTERNAL             a ps is of another version of Weir, or a bug.
//   14 UNAVAILABLE          a ps does not answer at the start.
//   16 UNAUTHENTICATED      a ps, the chief or this process does not prove to
//                           be of the job (docs/security.md).
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

#include "client/cc/weir_report.h"

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

// How the servers apply a gradient: PyTorch's arithmetic, in its words and
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
  // Every kind but kSgd reads it. Unset means 1e-10 for kAdagrad, 1e-6 for
  // kAdadelta and 1e-8 for the others.
  std::optional<double> epsilon;
};

struct Options {
  std::vector<std::string> ps;  // "host:port" of every ps, in order
  std::string chief;            // "host:port"; empty: the job has none
  int rank = 0;
  int worker_count = 1;
  std::string job = "sdk";  // programs with the same name share their tensors
  Mode mode = Mode::kAsync;
  int staleness_bound = 0;  // kBoundedStaleness: steps ahead of the slowest
  // One optimizer for each group of tensors (Tensor::group). All have the same
  // kind.
  std::vector<Optimizer> groups = {Optimizer()};
  uint64_t seed = 0;                // of the initial values
  int64_t block_elements = 262144;  // unit of transfer; a multiple of 16
  double lost_after_seconds = 10.0;
  // How long to wait at the start for the ps, for worker 0, and for a chief
  // that is away.
  double start_wait_seconds = 60.0;
  // "auto": shared memory to every ps on this host, gRPC to the others. "grpc"
  // and "shm" use that one only.
  std::string transport = "auto";
  // Whether payloads carry a CRC32C, which finds damage that TCP does not:
  // "auto" (only to and from ps on other hosts), "on" or "off".
  std::string checksum = "auto";
  // The encoding of what travels: "f32", "bf16", "f16", "int8", and for pushes
  // also "top_k", which sends only the gradients of the largest magnitude, a
  // share of top_k_fraction. What the encoding takes from a push is added to
  // the next push of this worker. Blocks that hold buffers travel as "f32".
  std::string push_encoding = "f32";
  std::string pull_encoding = "f32";
  double top_k_fraction = 0.01;
  // Called about ten times a second while a call waits, on the thread of that
  // call; false ends the call. When it is unset, a wait ends only when what it
  // waits for comes or fails.
  std::function<bool()> keep_waiting;

  // Fills `ps`, `chief`, `rank` and `worker_count` from TF_CONFIG or WEIR_* (a
  // chief only if the cluster names one), and `transport` from WEIR_TRANSPORT
  // if that is set. INVALID_ARGUMENT if this task is not a worker.
  Status FromEnv();
};

struct Tensor {
  std::string name;
  std::vector<int64_t> shape = {};  // empty: a scalar
  // Initial values: uniform in [-init_scale, init_scale), or `values`.
  float init_scale = 0.0f;
  std::vector<float> values = {};
  int group = 0;  // index into Options::groups
  // A push brings new values in place of a gradient. In sync, the tensor takes
  // the mean of the values that the workers pushed.
  bool buffer = false;
  // How checkpoints export the tensor: its safetensors dtype, and further
  // names for it.
  std::string export_dtype = "F32";
  std::vector<std::string> aliases = {};
};

// Replaces some of a group's settings in Options::groups, for one push only.
struct GroupSettings {
  int group = 0;
  std::optional<double> learning_rate = std::nullopt;
  std::optional<double> weight_decay = std::nullopt;
  std::optional<double> momentum = std::nullopt;  // beta1 of kAdam and kAdamW
};

struct PushOptions {
  // The weight of this gradient in the mean of its step (sync). In every mode
  // a push of weight 0 changes nothing, but counts as a push.
  float weight = 1.0f;
  std::vector<GroupSettings> settings = {};
  bool pull = true;  // fetch the new values after it
  std::vector<TableSettings> tables = {};
  // Read before BeginPush returns. Gradients of rows that are known only later
  // go with PushRows.
  std::vector<RowGradients> rows = {};
};

class Client {
 public:
  // Connects to every ps. Nothing is declared yet.
  static Result<Client> Connect(const Options& options);
  Client(Client&& other) noexcept;
  Client& operator=(Client&& other) noexcept;
  ~Client();

  // Names the tensors and tables, which must be the same on every worker. If
  // the ps hold this job already, their values stay.
  Status Declare(const std::vector<Tensor>& tensors,
                 const std::vector<Table>& tables = {});

  // The memory of a tensor, row-major; empty for an unknown name. Pull and
  // PushPull rewrite what Values() returns. The caller may write what
  // Gradient() returns between calls.
  std::span<const float> Values(const std::string& name) const;
  std::span<float> Gradient(const std::string& name);
  // While the caller holds the result, what Values and Gradient returned stays
  // readable, even after Close.
  std::shared_ptr<const void> Buffers() const;

  // Fetches the newest values (in sync, those of the step that comes next).
  Status Pull();
  // Applies the gradients of the tensors `names`, and those of `rows`. No names
  // means every tensor. In sync the gradients must be of the values of their
  // step: FAILED_PRECONDITION without a Pull, or a push that pulls, before it.
  Status Push(const std::vector<std::string>& names = {},
              const std::vector<RowGradients>& rows = {});
  // Pushes, then pulls, in one round trip. In sync it waits for every worker.
  Status PushPull(const std::vector<std::string>& names = {},
                  const std::vector<RowGradients>& rows = {});
  // Starts a PushPull; Wait ends it, and the caller may compute in between.
  // Until Wait has returned only lookups may be called, and neither Values nor
  // Gradient may be touched.
  Status StartPushPull(const std::vector<std::string>& names = {},
                       const std::vector<RowGradients>& rows = {});

  // Reads the newest rows (in sync, those of the step that comes next; in
  // bounded staleness it waits as Pull does). With `train`, an id without a row
  // gets one if the table admits it, and rows count as touched. Without `train`
  // nothing changes on the servers.
  Status Lookup(const std::vector<RowsWanted>& wanted, bool train = true);
  // Lookup in two halves, for example to fetch the rows of the next batch while
  // this batch's push is under way. One lookup may be open at a time. `ids` are
  // read at once; `rows` are written by WaitLookup. In sync, start it after
  // EndPush (or StartPushPull) of the step before, since rows belong to a step.
  Status StartLookup(const std::vector<RowsWanted>& wanted, bool train = true);
  Status WaitLookup();

  // Starts a push that goes tensor by tensor, so that the first gradients
  // travel while others are computed: BeginPush, Ready for each one, EndPush,
  // Wait. With `pull`, a tensor's values may change as soon as it is ready.
  Status BeginPush(const PushOptions& options);
  // Says that the gradient of tensor number `tensor` (its index in Declare's
  // list) is final.
  Status Ready(int tensor);
  // The same for several tensors whose gradients lie where the pairs say in
  // place of Gradient(). Each has its tensor's shape, row-major, and must not
  // change until Wait returns OK or the client is closed.
  Status Ready(std::span<const std::pair<int, const float*>> gradients);
  // Gives the gradients of all rows of this push, at most once a push. They are
  // read before the call returns.
  Status PushRows(const std::vector<RowGradients>& rows);
  // Ends the push; it leaves alone the tensors and rows that were not given.
  Status EndPush();
  // Waits until the push that StartPushPull or EndPush sent is settled, and
  // the values that it fetches are here.
  Status Wait();
  // Whether the values that this push fetches for tensor number `tensor` are
  // here already, for which it does not wait. They stay as they are until the
  // next push. Of use between BeginPush with `pull` and the end of Wait, else
  // false.
  bool HasValues(int tensor) const;

  // Tells how the push before went. The job's chief writes means of what all
  // workers reported into train.jsonl and as curves for TensorBoard, about once
  // a second; without a chief nothing happens. It makes no call to anybody, so
  // every push may have its report.
  Status Report(const Metrics& metrics);

  // How many pushes of this rank every ps has taken, those of its earlier
  // processes included.
  uint64_t pushes() const;

  // Says that this worker pushes no more; the others go on without it. In a job
  // with a chief it then waits until they have finished, too, and the last
  // checkpoint is written: what this worker has pushed is safe from there on.
  // ABORTED if the job ends before that, for example because a ps was lost;
  // start the program again, and it goes on from the last checkpoint.
  Status Finish();

  Result<std::vector<ServerStatus>> Servers();

  // Ends every ps. FAILED_PRECONDITION in a job with a chief, which does that.
  Status ShutdownServers();
  // Leaves the job; the destructor does the same. Unless Finish came first, the
  // other workers expect this one to be started again.
  void Close();

 private:
  class Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weir::sdk

#endif  // CLIENT_CC_WEIR_H_
