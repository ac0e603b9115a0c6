// Lists of row ids that senders may name again in place of sending them.
//
// Place: PullRows and PushRows of the same batch ask for the same rows;
// PushRows, and
//   a PullRows that is repeated, name the list. A list that is gone is sent
//   again, so a bound costs bytes alone.
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
  // Of all lists; the least recently used go first.
  static constexpr int64_t kDefaultBytesMax = int64_t{64} << 20;

  explicit IdListCache(int64_t bytes_max = kDefaultBytesMax)
      : bytes_max_(bytes_max) {}

  // The ids of `list`: decoded and kept under its name, or those of that name;
  // null when they are not here.
  // Errors: INVALID_ARGUMENT  of DecodeIds; a list without ids or name.
  absl::StatusOr<Ids> Resolve(uint32_t slot, const IdList& list);

  int64_t bytes() const;

 private:
  // slot, table, name, count
  using Key = std::tuple<uint32_t, uint32_t, uint64_t, uint32_t>;
  struct Entry {
    Key key;
    Ids ids;
  };

  void Keep(const Key& key, const Ids& ids);

  const int64_t bytes_max_;
  mutable Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // newest use first
  absl::flat_hash_map<Key, std::list<Entry>::iterator> places_
      ABSL_GUARDED_BY(mutex_);
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace weir

#endif  // SERVER_PS_ROWS_ID_LIST_CACHE_H_
