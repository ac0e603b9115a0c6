// Lists of row ids that senders may name again in place of sending them.
//
// Place: PullRows and PushRows of one batch name the same rows. The ids come
// with the PullRows; the PushRows, and a repeated PullRows, name the list. A
// list that is no longer here is sent again, so the bound costs bytes only.
//
// Invariants
//   I1. A slot's lists are those of its newest generation, and a name means a
//       list of that generation. Readers hold no slot and name nothing: what
//       they call a list changes nothing.
//   I2. Each slot has a bound of its own, so nobody's lists go because of
//       another's.
// Threads: safe.
#ifndef SERVER_PS_ROWS_ID_LIST_CACHE_H_
#define SERVER_PS_ROWS_ID_LIST_CACHE_H_

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/base/limits.h"
#include "common/base/mutex.h"
#include "proto/ps.pb.h"

namespace weir {

using Ids = std::shared_ptr<const std::vector<uint64_t>>;

// What keeping a list takes beside its ids, about: so many short lists are not
// for nothing.
inline constexpr int64_t kListOverheadBytes = 256;
// What keeping the list takes.
inline int64_t BytesOf(const Ids& ids) {
  return static_cast<int64_t>(ids->size() * sizeof(uint64_t)) +
         kListOverheadBytes;
}

class IdListCache {
 public:
  // The bound of each slot; its least recently used lists go first.
  explicit IdListCache(int64_t bytes_per_slot = kListBytesPerSlot)
      : bytes_per_slot_(bytes_per_slot) {}

  // Returns the ids of `list`: decoded, and kept if the list has a name; or
  // those that were kept under its name; null when they are not here.
  // REQUIRES: the generation of `sender` is its slot's, or 0.
  // Errors: INVALID_ARGUMENT  as DecodeIds says, or neither ids nor a name.
  absl::StatusOr<Ids> Resolve(const Sender& sender, const IdList& list);

 private:
  using Key = std::tuple<uint32_t, uint64_t, uint32_t>;  // table, name, count
  struct Entry {
    Key key;
    Ids ids;
  };
  // The lists of one slot.
  struct Kept {
    uint32_t generation = 0;
    std::list<Entry> entries;  // newest use first
    absl::flat_hash_map<Key, std::list<Entry>::iterator> places;
    int64_t bytes = 0;
  };

  // The lists of the sender's slot and generation; null: it has none.
  Kept* KeptOf(const Sender& sender) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Keep(const Sender& sender, const Key& key, const Ids& ids);

  const int64_t bytes_per_slot_;
  Mutex mutex_;
  std::map<uint32_t, Kept> slots_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir

#endif  // SERVER_PS_ROWS_ID_LIST_CACHE_H_
