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
//   operation       one of the structs of worker/compute/operations.h.
//
// Invariants
//   I1. The same inputs, shapes and options give the same bits, whatever ran
//       before and wherever the memory lies, if it is aligned to 64 bytes.
//   I2. Every element of an output is overwritten, and never read before that,
//       unless the operation says so (one that adds to its output, or writes
//       some columns of it).
//   I3. Outputs overlap no input, unless the operation says so.
// Threads: compatible; one thread at a time calls a backend. UploadNow is safe
//   beside that thread's calls and its own.
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
#include "worker/compute/host_pages.h"
#include "worker/compute/operations.h"

namespace weir {

// Host memory in pieces, one behind the other; one may end inside a float.
using HostPieces = std::span<const std::span<const char>>;

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
  // An upload that nothing waits for until JoinUploadsAside(): what is called
  // after that follows it. REQUIRES: as Upload; not between BeginCapture and
  // EndCapture.
  virtual void UploadAside(float* device, const float* host, int64_t elements) {
    Upload(device, host, elements);
  }
  virtual void JoinUploadsAside() {}
  // An upload on the calling thread, which may be any. It returns when the
  // values, which come in pieces, are on the device. Operations may read them
  // that are called after NoteUploaded. REQUIRES: as Upload.
  // Errors: INTERNAL.
  virtual absl::Status UploadNow(float* device, HostPieces values) = 0;
  // Says on the queue's thread that UploadNow has filled a range.
  virtual void NoteUploaded(float* /*device*/, int64_t /*elements*/) {}
  virtual void Download(float* host, const float* device, int64_t elements) = 0;
  // Locks pages in host memory while they live, so that they are copied faster
  // and beside operations; any thread may call it. Null where there is nothing
  // to gain. It lives as long as this.
  virtual PageObserver* host_pages() { return nullptr; }

  // Makes host data readable for operations: returns `host` itself where memory
  // is shared; else uploads it to `device` and returns that.
  const float* Stage(float* device, const float* host, int64_t elements) {
    if (shares_host_memory()) {
      return host;
    }
    Upload(device, host, elements);
    return device;
  }
  // Makes device data readable for the host: returns `device` itself where
  // memory is shared; else downloads it to `host` and returns that.
  const float* Fetch(float* host, const float* device, int64_t elements) {
    if (shares_host_memory()) {
      return device;
    }
    Download(host, device, elements);
    return host;
  }

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
  // operations run as before, as they do after an EndCapture that fails: its
  // error is the capture's alone, and nothing is captured.
  // REQUIRES (BeginCapture): the same operations have run before, so that
  //   nothing needs to be allocated. (Replay): the queue has passed the last
  //   Replay; nothing that was captured has been released.
  virtual bool BeginCapture() { return false; }
  virtual absl::Status EndCapture() {
    return absl::UnimplementedError("this backend captures nothing");
  }
  virtual uint64_t Replay() { return 0; }

  // -------------------------------------------------------- operations

  virtual void Run(const Operation& operation) = 0;
  // Copies the keys that op::Dropout uses from here on.
  // REQUIRES: the queue has passed every op::Dropout so far.
  virtual void SetKeys(std::span<const uint64_t> keys) = 0;
};

}  // namespace weir

#endif  // WORKER_COMPUTE_BACKEND_H_
