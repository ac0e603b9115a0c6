// A ControlLink without a shard: it counts calls, answers what a test says, and
// keeps what is assigned.
//
// Threads: safe once the statuses are set.
#ifndef TESTS_SERVER_CHIEF_SCRIPTED_LINK_H_
#define TESTS_SERVER_CHIEF_SCRIPTED_LINK_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/cc/transport/transport.h"
#include "common/base/mutex.h"

namespace weir {

class ScriptedLink : public ControlLink {
 public:
  struct Assigned {
    AssignChunk header;
    std::vector<float> values;
  };

  // The next calls of any kind end with these statuses, then all with OK.
  void EndWith(std::deque<absl::Status> statuses) {
    MutexLock lock(&mutex_);
    statuses_ = std::move(statuses);
  }
  // Snapshot does not return before Release().
  void HoldSnapshots() {
    MutexLock lock(&mutex_);
    held_ = true;
  }
  void Release() {
    MutexLock lock(&mutex_);
    held_ = false;
    changed_.NotifyAll();
  }
  // The calls so far, by name, in order.
  std::vector<std::string> calls() const {
    MutexLock lock(&mutex_);
    return calls_;
  }
  // What was assigned by the calls that ended well.
  std::vector<Assigned> assigned() const {
    MutexLock lock(&mutex_);
    return assigned_;
  }

  const std::string& address() const override { return address_; }

  absl::StatusOr<HelloReply> Hello(Timeout) override {
    return Answer<HelloReply>("Hello");
  }
  absl::StatusOr<PsStatus> GetStatus(const GetStatusRequest&,
                                     Timeout) override {
    return Answer<PsStatus>("GetStatus");
  }
  absl::StatusOr<DeclareReply> Declare(const DeclareRequest&,
                                       Timeout) override {
    return Answer<DeclareReply>("Declare");
  }
  absl::StatusOr<DeclareReply> Restore(const RestoreRequest&,
                                       Timeout) override {
    return Answer<DeclareReply>("Restore");
  }
  absl::Status SetSlots(const SetSlotsRequest&, Timeout) override {
    return Next("SetSlots");
  }
  absl::Status Shutdown(const ShutdownRequest&, Timeout) override {
    return Next("Shutdown");
  }
  absl::Status Snapshot(
      const SnapshotRequest&, Timeout,
      const std::function<void(const SnapshotReply&)>& reply) override {
    const absl::Status status = Next("Snapshot");
    {
      MutexLock lock(&mutex_);
      while (held_) {
        changed_.Wait(&mutex_);
      }
    }
    if (status.ok()) {
      SnapshotReply frozen;
      frozen.set_frozen(true);
      reply(frozen);
      SnapshotReply written;
      written.mutable_file()->set_name("shard-0");
      reply(written);
    }
    return status;
  }
  absl::StatusOr<AssignReply> Assign(
      Timeout, const ChunkSource<AssignChunk>& next) override {
    std::vector<Assigned> chunks;
    AssignChunk header;
    std::span<const char> payload;
    while (next(&header, &payload)) {
      const auto* values = reinterpret_cast<const float*>(payload.data());
      chunks.push_back(
          {header, {values, values + payload.size() / sizeof(float)}});
    }
    const absl::Status status = Next("Assign");
    if (!status.ok()) {
      return status;
    }
    MutexLock lock(&mutex_);
    assigned_.insert(assigned_.end(), chunks.begin(), chunks.end());
    return AssignReply();
  }

  // The chief does not call it.
  absl::StatusOr<ShrinkReply> Shrink(const ShrinkRequest&, Timeout) override {
    return absl::UnimplementedError("Shrink");
  }

 private:
  absl::Status Next(const std::string& name) {
    MutexLock lock(&mutex_);
    calls_.push_back(name);
    if (statuses_.empty()) {
      return absl::OkStatus();
    }
    const absl::Status status = statuses_.front();
    statuses_.pop_front();
    return status;
  }

  template <typename Reply>
  absl::StatusOr<Reply> Answer(const std::string& name) {
    const absl::Status status = Next(name);
    if (!status.ok()) {
      return status;
    }
    return Reply();
  }

  const std::string address_ = "scripted:1";
  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<absl::Status> statuses_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> calls_ ABSL_GUARDED_BY(mutex_);
  std::vector<Assigned> assigned_ ABSL_GUARDED_BY(mutex_);
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace weir

#endif  // TESTS_SERVER_CHIEF_SCRIPTED_LINK_H_
