#include "worker/model/initializer.h"

#include <cmath>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<InitSpec> Resolve(const std::string& text) {
  Initializer spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &spec));
  return ResolveInitializer("field", spec, Initializer::kHeNormal, 30, 20);
}

TEST(InitializerTest, ResolvesEveryKindForItsFans) {
  // Glorot: variance 2 / (30 + 20); He: 2 / 30. A uniform of limit l has
  // variance l^2 / 3.
  const InitSpec expected[] = {
      {InitKind::kConstant, 0.0f},
      {InitKind::kConstant, -2.5f},
      {InitKind::kNormal, 0.5f},
      {InitKind::kUniform, 0.25f},
      {InitKind::kUniform, std::sqrt(3.0f * 2.0f / 50.0f)},
      {InitKind::kNormal, std::sqrt(2.0f / 50.0f)},
      {InitKind::kUniform, std::sqrt(3.0f * 2.0f / 30.0f)},
      {InitKind::kNormal, std::sqrt(2.0f / 30.0f)},
      {InitKind::kNormal, std::sqrt(2.0f / 30.0f)}};
  const char* texts[] = {
      "zeros {}",           "constant: -2.5",    "normal_stddev: 0.5",
      "uniform_limit: .25", "glorot_uniform {}", "glorot_normal {}",
      "he_uniform {}",      "he_normal {}",      ""};
  for (int i = 0; i < 9; ++i) {
    SCOPED_TRACE(texts[i]);
    const InitSpec actual = Resolve(texts[i]).value();
    EXPECT_EQ(actual.kind, expected[i].kind);
    EXPECT_FLOAT_EQ(actual.scale, expected[i].scale);
  }
}

TEST(InitializerTest, RefusesScalesThatMeanNothing) {
  for (const char* text : {"normal_stddev: -1", "uniform_limit: -1",
                           "constant: nan", "normal_stddev: inf"}) {
    const absl::Status status = Resolve(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("field: "));
  }
}

}  // namespace
}  // namespace weir
