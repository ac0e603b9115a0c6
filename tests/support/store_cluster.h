// Real stores of one job behind an InProcessTransport, open for its workers.
//
// Place: tests of the clients. The job has a tensor `w` and a table `t` of dim
// 1, both zero at first. Plain SGD with rate 1 applies gradients, so values are
// minus the sum of them.
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
  static constexpr int kShards = 2;
  static constexpr int kElements = 300;

  // `update` is the declaration's, as text.
  explicit StoreCluster(const std::string& update, int slots = 1);

  std::unique_ptr<Store> MakeStore(int shard, uint64_t incarnation, int slots);
  Sender SenderOf(int slot) const;
  ShardClientOptions ClientOptions();
  std::vector<EmbeddingTable> tables() const {
    return {declaration.table().begin(), declaration.table().end()};
  }
  // Lets the next requests to shard 1 end with `status`.
  void FailNext(int requests, const absl::Status& status) {
    transport.FailNext(addresses[1], requests, status);
  }

  Declaration declaration;
  std::unique_ptr<Layout> layout;
  std::vector<std::string> addresses;  // "host0:1", "host1:1"
  std::vector<std::unique_ptr<Store>> stores;
  InProcessTransport transport{3};
};

}  // namespace weir

#endif  // TESTS_SUPPORT_STORE_CLUSTER_H_
