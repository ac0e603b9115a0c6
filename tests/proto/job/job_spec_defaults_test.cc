#include "proto/job/job_spec_defaults.h"

#include <string>

#include "common/job/layout.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "proto/job/field_rules.h"
#include "proto/job/job_spec_checks.h"
#include "proto/job/job_spec_text.h"
#include "tests/proto/job/job_spec_builder.h"

namespace weir {
namespace {

Source Parse(const std::string& text) {
  Source source;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &source))
      << text;
  return source;
}

TEST(JobSpecDefaultsTest, DefaultsAreThoseOfTheProto) {
  JobSpec spec = SmallJob();
  ResolveDefaults(&spec);
  const Model& model = spec.model();
  EXPECT_EQ(model.layer(0).input(0), "features");
  EXPECT_EQ(model.layer(1).input(0), "conv");
  EXPECT_EQ(model.loss().input(), "out");
  EXPECT_EQ(model.layer(0).conv2d().stride(), 1u);
  EXPECT_TRUE(model.layer(0).conv2d().kernel_initializer().has_he_normal());
  EXPECT_TRUE(model.layer(0).conv2d().bias_initializer().has_zeros());
  EXPECT_EQ(model.layer(1).max_pool().stride(), 2u);
  EXPECT_FLOAT_EQ(model.layer(2).batch_norm().epsilon(), 1e-5f);
  EXPECT_FLOAT_EQ(model.layer(2).batch_norm().momentum(), 0.1f);
  EXPECT_TRUE(model.layer(5).dense().kernel_initializer().has_glorot_uniform());
  EXPECT_EQ(spec.data().train().idx().stddev(), 1.0f);
  EXPECT_EQ(spec.train().log_every_steps(), 10u);
  EXPECT_TRUE(spec.update().has_async());
  EXPECT_EQ(spec.checkpoint().keep(), 5u);
  EXPECT_EQ(spec.evaluation().batch_size(), 256u);
  EXPECT_EQ(spec.evaluation().wait_seconds(), 60);
  EXPECT_EQ(spec.compute().threads(), 1u);
  EXPECT_EQ(spec.limits().block_elements(),
            uint64_t{Layout::kDefaultBlockElements});
  EXPECT_EQ(spec.limits().out_of_order_bytes(), 268435456u);
  EXPECT_EQ(spec.limits().lost_after_seconds(), 10);
  EXPECT_EQ(spec.parameter_group(0).schedule().learning_rate(), 0.01);
  // The optimizer fills in its own defaults.
  EXPECT_FALSE(spec.optimizer().adam().has_beta1());
  EXPECT_TRUE(ValidateJobSpec(spec).ok());
}

TEST(JobSpecDefaultsTest, LayersOfTablesTakeNoInputAndGiveOne) {
  JobSpec spec = JobOfTables();
  ResolveDefaults(&spec);
  EXPECT_TRUE(spec.model().layer(0).input().empty());
  EXPECT_EQ(spec.model().layer(1).input(0), "bag");
  EXPECT_EQ(spec.model().layer(2).cross().layers(), 1u);
}

TEST(JobSpecDefaultsTest, DefaultsOfSourcesAreThoseOfTheProto) {
  Source source = Parse(
      "csv { path: 'a' column { index: 1 numeric {} } "
      "column { index: 2 categorical {} } }");
  FillDefaults(&source);
  EXPECT_EQ(source.csv().separator(), ",");
  EXPECT_EQ(source.csv().column(0).numeric().stddev(), 1.0);
  EXPECT_EQ(CheckFields(source, "data.train"), absl::OkStatus());
  source = Parse("click_log { count: 5 }");
  FillDefaults(&source);
  EXPECT_EQ(source.click_log().numeric(), 13u);
  EXPECT_EQ(source.click_log().categorical(), 26u);
  EXPECT_EQ(source.click_log().ids_per_feature(), 1000000u);
  EXPECT_EQ(source.click_log().exponent(), 1.05);
  EXPECT_EQ(source.click_log().bag_size(), 1u);
  EXPECT_EQ(CheckFields(source, "data.train"), absl::OkStatus());
  source = Parse("idx { images: 'a' labels: 'b' }");
  FillDefaults(&source);
  EXPECT_EQ(source.idx().stddev(), 1.0f);
}

TEST(JobSpecDefaultsTest, WhatASourceSetsStays) {
  const std::string texts[] = {
      "csv { path: 'a' separator: ';' "
      "column { index: 1 numeric { stddev: 2 } } }",
      "click_log { count: 5 numeric: 1 categorical: 2 ids_per_feature: 3 "
      "exponent: 0 bag_size: 4 }"};
  for (const std::string& text : texts) {
    Source source = Parse(text);
    FillDefaults(&source);
    EXPECT_EQ(source.DebugString(), Parse(text).DebugString());
  }
}

TEST(JobSpecDefaultsTest, ResolvingTwiceChangesNothingAndWhatIsSetStays) {
  JobSpec spec = SmallJob();
  for (const char* set :
       {"evaluation.wait_seconds=0", "model.layer[2].batch_norm.momentum=0",
        "model.layer[1].max_pool.stride=1", "update.sync={}",
        "model.layer[5].dense.kernel_initializer.zeros={}",
        "model.layer[5].input[0]=flat", "checkpoint.keep=2"}) {
    ASSERT_TRUE(ApplyJobSpecOverride(set, &spec).ok()) << set;
  }
  ResolveDefaults(&spec);
  EXPECT_EQ(spec.evaluation().wait_seconds(), 0);
  EXPECT_EQ(spec.model().layer(2).batch_norm().momentum(), 0);
  EXPECT_EQ(spec.model().layer(1).max_pool().stride(), 1u);
  EXPECT_TRUE(spec.update().has_sync());
  EXPECT_TRUE(spec.model().layer(5).dense().kernel_initializer().has_zeros());
  EXPECT_EQ(spec.model().layer(5).input_size(), 1);
  EXPECT_EQ(spec.model().layer(5).input(0), "flat");
  EXPECT_EQ(spec.checkpoint().keep(), 2u);
  JobSpec again = spec;
  ResolveDefaults(&again);
  EXPECT_EQ(FirstDifference(spec, again), "");
}

}  // namespace
}  // namespace weir
