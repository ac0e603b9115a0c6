// How the numbers of a contribution are spread: histograms of each variable's
// values and gradients.
//
// Place: the train loop has one and tells it of variables as they pass; what it
// makes travels to the chief, which writes it for TensorBoard.
//
// Invariants
//   I1. What is made for a contribution follows from the values that it was
//       computed from and the gradients that it pushes, and from nothing else.
//   I2. Nothing is read for a contribution that is not due.
// Threads: compatible.
// Owns/borrows: borrows everything in Options.
// Cost: a contribution that is due reads its values and gradients twice; any
//   other costs a comparison for each variable.
#ifndef WORKER_TRAIN_HISTOGRAMS_H_
#define WORKER_TRAIN_HISTOGRAMS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/job/layout.h"
#include "proto/chief.pb.h"
#include "worker/train/work_list.h"

namespace weir {

// The smallest number on the left, the largest on the right, and
// kHistogramBucketsMax buckets of equal width between them.
Histogram HistogramOf(std::span<const float> numbers);

class Histograms {
 public:
  struct Options {
    uint32_t every_steps = 0;  // 0: nothing is ever due
    const Layout* layout = nullptr;
    // In the flat space: what the network reads, and what is pushed.
    const float* values = nullptr;
    const float* gradients = nullptr;
    std::vector<int> left_out = {};  // variables that are never pushed
  };

  explicit Histograms(Options options) : options_(std::move(options)) {}

  // Begins a contribution. It is due if its step is a multiple of every_steps;
  // in sync the first of the step is, for all. Steps count from 1.
  void Begin(const WorkUnit& work, bool sync);
  // The values of `variable` are there, and do not change yet.
  void AddValues(int variable);
  // The same for its gradient, as it is going to be pushed.
  void AddGradients(int variable);
  // Ends the contribution; nullopt if it was not due.
  std::optional<ContributionHistograms> Take();

 private:
  VariableHistograms* Of(int variable);
  std::span<const float> Part(const float* flat, int variable) const;

  const Options options_;
  bool due_ = false;
  ContributionHistograms made_;
};

}  // namespace weir

#endif  // WORKER_TRAIN_HISTOGRAMS_H_
