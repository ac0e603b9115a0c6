#include "worker/train/worker_task.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/failpoint.h"
#include "common/base/logging.h"
#include "common/base/status.h"
#include "proto/wire/declaration_io.h"
#include "proto/wire/layout_io.h"
#include "worker/data/batch_prefetcher.h"
#include "worker/train/job_backend.h"

namespace weir {
namespace {

// The deadline of one Register call. ChiefClient repeats the call, so this is
// only how long a chief that is away goes unnoticed.
constexpr std::chrono::milliseconds kRegisterTimeout{5000};

// The contributions that have a batch, from `sequence` on: those beyond the end
// have none, and the loop asks for none either.
BatchPrefetcher::Next ContributionsFrom(const WorkList* work,
                                        uint64_t sequence) {
  return [work, sequence]() mutable -> std::optional<int64_t> {
    while (sequence < work->contribution_count()) {
      const WorkUnit next = work->At(sequence++);
      if (!next.beyond_end) {
        return static_cast<int64_t>(next.contribution);
      }
    }
    return std::nullopt;
  };
}

Features FeaturesOf(const Batch& batch, const Dataset& dataset) {
  return batch.bytes.empty()
             ? Features(batch.features.data())
             : Features(batch.bytes.data(), dataset.value_of_byte());
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerTask>> WorkerTask::Create(
    Options options) {
  std::unique_ptr<WorkerTask> task(new WorkerTask(std::move(options)));
  WEIR_RETURN_IF_ERROR(task->Build());
  return task;
}

// The replicas pinned memory_ or computed_from_, which are
// declared behind them and would be destroyed before them.
WorkerTask::~WorkerTask() { replicas_.reset(); }

absl::Status WorkerTask::Build() {
  const JobSpec& spec = options_.spec;
  WEIR_ASSIGN_OR_RETURN(dataset_,
                        CreateDataset(spec.data().train(), options_.data_dir,
                                      spec.seed(), "data.train"));
  WEIR_ASSIGN_OR_RETURN(backends_, CreateJobBackends(spec, options_.backend));
  std::vector<Backend*> backends;
  for (const auto& backend : backends_) {
    backends.push_back(backend.get());
  }
  // Prefetch and histograms read values on the host.
  values_on_device_ = !backends_[0]->shares_host_memory() &&
                      !spec.train().prefetch() &&
                      spec.train().histograms_every_steps() == 0;
  NetworkOptions options;
  options.rows_reserved = spec.train().batch_size();
  tables_ = TablesFromSpec(spec);
  options.sparse = {tables_, dataset_->sparse_features()};
  WEIR_ASSIGN_OR_RETURN(
      replicas_, Replicas::Create(spec.model(), dataset_->feature_shape(),
                                  backends, options));
  const Network& network = replicas_->network();
  // Every data set gives one number as its label.
  if (network.label_width() != 1) {
    return Invalid("model.loss compares ", network.label_width(),
                   " outputs, but a sample has one label");
  }

  OpenNvml();
  ChiefClient::Options& chief = chief_options_;
  if (nvml_ != nullptr) {
    chief.read_device = [this](Phases* phases) { ReadDevice(phases); };
  }
  chief.link = options_.chief;
  chief.job_is_done = options_.job_is_done;
  chief.host = options_.host_meter;
  chief.register_timeout = kRegisterTimeout;
  RegisterRequest& request = chief.request;
  request.set_rank(static_cast<uint32_t>(options_.index));
  request.set_process(options_.process);
  request.set_host(options_.host);
  request.set_cluster_fingerprint(options_.cluster_fingerprint);
  *request.mutable_job_spec() = spec;
  request.set_sample_count(static_cast<uint64_t>(dataset_->size()));
  for (const VariableSpec& variable : network.variables()) {
    *request.add_variable() = VariableToProto(variable);
  }
  // The layout's fingerprint, which BuildLayout compares, covers the groups.
  WEIR_RETURN_IF_ERROR(AssignGroups(spec, request.mutable_variable()));
  variables_ = network.variables();
  for (size_t v = 0; v < variables_.size(); ++v) {
    const int group =
        static_cast<int>(request.variable(static_cast<int>(v)).group());
    variables_[v].group = group;
    if (group > 0 && spec.parameter_group(group - 1).frozen()) {
      frozen_.push_back(static_cast<int>(v));
    }
  }
  WEIR_ASSIGN_OR_RETURN(chief_, ChiefClient::Create(chief));
  return absl::OkStatus();
}

// NVML only adds figures to the heartbeat, so a worker on a GPU trains without
// it, too.
void WorkerTask::OpenNvml() {
  if (backends_[0]->shares_host_memory()) {
    return;
  }
  absl::StatusOr<std::unique_ptr<Nvml>> nvml = Nvml::Open();
  if (nvml.ok()) {
    nvml_ = *std::move(nvml);
  } else {
    LOG_INFO("no figures of the GPU's driver: {}",
             std::string(nvml.status().message()));
  }
}

void WorkerTask::ReadDevice(Phases* phases) const {
  double percent = 0.0;
  double watts = 0.0;
  uint64_t bytes_total = 0;
  for (const auto& backend : backends_) {
    const auto figures = nvml_->Read(backend->pci_bus_id());
    // Sums over some of the devices would mislead; better no figures.
    if (!figures.ok()) {
      return;
    }
    percent += figures->gpu_utilization_percent;
    watts += figures->power_watts;
    bytes_total += figures->bytes_total;
  }
  phases->set_nvml_gpu_percent(percent / static_cast<double>(backends_.size()));
  phases->set_nvml_watts(watts);
  phases->set_device_bytes_total(bytes_total);
}

void WorkerTask::LogDevice() const {
  if (nvml_ == nullptr) {
    return;
  }
  for (const auto& backend : backends_) {
    const auto figures = nvml_->Read(backend->pci_bus_id());
    if (figures.ok()) {
      LOG_INFO("{}", figures->Text());
    } else {
      LOG_INFO("{}", std::string(figures.status().message()));
    }
  }
}

// A slot may change twice: the chief gives this worker the slot of one that is
// lost, and takes it back when that one is started again.
absl::Status WorkerTask::Run() {
  while (true) {
    const absl::Status status = RunInSlot();
    const std::optional<SlotOffer> slot = NextSlot(status);
    if (!slot.has_value()) {
      return status;
    }
    LOG_INFO("{}; going on in slot {}", std::string(status.message()),
             slot->slot);
    WEIR_RETURN_IF_ERROR(TakeSlot(*slot));
  }
}

std::optional<SlotOffer> WorkerTask::NextSlot(const absl::Status& status) {
  if (const auto slot = chief_->slot_to_take(); slot.has_value()) {
    return slot;
  }
  if (!absl::IsPermissionDenied(status)) {
    return std::nullopt;
  }
  if (chief_options_.request.rank() != static_cast<uint32_t>(options_.index)) {
    // The worker whose slot it had is back.
    return SlotOffer{.slot = options_.index};
  }
  // A shard knows only that this grant is void. The chief knows whether another
  // process replaced this one, or finished a contribution in its place.
  if (!shard_said_ || std::exchange(asked_for_own_, true)) {
    return std::nullopt;
  }
  return SlotOffer{.slot = options_.index};
}

absl::Status WorkerTask::TakeSlot(const SlotOffer& slot) {
  RegisterRequest& request = chief_options_.request;
  const auto rank = static_cast<uint32_t>(slot.slot);
  request.clear_held_history();
  request.clear_held_generation();
  if (request.rank() == rank) {
    // By these the chief knows a process that was replaced.
    request.set_held_history(held_.history());
    request.set_held_generation(held_.generation());
  } else {
    // In a slot that this worker had before, the chief would take the same
    // number for a repeat of that Register, or for a process that was replaced.
    request.set_process(request.process() + 1);
  }
  request.set_rank(rank);
  request.set_offer_high(slot.high);
  request.set_offer_low(slot.low);
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<ChiefClient> chief,
                        ChiefClient::Create(chief_options_));
  MutexLock lock(&mutex_);
  // A RequestStop until now has reached the old chief_ only; a later one
  // reaches the new one. Without this check the first would be lost.
  if (stop_.has_value()) {
    return *stop_;
  }
  chief_ = std::move(chief);
  return absl::OkStatus();
}

absl::Status WorkerTask::Ready() const {
  return has_slot_ ? absl::OkStatus()
                   : absl::UnavailableError("waits for the chief's grant");
}

absl::Status WorkerTask::RunInSlot() {
  Failpoint("worker.before_register");
  const absl::StatusOr<Grant> granted = chief_->Register();
  if (!granted.ok()) {
    // A job that is over ends Register with an error, but may have ended well.
    return chief_->stopping() ? chief_->stop_status() : granted.status();
  }
  const Grant& grant = *granted;
  LOG_INFO("slot {} of {}, generation {}, next sequence number {}, {} ps",
           grant.sender().slot(), grant.slot_count(),
           grant.sender().generation(), grant.next_sequence(),
           grant.ps_address_size());
  held_ = grant.sender();
  has_slot_ = true;
  absl::Status status = Train(grant);
  has_slot_ = false;
  // What the chief said is the reason, whatever broke after it.
  shard_said_ = !chief_->stopping();
  if (!shard_said_) {
    status = chief_->stop_status();
  }
  if (chief_->slot_to_take().has_value()) {
    // The worker goes on in another slot, so nothing has failed here.
    chief_->Close(absl::OkStatus());
  } else {
    chief_->Close(status);
  }
  return status;
}

absl::Status WorkerTask::BuildLayout(const Grant& grant) {
  WEIR_ASSIGN_OR_RETURN(
      auto memory,
      WorkerMemory::Create(
          variables_, grant.ps_address_size(),
          static_cast<int64_t>(options_.spec.limits().block_elements()),
          options_.transport));
  const Layout& layout = memory->layout;
  if (layout.fingerprint() != grant.sender().layout_fingerprint()) {
    return absl::FailedPreconditionError(
        "the chief laid the parameters out differently; start every task with "
        "the same version of Weir and the same job");
  }
  memory_ = std::move(memory);
  float* computed_from = memory_->parameters.get();
  if (options_.spec.train().prefetch()) {
    computed_from_.resize(static_cast<size_t>(layout.flat_elements()));
    computed_from = computed_from_.data();
  }
  if (values_on_device_) {
    computed_from = nullptr;
  }
  return replicas_->Bind(layout, computed_from, memory_->gradients.get());
}

absl::StatusOr<std::unique_ptr<WorkerSession>> WorkerTask::MakeSession(
    const Grant& grant) {
  const JobSpec& spec = options_.spec;
  WorkerSession::Options session;
  session.transport = options_.transport;
  session.addresses.assign(grant.ps_address().begin(),
                           grant.ps_address().end());
  session.lost_after = Milliseconds(spec.limits().lost_after_seconds());
  session.layout = &memory_->layout;
  session.parameters = memory_->parameters.get();
  if (values_on_device_) {
    session.store_values = [this](int64_t begin, HostPieces values) {
      return replicas_->StoreValues(begin, values);
    };
  }
  session.gradients = memory_->gradients.get();
  session.compression = spec.compression();
  session.channels_per_peer = options_.channels_per_peer;
  session.tables = tables_;
  session.bounded_staleness = spec.update().has_bounded_staleness();
  return WorkerSession::Create(std::move(session));
}

absl::StatusOr<std::unique_ptr<Batches>> WorkerTask::MakeBatches(
    const Grant& grant) {
  Batches::Options batches;
  batches.batch_size = options_.spec.train().batch_size();
  batches.epochs = options_.spec.train().epochs();
  // A job in steps: the chief has made contributions of its steps.
  if (batches.epochs == 0.0) {
    batches.contributions = static_cast<int64_t>(grant.contribution_count());
  }
  batches.seed = options_.spec.seed();
  batches.shuffle = !options_.spec.data().no_shuffle();
  batches.pages = backends_[0]->host_pages();
  batches.check_label = [this](float label) {
    return replicas_->network().CheckLabel(label);
  };
  // The device makes floats of them: a quarter of the copy, and of the work.
  batches.as_bytes = !backends_[0]->shares_host_memory() &&
                     dataset_->value_of_byte() != nullptr;
  return Batches::Create(batches, dataset_.get());
}

TrainLoop::Options WorkerTask::LoopOptions() {
  TrainLoop::Options options;
  options.network = replicas_.get();
  options.control = &meter_;
  options.layout = &memory_->layout;
  options.gradients = memory_->gradients.get();
  options.seed = options_.spec.seed();
  options.clip = options_.spec.train().clip();
  options.left_out = frozen_;
  if (options_.spec.train().prefetch()) {
    options.pulled = memory_->parameters.get();
    options.computed_from = computed_from_.data();
  }
  options.histograms_every_steps =
      options_.spec.train().histograms_every_steps();
  options.values = options.computed_from != nullptr ? options.computed_from
                                                    : memory_->parameters.get();
  if (!backends_[0]->shares_host_memory()) {
    options.device_usage = [this] { return replicas_->Usage(); };
  }
  return options;
}

absl::Status WorkerTask::Train(const Grant& grant) {
  WEIR_ASSIGN_OR_RETURN(const WorkList work, WorkList::Create(grant));
  if (memory_ == nullptr) {  // else it has another slot of the same job
    WEIR_RETURN_IF_ERROR(BuildLayout(grant));
  }
  WEIR_ASSIGN_OR_RETURN(const auto batches, MakeBatches(grant));
  // Above the session, so that it outlives the session's threads: they read and
  // write rows of the feed.
  std::unique_ptr<TableFeed> tables;
  WEIR_ASSIGN_OR_RETURN(const auto session, MakeSession(grant));
  if (session->rows() != nullptr) {
    WEIR_ASSIGN_OR_RETURN(
        tables, TableFeed::Create(replicas_->network().tables(), tables_,
                                  session->rows()));
  }

  // It counts ahead of the loop and in the same order.
  BatchPrefetcher prefetcher(batches.get(),
                             ContributionsFrom(&work, grant.next_sequence()));
  // Two, because the loop takes the next batch while it computes on one.
  Batch batches_made[2];
  int made = 0;
  TrainLoop::Options options = LoopOptions();
  options.session = session.get();
  options.tables = tables.get();
  options.work = &work;
  options.batch = [&](uint64_t contribution) -> absl::StatusOr<TrainBatch> {
    Batch& batch = batches_made[made ^= 1];
    WEIR_ASSIGN_OR_RETURN(const bool more, prefetcher.Get(&batch));
    if (!more || batch.contribution != static_cast<int64_t>(contribution)) {
      return absl::InternalError(absl::StrCat("contribution ", contribution,
                                              " was not prepared in its turn"));
    }
    return TrainBatch{FeaturesOf(batch, *dataset_), batch.labels.data(),
                      batch.rows, batch.weight, &batch.sparse};
  };
  if (!backends_[0]->shares_host_memory()) {
    options.batch_ready = [&prefetcher] { return prefetcher.ready(); };
  }
  WEIR_ASSIGN_OR_RETURN(const auto loop, TrainLoop::Create(std::move(options)));

  // ChiefClient calls these two on a thread of its own, until ForgetCallbacks.
  // To interrupt the waits for values is enough to stop: a contribution in
  // flight still gets its receipts.
  meter_.Begin(chief_.get(), [&] { return session->counters(); });
  chief_->Start(
      grant,
      [&] { session->Interrupt(absl::CancelledError("the job stopped")); },
      [&] { return session->counters(); });
  const absl::Status status = loop->Run(grant.next_sequence());
  // The batches go with this function, and another slot's may come to lie where
  // one of them was sent ahead from.
  replicas_->Reset();
  LogDevice();
  // Other slots may still have work. The chief then holds this worker here, to
  // take over a slot that is lost or to hear how the job ends.
  if (status.ok()) {
    chief_->OutOfWork();
  }
  chief_->ForgetCallbacks();  // `session` ends with this function
  meter_.End();
  const ClientCounters counters = session->counters();
  LOG_INFO("sent {} MiB, received {} MiB, waited {:.1f} s, {} reconnects",
           counters.bytes_sent >> 20, counters.bytes_received >> 20,
           static_cast<double>(counters.wait_ns) / 1e9, counters.reconnects);
  return status;
}

void WorkerTask::RequestStop(const std::string& reason) {
  MutexLock lock(&mutex_);
  stop_ = absl::CancelledError(reason);
  chief_->RequestStop(*stop_);
}

}  // namespace weir
