// Builds declarations, payloads and stores for tests of server/ps.
#ifndef TESTS_SERVER_PS_STORE_STORE_TESTER_H_
#define TESTS_SERVER_PS_STORE_STORE_TESTER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/io/payload.h"
#include "common/job/layout.h"
#include "proto/ps.pb.h"
#include "server/ps/store/store.h"

namespace weir {

// A job "test" with history 1 and, unless `text` (a Declaration in protobuf
// text form) says otherwise, one shard, blocks of 64, one slot and a budget of
// 1 MiB; `text` must name variables, groups and the consistency mode.
Declaration ParseDeclaration(const std::string& text);

// Owns the bytes. `piece_bytes` 0: one piece; else pieces of that size, which
// may end inside an element.
Payload MakePayload(const std::vector<float>& values, size_t piece_bytes = 0,
                    Encoding encoding = F32);

// Counts the bytes that are out; takes them from the heap.
class CountingArena : public Arena {
 public:
  void* Allocate(size_t bytes) override;
  void Free(void* memory, size_t bytes) override;
  int64_t bytes() const { return bytes_; }
  int64_t bytes_max() const { return bytes_max_; }

 private:
  std::atomic<int64_t> bytes_{0};
  std::atomic<int64_t> bytes_max_{0};
};

// Has memory for `left` buffers more.
class EndingArena : public CountingArena {
 public:
  void* Allocate(size_t bytes) override;
  int64_t left = 1000;
};

// One ps with a declared shard, and shorthand for speaking to it.
class StoreTester {
 public:
  // Declares, and sets all slots live at generation 1 when `activate`.
  explicit StoreTester(const Declaration& declaration, uint32_t shard = 0,
                       bool activate = true, Arena* arena = Arena::Heap());

  Sender SenderOf(int slot, uint32_t generation = 1) const;
  // A chunk of one block with its identity filled in.
  GradientChunk Chunk(int slot, uint64_t sequence, int block,
                      uint64_t base_version, uint32_t contribution = 0) const;
  absl::StatusOr<Receipt> Push(const GradientChunk& chunk,
                               const std::vector<float>& gradient);
  // Every element of the block's gradient is `value`.
  absl::StatusOr<Receipt> PushConstant(const GradientChunk& chunk, float value);
  // Pulls the latest; CHECKs that it was answered at once.
  PulledBlock Latest(int block);
  std::vector<float> Values(int block);
  absl::Status SetSlot(int slot, uint32_t generation, bool retired);

  // Restores under `the_declaration`'s history; speaks of it afterwards.
  absl::Status Restore(const Declaration& the_declaration,
                       const std::string& checkpoint_dir);

  // A pull that may be parked.
  struct PullResult {
    bool done = false;
    absl::StatusOr<PulledBlock> answer = absl::UnknownError("not answered");
  };
  std::shared_ptr<PullResult> Pull(int slot, int block, const Want& want);

  // Snapshot and write at once; both replies, or the error.
  struct SnapshotResult {
    std::vector<SnapshotReply> replies;
    absl::Status error;
  };
  SnapshotResult Snapshot(const std::string& directory, int64_t version = -1);

  int64_t elements(int block) const;
  int block_count() const;

  FakeClock clock;
  std::unique_ptr<Store> store;
  Declaration declaration;
  const uint32_t shard;

 private:
  uint64_t fingerprint_ = 0;
};

Want LatestWant(uint64_t clock = 0);
Want VersionWant(uint64_t version, uint32_t timeout_ms = 0);

// Writes the manifest that a chief would, for shard files written into `dir`.
absl::Status CommitManifest(const std::string& dir,
                            const Declaration& declaration,
                            const std::vector<ShardFile>& shard_files);

}  // namespace weir

#endif  // TESTS_SERVER_PS_STORE_STORE_TESTER_H_
