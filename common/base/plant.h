// Defects that Weir once had, which a test build can put back.
//
//   if (Planted("stop.version_ahead")) { ... what was wrong ... }
//   WEIR_PLANT=stop.version_ahead,chief.sweeps_before_bind
//
// With it, a test that looks for a kind of defect can show that it finds one.
// Builds for users have none of this: without -DWEIR_PLANTS, which the
// configurations of the sanitizers set (.bazelrc), Planted is a constant false.
//
// Names:
//   checkpoint.drops_bases        what a kept increment extends is deleted
//   checkpoint.rewrites_in_place  a committed checkpoint is removed before its
//                                 successor of the same step is written
//   checkpoint.last_gives_up      three failed tries end a finished job
//   checkpoint.torn_retries_soon  a torn hold is repeated after a second
//   chief.fenced_ends_job         a chief that was replaced shuts all ps down
//   chief.sweeps_before_bind      a second chief tidies up, then finds its port
//                                 taken
//   clock.wall_waits              timed waits follow the wall clock
//   clock.wall_rows               rows take their age from the wall clock
//   end.forgets_latecomers        who registers after the end gets an error
//   end.forgets_lost_ps           nobody waits for a ps that is lost at the end
//   client.silent_receipt         nobody is woken by the last receipt
//   exchange.sends_once           a client does not repeat what a broken stream
//                                 may have lost
//   flow.writes_once              an answer that waits behind another one stays
//   order.counts_again            a contribution that comes again counts again
//   order.early_unmarked          the same of one that waits for its turn
//   ps.leaves_at_once             a ps ends on SIGTERM without waiting
//   resume.sorts_by_text          the newest checkpoint is the last by its name
//   rows.applies_again            rows move again with a push that comes again
//   rows.increments_chain         an increment leaves out what the one before
//                                 it has, though it does not extend that one
//   snapshot.takes_newer          a snapshot in sync takes a block that is past
//                                 the version that was asked for
//   roster.replaced_comes_back    a replaced process is taken for a new one by
//                                 a restarted chief
//   stop.version_ahead            a stop in sync waits for a version to come
//   watch.counts_holds            the time of a hold counts as no progress
//   worker.keeps_hold             a hold outlives the chief that asked for it
//
// Threads: safe.
// Cost: none without WEIR_PLANTS.
#ifndef COMMON_BASE_PLANT_H_
#define COMMON_BASE_PLANT_H_

namespace weir {

#ifdef WEIR_PLANTS
// Whether WEIR_PLANT, read once, has `name`.
bool Planted(const char* name);
#else
constexpr bool Planted(const char* /*name*/) { return false; }
#endif

}  // namespace weir

#endif  // COMMON_BASE_PLANT_H_
