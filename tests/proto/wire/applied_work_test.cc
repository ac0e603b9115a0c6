#include "proto/wire/applied_work.h"

#include "gtest/gtest.h"
#include "proto/ps.pb.h"

namespace weir {
namespace {

TEST(AppliedWorkTest, IsTheSameAfterAMessage) {
  const AppliedWork work = {{{0, 7}, {9, int64_t{1} << 38}}, {{2, 0}, {5}}};
  Declaration declaration;
  declaration.add_applied_range(3);
  declaration.add_deal();
  SetApplied(work, &declaration);
  EXPECT_EQ(declaration.applied_range_size(), 4);
  EXPECT_EQ(declaration.deal_size(), 2);
  EXPECT_EQ(AppliedIn(declaration), work);
}

TEST(AppliedWorkTest, WhatAPeerMakesUpIsLeftToTheList) {
  Declaration declaration;
  declaration.add_applied_range(UINT64_MAX);
  EXPECT_TRUE(AppliedIn(declaration).ranges.empty());
  declaration.add_applied_range(UINT64_MAX);
  EXPECT_FALSE(ContributionList::Create(AppliedIn(declaration), 9).ok());
  declaration.clear_applied_range();
  declaration.add_deal()->add_next(UINT64_MAX);
  EXPECT_FALSE(ContributionList::Create(AppliedIn(declaration), 9).ok());
}

}  // namespace
}  // namespace weir
