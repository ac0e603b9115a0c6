#include "server/ps/consistency/async.h"

#include "common/base/status.h"

namespace weir {

absl::StatusOr<AsyncMode::Admission> AsyncMode::Admit(
    Block& block, const BlockGradient& gradient, const std::vector<bool>& moved,
    int bad_variable) {
  WEIR_ASSIGN_OR_RETURN(const bool next, IsNextSequence(block, gradient));
  if (!next) {
    return Admission{false, MakeReceipt(gradient, Receipt::DUPLICATE)};
  }
  // A block with NaN or Inf is settled, not refused: a client that repeated it
  // would bring the same NaN again.
  Admission admission;
  if (bad_variable >= 0) {
    admission.receipt = MakeReceipt(gradient, Receipt::LEFT_OUT);
    admission.receipt.set_bad_variable(static_cast<uint32_t>(bad_variable));
  } else {
    admission.receipt = MakeReceipt(gradient, Receipt::ACCEPTED);
    admission.apply = AnyMoved(moved);
  }
  if (admission.apply) {
    const uint64_t base_version = gradient.push->base_version();
    if (base_version > block.version) {
      return absl::InvalidArgumentError(
          absl::StrCat("block ", block.plan.index, ": base_version ",
                       base_version, " is ahead of version ", block.version));
    }
    // I2. A left-out contribution has moved nothing and is no update, so it
    // has no staleness and makes no version.
    const uint64_t staleness = block.version - base_version;
    admission.receipt.set_staleness(staleness);
    context_.counters.RecordStaleness(staleness);
    ++block.version;
  }
  // The last step, after every check: an error above changes nothing.
  ++block.marks[gradient.slot];
  return admission;
}

absl::StatusOr<Receipt> AsyncMode::Push(Block& block, BlockGradient gradient,
                                        DueList& /*due*/) {
  // Both read the payload and the plan alone, so the first pass over the
  // payload needs no lock.
  const std::vector<bool> moved = MovedSegments(block.plan, gradient);
  const int bad_variable = FindNonFinite(block.plan, moved, gradient);
  MutexLock lock(&block.mutex);
  WEIR_ASSIGN_OR_RETURN(const Admission admission,
                        Admit(block, gradient, moved, bad_variable));
  if (admission.apply) {
    // I1: buffers that a pull or a snapshot holds are replaced, so what they
    // see stays the state of one version.
    BlockWriter writer(context_.arena);
    writer.OpenAll(block);
    const std::vector<StepContext> contexts =
        TakeSteps(block, moved, *gradient.push);
    ApplyGradient(block.plan, BlockArrays(block), moved, contexts, gradient,
                  writer);
  }
  return admission.receipt;
}

absl::StatusOr<std::optional<PulledBlock>> AsyncMode::Answer(
    const Block& block, const Want& want) const {
  // Versions of async blocks come from whoever pushes, so no client can know
  // one to ask for.
  if (want.when_case() == Want::kVersion) {
    return absl::InvalidArgumentError(
        "want.version is for sync jobs; this job pulls the latest");
  }
  return Current(block);
}

}  // namespace weir
