#include "proto/job/job_spec_reference.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(JobSpecReferenceTest, AFieldHasItsTypeItsRuleAndItsComment) {
  EXPECT_EQ(*ExplainField("compute.threads"),
            "compute.threads: uint32; in [1, 1024]; default 1\n"
            "  Threads of each worker. The final bits depend on it.\n");
  EXPECT_EQ(*ExplainField("table.lookup"),
            "table.lookup: Encoding; one of F32, BF16, F16, INT8\n"
            "  How rows travel.\n");
  EXPECT_THAT(*ExplainField("data.train.csv.separator"),
              HasSubstr("end of a line; default \",\""));
  EXPECT_THAT(*ExplainField("model.layer.dense.bias_initializer"),
              HasSubstr("default {zeros {}}; not with no_bias"));
  EXPECT_THAT(*ExplainField("limits.block_elements"),
              HasSubstr("in [16, 786432]; a multiple of 16; default 262144"));
  EXPECT_THAT(*ExplainField("table.initializer"),
              HasSubstr("not glorot_uniform, glorot_normal"));
  EXPECT_THAT(*ExplainField("update.async"), HasSubstr("the default"));
}

TEST(JobSpecReferenceTest, AMessageListsItsFields) {
  const std::string train = *ExplainField("train");
  EXPECT_THAT(train, StartsWith("train: Train; required\n"));
  EXPECT_THAT(train, HasSubstr("\nOne of epochs, steps is set.\n"));
  EXPECT_THAT(train, HasSubstr("  steps                  uint64"));
  EXPECT_THAT(*ExplainField("schedule"),
              HasSubstr("At most one of step, exponential, cosine is set."));
  EXPECT_THAT(*ExplainField(""), HasSubstr("list of ParameterGroup"));
}

TEST(JobSpecReferenceTest, AnIndexChangesNothing) {
  EXPECT_EQ(*ExplainField("model.layer[3].dense.units"),
            *ExplainField("model.layer.dense.units"));
}

TEST(JobSpecReferenceTest, AnUnknownNameGetsTheNearestOne) {
  EXPECT_THAT(std::string(ExplainField("optimiser").status().message()),
              StartsWith("there is no field 'optimiser' in JobSpec; did you "
                         "mean 'optimizer'? It has name, seed, "));
  EXPECT_THAT(std::string(ExplainField("train.xyz").status().message()),
              StartsWith("there is no field 'xyz' in train; it has batch_"));
  EXPECT_EQ(ExplainField("seed.x").status().message(),
            "seed has no fields below it");
}

TEST(JobSpecReferenceTest, ThePageHasEveryTypeOnce) {
  const std::string page = JobSpecPage();
  for (const char* heading : {"\n## JobSpec\n", "\n## Encoding\n",
                              "\n## Initializer\n", "\n## TableFtrl\n"}) {
    const size_t first = page.find(heading);
    EXPECT_NE(first, std::string::npos) << heading;
    EXPECT_EQ(page.find(heading, first + 1), std::string::npos) << heading;
  }
  EXPECT_THAT(page, HasSubstr("| `layer` | list of [Layer](#layer) | required "
                              "|  |\n"));
  // A bar ends a cell.
  EXPECT_THAT(page, HasSubstr("log(1 + \\|x\\|)"));
}

}  // namespace
}  // namespace weir
