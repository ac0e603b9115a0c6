#include "server/ps/consistency/async.h"

#include "common/base/status.h"

namespace weir {

absl::StatusOr<AsyncMode::Admission> AsyncMode::Admit(
    Block& block, const Contribution& contribution,
    const std::vector<bool>& moved, int bad_variable) {
  WEIR_ASSIGN_OR_RETURN(const bool next, IsNextItem(block, contribution));
  if (!next) {
    return Admission{false, MakeReceipt(contribution, Receipt::DUPLICATE)};
  }
  Admission admission;
  if (bad_variable >= 0) {
    admission.receipt = MakeReceipt(contribution, Receipt::LEFT_OUT);
    admission.receipt.set_bad_variable(static_cast<uint32_t>(bad_variable));
  } else {
    admission.receipt = MakeReceipt(contribution, Receipt::ACCEPTED);
    admission.apply = AnyMoved(moved);
  }
  if (admission.apply) {
    const uint64_t base_version = contribution.push->base_version();
    if (base_version > block.version) {
      return absl::InvalidArgumentError(
          absl::StrCat("block ", block.plan.index, ": base_version ",
                       base_version, " is ahead of version ", block.version));
    }
    const uint64_t staleness = block.version - base_version;
    admission.receipt.set_staleness(staleness);
    context_.counters.RecordStaleness(staleness);
    ++block.version;
  }
  ++block.marks[contribution.slot];
  return admission;
}

absl::StatusOr<Receipt> AsyncMode::Push(Block& block, Contribution contribution,
                                        DueList& /*due*/) {
  const std::vector<bool> moved = MovedSegments(block.plan, contribution);
  const int bad_variable = FindNonFinite(block.plan, moved, contribution);
  MutexLock lock(&block.mutex);
  WEIR_ASSIGN_OR_RETURN(const Admission admission,
                        Admit(block, contribution, moved, bad_variable));
  if (admission.apply) {
    BlockWriter writer(context_.arena);
    writer.OpenAll(block);
    const std::vector<StepContext> contexts =
        TakeSteps(block, moved, *contribution.push);
    ApplyGradient(block.plan, BlockArrays(block), moved, contexts, contribution,
                  writer);
  }
  return admission.receipt;
}

absl::StatusOr<std::optional<PulledBlock>> AsyncMode::Answer(
    const Block& block, const Want& want) const {
  if (want.when_case() == Want::kVersion) {
    return absl::InvalidArgumentError(
        "want.version is for sync jobs; this job pulls the latest");
  }
  return Current(block);
}

}  // namespace weir
