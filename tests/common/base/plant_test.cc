#include "common/base/plant.h"

#include <cstdlib>

#include "gtest/gtest.h"

namespace weir {
namespace {

#ifdef WEIR_PLANTS
constexpr bool kTestBuild = true;
#else
constexpr bool kTestBuild = false;
#endif

TEST(PlantTest, PutsBackWhatIsNamedInTestBuildsAlone) {
  ASSERT_EQ(setenv("WEIR_PLANT", "stop.version_ahead,clock.wall_rows", 1), 0);
  EXPECT_EQ(Planted("stop.version_ahead"), kTestBuild);
  EXPECT_EQ(Planted("clock.wall_rows"), kTestBuild);
  EXPECT_FALSE(Planted("worker.keeps_hold"));
}

}  // namespace
}  // namespace weir
