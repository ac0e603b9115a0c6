// CUDA's runtime functions for streams, events and graphs over the emulated
// machine (scheduler.h).
#include <memory>
#include <vector>

#include "tests/worker/compute/cuda/emulator/scheduler.h"

namespace weir_emulator {
namespace {

// Waits for, or asks after, a stream that is captured: the capture is lost.
cudaError_t RefuseCaptured(Machine& machine, CUstream_st* stream) {
  if (stream == nullptr) {
    return cudaErrorInvalidResourceHandle;
  }
  if (stream->capture != nullptr) {
    stream->capture->valid = false;
    return cudaErrorStreamCaptureUnsupported;
  }
  return machine.CheckUnsafeCall();
}

cudaError_t RefuseCaptured(Machine& machine, CUevent_st* event) {
  if (machine.events.count(event) == 0) {
    return cudaErrorInvalidResourceHandle;
  }
  if (event->capture != nullptr) {
    event->capture->valid = false;
    return cudaErrorCapturedEvent;
  }
  return machine.CheckUnsafeCall();
}

}  // namespace
}  // namespace weir_emulator

using weir_emulator::Call;
using weir_emulator::CurrentDevice;
using weir_emulator::Machine;

// NOLINTBEGIN(readability-identifier-naming): CUDA's names.
extern "C" {

// ----------------------------------------------------------------- streams

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags,
                                         int) {
  return Call(__func__, [=](Machine& machine) {
    if (flags > cudaStreamNonBlocking) {
      return cudaErrorInvalidValue;
    }
    if (machine.config.devices == 0) {
      return cudaErrorNoDevice;
    }
    *stream = machine.OpenStream(CurrentDevice(), flags == cudaStreamDefault);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  const cudaError_t error =
      Call(__func__, [](Machine&) { return cudaSuccess; });
  return error != cudaSuccess ? error
                              : cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return Call(__func__, [=](Machine& machine) {
    CUstream_st* const stream = machine.Find(handle, CurrentDevice());
    if (stream == nullptr || stream->is_default) {
      return cudaErrorInvalidResourceHandle;
    }
    if (stream->capture != nullptr) {
      stream->capture->valid = false;
      return cudaErrorStreamCaptureUnsupported;
    }
    machine.CloseStream(stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return Call(__func__, [=](Machine& machine) {
    CUstream_st* const stream = machine.Find(handle, CurrentDevice());
    const cudaError_t error = weir_emulator::RefuseCaptured(machine, stream);
    if (error == cudaSuccess) {
      machine.RunStream(stream);
    }
    return error;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return Call(__func__, [=](Machine& machine) {
    CUstream_st* const stream = machine.Find(handle, CurrentDevice());
    const cudaError_t error = weir_emulator::RefuseCaptured(machine, stream);
    if (error != cudaSuccess) {
      return error;
    }
    const auto tail = machine.Tail(stream);
    machine.RunSome();
    return Machine::Done(tail) ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event,
                                unsigned) {
  return Call(__func__, [=](Machine& machine) {
    CUstream_st* const stream = machine.Find(handle, CurrentDevice());
    if (stream == nullptr || machine.events.count(event) == 0) {
      return cudaErrorInvalidResourceHandle;
    }
    return machine.WaitEvent(stream, event);
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function,
                               void* data) {
  return Call(__func__, [=](Machine& machine) {
    CUstream_st* const stream = machine.Find(handle, CurrentDevice());
    if (stream == nullptr || function == nullptr) {
      return stream == nullptr ? cudaErrorInvalidResourceHandle
                               : cudaErrorInvalidValue;
    }
    return machine.Enqueue(stream, [function, data] {
      weir_emulator::RunUnlocked([function, data] { function(data); });
    });
  });
}

// ------------------------------------------------------------------ events

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return Call(__func__, [=](Machine& machine) {
    *event = new CUevent_st;
    (*event)->device = CurrentDevice();
    (*event)->timing = (flags & cudaEventDisableTiming) == 0;
    machine.events.insert(*event);
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return Call(__func__, [=](Machine& machine) {
    if (machine.events.erase(event) == 0) {
      return cudaErrorInvalidResourceHandle;
    }
    delete event;
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  return Call(__func__, [=](Machine& machine) {
    CUstream_st* const stream = machine.Find(handle, CurrentDevice());
    if (stream == nullptr || machine.events.count(event) == 0 ||
        stream->device != event->device) {
      return cudaErrorInvalidResourceHandle;
    }
    return machine.Record(stream, event);
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return Call(__func__, [=](Machine& machine) {
    const cudaError_t error = weir_emulator::RefuseCaptured(machine, event);
    if (error != cudaSuccess || event->record == nullptr) {
      return error;
    }
    const weir_emulator::OperationPtr record = event->record;
    machine.RunSome();
    return Machine::Done({record}) ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return Call(__func__, [=](Machine& machine) {
    const cudaError_t error = weir_emulator::RefuseCaptured(machine, event);
    if (error == cudaSuccess && event->record != nullptr) {
      machine.RunUntil({event->record});
    }
    return error;
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start,
                                 cudaEvent_t end) {
  return Call(__func__, [=](Machine& machine) {
    for (const cudaEvent_t event : {start, end}) {
      if (machine.events.count(event) == 0 || !event->timing ||
          event->record == nullptr || event->device != start->device) {
        return cudaErrorInvalidResourceHandle;
      }
    }
    if (!Machine::Done({start->record, end->record})) {
      return cudaErrorNotReady;
    }
    *milliseconds =
        static_cast<float>(1e-6 * static_cast<double>(end->record->done_ns -
                                                      start->record->done_ns));
    return cudaSuccess;
  });
}

// ------------------------------------------------------------------ graphs

cudaError_t cudaStreamBeginCapture(cudaStream_t handle,
                                   cudaStreamCaptureMode mode) {
  return Call(__func__, [=](Machine& machine) {
    CUstream_st* const stream = machine.Find(handle, CurrentDevice());
    return stream == nullptr ? cudaErrorInvalidResourceHandle
                             : machine.BeginCapture(stream, mode);
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  return Call(__func__, [=](Machine& machine) {
    CUstream_st* const stream = machine.Find(handle, CurrentDevice());
    return stream == nullptr ? cudaErrorInvalidResourceHandle
                             : machine.EndCapture(stream, graph);
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle,
                                  cudaStreamCaptureStatus* status) {
  return Call(__func__, [=](Machine& machine) {
    CUstream_st* const stream = machine.Find(handle, CurrentDevice());
    if (stream == nullptr) {
      return cudaErrorInvalidResourceHandle;
    }
    if (stream->capture == nullptr) {
      *status = cudaStreamCaptureStatusNone;
    } else if (stream->capture->valid) {
      *status = cudaStreamCaptureStatusActive;
    } else {
      *status = cudaStreamCaptureStatusInvalidated;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long) {  // NOLINT: CUDA's type
  return Call(__func__, [=](Machine& machine) {
    if (machine.graphs.count(graph) == 0) {
      return cudaErrorInvalidValue;
    }
    *exec = new CUgraphExec_st;
    (*exec)->nodes =
        std::make_shared<const std::vector<weir_emulator::Node>>(graph->nodes);
    machine.graph_execs.insert(*exec);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
  return Call(__func__, [=](Machine& machine) {
    CUstream_st* const stream = machine.Find(handle, CurrentDevice());
    if (stream == nullptr || machine.graph_execs.count(exec) == 0) {
      return stream == nullptr ? cudaErrorInvalidResourceHandle
                               : cudaErrorInvalidValue;
    }
    return machine.Enqueue(
        stream, [&machine, nodes = exec->nodes] { machine.RunNodes(*nodes); });
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return Call(__func__, [=](Machine& machine) {
    if (machine.graphs.erase(graph) == 0) {
      return cudaErrorInvalidValue;
    }
    delete graph;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return Call(__func__, [=](Machine& machine) {
    if (machine.graph_execs.erase(exec) == 0) {
      return cudaErrorInvalidValue;
    }
    delete exec;
    return cudaSuccess;
  });
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
