#include "server/ps/table/row_rule.h"

#include <algorithm>

#include "server/ps/table/row_rules.h"

namespace weir {

int RowRule::row_floats(int dim) const {
  int floats = dim;
  for (const RowSlot& slot : slots_) {
    floats += slot.one_float ? 1 : dim;
  }
  return floats;
}

void RowRule::FillInitialSlots(int dim, float* row) const {
  float* at = row + dim;
  for (const RowSlot& slot : slots_) {
    at = std::fill_n(at, slot.one_float ? 1 : dim, slot.initial);
  }
}

absl::StatusOr<std::unique_ptr<RowRule>> CreateRowRule(
    const RowRuleSpec& spec, const std::string& path) {
  struct Create {
    const std::string& path;
    RowRuleOr operator()(const RowSgd& s) const {
      return CreateRowSgd(s, path + ".sgd");
    }
    RowRuleOr operator()(const RowAdagrad& s) const {
      return CreateRowAdagrad(s, path + ".adagrad");
    }
    RowRuleOr operator()(const RowwiseAdagrad& s) const {
      return CreateRowwiseAdagrad(s, path + ".rowwise_adagrad");
    }
    RowRuleOr operator()(const RowAdam& s) const {
      return CreateRowAdam(s, path + ".adam");
    }
    RowRuleOr operator()(const RowFtrl& s) const {
      return CreateRowFtrl(s, path + ".ftrl");
    }
    RowRuleOr operator()(const RowGroupFtrl& s) const {
      return CreateRowGroupFtrl(s, path + ".group_ftrl");
    }
  };
  return std::visit(Create{path}, spec);
}

}  // namespace weir
