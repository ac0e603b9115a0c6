// Real stores of one job behind an InProcessTransport, open for its workers.
//
// Place: tests of what talks to shards. A test gives the parts of the
// declaration that it is about. What it leaves out: the job is "test", of
// history 1, with two shards, one slot, blocks of 64 elements and 1 MiB for
// early contributions; the mode is async; plain SGD with rate 1 applies
// gradients, and rows begin at zero. A value that began at zero is then minus
// the sum of its gradients.
#ifndef TESTS_SUPPORT_STORE_CLUSTER_H_
#define TESTS_SUPPORT_STORE_CLUSTER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/cc/parameters/contribution.h"
#include "common/job/layout.h"
#include "proto/ps.pb.h"
#include "server/ps/store/store.h"
#include "tests/support/in_process_transport.h"

namespace weir {

struct StoreCluster {
  explicit StoreCluster(const Declaration& given, uint64_t seed = 3);
  // `given` as text.
  explicit StoreCluster(const std::string& given, uint64_t seed = 3);

  // Returns a store of the job that no address serves yet.
  std::unique_ptr<Store> MakeStore(int shard, uint64_t incarnation) const;
  // Lets `store` answer for `shard`, as a process that was started again does.
  void Replace(int shard, std::unique_ptr<Store> store);
  Sender SenderOf(int slot) const;
  ShardClientOptions ClientOptions();
  std::vector<EmbeddingTable> tables() const {
    return {declaration.table().begin(), declaration.table().end()};
  }
  // Lets the next requests to shard 1 end with `status`.
  void FailNext(int requests, const absl::Status& status) {
    transport.FailNext(addresses[1], requests, status);
  }

  // Returns the newest values of all variables, in flat order.
  std::vector<float> Values() const;
  // Returns the sum of a counter over the shards.
  uint64_t Sum(uint64_t (PsStatus::*counter)() const) const;

  Declaration declaration;
  std::unique_ptr<Layout> layout;
  std::vector<std::string> addresses;  // "host0:1", "host1:1"
  std::vector<std::unique_ptr<Store>> stores;
  InProcessTransport transport;
};

}  // namespace weir

#endif  // TESTS_SUPPORT_STORE_CLUSTER_H_
