#include "worker/data/input/bad_lines.h"

#include "gtest/gtest.h"
#include "tests/worker/data/data_files.h"

namespace weir {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(BadLinesTest, NoneIsAllowedUnlessToldSo) {
  BadLines lines("a.csv", 0);
  const absl::Status status = lines.Add(7, "two fields");
  ExpectError(status, kInvalid, {"a.csv:7: two fields"});
  EXPECT_EQ(status.message().find("max_bad_lines"), absl::string_view::npos);
}

TEST(BadLinesTest, TheFirstOneOverTheBoundIsTheError) {
  BadLines lines("a.csv", 2);
  EXPECT_TRUE(lines.Add(7, "two fields").ok());
  EXPECT_TRUE(lines.Add(9, "no label").ok());
  EXPECT_EQ(lines.count(), 2u);
  ExpectError(lines.Add(12, "no number"), kInvalid,
              {"a.csv:12: no number", "max_bad_lines: 2"});
}

TEST(BadLinesTest, WarnsOnceWithTheFileTheCountAndTheFirst) {
  BadLines lines("a.csv", 9);
  testing::internal::CaptureStderr();
  lines.Report();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  ASSERT_TRUE(lines.Add(7, "two fields").ok());
  ASSERT_TRUE(lines.Add(9, "no label").ok());
  testing::internal::CaptureStderr();
  lines.Report();
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("2 bad lines of a.csv were left out; the first: "
                     "a.csv:7: two fields\n"),
            std::string::npos)
      << log;
}

}  // namespace
}  // namespace weir
