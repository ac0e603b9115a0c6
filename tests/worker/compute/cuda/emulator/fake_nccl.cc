#include "tests/worker/compute/cuda/emulator/fake_nccl.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "tests/worker/compute/cuda/emulator/scheduler.h"

namespace weir::cuda {

struct NcclComm {
  int device = 0;
  int rank = 0;
  int ranks = 0;
  int64_t clique = 0;
};

}  // namespace weir::cuda

namespace weir_emulator {
namespace {

using weir::cuda::kNcclSuccess;
using weir::cuda::NcclComm;

constexpr int64_t kFloatBytes = sizeof(float);

// One device's part of a sum.
struct Part {
  const NcclComm* comm = nullptr;
  CUstream_st* stream = nullptr;
  const float* x = nullptr;
  float* y = nullptr;
  size_t count = 0;
  int root = 0;
};

struct State {
  NcclCounts counts;
  bool in_group = false;
  int group_error = kNcclSuccess;
  std::vector<Part> parts;  // of the open group
};
State& Fake() {
  static State state;
  return state;
}

// An injected failure of `function`, else what `body` says.
template <class Body>
int Guard(const char* function, Body body) {
  int result = kNcclSuccess;
  const cudaError_t error = Call(function, [&](Machine& machine) {
    result = body(machine);
    return cudaSuccess;
  });
  return error != cudaSuccess ? kNcclUnhandledCudaError : result;
}

int InitAll(NcclComm** comms, int count, const int* devices) {
  return Guard("ncclCommInitAll", [&](Machine& machine) {
    const std::vector<int> list(devices, devices + count);
    const std::set<int> unique(list.begin(), list.end());
    if (count < 1 || *unique.begin() < 0 ||
        *unique.rbegin() >= machine.config.devices) {
      return kNcclInvalidArgument;
    }
    if (unique.size() < list.size()) {
      return kNcclInvalidUsage;
    }
    Fake().counts.cliques.push_back(list);
    Fake().counts.open += count;
    const auto clique = static_cast<int64_t>(Fake().counts.cliques.size());
    for (int rank = 0; rank < count; ++rank) {
      comms[rank] = new NcclComm{list[rank], rank, count, clique};
    }
    CurrentDevice() = list.back();  // a caller must not rely on it
    return kNcclSuccess;
  });
}

int Destroy(NcclComm* comm) {
  if (comm == nullptr) {
    return kNcclInvalidArgument;
  }
  delete comm;
  --Fake().counts.open;
  return kNcclSuccess;
}

int Check(Machine& machine, const Part& part, int type, int operation,
          cudaStream_t stream) {
  if (part.comm == nullptr || part.root < 0 || part.root >= part.comm->ranks ||
      type != weir::cuda::kNcclFloat || operation != weir::cuda::kNcclSum ||
      machine.Find(stream, part.comm->device) == nullptr ||
      stream->device != part.comm->device || stream->capture != nullptr) {
    return kNcclInvalidArgument;
  }
  const int64_t bytes = static_cast<int64_t>(part.count) * kFloatBytes;
  machine.CheckReach("what NCCL sums", part.x, bytes, part.comm->device);
  if (part.comm->rank == part.root) {
    machine.CheckReach("NCCL's sum", part.y, bytes, part.comm->device);
  }
  return kNcclSuccess;
}

int Reduce(const void* x, void* y, size_t count, int type, int operation,
           int root, NcclComm* comm, cudaStream_t stream) {
  // I3
  if (comm != nullptr && comm->ranks > 1 && !Fake().in_group) {
    Die("ncclReduce of %d devices outside a group would hang", comm->ranks);
  }
  const int result = Guard("ncclReduce", [&](Machine& machine) {
    const Part part = {
        comm,  stream, static_cast<const float*>(x), static_cast<float*>(y),
        count, root};
    const int checked = Check(machine, part, type, operation, stream);
    if (checked == kNcclSuccess) {
      Fake().parts.push_back(part);
    }
    return checked;
  });
  // I4: the end of the group gives the first error.
  if (result != kNcclSuccess && Fake().group_error == kNcclSuccess) {
    Fake().group_error = result;
  }
  return result;
}

// The parts of one sum, root first.
struct Sum {
  std::vector<Part> parts;
  std::vector<std::vector<float>> held;  // by part, where the stream went on
  bool holds_streams = false;

  void Run(Random& random) const {
    const Part& root = parts[0];
    // I2: a shuffle, while the list grows.
    std::vector<size_t> order(parts.size());
    for (size_t i = 0; i < order.size(); ++i) {
      order[i] = i;
      std::swap(order[i], order[random.Below(i + 1)]);
    }
    for (size_t i = 0; i < root.count; ++i) {
      float sum = 0.0f;
      for (const size_t part : order) {
        sum += held[part].empty() ? parts[part].x[i] : held[part][i];
      }
      root.y[i] = sum;
    }
  }
};

void Enqueue(Machine& machine, std::vector<Part> parts) {
  const auto is_root = [](const Part& part) {
    return part.comm->rank == part.root;
  };
  std::iter_swap(parts.begin(),
                 std::find_if(parts.begin(), parts.end(), is_root));
  const auto sum = std::make_shared<Sum>();
  sum->parts = std::move(parts);
  sum->held.resize(sum->parts.size());
  // I1: with the streams held, the sum reads memory when it runs. Otherwise
  // each part keeps what it held when its stream came to the sum.
  sum->holds_streams = machine.random.Below(2) == 0;
  std::vector<OperationPtr> arrivals;
  for (size_t i = 1; i < sum->parts.size(); ++i) {
    machine.Enqueue(
        sum->parts[i].stream,
        [sum, i] {
          const Part& part = sum->parts[i];
          if (!sum->holds_streams) {
            sum->held[i].assign(part.x, part.x + part.count);
          }
        },
        &arrivals.emplace_back());
  }
  OperationPtr ran;
  machine.Enqueue(
      sum->parts[0].stream, [sum, &machine] { sum->Run(machine.random); },
      &ran);
  ran->after.insert(ran->after.end(), arrivals.begin(), arrivals.end());
  for (size_t i = 1; sum->holds_streams && i < sum->parts.size(); ++i) {
    OperationPtr leave;
    machine.Enqueue(
        sum->parts[i].stream, [] {}, &leave);
    leave->after.push_back(ran);
  }
  ++Fake().counts.sums;
}

// Takes the next sum out of the group's parts. Of a device that sums twice in a
// group the first is taken.
std::vector<Part> TakeSum(std::vector<Part>* group) {
  const Part first = group->front();
  std::vector<Part> sum;
  for (int rank = 0; rank < first.comm->ranks; ++rank) {
    const auto it =
        std::find_if(group->begin(), group->end(), [&](const Part& part) {
          return part.comm->clique == first.comm->clique &&
                 part.comm->rank == rank;
        });
    // I3
    if (it == group->end() || it->count != first.count ||
        it->root != first.root) {
      Die("ncclReduce would hang: rank %d of %d has no part in the sum", rank,
          first.comm->ranks);
    }
    sum.push_back(*it);
    group->erase(it);
  }
  return sum;
}

int GroupStart() {
  return Guard("ncclGroupStart", [](Machine&) {
    Fake().in_group = true;
    return kNcclSuccess;
  });
}

int GroupEnd() {
  if (!Fake().in_group) {
    return kNcclInvalidUsage;
  }
  Fake().in_group = false;
  std::vector<Part> parts = std::exchange(Fake().parts, {});
  const int error = std::exchange(Fake().group_error, kNcclSuccess);
  if (error != kNcclSuccess) {
    return error;
  }
  return Guard("ncclGroupEnd", [&](Machine& machine) {
    while (!parts.empty()) {
      Enqueue(machine, TakeSum(&parts));
    }
    return kNcclSuccess;
  });
}

}  // namespace

NcclCounts CountNccl() { return Fake().counts; }

void ResetNccl() {
  const int64_t open = Fake().counts.open;
  Fake() = {};
  Fake().counts.open = open;
}

const weir::cuda::NcclApi& FakeNccl() {
  static const weir::cuda::NcclApi api = {
      .get_version =
          [](int* version) {
            *version = 23203;
            return kNcclSuccess;
          },
      .get_error_string =
          [](int result) {
            switch (result) {
              case kNcclInvalidArgument:
                return "invalid argument";
              case kNcclInvalidUsage:
                return "invalid usage";
              case weir::cuda::kNcclSuccess:
                return "no error";
              default:
                return "unhandled cuda error";
            }
          },
      .init_all = &InitAll,
      .destroy = &Destroy,
      .abort =
          [](NcclComm* comm) {
            ++Fake().counts.aborted;
            return Destroy(comm);
          },
      .group_start = &GroupStart,
      .group_end = &GroupEnd,
      .reduce = &Reduce,
  };
  return api;
}

}  // namespace weir_emulator
