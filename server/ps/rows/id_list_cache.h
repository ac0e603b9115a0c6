// Lists of row ids that senders may name again in place of sending them.
//
// Place: PullRows and PushRows of one batch name the same rows. The ids come
// with the PullRows; the PushRows, and a repeated PullRows, name the list. A
// list that is no longer here is sent again, so the bound costs bytes only.
//
// Threads: safe.
#ifndef SERVER_PS_ROWS_ID_LIST_CACHE_H_
#define SERVER_PS_ROWS_ID_LIST_CACHE_H_

#include <cstdint>
#include <list>
#include <memory>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "proto/ps.pb.h"

namespace weir {

using Ids = std::shared_ptr<const std::vector<uint64_t>>;

class IdListCache {
 public:
  // The bound for all lists together; the least recently used go first.
  static constexpr int64_t kDefaultBytesMax = int64_t{64} << 20;

  explicit IdListCache(int64_t bytes_max = kDefaultBytesMax)
      : bytes_max_(bytes_max) {}

  // Returns the ids of `list`: decoded, and kept if the list has a name; or
  // those that were kept under its name; null when they are not here.
  // Errors: INVALID_ARGUMENT  as DecodeIds says, or neither ids nor a name.
  absl::StatusOr<Ids> Resolve(uint32_t slot, const IdList& list);

 private:
  // slot, table, name, count
  using Key = std::tuple<uint32_t, uint32_t, uint64_t, uint32_t>;
  struct Entry {
    Key key;
    Ids ids;
  };

  void Keep(const Key& key, const Ids& ids);

  const int64_t bytes_max_;
  Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // newest use first
  absl::flat_hash_map<Key, std::list<Entry>::iterator> places_
      ABSL_GUARDED_BY(mutex_);
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace weir

#endif  // SERVER_PS_ROWS_ID_LIST_CACHE_H_
