// The CPU backend's plain loops: every operation but products and convolutions.
//
// Place: CpuBackend::Run calls the one of its operation; the contracts (shapes,
// null arguments, what may overlap) are in worker/compute/operations.h.
//
// Invariants
//   I1. Sums run in a fixed order, lane by lane, so their bits depend neither
//       on addresses nor on the instruction set. Long sums are carried in
//       double.
// Threads: safe; no state.
#ifndef WORKER_COMPUTE_CPU_OPERATIONS_H_
#define WORKER_COMPUTE_CPU_OPERATIONS_H_

#include <cstdint>

#include "worker/compute/operations.h"

namespace weir::cpu {

void Compute(const op::SumRows& o);
void Compute(const op::PoolForward& o);
void Compute(const op::PoolBackward& o);
void Compute(const op::ActivationForward& o);
void Compute(const op::ActivationBackward& o);
void Compute(const op::Dropout& o, uint64_t key);
void Compute(const op::Add& o);
void Compute(const op::MultiplyAdd& o);
// y = a * x + b * y.
void ScaleAdd(int64_t count, float a, const float* x, float b, float* y);
void Compute(const op::CopyColumns& o);
void Compute(const op::BytesToFloats& o);
void Compute(const op::Transpose& o);
void Compute(const op::Loss& o);

void Compute(const op::NormForward& o);
void Compute(const op::NormBackward& o);
void Compute(const op::NormInference& o);

void Compute(const op::GatherSum& o);
void Compute(const op::GatherMax& o);
void Compute(const op::GatherChosen& o);
void Compute(const op::PairForward& o);
void Compute(const op::PairBackward& o);

}  // namespace weir::cpu

#endif  // WORKER_COMPUTE_CPU_OPERATIONS_H_
