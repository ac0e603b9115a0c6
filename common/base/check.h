// WEIR_CHECK ends the process on a bug of our own.
//
// It is never used for what a peer, a file, a flag or the network can cause:
// that becomes an absl::Status.
#ifndef COMMON_BASE_CHECK_H_
#define COMMON_BASE_CHECK_H_

#include <cstdio>
#include <cstdlib>

#define WEIR_CHECK(condition)                                         \
  do {                                                                \
    if (!(condition)) {                                               \
      std::fprintf(stderr, "%s:%d: invariant broken: %s\n", __FILE__, \
                   __LINE__, #condition);                             \
      std::abort();                                                   \
    }                                                                 \
  } while (false)

#endif  // COMMON_BASE_CHECK_H_
