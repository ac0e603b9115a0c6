// The distinct ids of some lists, and which of them each entry is.
//
// Place: a batch names rows of a table in any order and more than once, while
//   the ps takes ascending ids without repeats. The worker's TableBatch and the
//   SDK's tables bring one into the other with it.
//
// Threads: compatible.
// Cost: linear in the entries (radix sort); nearly free if they ascend already.
//   Memory is kept from use to use.
#ifndef COMMON_JOB_UNIQUE_IDS_H_
#define COMMON_JOB_UNIQUE_IDS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace weir {

class UniqueIds {
 public:
  // Entries that one Rank can take.
  static constexpr size_t kEntriesMax = INT32_MAX;

  void Clear();
  // Adds entries behind those that are there.
  void Append(std::span<const uint64_t> ids);
  // Fills ids() and ranks() from the entries since Clear.
  // REQUIRES: at most kEntriesMax entries.
  void Rank();

  // Ascending, each once.
  const std::vector<uint64_t>& ids() const { return ids_; }
  // By entry, in the order of Append: where its id is in ids(). REQUIRES: Rank
  // was called since Clear.
  const std::vector<int32_t>& ranks() const { return ranks_; }
  // Entries so far.
  size_t entries() const { return entries_.size(); }

 private:
  struct Entry {
    uint64_t id;
    uint32_t position;
  };

  // Sorts entries_ by id.
  void Sort();

  std::vector<uint64_t> ids_;
  std::vector<int32_t> ranks_;
  std::vector<Entry> entries_, sorted_;
};

}  // namespace weir

#endif  // COMMON_JOB_UNIQUE_IDS_H_
