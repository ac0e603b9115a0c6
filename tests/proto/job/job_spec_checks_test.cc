#include "proto/job/job_spec_checks.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/layout.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "proto/job/job_spec_defaults.h"
#include "proto/job/job_spec_text.h"
#include "tests/proto/job/job_spec_builder.h"

namespace weir {
namespace {

using testing::HasSubstr;

// What is wrong with `spec` after `set`s, or "OK".
std::string Check(const std::vector<std::string>& sets,
                  JobSpec spec = SmallJob()) {
  for (const std::string& set : sets) {
    const absl::Status status = ApplyJobSpecOverride(set, &spec);
    EXPECT_TRUE(status.ok()) << status;
  }
  const absl::Status status = ValidateJobSpec(spec);
  EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status));
  return status.ok() ? "OK" : std::string(status.message());
}

TEST(JobSpecChecksTest, TheSmallJobIsValidBeforeAndAfterResolving) {
  EXPECT_EQ(Check({}), "OK");
  EXPECT_EQ(Check({"update.sync.contributions=4"}), "OK");
  EXPECT_EQ(Check({"train.steps=10"}), "OK");  // in place of epochs
  EXPECT_EQ(Check({absl::StrCat("limits.block_elements=",
                                Layout::kMaxBlockElements)}),
            "OK");
  // Memory may bound a table whatever the rows' age.
  EXPECT_EQ(Check({"table[0].name=t", "table[0].dim=2",
                   "table[0].expiry.memory_bytes=1000000"}),
            "OK");
}

struct Mistake {
  std::vector<std::string> sets;
  std::string want;  // a part of the message
};

// The message for a mistake names the field that has it.
void ExpectNamed(const std::vector<Mistake>& mistakes) {
  for (const Mistake& mistake : mistakes) {
    EXPECT_THAT(Check(mistake.sets), HasSubstr(mistake.want))
        << mistake.sets[0];
  }
}

TEST(JobSpecChecksTest, EveryMistakeInTheModelNamesItsField) {
  ExpectNamed({
      {{"name="}, "name: '' is not 1 to 40"},
      {{"name=Big"}, "name: 'Big' is not 1 to 40 of a-z"},
      {{"model.layer=[]"}, "model.layer: is empty"},
      {{"model.layer[1].name="}, "model.layer[1].name: is not set"},
      {{"model.layer[1].name=conv"},
       "model.layer[1].name: 'conv' is that of model.layer[0] already"},
      {{"model.layer[6].name=x"},
       "model.layer[6]: no kind is set; choose one "},
      {{"model.layer[5].dense.units=0"},
       "model.layer[5].dense.units: 0 is not in [1, "},
      {{"model.layer[0].conv2d.filters=0"}, "model.layer[0].conv2d.filters: 0"},
      {{"model.layer[0].conv2d.kernel_size=0"}, "conv2d.kernel_size: 0 is not"},
      {{"model.layer[1].max_pool.size=0"}, "max_pool.size: 0 is not in [1"},
      {{"model.layer[1].max_pool.padding=2"}, "max_pool.padding: 2 is not in "},
      {{"model.layer[4].dropout.rate=1"}, "dropout.rate: 1 is not in [0, 1)"},
      {{"model.layer[4].dropout.rate=nan"}, "dropout.rate: nan is not finite"},
      {{"model.layer[2].batch_norm.epsilon=0"}, "epsilon: 0 is not > 0"},
      {{"model.layer[2].batch_norm.momentum=2"},
       "momentum: 2 is not in [0, 1]"},
      {{"model.layer[3].layer_norm.epsilon=-1"}, "layer_norm.epsilon: -1"},
      {{"model.layer[5].dense.kernel_initializer={}"},
       "model.layer[5].dense.kernel_initializer: no kind is set"},
      {{"model.layer[5].dense.kernel_initializer.normal_stddev=-1"},
       "kernel_initializer.normal_stddev: -1 is not >= 0"},
      {{"model.loss={}"}, "model.loss: no kind is set; choose one of softmax"},
  });
}

TEST(JobSpecChecksTest, EveryMistakeInTheDataNamesItsField) {
  ExpectNamed({
      {{"data={}"}, "data.train: is not set; choose one of idx"},
      {{"data.train.idx.images="}, "data.train.idx.images: is not set"},
      {{"data.train.idx.labels="}, "data.train.idx.labels: is not set"},
      {{"data.train.idx.stddev=0"}, "data.train.idx.stddev: 0 is not > 0"},
      {{"data.train.libsvm.path="}, "data.train.libsvm.path: is not set"},
      {{"data.train.libsvm.path=x"}, "libsvm.feature_count: 0 is not in [1"},
      {{"data.train.csv={}"}, "data.train.csv.path: is not set"},
      {{"data.train.digits={}"}, "data.train.digits.count: 0 is not >= 1"},
      {{"data.train.csv={path: 'a' column {index: 1}}"},
       "data.train.csv.column[0]: no kind is set; choose one of numeric, "},
      {{"data.train.csv={path: 'a' column {index: 1 numeric {mean: nan}}}"},
       "data.train.csv.column[0].numeric.mean: nan is not finite"},
      {{"data.train.criteo={}"}, "data.train.criteo.path: is not set"},
      {{"evaluation.source.click_log={}"},
       "evaluation.source.click_log.count: 0 is not in [1, 4294967295]"},
  });
}

TEST(JobSpecChecksTest, EveryMistakeInTrainingNamesItsField) {
  ExpectNamed({
      {{"train.batch_size=0"}, "train.batch_size: 0 is not in [1"},
      {{"train={batch_size: 1}"},
       "train: no length is set; choose one of epochs, steps"},
      {{"train.epochs=0"}, "train.epochs: 0 is not > 0"},
      {{"train.steps=0"}, "train.steps: 0 is not >= 1"},
      {{"train.epochs=-1"}, "train.epochs: -1 is not > 0"},
      {{"train.epochs=inf"}, "train.epochs: inf is not finite"},
      {{"train.clip={}"}, "train.clip: no kind is set; choose one of value, "},
      {{"train.clip.norm=0"}, "train.clip.norm: 0 is not > 0"},
      {{"train.clip.value=-1"}, "train.clip.value: -1 is not > 0"},
      {{"train.prefetch=true", "update.sync={}"},
       "train.prefetch: is for update.async"},
      {{"train.prefetch=true", "update.bounded_staleness={}"},
       "train.prefetch: is for update.async"},
      {{"optimizer={}"}, "optimizer: no kind is set; choose one of sgd"},
      {{"schedule.learning_rate=0"}, "schedule.learning_rate: 0 is not > 0"},
      {{"schedule.step={}"}, "schedule.step.every: 0 is not >= 1"},
      {{"schedule.step.every=1"}, "schedule.step.factor: 0 is not > 0"},
      {{"schedule.exponential={}"}, "schedule.exponential.every: 0"},
      {{"schedule.cosine={}"}, "schedule.cosine.steps: 0 is not >= 1"},
      {{"schedule.cosine={steps: 1 final_fraction: 2}"},
       "schedule.cosine.final_fraction: 2 is not in [0, 1]"},
      {{"parameter_group[0].name="}, "parameter_group[0].name: is not set"},
      {{"parameter_group[1]={name: 'bias' match: 'x'}"},
       "parameter_group[1].name: 'bias' is that of parameter_group[0]"},
      {{"parameter_group[0].match="}, "parameter_group[0].match: is not set"},
      {{"parameter_group[0].match=(a"},
       "parameter_group[0].match: '(a' is not a regular expr"},
      {{"parameter_group[0].optimizer.sgd={}"},
       "parameter_group[0].optimizer: is of another kind"},
  });
}

TEST(JobSpecChecksTest, EveryMistakeInRunningNamesItsField) {
  ExpectNamed({
      {{"update={}"}, "update: no mode is set; choose one of async, sync"},
      {{"update.sync.contributions=65537"}, "update.sync.contributions: 65537"},
      {{"checkpoint.every_seconds=-1"}, "checkpoint.every_seconds: -1"},
      {{"evaluation={}"}, "evaluation.source: is not set"},
      {{"evaluation.wait_seconds=-1"}, "evaluation.wait_seconds: -1"},
      {{"evaluation.auc_group=C1"},
       "evaluation.auc_group: AUC is of a model.loss of sigmoid_cross_entropy"},
      {{"compute.threads=1025"}, "compute.threads: 1025 is not in [1, 1024]"},
      {{"limits.block_elements=17"}, "limits.block_elements: 17 is not a mult"},
      {{absl::StrCat("limits.block_elements=", Layout::kMaxBlockElements + 16)},
       "limits.block_elements: 786448 is not in [16, 786432]"},
      {{"limits.lost_after_seconds=-1"}, "limits.lost_after_seconds: -1"},
      {{"limits.lost_after_seconds=0.0001"}, "limits.lost_after_seconds: 0.00"},
      {{"limits.lost_after_seconds=1e10"},
       "limits.lost_after_seconds: 10000000000 is not in [0.001, 86400]"},
  });
}

TEST(JobSpecChecksTest, LayersOfTablesAreChecked) {
  JobSpec spec = JobOfTables();
  ResolveDefaults(&spec);
  Layer* const bag = spec.mutable_model()->mutable_layer(0);
  Layer* const cross = spec.mutable_model()->mutable_layer(2);
  const auto error = [&spec] {
    return std::string(ValidateJobSpec(spec).message());
  };
  cross->mutable_cross()->set_layers(65);
  EXPECT_THAT(error(), HasSubstr("model.layer[2].cross.layers: 65 is not in"));
  cross->mutable_cross()->set_layers(1);
  bag->add_input("features");
  EXPECT_THAT(error(), HasSubstr("model.layer[0].input: an embedding_bag"));
  bag->mutable_embedding_bag()->clear_table();
  EXPECT_THAT(error(),
              HasSubstr("model.layer[0].embedding_bag.table: is not set"));
}

TEST(JobSpecChecksTest, CompressionIsChecked) {
  EXPECT_EQ(Check({"compression.push=INT8", "compression.pull=BF16"}), "OK");
  EXPECT_EQ(
      Check({"compression.pull=TOP_K"}),
      "compression.pull: TOP_K is for gradients; choose one of F32, BF16, "
      "F16, INT8");
  EXPECT_EQ(Check({"compression.top_k_fraction=0.1"}),
            "compression.top_k_fraction: is for compression.push: TOP_K");
  EXPECT_EQ(Check({"compression.push=TOP_K", "compression.top_k_fraction=0.5"}),
            "compression.top_k_fraction: 0.5 is not in (0, 0.25]");
  JobSpec spec = SmallJob();
  spec.mutable_compression()->set_push(TOP_K);
  ResolveDefaults(&spec);
  EXPECT_EQ(spec.compression().top_k_fraction(), 0.01);
  EXPECT_TRUE(ValidateJobSpec(spec).ok());
  spec.mutable_compression()->set_push(static_cast<Encoding>(9));
  EXPECT_THAT(std::string(ValidateJobSpec(spec).message()),
              HasSubstr("compression.push: 9 is unknown; choose one of F32, "
                        "BF16, F16, INT8, TOP_K"));
}

// What is wrong with the small job, given two tables and a layer that reads one
// of them, after `sets`.
std::string CheckTabled(const std::vector<std::string>& sets) {
  JobSpec spec = SmallJob();
  for (const char* name : {"ads", "users"}) {
    EmbeddingTable* const table = spec.add_table();
    table->set_name(name);
    table->set_dim(4);
    table->mutable_optimizer()->mutable_adagrad();
  }
  Layer* const bag = spec.mutable_model()->add_layer();
  bag->set_name("bag");
  bag->mutable_embedding_bag()->set_table("ads");
  return Check(sets, spec);
}

TEST(JobSpecChecksTest, TablesAreChecked) {
  EXPECT_EQ(CheckTabled({}), "OK");
  const struct {
    std::vector<std::string> sets;
    const char* want;
  } cases[] = {
      {{"model.layer[6].embedding_bag.table='adds'"},
       "model.layer[6].embedding_bag.table: 'adds' is no table of the job"},
      {{"table[1].name='ads'"},
       "table[1].name: 'ads' is that of table[0] already; choose another one"},
      {{"table[0].name='Ads'"},
       "table[0].name: 'Ads' is not 1 to 64 of a-z, 0-9 and _"},
      {{"table[1].name=''"}, "table[1].name: '' is not 1 to 64"},
      {{"table[0].dim=0"}, "table[0].dim: 0 is not in [1, 65536]"},
      {{"table[0].dim=65537"}, "table[0].dim: 65537 is not in [1, 65536]"},
      {{"table[1].optimizer={}"},
       "table[1].optimizer: no kind is set; choose one of sgd, adagrad, "
       "rowwise_adagrad, adam, ftrl"},
      {{"table[0].lookup=TOP_K"},
       "table[0].lookup: rows travel in a fixed size; choose one of F32, BF16, "
       "F16, INT8"},
      {{"table[1].update=TOP_K"},
       "table[1].update: rows travel in a fixed size; choose one of F32, BF16, "
       "F16, INT8"},
      {{"table[0].initializer={he_normal {}}"},
       "table[0].initializer: rows have no fan in or out; choose one of zeros, "
       "constant, normal_stddev, uniform_limit"},
      {{"table[0].initializer={glorot_uniform {}}"},
       "table[0].initializer: rows have no fan in or out"},
      {{"table[0].initializer={uniform_limit: -1}"},
       "table[0].initializer.uniform_limit: "},
      {{"table[0].schedule={learning_rate: -1}"},
       "table[0].schedule.learning_rate: "},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(CheckTabled(c.sets), HasSubstr(c.want)) << c.sets[0];
  }
}

// What is wrong with the small job, given this source to train on.
std::string CheckSource(const std::string& text) {
  JobSpec spec = SmallJob();
  spec.mutable_data()->clear_train();
  if (!text.empty()) {
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        text, spec.mutable_data()->mutable_train()))
        << text;
  }
  return Check({}, spec);
}

TEST(JobSpecChecksTest, GoodSourcesPassBeforeTheyAreResolved) {
  EXPECT_EQ(
      CheckSource("criteo { path: 'a' hash_buckets: 9 max_bad_lines: 9 }"),
      "OK");
  EXPECT_EQ(CheckSource("click_log { count: 5 }"), "OK");
  EXPECT_EQ(
      CheckSource("csv { path: 'a' header: true separator: '\t' "
                  "column { name: 'x' numeric { boundary: [0, 1.5] } } "
                  "column { index: 3 categorical { value_separator: '|' } } }"),
      "OK");
}

TEST(JobSpecChecksTest, EveryMistakeInASourceNamesItsField) {
  const auto column = [](const std::string& text) {
    return "csv { path: 'a' column { index: 1 " + text + " } }";
  };
  const std::pair<std::string, std::string> cases[] = {
      {"",
       "data.train: is not set; choose one of idx, libsvm, csv, digits, "
       "criteo, click_log"},
      {"criteo {}", "data.train.criteo.path: is not set"},
      {"csv {}", "data.train.csv.path: is not set"},
      {"csv { path: 'a' separator: '||' }",
       "data.train.csv.separator: '||' is not one character"},
      {"csv { path: 'a' separator: '\"' }", "data.train.csv.separator: "},
      {"csv { path: 'a' separator: '\\n' }", "data.train.csv.separator: "},
      {"csv { path: 'a' column { numeric {} } }",
       "data.train.csv.column[0]: has no name and no index"},
      {"csv { path: 'a' column { name: 'x' numeric {} } }",
       "data.train.csv.column[0].name: is for files with a header"},
      {"csv { path: 'a' column { index: 0 numeric {} } }",
       "data.train.csv.column[0].index: 0 is csv.label_column"},
      {column("numeric { stddev: 0 }"),
       "data.train.csv.column[0].numeric.stddev: 0 is not > 0"},
      {column("numeric { boundary: 1 boundary: 1 }"),
       "data.train.csv.column[0].numeric.boundary[1]: 1 is not above the "
       "boundary before, 1"},
      {column("numeric { boundary: inf }"),
       "data.train.csv.column[0].numeric.boundary[0]: inf is not finite"},
      {column("categorical { value_separator: '--' }"),
       "data.train.csv.column[0].categorical.value_separator: '--' is not"},
      {column("categorical { value_separator: ',' }"),
       "categorical.value_separator: ',' is csv.separator, too"},
      {"click_log {}",
       "data.train.click_log.count: 0 is not in [1, 4294967295]"},
      {"click_log { count: 1 numeric: 70000 }",
       "data.train.click_log.numeric: 70000 is not in [1, 65536]"},
      {"click_log { count: 1 categorical: 70000 }",
       "data.train.click_log.categorical: 70000"},
      {"click_log { count: 1 ids_per_feature: 2000000000000 }",
       "data.train.click_log.ids_per_feature: 2000000000000"},
      {"click_log { count: 1 bag_size: 2000 }",
       "data.train.click_log.bag_size: 2000 is not in [1, 1024]"},
      {"click_log { count: 1 exponent: -1 }",
       "data.train.click_log.exponent: -1 is not in [0, 10]"},
  };
  for (const auto& [text, want] : cases) {
    EXPECT_THAT(CheckSource(text), HasSubstr(want)) << text;
  }
}

TEST(JobSpecChecksTest, MissingPartsAreNamed) {
  for (const char* part : {"model", "data", "train", "optimizer", "schedule"}) {
    JobSpec spec = SmallJob();
    spec.GetReflection()->ClearField(
        &spec, spec.GetDescriptor()->FindFieldByName(part));
    EXPECT_THAT(std::string(ValidateJobSpec(spec).message()),
                HasSubstr(std::string(part) + ": is not set"));
  }
}

}  // namespace
}  // namespace weir
