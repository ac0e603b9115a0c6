// How far another process's steady clock is ahead of ours.
//
// Place: tasks of a timeline read clocks of their own, which may be of other
// hosts. Whoever exchanges messages with a task feeds the times of a few.
//
// Of each exchange we know when we asked and when the answer came, and what
// their clock said in between. Their reading fits best to the middle, and it
// cannot be off by more than half of the time that the exchange took; so the
// quickest exchange counts. Processes of one host read the same clock: where
// the exchange allows that, it is taken for true, since clocks of two hosts
// count from their starts and are never that near to each other. See
// "Timelines" in docs/design_notes.md.
//
// Threads: compatible.
// Source: Mills, "Internet Time Synchronization: the Network Time Protocol",
//         IEEE Transactions on Communications 39(10), 1991, section IV.
#ifndef COMMON_TRACE_CLOCK_OFFSET_H_
#define COMMON_TRACE_CLOCK_OFFSET_H_

#include <cstdint>
#include <limits>

namespace weir {

class ClockOffset {
 public:
  void Add(int64_t asked_ns, int64_t theirs_ns, int64_t answered_ns) {
    const int64_t delay_ns = answered_ns - asked_ns;
    if (delay_ns >= 0 && delay_ns < delay_ns_) {
      delay_ns_ = delay_ns;
      // In unsigned numbers, which may wrap: their reading is a peer's word.
      ns_ =
          static_cast<int64_t>(static_cast<uint64_t>(theirs_ns) -
                               static_cast<uint64_t>(asked_ns + delay_ns / 2));
      if (-delay_ns / 2 <= ns_ && ns_ <= delay_ns / 2) {
        ns_ = 0;
      }
    }
  }

  bool known() const {
    return delay_ns_ != std::numeric_limits<int64_t>::max();
  }
  // Their clock less ours; 0 while it is not known.
  int64_t ns() const { return ns_; }
  // What the quickest exchange took; ns() is off by at most half of it.
  int64_t delay_ns() const { return delay_ns_; }

 private:
  int64_t ns_ = 0;
  int64_t delay_ns_ = std::numeric_limits<int64_t>::max();
};

}  // namespace weir

#endif  // COMMON_TRACE_CLOCK_OFFSET_H_
