#include "worker/compute/factory.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

TEST(FactoryTest, MakesTheCpuBackendByDefault) {
  EXPECT_EQ(CreateBackend({}).value()->name(), "cpu");
}

TEST(FactoryTest, NamesWhatItDoesNotHave) {
  const absl::Status status = CreateBackend({.name = "abacus"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'abacus'"));
}

TEST(FactoryTest, RefusesThreadCountsOutOfRange) {
  for (const int threads : {0, -1, 1025}) {
    const absl::Status status = CreateBackend({.threads = threads}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("compute.threads"));
  }
}

}  // namespace
}  // namespace weir
