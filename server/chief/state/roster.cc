#include "server/chief/state/roster.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/limits.h"
#include "common/base/plant.h"

namespace weir {
namespace {

absl::Status Replaced(uint32_t slot, const std::string& host) {
  return absl::PermissionDeniedError(
      absl::StrCat("worker ", slot, " was replaced by a newer process",
                   host.empty() ? "" : " on ", host, "; this one must end"));
}

bool WasReplaced(const Roster::Worker& worker, uint64_t process) {
  return std::find(worker.replaced.begin(), worker.replaced.end(), process) !=
         worker.replaced.end();
}

void RememberReplaced(Roster::Worker* worker, uint64_t process) {
  if (worker->replaced.size() == kReplacedMax) {
    worker->replaced.pop_front();
  }
  worker->replaced.push_back(process);
}

}  // namespace

bool IsSubstitute(const RegisterRequest& request) {
  return request.offer_high() != 0 || request.offer_low() != 0;
}

Roster::Roster(int count, int64_t now_ns) : workers_(count) {
  for (Worker& worker : workers_) {
    worker.absent_since_ns = now_ns;
  }
}

void Roster::SetGeneration(int slot, uint32_t generation) {
  workers_[slot].generation = std::max(workers_[slot].generation, generation);
}

absl::StatusOr<bool> Roster::Register(const RegisterRequest& request,
                                      bool same_history, uint64_t next_sequence,
                                      int64_t now_ns, uint64_t* ended) {
  *ended = 0;
  Worker& worker = workers_[request.rank()];
  // I3, for processes that this chief saw itself.
  if (WasReplaced(worker, request.process())) {
    return Replaced(request.rank(), worker.host);
  }
  if (worker.process == request.process()) {
    // It polls for its grant, or lost its stream and asks again (I2).
    return worker.state == Worker::State::kGranted;
  }
  if (worker.process == 0 && same_history && worker.generation > 0 &&
      request.held_generation() == worker.generation) {
    // This chief was restarted and the worker goes on. The shards know its
    // generation, so there was a round (I2), and its contribution in flight
    // stays good. What the marks count was reported to the chief before.
    worker.process = request.process();
    worker.host = request.host();
    worker.state = Worker::State::kGranted;
    worker.granted_sequence = worker.next_sequence = worker.reported =
        next_sequence;
    return true;
  }
  if (same_history && request.held_generation() != 0 &&
      request.held_generation() < worker.generation && !worker.substitute &&
      !Planted("roster.replaced_comes_back")) {
    // I3: it was replaced before this chief was started. Only the generation
    // that the shards know still tells.
    RememberReplaced(&worker, request.process());
    return Replaced(request.rank(), worker.host);
  }
  const bool substitute = IsSubstitute(request);
  if (worker.process != 0) {
    if (!substitute) {
      RememberReplaced(&worker, worker.process);
    }
    *ended = worker.stream;
    Disconnect(&worker, now_ns);
  }
  // I1: one more than any generation that this chief granted or that a shard
  // has seen, for this process alone.
  worker.process = request.process();
  worker.host = request.host();
  worker.substitute = substitute;
  worker.told = false;
  worker.heard_ns = 0;
  worker.message_number = 0;
  ++worker.generation;
  worker.retired = false;  // only a new generation brings a slot back
  worker.state = Worker::State::kWanted;
  dirty_ = true;
  return false;
}

void Roster::SetRetired(int slot, bool retired) {
  if (workers_[slot].retired != retired) {
    workers_[slot].retired = retired;
    dirty_ = true;
  }
}

std::vector<SetSlotsRequest::Slot> Roster::BeginRound() {
  // A process that registers from here on waits for the next round: this one's
  // SetSlots does not carry its generation (I2).
  dirty_ = false;
  in_round_ = true;
  std::vector<SetSlotsRequest::Slot> slots;
  for (int w = 0; w < count(); ++w) {
    if (workers_[w].state == Worker::State::kWanted) {
      workers_[w].state = Worker::State::kInRound;
    }
    SetSlotsRequest::Slot slot;
    slot.set_slot(static_cast<uint32_t>(w));
    slot.set_generation(workers_[w].generation);
    slot.set_retired(workers_[w].retired);
    slot.set_process(workers_[w].process);
    slots.push_back(slot);
  }
  return slots;
}

uint64_t Roster::EndRound(const std::function<uint64_t(int)>& next_sequence,
                          int64_t now_ns) {
  in_round_ = false;
  uint64_t unreported = 0;
  for (int w = 0; w < count(); ++w) {
    Worker& worker = workers_[w];
    if (worker.state != Worker::State::kInRound) {
      continue;  // also kWanted: it was replaced again during the round
    }
    worker.state = Worker::State::kGranted;
    worker.granted_sequence = next_sequence(w);
    worker.next_sequence =
        std::max(worker.next_sequence, worker.granted_sequence);
    // The process before did these and can report no more: its generation is
    // fenced off.
    if (worker.reported < worker.granted_sequence) {
      unreported += worker.granted_sequence - worker.reported;
      worker.reported = worker.granted_sequence;
    }
    // The wait for its stream begins with the grant.
    worker.absent_since_ns = now_ns;
    worker.out_of_work = false;
  }
  return unreported;
}

absl::Status Roster::OnProgress(uint64_t stream, const Progress& progress,
                                int64_t now_ns, bool* fresh, uint64_t* ended,
                                int* repeated) {
  *fresh = false;
  *ended = 0;
  *repeated = 0;
  if (progress.slot() >= workers_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("heartbeat of worker ", progress.slot(), ": the job has ",
                     workers_.size(), " workers"));
  }
  Worker& worker = workers_[progress.slot()];
  if (worker.state != Worker::State::kGranted ||
      progress.generation() != worker.generation) {
    if (worker.process == 0 || worker.substitute) {
      // This chief was restarted and does not know the worker yet, or it is not
      // the one that finishes the worker's work (I3): the worker must not take
      // that for a replacement, which would end it.
      return absl::UnavailableError(absl::StrCat(
          "worker ", progress.slot(), " has no grant of this chief: register"));
    }
    return Replaced(progress.slot(), worker.host);
  }
  if (worker.stream != stream) {
    *fresh = true;
    *ended = worker.stream;
    worker.stream = stream;
  }
  if (*fresh) {
    worker.heard_before_ns = now_ns;  // its reports may be of any time
  } else {
    worker.heard_before_ns = worker.heard_ns;
  }
  worker.heard_ns = now_ns;
  worker.holding = progress.holding();
  worker.out_of_work = progress.out_of_work();
  worker.told = worker.told || progress.ending();
  worker.next_sequence =
      std::max(worker.next_sequence, progress.next_sequence());
  // Reports are of the newest contributions, in order: of those that are not
  // counted as reported yet, as many as there are from the back.
  const auto reports = static_cast<uint64_t>(progress.report_size());
  const uint64_t missing = progress.next_sequence() -
                           std::min(progress.next_sequence(), worker.reported);
  const uint64_t added = std::min(missing, reports);
  *repeated = static_cast<int>(reports - added);
  worker.reported += added;
  return absl::OkStatus();
}

void Roster::Disconnect(Worker* worker, int64_t now_ns) {
  worker->stream = 0;
  // A hold ends for a worker with the stream on which it came.
  worker->holding = false;
  worker->absent_since_ns = now_ns;
}

int Roster::OnStreamLost(uint64_t stream, int64_t now_ns) {
  for (int w = 0; w < count(); ++w) {
    if (stream != 0 && workers_[w].stream == stream) {
      Disconnect(&workers_[w], now_ns);
      return w;
    }
  }
  return -1;
}

std::vector<uint64_t> Roster::DropSilent(int64_t lost_after_ns,
                                         int64_t now_ns) {
  std::vector<uint64_t> dropped;
  for (Worker& worker : workers_) {
    if (worker.connected() && now_ns - worker.heard_ns > lost_after_ns) {
      dropped.push_back(worker.stream);
      Disconnect(&worker, now_ns);
    }
  }
  return dropped;
}

uint64_t Roster::ContributionsDone() const {
  uint64_t done = 0;
  for (const Worker& worker : workers_) {
    done += worker.next_sequence;
  }
  return done;
}

bool Roster::AllHold() const {
  return std::all_of(workers_.begin(), workers_.end(), [](const Worker& w) {
    return !w.connected() || w.holding || w.out_of_work;
  });
}

bool Roster::AnyConnected() const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [](const Worker& w) { return w.connected(); });
}

bool Roster::AllTold() const {
  return std::all_of(workers_.begin(), workers_.end(), [](const Worker& w) {
    return w.told || (w.generation == 0 && !w.asked);
  });
}

bool Roster::AllOutOfWork() const {
  return std::all_of(workers_.begin(), workers_.end(), [](const Worker& w) {
    return w.generation == 0 || w.out_of_work || (w.retired && !w.connected());
  });
}

std::vector<uint64_t> Roster::streams() const {
  std::vector<uint64_t> streams;
  for (const Worker& worker : workers_) {
    if (worker.connected()) {
      streams.push_back(worker.stream);
    }
  }
  return streams;
}

}  // namespace weir
