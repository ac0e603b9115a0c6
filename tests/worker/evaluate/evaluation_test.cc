// Numbers of trained models are in tests/integration/cli_test.cc.
#include "worker/evaluate/evaluation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/io/files.h"
#include "common/io/safetensors.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "proto/job/job_spec_defaults.h"
#include "proto/job/job_spec_text.h"
#include "proto/wire/layout_io.h"
#include "tests/common/temp_dir.h"
#include "worker/model/graph.h"

namespace weir {
namespace {

// Writes a checkpoint of that model, whose variables are all 0.
std::string WriteCheckpoint(const Model& model, int64_t features) {
  const std::string dir = MakeTempDir() + "/ckpt-3";
  EXPECT_TRUE(Files::Real()->MakeDirectories(dir).ok());
  Manifest manifest;
  manifest.set_format(kManifestFormat);
  manifest.set_name("ckpt-3");
  manifest.set_step(3);
  Declaration* const job = manifest.mutable_declaration();
  job->set_job("test");
  job->set_shard_count(1);
  job->set_block_elements(1 << 16);
  const Graph graph = BuildGraph(model, {features}).value();
  for (const VariableSpec& variable : graph.variables) {
    *job->add_variable() = VariableToProto(variable);
  }
  const Layout layout = LayoutFromDeclaration(*job).value();
  const std::vector<float> values(layout.shard_elements(0));
  const std::vector<int64_t> steps(layout.segments({0, 0}).size());
  ShardFile* const file = manifest.add_file();
  file->set_name(ShardFileName(0, 1));
  const auto writer = SafetensorsWriter::Create(
      Files::Real(), JoinPath(dir, file->name()),
      {{kValuesArray, "F32", {static_cast<int64_t>(values.size())}},
       {kStepCountsArray, "I64", {static_cast<int64_t>(steps.size())}}},
      {});
  EXPECT_TRUE(writer.ok()) << writer.status();
  EXPECT_TRUE((*writer)
                  ->Append(values.data(),
                           static_cast<int64_t>(values.size() * sizeof(float)))
                  .ok());
  EXPECT_TRUE((*writer)
                  ->Append(steps.data(),
                           static_cast<int64_t>(steps.size() * sizeof(int64_t)))
                  .ok());
  const FileDigest digest = *(*writer)->Finish();
  file->set_bytes(static_cast<uint64_t>(digest.bytes));
  file->set_crc32c(digest.crc32c);
  EXPECT_TRUE(WriteManifest(Files::Real(), dir, manifest).ok());
  return dir;
}

JobSpec JobWith(const std::string& evaluation) {
  auto spec = ParseJobSpec(absl::StrCat("evaluation { ", evaluation, R"( }
      model {
        layer { name: "flat" flatten {} }
        layer { name: "y" dense { units: 10 } }
        loss { softmax_cross_entropy {} }
      })"),
                           "job");
  EXPECT_TRUE(spec.ok()) << spec.status();
  ResolveDefaults(&*spec);
  return *spec;
}

absl::StatusOr<EvaluationResult> Evaluate(const JobSpec& spec,
                                          const std::string& data_dir,
                                          int64_t features) {
  const auto evaluation =
      CheckpointEvaluation::Create(Files::Real(), spec, data_dir, {});
  EXPECT_TRUE(evaluation.ok()) << evaluation.status();
  return evaluation.ok()
             ? (*evaluation)->Run(WriteCheckpoint(spec.model(), features))
             : evaluation.status();
}

// The most memory that this process has had.
int64_t PeakBytes() {
  struct rusage used = {};
  EXPECT_EQ(getrusage(RUSAGE_SELF, &used), 0);
  return int64_t{used.ru_maxrss} << 10;
}

TEST(EvaluationTest, ABatchTakesNoMoreMemoryThanTheDataNeeds) {
  // So many images of 28 x 28 floats are 392 MiB.
  const JobSpec spec =
      JobWith("source { digits { count: 10 } } batch_size: 131072");
  const int64_t before = PeakBytes();
  const auto result = Evaluate(spec, ".", 784);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->examples, 10);
  EXPECT_EQ(result->checkpoint, "ckpt-3");
  EXPECT_LT(PeakBytes() - before, int64_t{128} << 20);
}

TEST(EvaluationTest, NamesTheSampleWhoseLabelIsWrong) {
  const std::string dir = MakeTempDir();
  ASSERT_TRUE(Files::Real()
                  ->WriteAtomically(dir + "/a", "1 1:2\n0 1:1\n0 2:1\n12 1:1\n")
                  .ok());
  const JobSpec spec =
      JobWith("source { libsvm { path: 'a' feature_count: 2 } } batch_size: 2");
  EXPECT_THAT(std::string(Evaluate(spec, dir, 2).status().message()),
              testing::HasSubstr("sample 3, counted from 0: label 12 is not"));
}

}  // namespace
}  // namespace weir
