#include "server/ps/store/slot_grants.h"

#include "gtest/gtest.h"

namespace weir {
namespace {

SetSlotsRequest Grant(uint32_t slot, uint32_t generation, uint64_t process,
                      bool retired = false) {
  SetSlotsRequest request;
  SetSlotsRequest::Slot* const entry = request.add_slot();
  entry->set_slot(slot);
  entry->set_generation(generation);
  entry->set_process(process);
  entry->set_retired(retired);
  return request;
}

TEST(SlotGrantsTest, AGenerationNeverDecreases) {
  std::vector<SlotState> slots(2);
  SetSlots(Grant(1, 3, 0), &slots);
  EXPECT_EQ(CheckSlots(slots, Grant(1, 2, 0)).code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(CheckSlots(slots, Grant(1, 3, 0)).ok());
  EXPECT_TRUE(CheckSlots(slots, Grant(1, 4, 0)).ok());
  EXPECT_EQ(CheckSlots(slots, Grant(2, 4, 0)).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(SlotGrantsTest, OneGenerationBelongsToOneProcess) {
  std::vector<SlotState> slots(1);
  SetSlots(Grant(0, 1, 70), &slots);
  EXPECT_TRUE(CheckSlots(slots, Grant(0, 1, 70)).ok());
  EXPECT_EQ(CheckSlots(slots, Grant(0, 1, 71)).code(),
            absl::StatusCode::kPermissionDenied);
  // A chief that does not know the process neither fails nor forgets it.
  EXPECT_TRUE(CheckSlots(slots, Grant(0, 1, 0)).ok());
  SetSlots(Grant(0, 1, 0), &slots);
  EXPECT_EQ(slots[0].process, 70u);
  // The next generation is another process's.
  EXPECT_TRUE(CheckSlots(slots, Grant(0, 2, 71)).ok());
  SetSlots(Grant(0, 2, 0), &slots);
  EXPECT_EQ(slots[0].process, 0u);
}

TEST(SlotGrantsTest, OneGenerationHasOneCapability) {
  const auto with = [](uint32_t generation, uint64_t high, uint64_t low) {
    SetSlotsRequest request = Grant(0, generation, 70);
    request.mutable_slot(0)->set_capability_high(high);
    request.mutable_slot(0)->set_capability_low(low);
    return request;
  };
  std::vector<SlotState> slots(1);
  SetSlots(with(1, 8, 9), &slots);
  EXPECT_TRUE(CheckSlots(slots, with(1, 8, 9)).ok());
  EXPECT_EQ(CheckSlots(slots, with(1, 8, 10)).code(),
            absl::StatusCode::kPermissionDenied);
  // Whoever does not know it leaves it.
  EXPECT_TRUE(CheckSlots(slots, with(1, 0, 0)).ok());
  SetSlots(with(1, 0, 0), &slots);
  EXPECT_EQ(slots[0].capability_high, 8u);
  EXPECT_EQ(slots[0].capability_low, 9u);
  SetSlots(with(2, 0, 0), &slots);
  EXPECT_EQ(slots[0].capability_high, 0u);
}

TEST(SlotGrantsTest, NoGenerationLocksASlotForGood) {
  std::vector<SlotState> slots(1);
  for (const uint32_t generation : {kGenerationMax + 1, UINT32_MAX}) {
    EXPECT_EQ(CheckSlots(slots, Grant(0, generation, 0)).code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(CheckSlots(slots, Grant(0, kGenerationMax, 0)).ok());
}

TEST(SlotGrantsTest, ARetiredSlotComesBackOnlyWithANewGeneration) {
  std::vector<SlotState> slots(1);
  SetSlots(Grant(0, 1, 0), &slots);
  EXPECT_TRUE(slots[0].live);
  SetSlots(Grant(0, 1, 0, true), &slots);
  EXPECT_TRUE(slots[0].retired);
  EXPECT_FALSE(slots[0].live);
  SetSlots(Grant(0, 1, 0, false), &slots);  // late: stays retired
  EXPECT_TRUE(slots[0].retired);
  SetSlots(Grant(0, 2, 0, false), &slots);
  EXPECT_FALSE(slots[0].retired);
  EXPECT_TRUE(slots[0].live);
}

TEST(SlotGrantsTest, TheTableSaysWhatWasSetAndLeavesOtherSlotsAlone) {
  std::vector<SlotState> slots(3);
  SetSlots(Grant(1, 5, 9, true), &slots);
  const std::vector<SlotStatus> table = SlotTable(slots);
  ASSERT_EQ(table.size(), 3u);
  EXPECT_EQ(table[0].generation(), 0u);
  EXPECT_FALSE(table[0].retired());
  EXPECT_EQ(table[1].slot(), 1u);
  EXPECT_EQ(table[1].generation(), 5u);
  EXPECT_EQ(table[1].process(), 9u);
  EXPECT_TRUE(table[1].retired());
  // Neutral for the minimum and the maximum over marks.
  EXPECT_EQ(table[1].next_sequence_min(), UINT64_MAX);
  EXPECT_EQ(table[1].next_sequence_max(), 0u);
}

}  // namespace
}  // namespace weir
