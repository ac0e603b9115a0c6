#include "common/base/exhausted.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "tests/support/no_threads.h"

namespace weir {
namespace {

TEST(ExhaustedTest, WhatTheCallReturnsIsPassedOn) {
  EXPECT_TRUE(OrExhausted([] { return absl::OkStatus(); }).ok());
  EXPECT_EQ(OrExhausted([] { return absl::NotFoundError("x"); }).code(),
            absl::StatusCode::kNotFound);
  const absl::StatusOr<int> seven =
      OrExhausted([]() -> absl::StatusOr<int> { return 7; });
  ASSERT_TRUE(seven.ok()) << seven.status();
  EXPECT_EQ(*seven, 7);
}

TEST(ExhaustedTest, MemoryThatNobodyHasIsAnError) {
  const absl::Status missing = OrExhausted([] {
    throw std::bad_alloc();
    return absl::OkStatus();
  });
  EXPECT_EQ(missing.code(), absl::StatusCode::kResourceExhausted);
  const absl::Status too_long = OrExhausted([] {
    std::vector<std::string>().reserve(std::numeric_limits<size_t>::max());
    return absl::OkStatus();
  });
  EXPECT_EQ(too_long.code(), absl::StatusCode::kResourceExhausted);
}

TEST(ExhaustedTest, AThreadRunsOrIsAnError) {
  bool ran = false;
  absl::StatusOr<std::thread> thread = StartThread([&ran] { ran = true; });
  ASSERT_TRUE(thread.ok()) << thread.status();
  thread->join();
  EXPECT_TRUE(ran);
  const NoThreads none;
  EXPECT_EQ(StartThread([] {}).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace weir
