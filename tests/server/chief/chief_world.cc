#include "tests/server/chief/chief_world.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "google/protobuf/text_format.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "proto/wire/applied_work.h"
#include "proto/wire/layout_io.h"
#include "server/chief/checkpoint/checkpoint_committer.h"
#include "tests/server/chief/progress_of.h"

namespace weir {

namespace {

// How many of 0 .. total - 1 are `slot` modulo `count`.
uint64_t Share(uint64_t total, uint64_t slot, uint64_t count) {
  if (total <= slot) {
    return 0;
  }
  return (total - slot + count - 1) / count;
}

}  // namespace

JobSpec SmallSpec() {
  JobSpec spec;
  const bool ok = google::protobuf::TextFormat::ParseFromString(
      R"(name: "small" seed: 1
         train { batch_size: 10 steps: 20 log_every_steps: 5 }
         optimizer { sgd {} } schedule { learning_rate: 0.1 }
         update { async {} }
         limits { block_elements: 16 lost_after_seconds: 10 })",
      &spec);
  return ok ? spec : JobSpec();
}

ChiefWorld::ChiefWorld(int shard_count, int worker_count, JobSpec spec,
                       uint64_t seed)
    : shards(shard_count), calls_(shard_count) {
  if (seed != 0) {
    random_.emplace(seed);
  }
  options.spec = std::move(spec);
  for (int s = 0; s < shard_count; ++s) {
    options.ps_addresses.push_back(absl::StrCat("host", s, ":1"));
    shards[s].incarnation = 1000 + s;
  }
  options.worker_count = worker_count;
  options.cluster_fingerprint = 77;
  options.checkpoint_directory = "/disk";
  options.chief_secret = "the directory's";
  options.clock = &clock;
  options.random = [this] { return ++next_random_; };
}

void ChiefWorld::StartChief(bool resume) {
  options.resume = resume;
  for (auto& calls : calls_) {
    calls.clear();
  }
  others_.clear();
  finished.reset();
  options.newest.reset();
  if (const std::string name = Newest(); !name.empty()) {
    options.newest = disk[name];
    options.newest_finished = options.sdk_job && name == marked_finished;
  }
  chief_ = std::make_unique<JobState>(options);
  chief_->Start();
  Take();
}

std::string ChiefWorld::Newest() const {
  std::string newest;
  for (const auto& [name, manifest] : disk) {
    if (newest.empty() ||
        *ParseCheckpointName(newest) < *ParseCheckpointName(name)) {
      newest = name;
    }
  }
  return newest;
}

void ChiefWorld::LoseShards() {
  for (Shard& shard : shards) {
    const uint64_t incarnation = shard.incarnation + 1000;
    shard = {};
    shard.incarnation = incarnation;
  }
  workers.clear();
}

void ChiefWorld::Take() {
  for (Action& action : chief_->TakeActions()) {
    if (auto* call = std::get_if<ShardCall>(&action)) {
      calls_[call->shard].push_back(std::move(*call));
    } else {
      others_.push_back(std::move(action));
    }
  }
}

void ChiefWorld::AnswerNext(int s) {
  const ShardCall call = calls_[s].front();
  calls_[s].pop_front();
  Call(call);
  Take();
}

void ChiefWorld::Settle() {
  // While no time passes the chief runs out of things to do, soon.
  constexpr int kActionsMax = 100000;
  for (int i = 0;; ++i) {
    WEIR_CHECK(i < kActionsMax);
    std::vector<int> ready;
    for (size_t s = 0; s < calls_.size(); ++s) {
      if (!calls_[s].empty()) {
        ready.push_back(static_cast<int>(s));
      }
    }
    if (!others_.empty()) {
      ready.push_back(-1);
    }
    if (ready.empty()) {
      return;
    }
    const int pick =
        random_.has_value()
            ? ready[random_->NextBelow(static_cast<uint32_t>(ready.size()))]
            : ready.back();
    if (pick < 0) {
      const Action action = others_.front();
      others_.pop_front();
      Run(action);
    } else {
      const ShardCall call = calls_[pick].front();
      calls_[pick].pop_front();
      Call(call);
    }
    Take();
  }
}

void ChiefWorld::Run(double seconds) {
  for (double t = 0.0; t < seconds; t += 0.05) {
    clock.Advance(std::chrono::milliseconds(50));
    chief_->OnTick();
    Take();
    Settle();
    CheckSnapshots();
    Settle();
    for (auto& [w, worker] : workers) {
      if (worker.finished) {
        LeaveIfStopped(w);
      }
    }
  }
}

void ChiefWorld::LeaveIfStopped(int w) {
  Worker& worker = workers[w];
  if (worker.stop.has_value() && worker.stream != 0) {
    Beat(w).IgnoreError();
    chief_->OnStreamLost(worker.stream);
    worker.stream = 0;
    Take();
  }
}

HelloReply ChiefWorld::Hello(int s) const {
  const Shard& shard = shards[s];
  HelloReply reply;
  reply.set_incarnation(shard.incarnation);
  reply.set_state(shard.state);
  reply.set_keeps_checkpoints(!shard.without_root);
  if (shard.state == EMPTY) {
    return reply;
  }
  reply.set_leaving(shard.leaving);
  reply.set_job(shard.declaration.job());
  reply.set_history(shard.declaration.history());
  reply.set_shard(static_cast<uint32_t>(s));
  reply.set_shard_count(shard.declaration.shard_count());
  for (const auto& [slot, generation] : shard.generation) {
    SlotStatus* status = reply.add_slot();
    status->set_slot(static_cast<uint32_t>(slot));
    status->set_generation(generation);
    const auto retired = shard.retired.find(slot);
    status->set_retired(retired != shard.retired.end() && retired->second);
    const auto next = shard.next.find(slot);
    const uint64_t sequence = next == shard.next.end() ? 0 : next->second;
    status->set_next_sequence_min(sequence);
    status->set_next_sequence_max(sequence);
  }
  return reply;
}

uint64_t ChiefWorld::ContributionsPerStep(const Shard& shard,
                                          uint32_t slot) const {
  const uint32_t n = shard.declaration.update().sync().contributions();
  const uint32_t count = shard.declaration.slot_count();
  return (n - slot + count - 1) / count;
}

uint64_t ChiefWorld::Version(const Shard& shard) const {
  const uint32_t n = shard.declaration.update().sync().contributions();
  uint64_t steps = UINT64_MAX;
  uint64_t most = 0;
  for (uint32_t w = 0; w < shard.declaration.slot_count() && w < n; ++w) {
    const uint64_t per_step = ContributionsPerStep(shard, w);
    const auto next = shard.next.find(static_cast<int>(w));
    const uint64_t done =
        next == shard.next.end() ? 0 : next->second / per_step;
    most = std::max(most, done);
    const auto retired = shard.retired.find(static_cast<int>(w));
    if (retired == shard.retired.end() || !retired->second) {
      steps = std::min(steps, done);
    }
  }
  return shard.declaration.base_version() +
         (steps == UINT64_MAX ? most : steps);
}

void ChiefWorld::Activate(int s, const SetSlotsRequest& request) {
  Shard& shard = shards[s];
  if (shard.down) {
    chief_->OnSlotsSet(s, absl::UnavailableError("connection refused"));
    return;
  }
  if (shard.state == EMPTY) {
    chief_->OnSlotsSet(s, absl::FailedPreconditionError("empty"));
    return;
  }
  if (request.sender().history() != shard.declaration.history()) {
    chief_->OnSlotsSet(s, absl::PermissionDeniedError("another history"));
    return;
  }
  for (const auto& slot : request.slot()) {
    const auto it = shard.generation.find(static_cast<int>(slot.slot()));
    if (it != shard.generation.end() && slot.generation() < it->second) {
      chief_->OnSlotsSet(s, absl::PermissionDeniedError("older generation"));
      return;
    }
  }
  shard.state = ACTIVE;
  for (const auto& slot : request.slot()) {
    uint32_t& generation = shard.generation[static_cast<int>(slot.slot())];
    bool& retired = shard.retired[static_cast<int>(slot.slot())];
    retired = slot.retired() || (retired && slot.generation() == generation);
    generation = std::max(generation, slot.generation());
    shard.process[static_cast<int>(slot.slot())] = slot.process();
  }
  // The step under way is published without the contributions that the retired
  // slots did not make.
  const uint32_t n = shard.declaration.update().sync().contributions();
  const uint64_t steps =
      n == 0 ? 0 : Version(shard) - shard.declaration.base_version();
  for (uint32_t w = 0; w < shard.declaration.slot_count() && w < n; ++w) {
    if (shard.retired[static_cast<int>(w)]) {
      uint64_t& next = shard.next[static_cast<int>(w)];
      next = std::max(next, steps * ContributionsPerStep(shard, w));
    }
  }
  chief_->OnSlotsSet(s, absl::OkStatus());
}

void ChiefWorld::Snapshot(int s, const SnapshotRequest& request) {
  Shard& shard = shards[s];
  if (!shard.snapshot_name.empty()) {
    chief_->OnWritten(s, shard.snapshot_name,
                      absl::AbortedError("a newer snapshot took its place"));
    shard.snapshot_name.clear();
  }
  if (request.sender().history() != shard.declaration.history()) {
    chief_->OnWritten(s, request.checkpoint(),
                      absl::PermissionDeniedError("another history"));
    return;
  }
  if (request.has_version()) {
    if (Version(shard) > request.version() + (shard.keeps_previous ? 1 : 0)) {
      chief_->OnWritten(s, request.checkpoint(),
                        absl::OutOfRangeError("past it"));
      return;
    }
    shard.snapshot_version = request.version();
  }
  shard.snapshot_name = request.checkpoint();
  shard.frozen = false;
}

void ChiefWorld::CheckSnapshots() {
  for (size_t s = 0; s < shards.size(); ++s) {
    Shard& shard = shards[s];
    if (shard.snapshot_name.empty() || (no_freeze && !shard.frozen)) {
      continue;
    }
    if (shard.snapshot_version.has_value() &&
        Version(shard) < *shard.snapshot_version) {
      continue;
    }
    const int index = static_cast<int>(s);
    const std::string directory = shard.snapshot_name;
    if (!std::exchange(shard.frozen, true)) {
      SnapshotReply frozen;
      frozen.set_frozen(true);
      *frozen.mutable_slot() = Hello(index).slot();
      chief_->checkpoint().OnFrozen(index, directory, frozen);
      Take();
    }
    if (no_write) {
      continue;
    }
    shard.snapshot_name.clear();
    shard.snapshot_version.reset();
    shard.frozen = false;
    if (!write_error.ok()) {
      chief_->OnWritten(index, directory, write_error);
    } else {
      ShardFile file;
      file.set_shard(static_cast<uint32_t>(s));
      file.set_name(absl::StrCat("shard-", s));
      chief_->OnWritten(index, directory, file);
    }
    Take();
  }
}

void ChiefWorld::Call(const ShardCall& call) {
  const int s = call.shard;
  Shard& shard = shards[s];
  const absl::Status down = absl::UnavailableError("connection refused");
  if (std::holds_alternative<HelloCall>(call.request)) {
    chief_->OnHello(s, shard.down ? absl::StatusOr<HelloReply>(down)
                                  : absl::StatusOr<HelloReply>(Hello(s)));
  } else if (std::holds_alternative<StatusCall>(call.request)) {
    PsStatus status;
    *status.mutable_hello() = Hello(s);
    *status.mutable_declaration() = shard.declaration;
    chief_->start().OnStatus(s, status);
  } else if (const auto* declare = std::get_if<DeclareRequest>(&call.request)) {
    ++shard.declares;
    DeclareReply reply;
    reply.set_incarnation(shard.incarnation);
    if (shard.state == ACTIVE) {
      chief_->start().OnDeclared(s, absl::PermissionDeniedError("ACTIVE"));
      return;
    }
    shard.state = LOADED;
    shard.declaration = declare->declaration();
    shard.secret = declare->chief_secret();
    reply.set_layout_fingerprint(
        LayoutFromDeclaration(shard.declaration)->fingerprint());
    chief_->start().OnDeclared(s, reply);
  } else if (const auto* restore = std::get_if<RestoreRequest>(&call.request)) {
    if (shard.state == ACTIVE &&
        restore->seen_history() != shard.declaration.history()) {
      chief_->start().OnDeclared(
          s, absl::PermissionDeniedError("another history"));
      return;
    }
    ++shard.restores;
    shard.state = LOADED;
    shard.declaration = restore->declaration();
    shard.secret = restore->chief_secret();
    shard.generation.clear();
    shard.retired.clear();
    shard.next.clear();
    DeclareReply reply;
    reply.set_incarnation(shard.incarnation);
    reply.set_layout_fingerprint(
        LayoutFromDeclaration(shard.declaration)->fingerprint());
    chief_->start().OnDeclared(s, reply);
  } else if (std::holds_alternative<AssignCall>(call.request)) {
    chief_->start().OnAssigned(s, absl::OkStatus());
  } else if (const auto* set = std::get_if<SetSlotsRequest>(&call.request)) {
    Activate(s, *set);
  } else if (const auto* snap = std::get_if<SnapshotRequest>(&call.request)) {
    Snapshot(s, *snap);
  } else if (const auto* end = std::get_if<ShutdownRequest>(&call.request)) {
    absl::Status status;
    if (shard.down) {
      status = absl::UnavailableError("nobody is there");
    } else if (shard.state == EMPTY && end->sender().history() != 0) {
      status = absl::FailedPreconditionError("no shard is here");
    } else {
      shard.shut_down =
          shard.state == EMPTY || end->chief_secret() == shard.secret;
      shard.shutdown_code = static_cast<absl::StatusCode>(end->code());
    }
    chief_->end().OnShutdown(s, status);
  }
}

void ChiefWorld::Run(const Action& action) {
  if (const auto* line = std::get_if<LogLine>(&action)) {
    log.push_back(line->text);
  } else if (const auto* train = std::get_if<AppendTrainLog>(&action)) {
    lines.push_back(train->line);
  } else if (const auto* spread = std::get_if<AppendHistograms>(&action)) {
    histograms.push_back(*spread);
  } else if (std::holds_alternative<FindCheckpoint>(action)) {
    std::optional<FoundCheckpoint> found;
    if (const std::string name = Newest(); !name.empty()) {
      found = FoundCheckpoint{"/disk/" + name, disk[name]};
    }
    chief_->start().OnCheckpointFound(
        damaged ? absl::StatusOr<std::optional<FoundCheckpoint>>(
                      absl::DataLossError("/disk/ckpt-9 is damaged"))
                : absl::StatusOr<std::optional<FoundCheckpoint>>(found));
  } else if (const auto* prepare = std::get_if<PrepareCheckpoint>(&action)) {
    const std::string name = NextCheckpointName(directories, prepare->step);
    if (disk.erase(name) > 0) {
      log.push_back(name + " was removed before its successor was there");
    }
    directories.push_back(name);
    chief_->checkpoint().OnPrepared(name);
  } else if (const auto* commit = std::get_if<CommitCheckpoint>(&action)) {
    if (commit_error.ok() || manifest_stays) {
      disk[commit->manifest.name()] = commit->manifest;
    }
    chief_->checkpoint().OnCommitted(commit_error);
  } else if (std::holds_alternative<CutTrainLog>(action)) {
    if (!no_cut) {
      chief_->OnTrainLogCut();
    }
  } else if (const auto* write = std::get_if<WriteDone>(&action)) {
    if (done_error.ok()) {
      done = write->checkpoint;
      marked_finished = done;
    }
    chief_->end().OnDoneWritten(done_error);
  } else if (std::holds_alternative<LookForDone>(action)) {
    chief_->end().OnLooked(done.empty() ? absl::NotFoundError("no DONE")
                                        : absl::OkStatus());
  } else if (std::holds_alternative<RemoveDone>(action)) {
    done.clear();
  } else if (const auto* finish = std::get_if<Finish>(&action)) {
    if (finished.has_value()) {
      log.push_back("finished twice");
    }
    finished = finish->status;
  } else if (const auto* send = std::get_if<SendCommand>(&action)) {
    Deliver(*send);
  } else if (const auto* end = std::get_if<EndStream>(&action)) {
    for (auto& [w, worker] : workers) {
      if (worker.stream == end->stream) {
        worker.stream = 0;
        worker.error = end->status;
      }
    }
  }
}

void ChiefWorld::Deliver(const SendCommand& send) {
  for (auto& [w, worker] : workers) {
    if (worker.stream != send.stream) {
      continue;
    }
    if (send.command.has_stop()) {
      worker.stop = send.command.stop();
    } else if (send.command.has_take_slot()) {
      worker.take = static_cast<int>(send.command.take_slot());
    } else {
      worker.held = send.command.hold();
      holds += worker.held ? 1 : 0;
    }
  }
}

void ChiefWorld::Register(int w) {
  Worker& worker = workers[w];
  worker.request.set_rank(static_cast<uint32_t>(w));
  worker.request.set_process(worker.process);
  if (worker.request.host().empty()) {
    worker.request.set_host(absl::StrCat("node", worker.process));
    worker.request.set_cluster_fingerprint(77);
  }
  if (options.sdk_job) {
    *worker.request.mutable_declaration() = sdk_job;
  } else if (worker.request.variable_size() == 0) {
    *worker.request.mutable_job_spec() = options.spec;
    worker.request.set_sample_count(100);
    Variable* variable = worker.request.add_variable();
    variable->set_name("w");
    variable->add_shape(200);
  }
  const absl::StatusOr<RegisterReply> reply =
      chief_->OnRegister(worker.request);
  Take();
  worker.error = reply.status();
  if (reply.ok() && reply->has_assign()) {
    worker.request.set_assigned_history(reply->assign().history());
    for (Shard& shard : shards) {
      shard.assigned = shard.state == LOADED &&
                       shard.declaration.history() == reply->assign().history();
    }
  }
  if (reply.ok() && reply->has_over()) {
    worker.stop = reply->over();
  }
  if (!reply.ok() || !reply->has_grant()) {
    return;
  }
  worker.grant = reply->grant();
  const Grant& grant = *worker.grant;
  grants[{grant.sender().slot(), grant.sender().generation()}].insert(
      worker.process);
  worker.next = std::max(worker.next, grant.next_sequence());
  worker.stream = next_stream_++;
}

ChiefWorld::Worker& ChiefWorld::Join(int w) {
  Worker fresh;
  fresh.request = workers[w].request;
  fresh.request.clear_host();
  fresh.request.clear_variable();
  fresh.process = 1 + ++next_random_;
  workers[w] = fresh;
  for (int i = 0; i < 100; ++i) {
    Register(w);
    if (workers[w].grant.has_value() || workers[w].stop.has_value() ||
        !workers[w].error.ok()) {
      break;
    }
    Run(0.05);
  }
  return workers[w];
}

void ChiefWorld::Retire(int w) {
  Worker& worker = workers[w];
  for (Shard& shard : shards) {
    shard.retired[w] = true;
  }
  worker.finished = true;
  Beat(w).IgnoreError();
  Run(2);  // a Hello to each shard is due
}

absl::Status ChiefWorld::Beat(int w, bool bad) {
  Worker& worker = workers[w];
  const Grant& grant = *worker.grant;
  Progress progress = ProgressOf(grant);
  progress.set_slot(static_cast<uint32_t>(w));
  progress.set_next_sequence(worker.next);
  progress.set_holding(worker.held);
  progress.set_bytes_moved(worker.bytes_moved);
  progress.set_ending(worker.stop.has_value());
  progress.set_out_of_work(
      worker.finished ||
      (worker.contributions > 0 && worker.next >= worker.contributions));
  if (bad) {
    progress.add_report()->set_bad(true);
    progress.mutable_report(0)->set_bad_variable("w");
    progress.mutable_report(0)->set_contribution(3);
  }
  const absl::Status status = chief_->OnProgress(worker.stream, progress);
  Take();
  Settle();
  return status;
}

void ChiefWorld::DoContribution(int w, bool torn) {
  Worker& worker = workers[w];
  for (Shard& shard : shards) {
    uint64_t& next = shard.next[w];
    next = std::max(next, worker.next + 1);
    if (torn) {
      return;
    }
  }
  ++worker.next;
}

void ChiefWorld::Work(int ticks_max) {
  for (int tick = 0; tick < ticks_max && !finished.has_value(); ++tick) {
    for (auto& [w, worker] : workers) {
      LeaveIfStopped(w);
      if (worker.take.has_value() && !takes_no_slot) {
        const int slot = *worker.take;
        chief_->OnStreamLost(worker.stream);
        worker = {};
        Take();
        Join(slot);
        continue;
      }
      if (!worker.grant.has_value() || worker.stream == 0) {
        continue;
      }
      const Grant& grant = *worker.grant;
      const auto left = static_cast<uint64_t>(
          ContributionList::Create(
              AppliedIn(grant),
              static_cast<int64_t>(grant.contribution_count()))
              ->remaining_count());
      const uint64_t n = grant.contributions_per_step();
      const uint64_t count = grant.slot_count();
      const auto slot = static_cast<uint64_t>(w);
      if (n > 0) {
        worker.contributions =
            (left + n - 1) / n * Share(n, slot, count);  // steps, rounded up
      } else {
        worker.contributions = Share(left, slot, count);
      }
      // In sync a contribution is computed from the version before its step.
      bool has_version = true;
      for (const Shard& shard : shards) {
        has_version =
            has_version &&
            (n == 0 ||
             grant.base_version() +
                     worker.next / std::max<uint64_t>(
                                       ContributionsPerStep(shard, slot), 1) <=
                 Version(shard));
      }
      if (!worker.held && has_version && worker.next < worker.contributions) {
        DoContribution(w);
      }
      Beat(w).IgnoreError();
    }
    Run(0.05);
  }
}

bool ChiefWorld::Logged(const std::string& text) const {
  return std::any_of(log.begin(), log.end(), [&](const std::string& line) {
    return absl::StrContains(line, text);
  });
}

}  // namespace weir
