#include "common/base/status.h"

#include <memory>

#include "gtest/gtest.h"

namespace weir {
namespace {

absl::StatusOr<std::unique_ptr<int>> Make(int value) {
  if (value < 0) {
    return absl::OutOfRangeError("negative");
  }
  return std::make_unique<int>(value);
}

absl::StatusOr<int> Sum(int a, int b) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<int> x, Make(a));
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<int> y, Make(b));
  WEIR_RETURN_IF_ERROR(*x + *y > 9 ? absl::AbortedError("big")
                                   : absl::OkStatus());
  return *x + *y;
}

TEST(StatusTest, MacrosReturnTheFirstErrorAndElseGoOn) {
  EXPECT_EQ(*Sum(1, 2), 3);
  EXPECT_EQ(Sum(1, -2).status(), absl::OutOfRangeError("negative"));
  EXPECT_EQ(Sum(5, 5).status(), absl::AbortedError("big"));
}

TEST(StatusTest, AnnotateAddsTheSubjectAndKeepsTheCode) {
  EXPECT_EQ(Annotate(absl::NotFoundError("no v"), "shard 3"),
            absl::NotFoundError("shard 3: no v"));
  EXPECT_TRUE(Annotate(absl::OkStatus(), "shard 3").ok());
}

}  // namespace
}  // namespace weir
