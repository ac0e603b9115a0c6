// A call of gRPC that writes the shard's part of a checkpoint: Snapshot.
//
// Place: parameter_service.cc listens for it. Replies arrive from the store on
//   any thread, maybe after the client has left.
//
// Threads: safe.
#ifndef SERVER_PS_SERVICE_SNAPSHOT_CALL_H_
#define SERVER_PS_SERVICE_SNAPSHOT_CALL_H_

#include <grpcpp/grpcpp.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "proto/ps.pb.h"
#include "proto/wire/grpc_status.h"
#include "server/ps/service/call_queue.h"
#include "server/ps/store/store.h"
#include "server/ps/store/work_thread.h"

namespace weir {

// `Service` has RequestSnapshot.
template <class Service>
class SnapshotCall
    : public std::enable_shared_from_this<SnapshotCall<Service>> {
 public:
  static void Listen(Service* service, Store* store, WorkThread* work,
                     CallQueue* queue) {
    auto call = std::make_shared<SnapshotCall>(service, store, work, queue);
    service->RequestSnapshot(&call->context_, &call->request_, &call->stream_,
                             queue->queue(), queue->queue(),
                             queue->Start(&call->on_call_, call));
  }

  SnapshotCall(Service* service, Store* store, WorkThread* work,
               CallQueue* queue)
      : service_(service),
        store_(store),
        work_(work),
        queue_(queue),
        stream_(&context_),
        on_call_([this](bool ok) { OnCall(ok); }),
        on_written_([this](bool) { OnWritten(); }),
        on_finished_([](bool) {}),
        on_call_done_([this](bool) { OnCallDone(); }) {
    context_.AsyncNotifyWhenDone(on_call_done_.tag());
  }

 private:
  void OnCall(bool ok) {
    if (!ok) {
      return;  // the server shuts down
    }
    Listen(service_, store_, work_, queue_);
    queue_->Start(&on_call_done_, this->shared_from_this());
    store_->Snapshot(
        request_,
        [call = this->shared_from_this()](absl::StatusOr<SnapshotReply> reply) {
          call->OnReply(std::move(reply));
        },
        [work = work_](std::function<void()> write) {
          work->Run(std::move(write));
        });
  }

  void OnReply(absl::StatusOr<SnapshotReply> reply) {
    {
      MutexLock lock(&mutex_);
      if (reply.ok()) {
        if (reply->has_file()) {
          final_ = absl::OkStatus();
        }
        replies_.push_back(*std::move(reply));
      } else {
        final_ = reply.status();
      }
    }
    WriteNext();
  }

  // Starts the next write, or the finish, if none is under way.
  void WriteNext() {
    const SnapshotReply* reply = nullptr;
    grpc::Status status;
    void* tag = nullptr;
    {
      MutexLock lock(&mutex_);
      if (writing_ || finish_started_ || client_gone_) {
        return;
      }
      if (!replies_.empty()) {
        writing_ = true;
        reply = &replies_.front();
        tag = queue_->Start(&on_written_, this->shared_from_this());
      } else if (final_.has_value()) {
        finish_started_ = true;
        status = ToGrpcStatus(*final_);
        tag = queue_->Start(&on_finished_, this->shared_from_this());
      } else {
        return;
      }
    }
    if (reply != nullptr) {
      stream_.Write(*reply, tag);
    } else {
      stream_.Finish(status, tag);
    }
  }

  void OnWritten() {
    {
      MutexLock lock(&mutex_);
      writing_ = false;
      replies_.pop_front();
    }
    WriteNext();
  }

  void OnCallDone() {
    MutexLock lock(&mutex_);
    client_gone_ = true;
  }

  Service* const service_;
  Store* const store_;
  WorkThread* const work_;
  CallQueue* const queue_;
  grpc::ServerContext context_;
  SnapshotRequest request_;
  grpc::ServerAsyncWriter<SnapshotReply> stream_;

  Mutex mutex_;
  std::deque<SnapshotReply> replies_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finish_started_ ABSL_GUARDED_BY(mutex_) = false;
  bool client_gone_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> final_ ABSL_GUARDED_BY(mutex_);

  CallOperation on_call_;
  CallOperation on_written_;
  CallOperation on_finished_;
  CallOperation on_call_done_;
};

}  // namespace weir

#endif  // SERVER_PS_SERVICE_SNAPSHOT_CALL_H_
