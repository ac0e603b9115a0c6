// A job file and the overrides of its fields: what is accepted says the same
// after it was printed and read again.
#include <cstdint>
#include <string>
#include <utility>

#include "common/base/check.h"
#include "proto/job/job_spec_checks.h"
#include "proto/job/job_spec_defaults.h"
#include "proto/job/job_spec_text.h"
#include "proto/wire/declaration_io.h"
#include "tests/fuzz/fuzz_input.h"

namespace weir {
namespace {

// Printed and read again it is the same.
void CheckText(const JobSpec& spec) {
  const std::string text = CanonicalJobSpecText(spec);
  const auto again = ParseJobSpec(text, "again");
  WEIR_CHECK(again.ok());
  WEIR_CHECK(CanonicalJobSpecText(*again) == text);
}

// What the tasks make of a spec that says all it must.
void Use(JobSpec spec) {
  ResolveDefaults(&spec);
  if (!ValidateJobSpec(spec).ok()) {
    return;
  }
  GroupsFromSpec(spec);
  for (const EmbeddingTable& table : TablesFromSpec(spec)) {
    RowInitOf(table).status().IgnoreError();
  }
  google::protobuf::RepeatedPtrField<Variable> variables;
  variables.Add()->set_name("layer1/weights");
  variables.Add()->set_name(std::string(256, 'a'));
  AssignGroups(spec, &variables).IgnoreError();
  ContributionCount(spec.train(), 1000, spec.update().sync().contributions())
      .status()
      .IgnoreError();
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weir::FuzzInput input(data, size);
  const std::string set = input.Text();
  auto spec = weir::ParseJobSpec(input.Rest(), "job");
  if (!spec.ok()) {
    return 0;
  }
  weir::CheckText(*spec);
  weir::ApplyJobSpecOverride(set, &*spec).IgnoreError();
  weir::CheckText(*spec);
  weir::Use(*std::move(spec));
  return 0;
}
