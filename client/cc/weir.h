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
// No chief is needed: the client with worker_index 0 declares the tensors, the
// others wait for it. (Jobs of weir_worker have a chief; this is for programs
// that bring their own model.)
//
// Terms
//   push   every tensor's gradient, applied exactly once per element, whatever
//          happens to connections; tensors not named are left alone.
//
// Threads: compatible; one thread at a time.
// Errors (Status::code as the numbers of gRPC's codes):
//   3 INVALID_ARGUMENT     an option, tensor or name is wrong.
//   9 FAILED_PRECONDITION  a ps is lost, or holds another job.
//   7 PERMISSION_DENIED    another process has this worker index.
#ifndef CLIENT_CC_WEIR_H_
#define CLIENT_CC_WEIR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

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

// What the servers do with a gradient; in PyTorch's words and defaults.
struct Optimizer {
  enum class Kind { kSgd, kAdagrad, kAdam, kAdamW };
  Kind kind = Kind::kSgd;
  double learning_rate = 0.01;
  double momentum = 0.0;  // SGD
  double weight_decay = 0.0;
};

struct Options {
  std::vector<std::string> ps;  // "host:port" of every ps, in order
  int worker_index = 0;
  int worker_count = 1;
  std::string job = "sdk";  // programs of one name share their tensors
  Mode mode = Mode::kAsync;
  int staleness_bound = 0;  // kBoundedStaleness: steps ahead of the slowest
  Optimizer optimizer;
  uint64_t seed = 0;                // of the initial values
  int64_t block_elements = 262144;  // unit of transfer; a multiple of 16
  double lost_after_seconds = 10.0;
  double start_wait_seconds = 60.0;  // for the ps, and for worker 0
  // "auto": shared memory to every ps on this host; "grpc", "shm": that alone.
  std::string transport = "auto";
  // What travels in place of float32: "f32", "bf16", "f16", "int8", and for
  // pushes "top_k": that share of the gradients with the largest magnitude.
  // What a push loses is added to the next one of this worker.
  std::string push_encoding = "f32";
  std::string pull_encoding = "f32";
  double top_k_fraction = 0.01;

  // Fills `ps`, `worker_index` and `worker_count` from TF_CONFIG or WEIR_*.
  Status FromEnv();
};

struct Tensor {
  std::string name;
  std::vector<int64_t> shape = {};
  // Initial values: uniform in [-init_scale, init_scale), or `values`.
  float init_scale = 0.0f;
  std::vector<float> values = {};
};

class Client {
 public:
  // Reaches every ps; nothing is declared yet.
  static Result<Client> Connect(const Options& options);
  Client(Client&& other) noexcept;
  Client& operator=(Client&& other) noexcept;
  ~Client();

  // Names the tensors, the same on every worker. If the ps hold this job
  // already, their values stay.
  Status Declare(const std::vector<Tensor>& tensors);

  // Row-major. Values() is rewritten by Pull and PushPull; Gradient() is the
  // caller's to write between calls. Empty for an unknown name.
  std::span<const float> Values(const std::string& name) const;
  std::span<float> Gradient(const std::string& name);

  // Fetches the newest values (sync: of the step that comes next).
  Status Pull();
  // Applies the gradients of `names`, or of every tensor.
  Status Push(const std::vector<std::string>& names = {});
  // Push, then Pull; one round trip. Sync: waits for every worker.
  Status PushPull(const std::vector<std::string>& names = {});
  // PushPull in two halves, to compute in between. No other call, and no
  // access to Values or Gradient, until Wait returned.
  Status StartPushPull(const std::vector<std::string>& names = {});
  Status Wait();

  // Pushes of this worker that every ps has applied.
  uint64_t pushes() const;

  // Ends every ps.
  Status ShutdownServers();
  // Also done by the destructor.
  void Close();

 private:
  class Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weir::sdk

#endif  // CLIENT_CC_WEIR_H_
