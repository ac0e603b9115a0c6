#include "server/ps/consistency/async.h"

#include "common/base/status.h"
#include "server/ps/block/must_finish.h"

namespace weir {

absl::StatusOr<AsyncMode::Admission> AsyncMode::Admit(
    Block& block, const BlockGradient& gradient, bool moves, int bad_variable) {
  const ::weir::Push& push = *gradient.push;
  WEIR_ASSIGN_OR_RETURN(
      const std::optional<uint64_t> staleness,
      ContributionOrder::Admit(
          block.order, static_cast<uint32_t>(gradient.slot), push, moves));
  if (!staleness.has_value()) {
    return Admission{false, MakeReceipt(push, Receipt::DUPLICATE)};
  }
  Admission admission = {moves, MakeCountedReceipt(push, bad_variable)};
  if (moves) {
    admission.receipt.set_staleness(*staleness);
    context_.counters.RecordStaleness(*staleness);  // I2
  }
  return admission;
}

absl::StatusOr<Receipt> AsyncMode::Push(Block& block, BlockGradient gradient,
                                        DueList& /*due*/) {
  // Both read the payload and the plan alone, so the first pass over the
  // payload needs no lock.
  const std::vector<bool> moved = MovedSegments(block.plan, gradient);
  const int bad_variable = FindNonFinite(block.plan, moved, gradient);
  const bool moves = bad_variable < 0 && AnyMoved(moved);
  BlockWriter writer(context_.arena);
  MutexLock lock(&block.mutex);
  if (moves) {
    // I1: buffers that a pull or a snapshot holds are replaced, so what they
    // see stays the state of one version. Before the mark is taken: a push that
    // finds no memory has changed nothing and may come again.
    writer.OpenAll(block);
  }
  WEIR_ASSIGN_OR_RETURN(const Admission admission,
                        Admit(block, gradient, moves, bad_variable));
  if (admission.apply) {
    const MustFinish update("an update of a block");
    writer.Replace();
    const std::vector<StepContext> contexts =
        TakeSteps(block, moved, *gradient.push);
    ApplyGradient(block.plan, BlockArrays(block), moved, contexts, gradient,
                  writer);
  }
  return admission.receipt;
}

absl::StatusOr<std::optional<Readable>> AsyncMode::CanRead(
    const UnitMarks& /*unit*/, uint64_t /*oldest*/, const Want& want) const {
  // Versions come from whoever pushes here, so no client can know one to ask
  // for.
  if (want.when_case() == Want::kVersion) {
    return absl::InvalidArgumentError(
        "want.version is for sync jobs; this job pulls the latest");
  }
  return Readable::kNow;
}

}  // namespace weir
