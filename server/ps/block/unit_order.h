// What a unit remembers of the contributions to it.
//
// Place: a unit is whatever has marks and a version of its own: a block, or all
//   tables of a shard. Block and TableGroup hold one each;
//   server/ps/consistency/contribution_order.h decides by it and changes it.
//
// Terms
//   mark    per slot: the sequence number that the unit accepts next.
//   cursor  sync: contributions 0..cursor-1 of the step have been taken, or
//           passed.
//   early   sync: the contribution came before its turn; it is kept here.
//
// Threads: compatible; the lock of the unit protects it.
#ifndef SERVER_PS_BLOCK_UNIT_ORDER_H_
#define SERVER_PS_BLOCK_UNIT_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace weir {

// Everything but the payloads that are kept.
struct UnitMarks {
  UnitMarks(std::string unit_name, uint64_t base_version, size_t slot_count)
      : name(std::move(unit_name)),
        version(base_version),
        marks(slot_count),
        published_marks(slot_count),
        retired(slot_count) {}

  std::string name;  // as messages say it: "block 3", "tables"
  uint64_t version;
  std::vector<uint64_t> marks;  // by slot
  // Sync.
  std::vector<uint64_t> published_marks;  // when `version` was published
  std::vector<bool> retired;              // by slot
  uint32_t cursor = 0;
  bool begun = false;  // a contribution of the step was taken
};

// `Early`: what the owner keeps of a contribution; nothing here looks at it.
template <class Early>
struct UnitOrder : UnitMarks {
  using UnitMarks::UnitMarks;

  // The marks that belong to `version`. In the middle of a sync step `marks`
  // counts contributions that are not in the values yet.
  const std::vector<uint64_t>& MarksOfVersion() const {
    if (cursor > 0 || !early.empty()) {
      return published_marks;
    }
    return marks;
  }

  std::map<uint32_t, Early> early;  // by index in step
};

}  // namespace weir

#endif  // SERVER_PS_BLOCK_UNIT_ORDER_H_
