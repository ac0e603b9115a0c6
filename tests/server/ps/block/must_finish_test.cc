#include "server/ps/block/must_finish.h"

#include <gtest/gtest.h>

#include <new>

#include "common/base/exit_code.h"

namespace weir {
namespace {

struct OnUnwind {
  ~OnUnwind() { const MustFinish whole("a sum"); }
};

TEST(MustFinishTest,
     AnExceptionEndsTheProcessWithACodeThatAsksForAnotherStart) {
  const auto stop = [] {
    const MustFinish whole("an update of block 3");
    throw std::bad_alloc();
  };
  EXPECT_EXIT(stop(), testing::ExitedWithCode(kExitRetry),
              "no more memory.*an update of block 3");
}

TEST(MustFinishTest, WhatIsFinishedEndsNothing) {
  { const MustFinish whole("an update"); }
  // Nor does work that is whole while another exception is on its way.
  const auto stop = [] {
    const OnUnwind unwind;
    throw std::bad_alloc();
  };
  EXPECT_THROW(stop(), std::bad_alloc);
}

}  // namespace
}  // namespace weir
