// A unit of a shard as contributions see it: a block, or all tables. What every
// unit must do is tested once, over both.
#ifndef TESTS_SERVER_PS_CONSISTENCY_UNIT_TESTER_H_
#define TESTS_SERVER_PS_CONSISTENCY_UNIT_TESTER_H_

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/server/ps/store/store_tester.h"

namespace weir {

enum class UnitKind : int { kBlock, kTables };
inline void PrintTo(UnitKind kind, std::ostream* out) {
  *out << (kind == UnitKind::kBlock ? "block" : "tables");
}
inline auto AllUnits() {
  return testing::Values(UnitKind::kBlock, UnitKind::kTables);
}

// A shard with one block and one table; its tests speak to one of them. Both
// have 64 values, the table as rows 0 to 63 of one column, which begin at 0 and
// move by plain SGD with rate 1/8.
class UnitTester {
 public:
  static constexpr size_t kValues = 64;

  struct Contribution {
    int slot = 0;
    uint64_t sequence = 0;
    uint64_t base_version = 0;
    uint32_t index = 0;
    uint32_t generation = 1;
    float weight = 1.0f;
  };
  struct Wait {
    bool done = false;
    bool not_yet = false;
    absl::Status error;
    uint64_t version = 0;
    std::vector<float> values;
  };

  // `update` and `more` are text of the declaration.
  UnitTester(UnitKind kind, const std::string& update, int slots = 1,
             const std::string& more = "");
  // Speaks to the other unit, or again to this one, of the same shard.
  UnitTester(UnitKind kind, const UnitTester& same_shard);

  // An empty gradient: nothing is brought.
  absl::StatusOr<Receipt> Push(const Contribution& contribution,
                               const std::vector<float>& gradient);
  absl::StatusOr<Receipt> Push(const Contribution& contribution, float value) {
    return Push(contribution, std::vector<float>(kValues, value));
  }
  // The outcome; NONE, and a failed test, after an error.
  Receipt::Outcome Outcome(const Contribution& contribution, float value);

  std::shared_ptr<Wait> Pull(const Want& want);
  uint64_t version() { return Pull(LatestWant())->version; }
  std::vector<float> values() { return Pull(LatestWant())->values; }

  uint64_t mark(int slot) const;
  // What one contribution takes while it waits: rows have their ids, too.
  uint64_t bytes() const;
  // Of the whole shard.
  uint64_t bytes_waiting() const;

  const UnitKind kind;
  const std::shared_ptr<StoreTester> ps;
};

}  // namespace weir

#endif  // TESTS_SERVER_PS_CONSISTENCY_UNIT_TESTER_H_
