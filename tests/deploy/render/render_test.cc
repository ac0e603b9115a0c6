#include "deploy/render/render.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/expect_error.h"
#include "tests/deploy/render/render_tester.h"

namespace weir {
namespace {

using testing::HasSubstr;

TEST(RenderTest, KeepsTheJobFileAndGivesOverridesAsArguments) {
  RenderOptions options = JobOptionsFor("k8s");
  options.sets = {"train.batch_size=128"};
  const auto files = RenderFiles(options);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_THAT(files->manifest, HasSubstr("    train { batch_size: 256"));
  EXPECT_THAT(files->manifest, HasSubstr("- --set=train.batch_size=128"));
}

TEST(RenderTest, WritesHowAProgramsImageIsBuilt) {
  const auto files = RenderFiles(ProgramOptionsFor("k8s"));
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_THAT(files->containerfile,
              HasSubstr("FROM docker.io/library/python:3.11-slim"));
  EXPECT_THAT(files->containerfile, HasSubstr("COPY weir-1.2.3-*.whl"));
  EXPECT_THAT(files->containerfile, HasSubstr("USER 10001:10001"));
  EXPECT_THAT(files->containerfile,
              HasSubstr("podman build -t registry.example/train:7"));
}

TEST(RenderTest, ExplainsWhatItCouldNotCompute) {
  const auto files = RenderFiles(ProgramOptionsFor("k8s"));
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_THAT(files->explanation, HasSubstr("ps memory request: 1Gi\n    not "
                                            "computed: a user's program"));
}

// Data that is read here says how large it is.
TEST(RenderTest, MeasuresDataThatIsHere) {
  RenderOptions options = JobOptionsFor("k8s");
  options.sets = {"data.train.csv={path: 'digits.textproto'}"};
  options.data_claim = "data";
  auto files = RenderFiles(options);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_THAT(files->explanation,
              HasSubstr("the number of its columns is in the file"));
  options.local_data = "no/such/folder";
  EXPECT_EQ(RenderFiles(options).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace weir
