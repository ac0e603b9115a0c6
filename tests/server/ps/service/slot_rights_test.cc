#include "server/ps/service/slot_rights.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using testing::HasSubstr;

SlotRights Of(PeerRole role, int index, bool has_chief) {
  return {PeerIdentity{"job", role, index}, has_chief};
}

TEST(SlotRightsTest, ChiefsLeadAndWorker0WithoutOne) {
  EXPECT_TRUE(SlotRights().Leads());  // insecure mode
  EXPECT_TRUE(Of(PeerRole::kChief, 0, true).Leads());
  EXPECT_TRUE(Of(PeerRole::kWorker, 0, false).Leads());
  EXPECT_FALSE(Of(PeerRole::kWorker, 0, true).Leads());
  EXPECT_FALSE(Of(PeerRole::kWorker, 1, false).Leads());
  EXPECT_FALSE(Of(PeerRole::kAdmin, 0, true).Leads());
}

TEST(SlotRightsTest, AWorkerSeesItsOwnSlotAlone) {  // I1
  HelloReply all;
  for (uint32_t slot = 0; slot < 3; ++slot) {
    all.add_slot()->set_slot(slot);
  }
  HelloReply own = all;
  Of(PeerRole::kWorker, 2, true).Limit(&own);
  ASSERT_EQ(own.slot_size(), 1);
  EXPECT_EQ(own.slot(0).slot(), 2u);
  HelloReply none = all;
  Of(PeerRole::kReader, 2, true).Limit(&none);
  EXPECT_EQ(none.slot_size(), 0);
  Of(PeerRole::kChief, 0, true).Limit(&all);
  EXPECT_EQ(all.slot_size(), 3);
}

TEST(SlotRightsTest, AWorkerSetsNoOtherSlotAndWithAChiefRetiresAlone) {  // I1
  const auto why = [](const SlotRights& rights, uint32_t slot, bool retired) {
    SetSlotsRequest request;
    request.mutable_sender()->set_slot(slot);
    request.mutable_sender()->set_generation(4);
    auto* const one = request.add_slot();
    one->set_slot(slot);
    one->set_generation(4);
    one->set_retired(retired);
    // What is refused does not come to the store.
    return rights.SetSlots(request, /*store=*/nullptr);
  };
  for (const bool has_chief : {false, true}) {
    const absl::Status status =
        why(Of(PeerRole::kWorker, 1, has_chief), 2, /*retired=*/true);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("weir://job/worker/1 may not set slot 2"));
  }
  EXPECT_EQ(why(Of(PeerRole::kWorker, 1, true), 1, /*retired=*/false).code(),
            absl::StatusCode::kUnauthenticated);
}

}  // namespace
}  // namespace weir
