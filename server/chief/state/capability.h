// The capability that comes with a grant: who has it was given the slot.
//
// Place: the chief computes it when it tells shards and workers of a grant, and
// again when somebody shows one. Nothing has to be kept: a chief that was
// started again has the same secret, and finds the same.
//
// Threads: safe.
#ifndef SERVER_CHIEF_STATE_CAPABILITY_H_
#define SERVER_CHIEF_STATE_CAPABILITY_H_

#include <cstdint>
#include <string>

namespace weir {

// 128 bits that nobody can guess without the work directory's secret; zeros if
// that is empty.
struct Capability {
  uint64_t high = 0;
  uint64_t low = 0;

  bool operator==(const Capability&) const = default;
};

// Of one generation of a slot. With history 0 and generation 0 it is an offer:
// the chief gives it to the worker that is to take the slot.
Capability CapabilityOf(const std::string& chief_secret, uint64_t history,
                        uint32_t slot, uint32_t generation);

}  // namespace weir

#endif  // SERVER_CHIEF_STATE_CAPABILITY_H_
