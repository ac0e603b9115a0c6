#include "tests/server/chief/chief_cluster.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/logging.h"
#include "common/base/status.h"
#include "common/job/contribution_list.h"
#include "google/protobuf/text_format.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "proto/wire/applied_work.h"
#include "proto/wire/layout_io.h"
#include "tests/server/chief/progress_of.h"
#include "tests/support/block_calls.h"

namespace weir {
namespace {

using std::chrono::milliseconds;

Variable MakeVariable(const std::string& name, int64_t elements) {
  Variable variable;
  variable.set_name(name);
  variable.add_shape(elements);
  return variable;
}

}  // namespace

JobSpec OnesSpec(uint64_t steps, uint32_t n_sync) {
  JobSpec spec;
  WEIR_CHECK(google::protobuf::TextFormat::ParseFromString(
      R"(name: "ones" seed: 1
         model { layer { name: "l" dense { units: 2 } }
                 loss { softmax_cross_entropy {} } }
         data { train { digits { count: 100 } } }
         train { batch_size: 10 log_every_steps: 10 }
         optimizer { sgd {} } schedule { learning_rate: 1 }
         checkpoint { keep: 3 }
         limits { block_elements: 16 lost_after_seconds: 1
                  out_of_order_bytes: 1048576 })",
      &spec));
  spec.mutable_train()->set_steps(steps);
  if (n_sync > 0) {
    spec.mutable_update()->mutable_sync()->set_contributions(n_sync);
  } else {
    spec.mutable_update()->mutable_async();
  }
  return spec;
}

RegisterRequest OnesRequest(const JobSpec& spec, int index, uint64_t process) {
  RegisterRequest request;
  request.set_rank(static_cast<uint32_t>(index));
  request.set_process(process);
  request.set_host("here");
  *request.mutable_job_spec() = spec;
  request.set_sample_count(100);
  *request.add_variable() = MakeVariable("a", 150);
  *request.add_variable() = MakeVariable("b", 60);
  return request;
}

// ------------------------------------------------------------------ cluster

ChiefCluster::ChiefCluster(std::string workdir, JobSpec spec, int ps,
                           int worker_count) {
  options.spec = std::move(spec);
  options.worker_count = worker_count;
  options.workdir = std::move(workdir);
  options.transport = &transport;
  options.end_wait = 2;
  options.torn_wait = 20;
  stores.resize(ps);
  for (int s = 0; s < ps; ++s) {
    options.ps_addresses.push_back(absl::StrCat("ps", s));
    ReplacePs(s);
  }
}

ChiefCluster::~ChiefCluster() {
  for (auto& [w, worker] : workers) {
    worker->kill = true;
    former.push_back(worker);
  }
  workers.clear();
  for (auto& worker : former) {
    if (worker->thread.joinable()) {
      worker->kill = true;
      worker->thread.join();
    }
  }
  chief.reset();
}

void ChiefCluster::ReplacePs(int s) {
  static uint64_t incarnation = 1000;
  transport.Stop(options.ps_addresses[s]);
  Store::Options store;
  store.incarnation = ++incarnation;
  store.checkpoint_root = options.workdir + "/checkpoints";
  auto made = Store::Create(store);
  WEIR_CHECK(made.ok());
  stores[s] = *std::move(made);
  transport.Serve(options.ps_addresses[s], stores[s].get());
}

absl::Status ChiefCluster::StartChief(bool resume) {
  options.resume = resume;
  std::unique_ptr<ChiefRunner> old;
  MutexLock lock(&chief_mutex);
  chief.reset();
  WEIR_ASSIGN_OR_RETURN(chief, ChiefRunner::Create(options));
  return absl::OkStatus();
}

ChiefCluster::Worker& ChiefCluster::Join(int w, int delay_ms) {
  if (workers.contains(w)) {
    former.push_back(workers[w]);
  }
  workers[w] = std::make_shared<Worker>(this, w, delay_ms);
  workers[w]->thread = std::thread([worker = workers[w]] { worker->Run(); });
  return *workers[w];
}

void ChiefCluster::Kill(int w) {
  workers[w]->kill = true;
  workers[w]->thread.join();
  former.push_back(workers[w]);
  workers.erase(w);
}

absl::Status ChiefCluster::Wait(int seconds) {
  const auto status = chief->WaitFor(std::chrono::seconds(seconds));
  return status.has_value() ? *status
                            : absl::DeadlineExceededError("still running");
}

std::vector<float> ChiefCluster::ValuesOf(const std::string& name) const {
  auto reader = CheckpointReader::Open(
      Files::Real(), absl::StrCat(options.workdir, "/checkpoints/", name));
  if (!reader.ok()) {
    LOG_ERROR("{}", reader.status().ToString());
    return {};
  }
  std::vector<float> values;
  for (const char* variable : {"a", "b"}) {
    const auto part = (*reader)->ReadVariable(variable);
    if (part.ok()) {
      values.insert(values.end(), part->begin(), part->end());
    }
  }
  return values;
}

std::vector<std::string> ChiefCluster::Checkpoints() const {
  std::vector<std::string> names;
  const auto list = ListCheckpoints(
      Files::Real(), absl::StrCat(options.workdir, "/checkpoints"));
  if (list.ok()) {
    for (const CheckpointInfo& info : *list) {
      names.push_back(info.name);
    }
  }
  return names;
}

// ------------------------------------------------------------------- worker

ChiefCluster::Worker::Worker(ChiefCluster* cluster, int index, int delay_ms)
    : cluster_(cluster), index_(index), delay_ms_(delay_ms) {
  static std::atomic<uint64_t> process{1};
  request_ = OnesRequest(cluster->options.spec, index, process++);
}

ChiefCluster::Worker::~Worker() {
  if (thread.joinable()) {
    thread.join();
  }
}

absl::Status ChiefCluster::Worker::status() const {
  MutexLock lock(&mutex_);
  return status_;
}

bool ChiefCluster::Worker::done() const {
  MutexLock lock(&mutex_);
  return stopped_;
}

void ChiefCluster::Worker::Send(const Command& command) {
  MutexLock lock(&mutex_);
  if (command.has_stop()) {
    stopped_ = true;
    status_ = absl::Status(static_cast<absl::StatusCode>(command.stop().code()),
                           command.stop().reason());
  } else {
    held_ = command.hold();
    holds += held_ ? 1 : 0;
  }
}

void ChiefCluster::Worker::End(const absl::Status& status) {
  MutexLock lock(&mutex_);
  stream_ = 0;
  if (status.code() == absl::StatusCode::kPermissionDenied) {
    stopped_ = true;
    status_ = status;
  } else {
    lost_ = true;
  }
}

bool ChiefCluster::Worker::Register() {
  while (!kill) {
    absl::StatusOr<RegisterReply> reply = absl::UnavailableError("no chief");
    {
      MutexLock lock(&cluster_->chief_mutex);
      if (cluster_->chief != nullptr) {
        Mutex mutex;
        CondVar changed;
        bool answered = false;
        cluster_->chief->Register(request_,
                                  [&](absl::StatusOr<RegisterReply> answer) {
                                    MutexLock inner(&mutex);
                                    reply = std::move(answer);
                                    answered = true;
                                    changed.NotifyAll();
                                  });
        MutexLock inner(&mutex);
        while (!answered) {
          changed.Wait(&mutex);
        }
      }
    }
    if (reply.ok() && reply->has_grant()) {
      grant_ = reply->grant();
      request_.set_held_history(grant_.sender().history());
      request_.set_held_generation(grant_.sender().generation());
      next_ = std::max(next_, grant_.next_sequence());
      return true;
    }
    if (reply.ok() && reply->has_over()) {
      MutexLock lock(&mutex_);
      stopped_ = true;
      status_ =
          absl::Status(static_cast<absl::StatusCode>(reply->over().code()),
                       reply->over().reason());
      return false;
    }
    if (!reply.ok() &&
        reply.status().code() != absl::StatusCode::kUnavailable) {
      MutexLock lock(&mutex_);
      stopped_ = true;
      status_ = reply.status();
      return false;
    }
    std::this_thread::sleep_for(milliseconds(5));
  }
  return false;
}

void ChiefCluster::Worker::OpenStream() {
  MutexLock lock(&cluster_->chief_mutex);
  if (cluster_->chief != nullptr) {
    const uint64_t stream = cluster_->chief->OpenStream(shared_from_this());
    MutexLock inner(&mutex_);
    stream_ = stream;
    lost_ = false;
  }
}

void ChiefCluster::Worker::Beat(bool out_of_work) {
  Progress progress = ProgressOf(grant_);
  progress.set_next_sequence(next_);
  progress.set_out_of_work(out_of_work);
  uint64_t stream = 0;
  {
    MutexLock lock(&mutex_);
    progress.set_ending(stopped_);
    progress.set_holding(held_);
    stream = stream_;
  }
  for (const ContributionReport& report : reports_) {
    *progress.add_report() = report;
  }
  MutexLock lock(&cluster_->chief_mutex);
  if (cluster_->chief != nullptr && stream != 0) {
    cluster_->chief->OnProgress(stream, progress, [] {});
    reports_.clear();
  }
}

bool ChiefCluster::Worker::WaitForVersion(uint64_t version) {
  const Layout layout = MakeLayout();
  Want want;
  want.set_version(version);
  want.set_timeout_ms(100);
  for (size_t s = 0; s < links_.size(); ++s) {
    bool here = false;
    while (!here) {
      if (kill || done()) {
        return false;
      }
      const absl::Status status =
          PullBlocks(links_[s].get(), grant_.sender(), want,
                     layout.block_count(static_cast<int>(s)),
                     [](const ValueChunk&, const Payload&) {});
      // ABORTED: the shard is past this version, so the contribution was done
      // before.
      here = status.ok() || status.code() == absl::StatusCode::kAborted;
      Beat(false);
    }
  }
  return true;
}

Layout ChiefCluster::Worker::MakeLayout() const {
  Declaration declaration;
  *declaration.mutable_variable() = request_.variable();
  declaration.set_shard_count(static_cast<uint32_t>(links_.size()));
  declaration.set_block_elements(16);
  return *LayoutFromDeclaration(declaration);
}

bool ChiefCluster::Worker::DoContribution(uint64_t sequence) {
  static const std::vector<float> ones(16, 1.0f);
  const Layout layout = MakeLayout();
  const uint32_t n = grant_.contributions_per_step();
  const uint32_t w = static_cast<uint32_t>(index_);
  const uint32_t per_step =
      n > 0 ? (n - w + grant_.slot_count() - 1) / grant_.slot_count() : 0;
  const uint64_t version =
      n > 0 ? grant_.base_version() + sequence / per_step : 0;
  if (n > 0 && !WaitForVersion(version)) {
    return false;
  }
  for (size_t s = 0; s < links_.size(); ++s) {
    const int blocks = layout.block_count(static_cast<int>(s));
    for (int block = 0; block < blocks;) {
      if (kill && s + 1 == links_.size() && block > 0) {
        return false;  // torn
      }
      const int end = kill ? block + 1 : blocks;
      const auto pushed = PushBlocks(
          links_[s].get(),
          [&](GradientChunk* chunk, std::span<const char>* payload) {
            if (block == end) {
              return false;
            }
            *chunk->mutable_sender() = grant_.sender();
            chunk->set_block(static_cast<uint32_t>(block));
            chunk->mutable_push()->set_sequence(sequence);
            chunk->mutable_push()->set_base_version(version);
            if (n > 0) {
              chunk->mutable_push()->set_index_in_step(
                  static_cast<uint32_t>(sequence % per_step) *
                      grant_.slot_count() +
                  w);
            }
            const FlatRange range = layout.block({static_cast<int>(s), block});
            *payload = {reinterpret_cast<const char*>(ones.data()),
                        static_cast<size_t>(range.count) * sizeof(float)};
            ++block;
            return true;
          });
      if (!pushed.ok()) {
        if (pushed.status().code() != absl::StatusCode::kUnavailable) {
          MutexLock lock(&mutex_);
          stopped_ = true;
          status_ = pushed.status();
          return false;
        }
        if (kill || done()) {
          return false;
        }
        block = 0;  // the same identity again
        std::this_thread::sleep_for(milliseconds(5));
      }
    }
  }
  ++next_;
  ++contributions;
  ContributionReport report;
  if (n > 0) {
    report.set_contribution(version * n +
                            (sequence % per_step) * grant_.slot_count() + w);
  }
  report.set_loss(0.5f);
  report.set_weight(1.0f);
  report.set_rows(10);
  reports_.push_back(report);
  return true;
}

void ChiefCluster::Worker::Run() {
  for (const std::string& address : cluster_->options.ps_addresses) {
    links_.push_back(cluster_->transport.ConnectData(address));
  }
  if (!Register()) {
    return;
  }
  OpenStream();
  uint64_t count = 0;
  const auto list = ContributionList::Create(
      AppliedIn(grant_), static_cast<int64_t>(grant_.contribution_count()));
  WEIR_CHECK(list.ok());
  count = static_cast<uint64_t>(
      list->ContributionCount(index_, static_cast<int>(grant_.slot_count())));
  while (!done()) {
    bool held = false;
    bool lost = false;
    {
      MutexLock lock(&mutex_);
      held = held_;
      lost = lost_;
    }
    if (lost && !kill) {
      if (!Register()) {
        break;
      }
      OpenStream();
    }
    const bool work = next_ < count && !held;
    if (work && !DoContribution(next_) && kill) {
      break;
    }
    if (kill) {
      break;
    }
    Beat(next_ >= count);
    if (!work || delay_ms_ > 0) {
      std::this_thread::sleep_for(milliseconds(std::max(delay_ms_, 1)));
    }
  }
  if (!kill) {
    Beat(next_ >= count);
  }
  uint64_t stream = 0;
  {
    MutexLock lock(&mutex_);
    stream = stream_;
  }
  MutexLock lock(&cluster_->chief_mutex);
  if (cluster_->chief != nullptr && stream != 0) {
    cluster_->chief->OnStreamLost(stream);
  }
}

}  // namespace weir
