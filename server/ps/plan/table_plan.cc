#include "server/ps/plan/table_plan.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/job/initializer.h"
#include "proto/wire/declaration_io.h"
#include "server/ps/optimizer/schedule.h"
#include "server/ps/table/row_optimizer.h"

namespace weir {
namespace {

// The functions below take over only fields that are set: the defaults are in
// row_optimizer.h, in one place.
RowOptimizerSpec FtrlOptimizer(const TableFtrl& spec) {
  RowFtrl ftrl;
  if (spec.has_learning_rate_power()) {
    ftrl.learning_rate_power = spec.learning_rate_power();
  }
  if (spec.has_initial_accumulator()) {
    ftrl.initial_accumulator = spec.initial_accumulator();
  }
  ftrl.l1 = spec.l1();
  ftrl.l2 = spec.l2();
  ftrl.l2_shrinkage = spec.l2_shrinkage();
  ftrl.beta = spec.beta();
  // Without group lasso its kernel would only be slower.
  if (spec.l21() != 0) {
    return RowGroupFtrl{ftrl, spec.l21()};
  }
  return ftrl;
}

RowOptimizerSpec AdamOptimizer(const TableAdam& spec) {
  RowAdam adam;
  if (spec.has_beta1()) {
    adam.beta1 = spec.beta1();
  }
  if (spec.has_beta2()) {
    adam.beta2 = spec.beta2();
  }
  if (spec.has_epsilon()) {
    adam.epsilon = spec.epsilon();
  }
  adam.per_row_step = spec.per_row_step();
  return adam;
}

template <class Rule>
Rule AdagradOptimizer(const TableAdagrad& spec) {
  Rule optimizer;
  optimizer.initial_accumulator = spec.initial_accumulator();
  if (spec.has_epsilon()) {
    optimizer.epsilon = spec.epsilon();
  }
  return optimizer;
}

RowOptimizerSpec OptimizerOf(const TableOptimizer& spec) {
  switch (spec.kind_case()) {
    case TableOptimizer::kAdagrad:
      return AdagradOptimizer<RowAdagrad>(spec.adagrad());
    case TableOptimizer::kRowwiseAdagrad:
      return AdagradOptimizer<RowwiseAdagrad>(spec.rowwise_adagrad());
    case TableOptimizer::kAdam:
      return AdamOptimizer(spec.adam());
    case TableOptimizer::kFtrl:
      return FtrlOptimizer(spec.ftrl());
    case TableOptimizer::kSgd:
    case TableOptimizer::KIND_NOT_SET:
      break;
  }
  return RowSgd{};
}

AdmissionPolicy AdmissionOf(const Admission& spec) {
  AdmissionPolicy policy;
  if (spec.kind_case() == Admission::kCount) {
    policy.kind = AdmissionPolicy::Kind::kCount;
    policy.count = spec.count();
  } else if (spec.kind_case() == Admission::kProbability) {
    policy.kind = AdmissionPolicy::Kind::kProbability;
    policy.probability = spec.probability();
  }
  if (spec.filter_bytes() > 0) {
    policy.filter_bytes = static_cast<int64_t>(spec.filter_bytes());
  }
  return policy;
}

// Rows travel in encodings of fixed size, so that an answer's size follows from
// its number of rows.
bool CanBeDecoded(Encoding encoding) {
  return encoding == F32 || encoding == BF16 || encoding == F16 ||
         encoding == INT8;
}

}  // namespace

absl::StatusOr<TableOptions> OptionsOfTable(const Declaration& declaration,
                                            int index, int shard) {
  const EmbeddingTable& table = declaration.table(index);
  const std::string path = absl::StrCat("table \"", table.name(), "\"");
  TableOptions options;
  options.name = table.name();
  // Before the conversion to int; Validate below has the lower bound.
  if (table.dim() > static_cast<uint32_t>(TableOptions::kMaxDim)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": dim ", table.dim(),
                                                   " is not in [1, ",
                                                   TableOptions::kMaxDim, "]"));
  }
  options.dim = static_cast<int>(table.dim());
  options.optimizer = OptimizerOf(table.optimizer());
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
  // More than 2^63 becomes negative, which Validate refuses.
  options.memory_bytes_max = static_cast<int64_t>(expiry.memory_bytes());
  if (expiry.least_frequent()) {
    options.eviction = EvictionOrder::kLeastFrequent;
  }
  WEIR_RETURN_IF_ERROR(options.Validate());
  WEIR_RETURN_IF_ERROR(
      CreateRowOptimizer(options.optimizer, path + ": optimizer").status());
  WEIR_RETURN_IF_ERROR(ValidateSchedule(table.schedule(), path + ": schedule"));
  if (!CanBeDecoded(table.lookup()) || !CanBeDecoded(table.update())) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": lookup and update travel as F32, BF16, F16 or INT8"));
  }
  return options;
}

absl::Status CheckTables(const Declaration& declaration, int shard) {
  if (declaration.table_size() > kTablesMax) {
    return absl::InvalidArgumentError(absl::StrCat(declaration.table_size(),
                                                   " tables; at most ",
                                                   kTablesMax, " are allowed"));
  }
  std::set<std::string> names;
  for (int i = 0; i < declaration.table_size(); ++i) {
    const std::string& name = declaration.table(i).name();
    if (name.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("table ", i, " is named \"\"; give it a name"));
    }
    // Files and seeds go by the name.
    if (!names.insert(name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("table ", i, " is named \"", name,
                       "\", as another one is; give it a name of its own"));
    }
    WEIR_RETURN_IF_ERROR(OptionsOfTable(declaration, i, shard).status());
  }
  return absl::OkStatus();
}

}  // namespace weir
