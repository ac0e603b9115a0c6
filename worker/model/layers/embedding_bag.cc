#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "worker/model/layers/layers.h"

namespace weir {
namespace {

// For maximum pooling it keeps, for each element of the output, which row it
// came from: the gradient goes to that row alone.
class EmbeddingBagOp : public LayerOp {
 public:
  using LayerOp::LayerOp;

  void Forward(const LayerContext& c) override {
    if (IsMax()) {
      c.backend->Run(op::GatherMax{c.table.bags, Dim(), c.table.rows, c.output,
                                   Chosen(c)});
    } else {
      c.backend->Run(op::GatherSum{c.table.bags, Dim(), c.table.rows,
                                   /*add=*/false, c.output});
    }
  }

  void Backward(const LayerContext& c) override {
    // By row, not by bag: each row's gradient has one writer, and its sum one
    // order, so the bits do not depend on threads.
    if (IsMax()) {
      c.backend->Run(op::GatherChosen{c.table.users, Dim(), c.output_gradient,
                                      Chosen(c), c.table.adds,
                                      c.table.gradients});
    } else {
      c.backend->Run(op::GatherSum{c.table.users, Dim(), c.output_gradient,
                                   c.table.adds, c.table.gradients});
    }
  }

 private:
  int64_t Dim() const { return traits().output.dims.back(); }
  bool IsMax() const { return traits().table->use.pooling == Pooling::kMax; }
  // Workspaces are floats; an int32 has the same size.
  static int32_t* Chosen(const LayerContext& c) {
    return reinterpret_cast<int32_t*>(c.workspaces[0]);
  }
};

absl::StatusOr<const EmbeddingTable*> FindTable(
    const std::string& name, const std::vector<EmbeddingTable>& tables) {
  for (const EmbeddingTable& table : tables) {
    if (table.name() == name) {
      return &table;
    }
  }
  return Invalid(
      "table '", name, "' is not one of the job's: ",
      absl::StrJoin(tables, ", ",
                    [](std::string* out, const EmbeddingTable& table) {
                      absl::StrAppend(out, "'", table.name(), "'");
                    }));
}

absl::StatusOr<std::vector<int>> FindFeatures(
    const EmbeddingBag& spec, const std::vector<std::string>& features) {
  if (features.empty()) {
    return absl::InvalidArgumentError(
        "the data has no categorical features to look up");
  }
  std::vector<int> found;
  for (const std::string& name : spec.feature()) {
    const auto it = std::find(features.begin(), features.end(), name);
    if (it == features.end()) {
      return Invalid("feature '", name,
                     "' is not a categorical feature of the data, which has ",
                     absl::StrJoin(features, ", "));
    }
    found.push_back(static_cast<int>(it - features.begin()));
    if (std::count(found.begin(), found.end(), found.back()) > 1) {
      return Invalid("feature '", name, "' is named twice");
    }
  }
  // A layer that names no feature reads all of them.
  for (size_t f = 0; spec.feature().empty() && f < features.size(); ++f) {
    found.push_back(static_cast<int>(f));
  }
  return found;
}

absl::StatusOr<Pooling> PoolingOf(const EmbeddingBag& spec) {
  switch (spec.pooling()) {
    case EmbeddingBag::SUM:
      return Pooling::kSum;
    case EmbeddingBag::MEAN:
      return Pooling::kMean;
    case EmbeddingBag::MAX:
      return Pooling::kMax;
    default:
      return Invalid("pooling ", static_cast<int>(spec.pooling()),
                     " is not one that this version knows");
  }
}

}  // namespace

MadeLayer MakeEmbeddingBag(const LayerSource& source) {
  const EmbeddingBag& spec = source.spec.embedding_bag();
  const SparseSpec& sparse = source.sparse;
  WEIR_ASSIGN_OR_RETURN(const EmbeddingTable* const table,
                        FindTable(spec.table(), sparse.tables));
  TableRead read{.table = table->name(), .dim = table->dim(), .use = {}};
  WEIR_ASSIGN_OR_RETURN(read.use.features, FindFeatures(spec, sparse.features));
  WEIR_ASSIGN_OR_RETURN(read.use.pooling, PoolingOf(spec));
  LayerTraits traits;
  traits.output.dims = {static_cast<int64_t>(read.use.features.size()),
                        read.dim};
  if (read.use.pooling == Pooling::kMax) {
    traits.workspaces = {{.per_row = traits.output.elements()}};
  }
  traits.table = std::move(read);
  return std::make_unique<EmbeddingBagOp>(std::move(traits));
}

}  // namespace weir
