#include "server/ps/rows/id_list_cache.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "proto/wire/id_list.h"

namespace weir {

absl::StatusOr<Ids> IdListCache::Resolve(const Sender& sender,
                                         const IdList& list) {
  // The count guards against a name that is used again.
  const Key key = {list.table(), list.name(), list.count()};
  if (list.count() == 0) {
    return absl::InvalidArgumentError("a list of 0 ids; leave it out");
  }
  if (!list.deltas().empty()) {
    WEIR_ASSIGN_OR_RETURN(std::vector<uint64_t> decoded,
                          DecodeIds(list.deltas(), list.count()));
    Ids ids = std::make_shared<const std::vector<uint64_t>>(std::move(decoded));
    if (list.name() != 0) {
      Keep(sender, key, ids);
    }
    return ids;
  }
  if (list.name() == 0) {
    return absl::InvalidArgumentError(absl::StrCat("a list of ", list.count(),
                                                   " ids has neither ids nor a "
                                                   "name"));
  }
  MutexLock lock(&mutex_);
  Kept* const kept = KeptOf(sender);
  if (kept == nullptr) {
    return Ids();
  }
  const auto place = kept->places.find(key);
  if (place == kept->places.end()) {
    return Ids();
  }
  // To the front, as the newest use: iterators in `places` stay valid.
  kept->entries.splice(kept->entries.begin(), kept->entries, place->second);
  return place->second->ids;
}

IdListCache::Kept* IdListCache::KeptOf(const Sender& sender) {
  if (sender.generation() == 0) {
    return nullptr;  // I1
  }
  Kept& kept = slots_[sender.slot()];
  // I1. A request that passed its check before its process was replaced may
  // come late; it must not take the newer one's lists away.
  if (sender.generation() < kept.generation) {
    return nullptr;
  }
  if (sender.generation() > kept.generation) {
    kept = Kept();
    kept.generation = sender.generation();
  }
  return &kept;
}

void IdListCache::Keep(const Sender& sender, const Key& key, const Ids& ids) {
  MutexLock lock(&mutex_);
  Kept* const kept = KeptOf(sender);
  if (kept == nullptr) {
    return;
  }
  if (const auto place = kept->places.find(key); place != kept->places.end()) {
    kept->bytes += BytesOf(ids) - BytesOf(place->second->ids);
    place->second->ids = ids;
    kept->entries.splice(kept->entries.begin(), kept->entries, place->second);
  } else {
    kept->entries.push_front({key, ids});
    kept->places[key] = kept->entries.begin();
    kept->bytes += BytesOf(ids);
  }
  // I2. A list that is larger than the bound goes, too. Whoever holds its Ids
  // keeps them; the next one who names it is asked to send it.
  while (kept->bytes > bytes_per_slot_ && !kept->entries.empty()) {
    kept->bytes -= BytesOf(kept->entries.back().ids);
    kept->places.erase(kept->entries.back().key);
    kept->entries.pop_back();
  }
}

}  // namespace weir
