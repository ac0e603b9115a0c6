#include "server/ps/plan/table_plan.h"

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/job/initializer.h"
#include "proto/job/field_rules.h"
#include "proto/job/learning_rate.h"
#include "proto/wire/declaration_io.h"

namespace weir {
namespace {

AdmissionPolicy AdmissionOf(const Admission& spec) {
  AdmissionPolicy policy;
  if (spec.kind_case() == Admission::kCount) {
    policy.kind = AdmissionPolicy::Kind::kCount;
    policy.count = spec.count();
  } else if (spec.kind_case() == Admission::kProbability) {
    policy.kind = AdmissionPolicy::Kind::kProbability;
    policy.probability = spec.probability();
  }
  policy.filter_bytes = static_cast<int64_t>(spec.filter_bytes());
  return policy;
}

}  // namespace

absl::StatusOr<TableOptions> OptionsOfTable(const Declaration& declaration,
                                            int index, int shard) {
  EmbeddingTable table = declaration.table(index);
  const std::string path = absl::StrCat("table \"", table.name(), "\"");
  FillDefaults(&table);
  WEIR_RETURN_IF_ERROR(Annotate(CheckFields(table, ""), path));
  WEIR_RETURN_IF_ERROR(
      CheckLearningRate(table.schedule(), path + ": schedule"));
  TableOptions options;
  options.name = table.name();
  options.dim = static_cast<int>(table.dim());
  options.optimizer = table.optimizer();
  absl::StatusOr<InitSpec> init = RowInitOf(table);
  WEIR_RETURN_IF_ERROR(Annotate(init.status(), path));
  options.init = *init;
  // By name: a table keeps its initial values when others come or go.
  options.seed = TableSeed(declaration.seed(), table.name());
  options.shard = shard;
  options.shard_count = static_cast<int>(declaration.shard_count());
  options.admission = AdmissionOf(table.admission());
  const Expiry& expiry = table.expiry();
  // In units of the table's clock, which TableGroup sets to the same.
  options.age_max = expiry.steps();
  if (expiry.age_case() == Expiry::kSeconds) {
    options.age_max = expiry.seconds();
  }
  options.memory_bytes_max = static_cast<int64_t>(expiry.memory_bytes());
  if (expiry.least_frequent()) {
    options.eviction = EvictionOrder::kLeastFrequent;
  }
  WEIR_RETURN_IF_ERROR(options.Validate());
  return options;
}

absl::Status CheckTables(const Declaration& declaration, int shard) {
  if (declaration.table_size() > kTablesMax) {
    return absl::InvalidArgumentError(absl::StrCat(declaration.table_size(),
                                                   " tables; at most ",
                                                   kTablesMax, " are allowed"));
  }
  for (int i = 0; i < declaration.table_size(); ++i) {
    WEIR_RETURN_IF_ERROR(OptionsOfTable(declaration, i, shard).status());
  }
  return absl::OkStatus();
}

}  // namespace weir
