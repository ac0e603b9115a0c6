// A JobState in a world without threads, sockets or files: shards that keep the
// rules of proto/ps.proto, workers that do contributions, a disk that is a map.
//
// Actions are carried out one at a time. With a seed, those of different shards
// are carried out in random order.
#ifndef TESTS_SERVER_CHIEF_CHIEF_WORLD_H_
#define TESTS_SERVER_CHIEF_CHIEF_WORLD_H_

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/math/random.h"
#include "server/chief/job_state.h"
#include "tests/server/chief/small_declaration.h"

namespace weir {

JobSpec SmallSpec();

class ChiefWorld {
 public:
  struct Shard {
    uint64_t incarnation = 1;
    ShardState state = EMPTY;
    Declaration declaration;
    bool down = false;
    std::map<int, uint32_t> generation;
    std::map<int, uint64_t> process;  // of the generation
    std::map<int, bool> retired;
    bool assigned = false;         // by worker 0
    std::map<int, uint64_t> next;  // next contribution by slot
    int declares = 0;
    int restores = 0;
    bool shut_down = false;
    bool leaving = false;       // after SIGTERM
    bool without_root = false;  // started without --checkpoint_root
    absl::StatusCode shutdown_code = absl::StatusCode::kOk;
    std::string secret;                        // of Declare or Restore
    std::optional<uint64_t> snapshot_version;  // sync: not reached yet
    std::string snapshot_name;
    bool frozen = false;  // its file is being written
    // Sync: the version before can be frozen, as with an optimizer without
    // state.
    bool keeps_previous = false;
  };
  struct Worker {
    uint64_t process = 0;
    RegisterRequest request;
    std::optional<Grant> grant;
    uint64_t stream = 0;
    bool held = false;
    std::optional<int> take;  // a slot
    std::optional<Stop> stop;
    absl::Status error;  // of Register or the stream
    uint64_t next = 0;
    uint64_t contributions = 0;  // to do
    bool finished = false;
    uint64_t bytes_moved = 0;
  };

  ChiefWorld(int shards, int workers, JobSpec spec, uint64_t seed = 0);

  // Starts a chief. What the one before knew is lost.
  void StartChief(bool resume = false);
  JobState& chief() { return *chief_; }
  // Delivers answers until nothing is under way.
  void Settle();
  // Delivers the oldest call to shard `s`.
  void AnswerNext(int s);
  // Lets time pass in ticks of 50 ms, and delivers everything in between.
  void Run(double seconds);

  // Registers worker `w` as a new process until it has a grant or an error.
  Worker& Join(int w);
  void Register(int w);
  // SDK job: worker `w` finishes and retires its slot. It waits for the end.
  void Retire(int w);
  // Sends a heartbeat that tells what worker `w` did.
  absl::Status Beat(int w, bool bad = false);
  // Does one contribution on every shard, or with `torn` on the first one only.
  void DoContribution(int w, bool torn = false);
  // Lets every joined worker work and beat until the job is over.
  void Work(int ticks_max = 20000);

  FakeClock clock;
  std::vector<Shard> shards;
  std::map<int, Worker> workers;
  JobState::Options options;
  Declaration sdk_job;  // what every worker declares, with options.sdk_job
  std::vector<std::string> log;
  std::vector<std::string> lines;  // train.jsonl
  std::vector<AppendHistograms> histograms;
  std::map<std::string, Manifest> disk;  // committed checkpoints
  std::vector<std::string> directories;  // those made for checkpoints
  std::string done;
  std::string marked_finished;  // the checkpoint with kFinishedName
  std::optional<absl::Status> finished;
  int holds = 0;
  // Every (slot, generation) that was granted, with its process.
  std::map<std::pair<uint32_t, uint32_t>, std::set<uint64_t>> grants;
  absl::Status write_error;  // of writing a shard file
  absl::Status commit_error;
  absl::Status done_error;      // of writing DONE
  bool manifest_stays = false;  // after commit_error: its last fsync failed
  bool damaged = false;         // the newest checkpoint
  bool no_cut = false;          // cutting train.jsonl hangs
  bool no_freeze = false;       // snapshots hang
  bool no_write = false;        // frozen, but their files hang
  bool takes_no_slot = false;   // workers are deaf to take_slot

  bool Logged(const std::string& text) const;
  // The name of the newest in `disk`, "" without one.
  std::string Newest() const;
  // All ps die and come back empty.
  void LoseShards();

 private:
  void Take();
  void Run(const Action& action);
  void Deliver(const SendCommand& send);
  void LeaveIfStopped(int w);
  void Call(const ShardCall& call);
  void Snapshot(int s, const SnapshotRequest& request);
  void CheckSnapshots();
  HelloReply Hello(int s) const;
  uint64_t Version(const Shard& shard) const;
  uint64_t ContributionsPerStep(const Shard& shard, uint32_t slot) const;
  void Activate(int s, const SetSlotsRequest& request);

  std::optional<RandomStream> random_;
  uint64_t next_random_ = 100;
  uint64_t next_stream_ = 1;
  std::unique_ptr<JobState> chief_;
  std::vector<std::deque<ShardCall>> calls_;
  std::deque<Action> others_;
};

}  // namespace weir

#endif  // TESTS_SERVER_CHIEF_CHIEF_WORLD_H_
