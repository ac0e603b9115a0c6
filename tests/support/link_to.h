// A ControlLink before another one, for tests that must be between two calls.
#ifndef TESTS_SUPPORT_LINK_TO_H_
#define TESTS_SUPPORT_LINK_TO_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "client/cc/transport/transport.h"

namespace weir {

class LinkTo : public ControlLink {
 public:
  // Each may be empty.
  struct Hooks {
    std::function<void()> before_set_slots;
    // Called after the call took effect; an error takes the place of its
    // answer.
    std::function<absl::Status()> after_declare;
    // Called in place of the call, with the bytes of all its chunks.
    std::function<absl::Status(Timeout timeout, size_t bytes)> assign;
  };

  LinkTo(std::unique_ptr<ControlLink> link, Hooks hooks)
      : link_(std::move(link)), hooks_(std::move(hooks)) {}

  const std::string& address() const override { return link_->address(); }
  absl::StatusOr<AssignReply> Assign(
      Timeout timeout, const ChunkSource<AssignChunk>& next) override {
    if (!hooks_.assign) {
      return link_->Assign(timeout, next);
    }
    size_t bytes = 0;
    AssignChunk header;
    std::span<const char> payload;
    while (next(&header, &payload)) {
      bytes += payload.size();
    }
    const absl::Status status = hooks_.assign(timeout, bytes);
    return status.ok() ? absl::StatusOr<AssignReply>(AssignReply()) : status;
  }
  absl::StatusOr<HelloReply> Hello(Timeout timeout) override {
    return link_->Hello(timeout);
  }
  absl::StatusOr<DeclareReply> Declare(const DeclareRequest& request,
                                       Timeout timeout) override {
    auto reply = link_->Declare(request, timeout);
    const absl::Status status =
        hooks_.after_declare ? hooks_.after_declare() : absl::OkStatus();
    return status.ok() ? reply : status;
  }
  absl::StatusOr<DeclareReply> Restore(const RestoreRequest& request,
                                       Timeout timeout) override {
    return link_->Restore(request, timeout);
  }
  absl::Status SetSlots(const SetSlotsRequest& request,
                        Timeout timeout) override {
    if (hooks_.before_set_slots) {
      hooks_.before_set_slots();
    }
    return link_->SetSlots(request, timeout);
  }
  absl::Status Snapshot(
      const SnapshotRequest& request, Timeout timeout,
      const std::function<void(const SnapshotReply&)>& reply) override {
    return link_->Snapshot(request, timeout, reply);
  }
  absl::StatusOr<PsStatus> GetStatus(const GetStatusRequest& request,
                                     Timeout timeout) override {
    return link_->GetStatus(request, timeout);
  }
  absl::StatusOr<ShrinkReply> Shrink(const ShrinkRequest& request,
                                     Timeout timeout) override {
    return link_->Shrink(request, timeout);
  }
  absl::Status Shutdown(const ShutdownRequest& request,
                        Timeout timeout) override {
    return link_->Shutdown(request, timeout);
  }

 private:
  const std::unique_ptr<ControlLink> link_;
  const Hooks hooks_;
};

}  // namespace weir

#endif  // TESTS_SUPPORT_LINK_TO_H_
