// Two ps for the tests of the SDK without a chief.
#ifndef TESTS_CLIENT_CC_SDK_SERVERS_H_
#define TESTS_CLIENT_CC_SDK_SERVERS_H_

#include "client/cc/weir.h"
#include "tests/support/loopback_ps.h"

namespace weir::sdk {

// Two empty ps behind real sockets.
struct Servers {
  static LoopbackPs::Options Empty() {
    LoopbackPs::Options options;
    options.declare = false;
    return options;
  }
  sdk::Options ForWorker(int index = 0, int count = 1) const {
    sdk::Options options;
    options.ps = {first.address(), second.address()};
    options.rank = index;
    options.worker_count = count;
    options.groups[0].learning_rate = 1.0;
    options.block_elements = 64;
    options.lost_after_seconds = 5.0;
    options.start_wait_seconds = 10.0;
    return options;
  }
  LoopbackPs first{Empty()};
  LoopbackPs second{Empty()};
};

}  // namespace weir::sdk

#endif  // TESTS_CLIENT_CC_SDK_SERVERS_H_
