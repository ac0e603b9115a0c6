#include "server/ps/rows/id_list_cache.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "proto/wire/id_list.h"

namespace weir {
namespace {

int64_t BytesOf(const Ids& ids) {
  return static_cast<int64_t>(ids->size() * sizeof(uint64_t));
}

}  // namespace

absl::StatusOr<Ids> IdListCache::Resolve(uint32_t slot, const IdList& list) {
  // Slot and table are in the key, so one slot's names never reach another's
  // lists, and the count guards against a name that is used again.
  const Key key = {slot, list.table(), list.name(), list.count()};
  if (list.count() == 0) {
    return absl::InvalidArgumentError("a list of 0 ids; leave it out");
  }
  if (!list.deltas().empty()) {
    WEIR_ASSIGN_OR_RETURN(std::vector<uint64_t> decoded,
                          DecodeIds(list.deltas(), list.count()));
    Ids ids = std::make_shared<const std::vector<uint64_t>>(std::move(decoded));
    if (list.name() != 0) {
      Keep(key, ids);
    }
    return ids;
  }
  if (list.name() == 0) {
    return absl::InvalidArgumentError(absl::StrCat("a list of ", list.count(),
                                                   " ids has neither ids nor a "
                                                   "name"));
  }
  MutexLock lock(&mutex_);
  const auto place = places_.find(key);
  if (place == places_.end()) {
    return Ids();
  }
  // To the front, as the newest use: iterators in places_ stay valid.
  entries_.splice(entries_.begin(), entries_, place->second);
  return place->second->ids;
}

void IdListCache::Keep(const Key& key, const Ids& ids) {
  MutexLock lock(&mutex_);
  if (const auto place = places_.find(key); place != places_.end()) {
    bytes_ += BytesOf(ids) - BytesOf(place->second->ids);
    place->second->ids = ids;
    entries_.splice(entries_.begin(), entries_, place->second);
  } else {
    entries_.push_front({key, ids});
    places_[key] = entries_.begin();
    bytes_ += BytesOf(ids);
  }
  // A list that is larger than the bound goes, too. Whoever holds its Ids keeps
  // them; the next one who names it is asked to send it.
  while (bytes_ > bytes_max_ && !entries_.empty()) {
    bytes_ -= BytesOf(entries_.back().ids);
    places_.erase(entries_.back().key);
    entries_.pop_back();
  }
}

}  // namespace weir
