#include "worker/train/train_loop.h"

#include <algorithm>
#include <utility>

#include "common/base/failpoint.h"
#include "common/base/status.h"
#include "common/math/random.h"
#include "common/trace/trace.h"
#include "worker/model/clip.h"

namespace weir {
namespace {

const SparseBatch kNoBags;

}  // namespace

absl::Status TrainLoop::Options::Validate() const {
  if (network == nullptr || session == nullptr || control == nullptr ||
      work == nullptr || layout == nullptr || gradients == nullptr || !batch) {
    return absl::InvalidArgumentError("the train loop lacks a part");
  }
  // Prefetch computes from values that lack the slot's newest contribution.
  // Only async allows that.
  if ((pulled == nullptr) != (computed_from == nullptr) ||
      (pulled != nullptr && (work->sync() || session->bounded_staleness()))) {
    return absl::InvalidArgumentError(
        "prefetch takes two buffers and async updates");
  }
  if (histograms_every_steps > 0 && values == nullptr) {
    return absl::InvalidArgumentError("histograms lack the values");
  }
  return ValidateClip(clip);
}

absl::StatusOr<std::unique_ptr<TrainLoop>> TrainLoop::Create(Options options) {
  WEIR_RETURN_IF_ERROR(options.Validate());
  return std::unique_ptr<TrainLoop>(new TrainLoop(std::move(options)));
}

absl::Status TrainLoop::Run(uint64_t next_sequence) {
  NameTraceLane("train");
  const uint64_t count = options_.work->contribution_count();
  // Every later pull is started by the contribution before it, through
  // ContributionPush::then; the first one has none before it.
  if (next_sequence < count) {
    Failpoint("worker.before_pull");
    WEIR_RETURN_IF_ERROR(client_->StartPull(
        options_.work->sender(), WantFor(options_.work->At(next_sequence))));
  }
  for (uint64_t sequence = next_sequence; sequence < count; ++sequence) {
    const WorkUnit work = options_.work->At(sequence);
    const std::optional<Want> next = WantAfter(work);
    const TraceSpan span("step", [&](TraceDetails* details) {
      details->Add("sequence", sequence);
      details->Add("contribution", work.contribution);
    });
    timer_.BeginContribution();
    if (work.beyond_end) {
      WEIR_RETURN_IF_ERROR(PushNothing(work, next));
    } else {
      WEIR_RETURN_IF_ERROR(Step(work, next));
    }
  }
  return absl::OkStatus();
}

// One training step. Values arrive while forward runs, gradients leave while
// backward runs, and each asks for the next contribution's values of its block.
absl::Status TrainLoop::Step(const WorkUnit& work,
                             const std::optional<Want>& next) {
  WEIR_ASSIGN_OR_RETURN(const TrainBatch batch, BatchOf(work));
  if (batch.rows == 0) {
    return PushNothing(work, next);
  }
  const bool clip = options_.clip.kind_case() != Clip::KIND_NOT_SET;
  // The contribution begins with its first gradient and not before forward:
  // until then a hold need not wait for it (I4), and with then_at_once the
  // client may overwrite `pulled` from that moment on (I3).
  bool begun = false;
  bool sent_ahead = false;
  const auto send_ahead = [&]() -> absl::Status {
    return std::exchange(sent_ahead, true) ? absl::OkStatus() : SendAhead(work);
  };
  const auto push = [&](int variable) -> absl::Status {
    if (!begun) {
      begun = true;
      WEIR_RETURN_IF_ERROR(BeginPush(work, batch.weight, next));
    }
    // Behind it values and gradient are no longer ours.
    histograms_.AddGradients(variable);
    client_->GradientReady(variable);
    return absl::OkStatus();
  };

  WEIR_ASSIGN_OR_RETURN(const std::span<const TableInput> tables,
                        FetchRows(work, batch));
  histograms_.Begin(work, options_.work->sync());
  StepHooks hooks;
  hooks.before_layer_parameters = [this](int variable) {
    return Fetch(variable);
  };
  // With the first gradient forward is over, and with it what read the memory
  // that the next features go to.
  hooks.gradient_ready = [&](int variable) -> absl::Status {
    WEIR_RETURN_IF_ERROR(send_ahead());
    return clip ? absl::OkStatus() : push(variable);
  };
  // I1: the seed is that of the contribution, whoever computes it and when.
  WEIR_ASSIGN_OR_RETURN(
      const StepResult result,
      options_.network->TrainStep(batch.features, batch.labels, batch.rows,
                                  MixKey(options_.seed, work.contribution),
                                  hooks, tables));
  if (clip) {
    // The norm is over every gradient, so none could leave before the last.
    ClipGradients(options_.clip, *options_.layout, options_.gradients,
                  options_.tables != nullptr ? options_.tables->Gradients()
                                             : std::vector<std::span<float>>(),
                  options_.left_out);
    const int variables = static_cast<int>(options_.layout->variables().size());
    // From the end, as backward would have finished them.
    for (int v = variables - 1; v >= 0; --v) {
      WEIR_RETURN_IF_ERROR(push(v));
    }
  }

  if (!begun) {  // a model without variables
    WEIR_RETURN_IF_ERROR(BeginPush(work, batch.weight, next));
  }
  // One push has the gradients of all tables, so it waits for backward's end.
  WEIR_RETURN_IF_ERROR(PushRows());

  ContributionReport report;
  report.set_loss(static_cast<float>(result.loss));
  report.set_weight(batch.weight);
  report.set_rows(static_cast<uint32_t>(batch.rows));
  return Finish(work, std::move(report));
}

absl::StatusOr<TrainBatch> TrainLoop::BatchOf(const WorkUnit& work) {
  // The contribution before may have asked for it already; the source gives
  // each batch once.
  if (ahead_.has_value()) {
    return *std::exchange(ahead_, std::nullopt);
  }
  return timer_.Timed(PhaseTimer::kData,
                      [&] { return options_.batch(work.contribution); });
}

absl::Status TrainLoop::SendAhead(const WorkUnit& work) {
  const uint64_t next = work.sequence + 1;
  if (!options_.batch_ready || next >= options_.work->contribution_count() ||
      options_.work->At(next).beyond_end) {
    return absl::OkStatus();
  }
  if (!ahead_.has_value()) {
    if (!options_.batch_ready()) {
      return absl::OkStatus();
    }
    WEIR_ASSIGN_OR_RETURN(ahead_, BatchOf(options_.work->At(next)));
  }
  return ahead_->rows == 0
             ? absl::OkStatus()
             : options_.network->SendAhead(ahead_->features, ahead_->rows);
}

absl::StatusOr<std::span<const TableInput>> TrainLoop::FetchRows(
    const WorkUnit& work, const TrainBatch& batch) {
  using Inputs = std::span<const TableInput>;
  TableFeed* const tables = options_.tables;
  if (tables == nullptr) {
    return Inputs();
  }
  WEIR_ASSIGN_OR_RETURN(
      const Inputs inputs,
      timer_.Timed(PhaseTimer::kPull, [&]() -> absl::StatusOr<Inputs> {
        // With prefetch the contribution before has started this lookup.
        if (!tables->started()) {
          WEIR_RETURN_IF_ERROR(tables->Start(*batch.sparse, batch.rows,
                                             options_.work->sender(),
                                             WantFor(work)));
        }
        return tables->Wait();
      }));
  // I3: the rows of the next contribution are read before this one's are
  // pushed. Its push names the versions of its own lookup, so the ps counts the
  // staleness as it is.
  const uint64_t next = work.sequence + 1;
  if (options_.pulled != nullptr &&
      next < options_.work->contribution_count() &&
      !options_.work->At(next).beyond_end) {
    const WorkUnit after = options_.work->At(next);
    if (!ahead_.has_value()) {
      WEIR_ASSIGN_OR_RETURN(ahead_, BatchOf(after));
    }
    WEIR_RETURN_IF_ERROR(tables->Start(*ahead_->sparse, ahead_->rows,
                                       options_.work->sender(),
                                       WantFor(after)));
  }
  return inputs;
}

absl::Status TrainLoop::Fetch(int variable) {
  WEIR_RETURN_IF_ERROR(timer_.Timed(
      PhaseTimer::kPull, [&] { return client_->WaitVariable(variable); }));
  if (options_.pulled != nullptr) {
    // I3: `pulled` is at rest here, since nothing is pulled again before the
    // contribution's first gradient is ready, and forward is over by then.
    const int64_t begin = options_.layout->flat_begin(variable);
    std::copy_n(options_.pulled + begin,
                options_.layout->variables()[variable].elements(),
                options_.computed_from + begin);
  }
  histograms_.AddValues(variable);
  return absl::OkStatus();
}

absl::Status TrainLoop::BeginPush(const WorkUnit& work, float weight,
                                  const std::optional<Want>& next) {
  // I4: waits here while the job is held. From here to LeaveContribution the
  // hold waits for this contribution.
  if (!timer_.Timed(PhaseTimer::kHold,
                    [&] { return options_.control->EnterContribution(); })) {
    return absl::CancelledError("the job stopped");
  }
  Failpoint("worker.before_push");
  push_.sender = options_.work->sender();
  push_.sequence = work.sequence;
  push_.index_in_step = work.index;
  push_.weight = weight;
  push_.left_out = options_.left_out;
  push_.then = next;
  push_.then_at_once = options_.pulled != nullptr;
  // It waits for receipts of the contribution before, which Finish has taken,
  // and with then_at_once for the rest of the pull; so the time is a pull's.
  return timer_.Timed(PhaseTimer::kPull,
                      [&] { return client_->BeginContribution(push_); });
}

absl::Status TrainLoop::PushRows() {
  if (options_.tables == nullptr) {
    return absl::OkStatus();
  }
  Failpoint("worker.before_rows");
  return options_.tables->Push(push_);
}

// A contribution without samples, at the end. It is pushed with weight 0 all
// the same: the marks and cursors of every shard wait for its number, and the
// other contributions of its sync step could not be published without it.
absl::Status TrainLoop::PushNothing(const WorkUnit& work,
                                    const std::optional<Want>& next) {
  // Forward does not run, so nothing has waited for the values yet.
  WEIR_RETURN_IF_ERROR(
      timer_.Timed(PhaseTimer::kPull, [&] { return client_->WaitPull(); }));
  // A push of rows names the versions of a lookup, so there is an empty one.
  if (options_.tables != nullptr) {
    WEIR_RETURN_IF_ERROR(FetchRows(work, {.sparse = &kNoBags}).status());
  }
  WEIR_RETURN_IF_ERROR(BeginPush(work, /*weight=*/0.0f, next));
  WEIR_RETURN_IF_ERROR(PushRows());
  return Finish(work, ContributionReport());
}

absl::Status TrainLoop::Finish(const WorkUnit& work,
                               ContributionReport report) {
  using Result = ContributionResult;
  WEIR_ASSIGN_OR_RETURN(
      const Result result,
      timer_.Timed(PhaseTimer::kPush, [&]() -> absl::StatusOr<Result> {
        WEIR_RETURN_IF_ERROR(client_->FinishContribution());
        return options_.session->WaitReceipts();
      }));
  report.set_contribution(work.contribution);
  report.set_bad(result.bad);
  report.set_bad_variable(result.bad_name);
  // Before LeaveContribution, after which a heartbeat may send the report.
  options_.control->AddPhases(timer_.EndContribution());
  if (auto histograms = histograms_.Take(); histograms.has_value()) {
    options_.control->AddHistograms(*std::move(histograms));
  }
  options_.control->LeaveContribution(work.sequence + 1, report, result);
  Failpoint("worker.in_barrier");
  return absl::OkStatus();
}

Want TrainLoop::WantFor(const WorkUnit& work) const {
  // I2: the version is the step's, so all its contributions ask for the same.
  return options_.session->WantFor(
      work.sequence,
      options_.work->sync() ? std::optional(work.version) : std::nullopt);
}

std::optional<Want> TrainLoop::WantAfter(const WorkUnit& work) const {
  if (work.sequence + 1 >= options_.work->contribution_count()) {
    return std::nullopt;
  }
  // I2: the rest of the step computes from the values that are here. The next
  // version does not exist before the step is complete.
  if (options_.work->sync() && !work.last_of_step) {
    return std::nullopt;
  }
  return WantFor(options_.work->At(work.sequence + 1));
}

}  // namespace weir
