// TF_CONFIG, WEIR_CLUSTER and the flags of a task: whatever they say gives a
// cluster or an error in one line.
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "proto/job/tf_config.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weir::FuzzInput input(data, size);
  weir::ClusterSources sources;
  const uint32_t which = input.Below(8);
  sources.task_required = (which & 1) != 0;
  if ((which & 2) != 0) {
    sources.flag_task_type = input.Text();
    sources.flag_task_index = input.Text();
  }
  if ((which & 4) != 0) {
    sources.weir_cluster = input.Text();
  }
  sources.tf_config = input.Rest();
  const auto cluster = weir::ResolveCluster(sources);
  if (!cluster.ok()) {
    WEIR_CHECK(absl::IsInvalidArgument(cluster.status()));
    WEIR_CHECK(cluster.status().message().find('\n') == std::string::npos);
    return 0;
  }
  weir::ParseClusterText(sources.tf_config).status().IgnoreError();
  return 0;
}
