// A ps in this process behind a real socket, with a small declared shard.
//
// It has one variable "w", all zeros, trained by SGD with learning rate 1, so
// after gradients g the values are -sum(g).
#ifndef TESTS_SUPPORT_LOOPBACK_PS_H_
#define TESTS_SUPPORT_LOOPBACK_PS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/cc/transport/transport.h"
#include "common/io/files.h"
#include "server/ps/ps_server.h"
#include "server/ps/store/store.h"
#include "tests/common/temp_dir.h"

namespace weir {

class LoopbackPs {
 public:
  struct Options {
    int64_t block_elements = 1024;
    int block_count = 4;  // all full but the last, which has 16 less
    int slot_count = 2;
    int sync_contributions = 0;  // 0 for another mode
    int staleness_bound = -1;    // of bounded staleness; -1 for another mode
    uint64_t out_of_order_bytes = 1 << 20;
    int queue_count = 1;
    bool declare = true;
    bool shared_memory = false;  // offered, and taken by `transport`
    Files* files = Files::Real();
    std::string checkpoint_root = CheckpointRoot();
    int table_dim = 0;  // of a table "t", trained like "w"; 0 for no table
  };
  LoopbackPs() : LoopbackPs(Options()) {}
  explicit LoopbackPs(Options options);
  ~LoopbackPs();

  std::string address() const;
  Declaration MakeDeclaration() const;
  Sender SenderOf(int slot, uint32_t generation = 1) const;
  // Says which generation may speak for the slot, or that it is retired.
  void SetSlot(int slot, uint32_t generation, bool retired);
  GradientChunk Chunk(int slot, uint64_t sequence, int block) const;
  int64_t elements(int block) const;
  // Returns the values of a block as the store has them now.
  std::vector<float> Values(int block) const;
  bool was_shut_down() const { return shut_down_; }
  // Why. REQUIRES: was_shut_down().
  const absl::Status& shut_down_why() const { return shut_down_why_; }
  // Ends the server at once, as a kill would.
  void Kill();
  // Breaks every connection, whatever is on its way, and takes new ones. The
  // store notices nothing.
  void BreakConnections();

  const Options options;
  std::unique_ptr<SharedArena> arena;  // null without shared memory
  std::unique_ptr<Store> store;
  std::unique_ptr<PsServer> server;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<ControlLink> link;
  std::unique_ptr<DataLink> data;

 private:
  void Serve();

  uint64_t fingerprint_ = 0;
  std::string address_ = "127.0.0.1:0";  // before the server listens
  absl::Status shut_down_why_;           // written before the next
  std::atomic<bool> shut_down_{false};
};

// Views `values` as the bytes of a payload.
std::span<const char> BytesOf(const std::vector<float>& values);
// Returns a payload's bytes as float32.
std::vector<float> FloatsOf(const Payload& payload);

}  // namespace weir

#endif  // TESTS_SUPPORT_LOOPBACK_PS_H_
