// Shards for tests of the client: the rules of proto/ps.proto in one place,
// without optimizer, threads or network, and with faults on demand.
//
// Every update adds rate * the sum of the gradients to the values. With rate 1
// and gradient 1 every element counts the contributions that reached it.
//
// Threads: safe.
#ifndef TESTS_SUPPORT_FAKE_SHARDS_H_
#define TESTS_SUPPORT_FAKE_SHARDS_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "client/cc/transport/transport.h"
#include "common/job/layout.h"

namespace weir {

enum class Fault {
  kNone,
  kBreakBefore,  // the stream breaks, the request is lost
  kBreakAfter,   // the request takes effect, then the stream breaks
  kDefer,        // a push is answered DEFERRED
};

class FakeShards : public Transport {
 public:
  struct Options {
    const Layout* layout = nullptr;
    int contributions = 0;  // in a step of sync; 0 for async
    float rate = 1.0f;
    std::vector<float> initial = {};  // flat; empty for zeros
    // Decides on each request, under the lock. May be empty.
    std::function<Fault(int shard, const GradientChunk& request)> fault = {};
  };

  explicit FakeShards(Options options);
  ~FakeShards() override;

  // "fake:0", "fake:1", ...
  std::vector<std::string> addresses() const;
  std::unique_ptr<ControlLink> Connect(const std::string& address) override;
  std::unique_ptr<DataLink> ConnectData(const std::string& address) override;

  // Breaks every stream with `status`, and new ones too, until the next call
  // with OK.
  void SetDown(int shard, const absl::Status& status);
  // Acts like a new process at the same address: another incarnation, with the
  // same values.
  void ChangeIncarnation(int shard);
  // While `silent`, the answers to this shard's wants are held back.
  void SetSilent(int shard, bool silent);

  std::vector<float> values(int shard, int block);
  uint64_t version(int shard, int block);
  uint64_t next_sequence(int shard, int block, uint32_t slot);
  uint64_t duplicates();
  // Returns (shard, block) of the payloads, in the order in which they came.
  std::vector<BlockId> arrivals();
  // Returns (shard, first block) of the requests that had a want.
  std::vector<BlockId> wants();

 private:
  friend class FakeStream;
  friend class FakeLink;

  struct Block {
    std::vector<float> values;
    uint64_t version = 0;
    std::vector<float> previous;                   // sync: of version - 1
    std::map<uint32_t, uint64_t> next_sequence;    // slot -> contribution
    std::map<uint32_t, std::vector<float>> taken;  // sync: contribution -> sum
  };
  struct Shard {
    std::vector<Block> blocks;
    uint64_t incarnation = 0;
    absl::Status down;
    bool silent = false;
  };

  Receipt Apply(int shard, int block, const GradientChunk& request,
                const float* gradient);

  const Options options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Shard> shards_;
  std::vector<class FakeStream*> streams_;
  std::vector<BlockId> arrivals_;
  std::vector<BlockId> wants_;
  uint64_t duplicates_ = 0;
};

}  // namespace weir

#endif  // TESTS_SUPPORT_FAKE_SHARDS_H_
