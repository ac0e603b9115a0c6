// The contract of a compute backend: memory, an ordered queue, operations.
//
// Place: the layers of a model call it and know nothing else of the device.
// `cpu` is worker/compute/cpu; a GPU is a plug-in that implements this class.
//
// Terms
//   device pointer  a float* that only operations of the same backend read and
//                   write; arithmetic on it is allowed, dereferencing is not
//                   (on `cpu` it is ordinary memory). The memory may hold
//                   int32_t as well: copies keep all bits, so integers are
//                   uploaded as floats and the pointer is cast.
//   queue           operations take effect in the order of the calls. A backend
//                   may return before an operation has run; Wait() and
//                   Reached() tell when it has.
//   images          [batch, height, width, channels], row-major: channels last.
//                   Kernels: [filters, channels, kernel, kernel].
//   other tensors   row-major.
//
// Invariants
//   I1. The same inputs, shapes and options give the same bits, whatever ran
//       before and wherever the memory lies, if it is aligned to 64 bytes.
//   I2. Every element of an output is overwritten, and never read before that.
//   I3. Outputs overlap no input, unless the operation says so.
// Threads: compatible; one thread at a time calls a backend.
// Owns/borrows: owns what Allocate and MirrorHost made; borrows the rest.
// Errors: operations return nothing; the first failure is kept and
//   TakeStatus() hands it out. INTERNAL: the device or its library failed.
#ifndef WORKER_COMPUTE_BACKEND_H_
#define WORKER_COMPUTE_BACKEND_H_

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/compute/shapes.h"

namespace weir {

// The work and the memory of a device that has memory of its own.
struct DeviceUsage {
  // The time during which operations ran since the backend was made, by the
  // device's clock. It counts the operations that Wait() has passed.
  int64_t busy_ns = 0;
  int64_t bytes_used = 0;      // by this backend
  int64_t bytes_reserved = 0;  // on the device, by any process
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string name() const = 0;
  // True where device pointers are ordinary memory, so that mirrors, Upload,
  // Download, Stage and Fetch cost nothing.
  virtual bool shares_host_memory() const = 0;

  // ------------------------------------------------------------ memory

  // Returns `elements` >= 0 floats, aligned to 64 bytes.
  // Errors: RESOURCE_EXHAUSTED  there is not that much now.
  //         OUT_OF_RANGE        the device never has that much.
  virtual absl::StatusOr<float*> Allocate(int64_t elements) = 0;
  virtual void Release(float* device) = 0;

  // Returns the device pointer that stands for host memory: the same address
  // where memory is shared, else a device range that Upload and Download fill.
  // The caller releases it with Release(). Errors: those of Allocate.
  virtual absl::StatusOr<float*> MirrorHost(float* host, int64_t elements) = 0;

  // Copies; free where device == host. The host side must stay unchanged until
  // the queue has passed the copy.
  // REQUIRES (Upload, Stage): the queue has passed every operation that reads
  //   or writes the range; an upload may overtake operations on other memory.
  // REQUIRES (Download, Fetch): no operation writes the range before the queue
  //   has passed the copy.
  virtual void Upload(float* device, const float* host, int64_t elements) = 0;
  virtual void Download(float* host, const float* device, int64_t elements) = 0;

  // Makes host data readable for operations: returns `host` itself where memory
  // is shared; else uploads it to `device` and returns that.
  virtual const float* Stage(float* device, const float* host,
                             int64_t elements) = 0;
  // Makes device data readable for the host: returns `device` itself where
  // memory is shared; else downloads it to `host` and returns that.
  virtual const float* Fetch(float* host, const float* device,
                             int64_t elements) = 0;

  // weight * x, where x is memory of `peer`, a backend of the same kind.
  struct PeerTerm {
    Backend* peer = nullptr;
    float* x = nullptr;
    float weight = 1.0f;
  };
  // y = own_weight * y + the sum of `terms`, `count` floats each, added in the
  // order of the list, or in any order where this backend need not always give
  // the same bits. The content of the x is undefined afterwards: they may serve
  // as scratch. The sum takes effect behind everything called so far on all
  // these backends. Later calls on them do not wait for it, except
  // ReduceFromPeers, Download, Fetch and Mark.
  // REQUIRES: one term or more, any of which may be of this backend; no
  //   operation called later touches y or an x before this queue has passed the
  //   sum; y and the x do not overlap; no capture on any.
  virtual void ReduceFromPeers(int64_t count, float own_weight, float* y,
                               std::span<const PeerTerm> terms) = 0;

  // ------------------------------------------------------------- queue

  // Names the point of the queue behind everything called so far.
  virtual uint64_t Mark() = 0;
  virtual bool Reached(uint64_t mark) = 0;
  virtual void Wait(uint64_t mark) = 0;
  // Returns and forgets the first failure since the last call.
  virtual absl::Status TakeStatus() = 0;
  // The address of a device on PCI, such as "0000:01:00.0"; else empty.
  virtual std::string pci_bus_id() const { return ""; }
  // All zero where shares_host_memory().
  virtual DeviceUsage Usage() { return {}; }

  // ----------------------------------------------------------- capture

  // Between BeginCapture and EndCapture operations, Download and Mark are
  // recorded and do not run; Mark returns 1, 2, ... Replay enqueues what was
  // captured last, on the same memory, and returns a number to add to those
  // marks. BeginCapture returns false where the backend cannot capture; then
  // operations run as before.
  // REQUIRES (BeginCapture): the same operations have run before, so that
  //   nothing needs to be allocated. (Replay): the queue has passed the last
  //   Replay; nothing that was captured has been released.
  virtual bool BeginCapture() { return false; }
  virtual absl::Status EndCapture() {
    return absl::UnimplementedError("this backend captures nothing");
  }
  virtual uint64_t Replay() { return 0; }

  // -------------------------------------------------------- operations

  // `bias` [n] is added to every row; may be null.
  virtual void MatMul(const MatMulShape& shape, const float* a, const float* b,
                      const float* bias, float* c) = 0;
  // sums [width] = sum over rows of x [rows, width].
  virtual void SumRows(int64_t rows, int64_t width, const float* x,
                       float* sums) = 0;

  // Cross-correlation; `bias` [filters] may be null.
  virtual void Conv2dForward(const Conv2dShape& shape, const float* x,
                             const float* kernel, const float* bias,
                             float* y) = 0;
  virtual void Conv2dBackwardData(const Conv2dShape& shape, const float* dy,
                                  const float* kernel, float* dx) = 0;
  // `dbias` may be null.
  virtual void Conv2dBackwardKernel(const Conv2dShape& shape, const float* x,
                                    const float* dy, float* dkernel,
                                    float* dbias) = 0;

  // Max takes the first of equals in row-major order; padding never wins.
  // Average divides by size * size, padding included.
  virtual void PoolForward(PoolKind kind, const PoolShape& shape,
                           const float* x, float* y) = 0;
  virtual void PoolBackward(PoolKind kind, const PoolShape& shape,
                            const float* x, const float* dy, float* dx) = 0;

  // y may be x.
  virtual void ActivationForward(ActivationKind kind, int64_t count,
                                 const float* x, float* y) = 0;
  // Computes dx from the output y and from dy. dx may be dy.
  virtual void ActivationBackward(ActivationKind kind, int64_t count,
                                  const float* y, const float* dy,
                                  float* dx) = 0;

  // Copies the keys that Dropout uses from here on.
  // REQUIRES: the queue has passed every Dropout so far.
  virtual void SetKeys(std::span<const uint64_t> keys) = 0;
  // y[i] = x[i] / (1 - rate) where UnitFloat(Philox(key, 0, i / 4)[i % 4]) >=
  // rate, else 0; key = keys[key_index]. It is its own backward pass. y may be
  // x.
  virtual void Dropout(int key_index, float rate, int64_t count, const float* x,
                       float* y) = 0;

  // Normalises each row of x [rows, width]. The caller keeps mean and rstd
  // [rows] for the backward pass. The variance is biased.
  virtual void LayerNormForward(int64_t rows, int64_t width, float epsilon,
                                const float* x, const float* scale,
                                const float* offset, float* y, float* mean,
                                float* rstd) = 0;
  // `dx` may be null.
  virtual void LayerNormBackward(int64_t rows, int64_t width, const float* x,
                                 const float* scale, const float* mean,
                                 const float* rstd, const float* dy, float* dx,
                                 float* dscale, float* doffset) = 0;

  // Normalises each column of x [rows, channels]. The caller keeps mean and
  // rstd [channels] (from the biased variance) for the backward pass;
  // `variance` is the unbiased one, and 0 for a single row.
  virtual void BatchNormForward(int64_t rows, int64_t channels, float epsilon,
                                const float* x, const float* scale,
                                const float* offset, float* y, float* mean,
                                float* rstd, float* variance) = 0;
  // `dx` may be null.
  virtual void BatchNormBackward(int64_t rows, int64_t channels, const float* x,
                                 const float* scale, const float* mean,
                                 const float* rstd, const float* dy, float* dx,
                                 float* dscale, float* doffset) = 0;
  virtual void BatchNormInference(int64_t rows, int64_t channels, float epsilon,
                                  const float* x, const float* scale,
                                  const float* offset, const float* mean,
                                  const float* variance, float* y) = 0;

  // y = a + b; y may be a or b.
  virtual void Add(int64_t count, const float* a, const float* b, float* y) = 0;
  // y = a * b + c; c may be null: a * b. y may be any of them.
  virtual void MultiplyAdd(int64_t count, const float* a, const float* b,
                           const float* c, float* y) = 0;
  // Copies a [rows, width] window between matrices of the given row strides.
  virtual void CopyColumns(int64_t rows, int64_t width, const float* x,
                           int64_t x_stride, float* y, int64_t y_stride) = 0;
  // y [batch, columns, rows] from x [batch, rows, columns].
  virtual void Transpose(int64_t batch, int64_t rows, int64_t columns,
                         const float* x, float* y) = 0;

  // y[l] = sum over the entries e of list l of weight[e] * x[index[e]], for
  // rows of `width`; an empty list gives zeros. With `add` y[l] += that.
  virtual void GatherSum(const RowLists& lists, int64_t width, const float* x,
                         bool add, float* y) = 0;
  // y[l] = maximum by column over the rows of list l (NaN wins), and chosen[l]
  // by column the index of the first such row; an empty list gives zeros and
  // -1. Weights are not read.
  virtual void GatherMax(const RowLists& lists, int64_t width, const float* x,
                         float* y, int32_t* chosen) = 0;
  // The backward pass of GatherMax: y[l] = sum over the entries e of list l of
  // x[index[e]] in the columns where chosen[index[e]] is l. With `add` y[l] +=
  // that.
  virtual void GatherChosen(const RowLists& lists, int64_t width,
                            const float* x, const int32_t* chosen, bool add,
                            float* y) = 0;

  // y [batch] = sum over the pairs of vectors of their products.
  virtual void PairSumForward(const VectorsShape& shape, const float* x,
                              float* y) = 0;
  virtual void PairSumBackward(const VectorsShape& shape, const float* x,
                               const float* dy, float* dx) = 0;
  // y [batch, pairs]: the products of pairs i > j, (1,0), (2,0), (2,1), ...
  virtual void PairDotsForward(const VectorsShape& shape, const float* x,
                               float* y) = 0;
  virtual void PairDotsBackward(const VectorsShape& shape, const float* x,
                                const float* dy, float* dx) = 0;

  // row_loss [rows]: the row's loss (mean squared error: its mean over width).
  // row_correct [rows]: 1 where the prediction is the label (softmax: the first
  //   largest logit; sigmoid: logit > 0), else 0; mean squared error: 0.
  // dx [rows, width]: gradient of the mean of row_loss; may be null.
  // labels: [rows] class index, [rows] 0 or 1, or [rows, width].
  // REQUIRES: labels are in range; sigmoid: width = 1.
  virtual void Loss(LossKind kind, int64_t rows, int64_t width, const float* x,
                    const float* labels, float* row_loss, float* row_correct,
                    float* dx) = 0;
};

}  // namespace weir

#endif  // WORKER_COMPUTE_BACKEND_H_
