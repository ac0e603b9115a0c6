#include "deploy/render/job_memory.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "common/job/layout.h"
#include "deploy/render/data_shape.h"
#include "deploy/render/quantity.h"
#include "proto/wire/declaration_io.h"
#include "proto/wire/layout_io.h"
#include "server/ps/plan/shard_plan.h"
#include "server/ps/plan/table_plan.h"
#include "worker/compute/factory.h"
#include "worker/model/graph.h"
#include "worker/model/step_memory.h"

namespace weir {
namespace {

// A process that has done nothing yet, with its libraries, threads and the heap
// that it keeps: of a ps, and of a worker, which has oneDNN's kernels as well.
constexpr double kPsProcessBytes = 64.0 * static_cast<double>(kMiB);
constexpr double kWorkerProcessBytes = 128.0 * static_cast<double>(kMiB);
// Blocks that are on their way between a worker and a ps.
constexpr double kWireBytesPerWorker = 4.0 * static_cast<double>(kMiB);
constexpr double kWireBytesOfWorker = 32.0 * static_cast<double>(kMiB);
// Rows of a table whose ids nobody can count.
constexpr double kUnboundedTableBytes = static_cast<double>(kGiB);
// Batches that a worker has: the one that trains, and two that are ready
// (worker/data/batch_prefetcher.h).
constexpr double kBatches = 3.0;
// Batches of rows that a worker has: the one that trains and the one that is
// fetched ahead, each with values and gradients.
constexpr double kRowCopies = 4.0;
// What a worker's cache keeps beside the values of a row.
constexpr double kCachedRowBytes = 64.0;

void Add(MemoryNeed* need, std::string what, double bytes) {
  need->parts.push_back({std::move(what), bytes});
}

// What the shards would be told of the job; see SpecJob of the chief.
absl::StatusOr<Declaration> DeclarationOf(const JobSpec& spec,
                                          const Graph& graph,
                                          const JobMemoryOptions& options) {
  Declaration declaration;
  declaration.set_job(spec.name());
  declaration.set_history(1);
  declaration.set_shard_count(static_cast<uint32_t>(options.ps_count));
  declaration.set_block_elements(spec.limits().block_elements());
  for (const VariableSpec& variable : graph.variables) {
    *declaration.add_variable() = VariableToProto(variable);
  }
  WEIR_RETURN_IF_ERROR(AssignGroups(spec, declaration.mutable_variable()));
  for (const Group& group : GroupsFromSpec(spec)) {
    *declaration.add_group() = group;
  }
  for (const EmbeddingTable& table : TablesFromSpec(spec)) {
    *declaration.add_table() = table;
  }
  *declaration.mutable_update() = spec.update();
  if (spec.update().has_sync() && spec.update().sync().contributions() == 0) {
    declaration.mutable_update()->mutable_sync()->set_contributions(
        static_cast<uint32_t>(options.worker_count));
  }
  declaration.set_seed(spec.seed());
  declaration.set_slot_count(static_cast<uint32_t>(options.worker_count));
  return declaration;
}

// The features whose ids are looked up in a table.
std::vector<int> FeaturesOf(const GraphTable& table) {
  std::vector<int> features;
  for (const TableUse& use : table.uses) {
    features.insert(features.end(), use.features.begin(), use.features.end());
  }
  std::sort(features.begin(), features.end());
  features.erase(std::unique(features.begin(), features.end()), features.end());
  return features;
}

// How many ids may come to the table `name`; 0: nobody can count them.
double IdsOf(const std::string& name, const Graph& graph,
             const DataShape& shape) {
  double ids = 0.0;
  for (const GraphTable& table : graph.tables) {
    if (table.name != name) {
      continue;
    }
    for (const int feature : FeaturesOf(table)) {
      const double more = shape.ids[static_cast<size_t>(feature)];
      if (more == 0.0) {
        return 0.0;
      }
      ids = shape.ids_are_shared ? std::max(ids, more) : ids + more;
    }
  }
  return ids;
}

// The rows of a table on one ps: its bound, or every id that may come.
absl::StatusOr<double> RowBytes(const Declaration& declaration, int index,
                                double ids, JobMemory* memory) {
  WEIR_ASSIGN_OR_RETURN(const TableOptions table,
                        OptionsOfTable(declaration, index, /*shard=*/0));
  if (table.memory_bytes_max > 0) {
    return static_cast<double>(table.memory_bytes_max);
  }
  if (ids == 0.0) {
    memory->assumptions.push_back(absl::StrCat(
        "Table ", table.name, " has no bound and its ids are not counted: ",
        ReadableBytes(kUnboundedTableBytes),
        " of rows on each ps are assumed; set expiry.memory_bytes."));
    return kUnboundedTableBytes;
  }
  return ids / table.shard_count * static_cast<double>(table.row_bytes());
}

absl::Status EstimatePs(const JobSpec& spec, const Declaration& declaration,
                        const Graph& graph, const DataShape& shape,
                        const JobMemoryOptions& options, JobMemory* memory) {
  ShardMemory shard;
  double saved_by_all = 0.0;
  for (int s = 0; s < options.ps_count; ++s) {
    WEIR_ASSIGN_OR_RETURN(
        const ShardMemory one,
        ShardPlan::MemoryOf(declaration, static_cast<uint32_t>(s)));
    saved_by_all += one.saved;
    if (one.total() > shard.total()) {
      shard = one;
    }
  }
  double rows = 0.0;
  for (int t = 0; t < declaration.table_size(); ++t) {
    WEIR_ASSIGN_OR_RETURN(
        const double bytes,
        RowBytes(declaration, t,
                 IdsOf(declaration.table(t).name(), graph, shape), memory));
    rows += bytes;
  }
  memory->checkpoint_bytes = saved_by_all + rows * options.ps_count;
  MemoryNeed* const ps = &memory->ps;
  Add(ps, "a process", kPsProcessBytes);
  Add(ps, "values", shard.values);
  Add(ps, "optimizer state", shard.state);
  Add(ps, "sums of a step", shard.sums);
  Add(ps, "blocks", shard.blocks);
  Add(ps, "empty tables", shard.tables);
  Add(ps, "rows of tables", rows);
  // A push copies what a checkpoint still writes ("Copy on write" in
  // docs/design_notes.md).
  Add(ps, "copies during a checkpoint", shard.values + shard.state);
  const double workers = options.worker_count;
  if (spec.update().has_sync()) {
    Add(ps, "early contributions",
        std::min(static_cast<double>(spec.limits().out_of_order_bytes()),
                 (workers - 1.0) * shard.values));
  }
  Add(ps, "blocks on their way",
      workers * std::min(kWireBytesPerWorker, 2.0 * shard.values));
  return absl::OkStatus();
}

double RowBytesOfBatch(const Graph& graph, double ids_of_feature) {
  double bytes = 0.0;
  for (const GraphTable& table : graph.tables) {
    bytes += ids_of_feature * static_cast<double>(FeaturesOf(table).size()) *
             static_cast<double>(table.dim) * 4.0 * kRowCopies;
  }
  return bytes;
}

// What worker and evaluator have in common.
absl::Status EstimateModel(const Graph& graph, double batch, bool training,
                           const DataShape& shape, MemoryNeed* need) {
  Add(need, "a process", kWorkerProcessBytes);
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend,
                        CreateBackend({}));
  StepMemory step(graph, backend.get());
  Add(need, "layers for a batch",
      static_cast<double>(
          step.BytesFor(static_cast<int64_t>(batch), training)));
  const double sample =
      4.0 * static_cast<double>(graph.tensors[0].info.elements() + 1) +
      8.0 * shape.bag_size * static_cast<double>(shape.ids.size());
  Add(need, "batches", batch * sample * kBatches);
  Add(need, "rows of a batch", RowBytesOfBatch(graph, batch * shape.bag_size));
  Add(need, "data", shape.bytes);
  return absl::OkStatus();
}

absl::Status EstimateWorker(const JobSpec& spec, const Graph& graph,
                            double flat_bytes, const DataShape& shape,
                            JobMemory* memory) {
  MemoryNeed* const worker = &memory->worker;
  WEIR_RETURN_IF_ERROR(EstimateModel(graph, spec.train().batch_size(),
                                     /*training=*/true, shape, worker));
  Add(worker, "parameters", flat_bytes);
  Add(worker, "gradients", flat_bytes);
  if (spec.train().prefetch()) {
    Add(worker, "parameters of the next step", flat_bytes);
  }
  if (spec.has_compression()) {
    Add(worker, "what compression has lost", flat_bytes);
  }
  double cached = 0.0;
  for (const EmbeddingTable& table : spec.table()) {
    cached += static_cast<double>(table.cache_rows()) *
              (4.0 * table.dim() + kCachedRowBytes);
  }
  Add(worker, "cached rows", cached);
  Add(worker, "blocks on their way", kWireBytesOfWorker);
  return absl::OkStatus();
}

absl::Status EstimateEvaluator(const JobSpec& spec, const Graph& graph,
                               double flat_bytes,
                               const JobMemoryOptions& options,
                               JobMemory* memory) {
  WEIR_ASSIGN_OR_RETURN(
      const DataShape shape,
      ShapeOfData(spec.evaluation().source(), options.local_data, spec.seed(),
                  "evaluation.source"));
  WEIR_RETURN_IF_ERROR(EstimateModel(graph, spec.evaluation().batch_size(),
                                     /*training=*/false, shape,
                                     &memory->evaluator));
  Add(&memory->evaluator, "parameters, as read and as used", 2.0 * flat_bytes);
  return absl::OkStatus();
}

}  // namespace

double MemoryNeed::total() const {
  double bytes = 0.0;
  for (const MemoryPart& part : parts) {
    bytes += part.bytes;
  }
  return bytes;
}

std::string MemoryNeed::ToString() const {
  std::vector<std::string> words;
  for (const MemoryPart& part : parts) {
    if (part.bytes >= 0.05 * static_cast<double>(kMiB)) {
      words.push_back(absl::StrCat(part.what, " ", ReadableBytes(part.bytes)));
    }
  }
  return absl::StrJoin(words, " + ");
}

absl::StatusOr<JobMemory> EstimateJobMemory(const JobSpec& spec,
                                            const JobMemoryOptions& options) {
  JobMemory memory;
  WEIR_ASSIGN_OR_RETURN(const DataShape shape,
                        ShapeOfData(spec.data().train(), options.local_data,
                                    spec.seed(), "data.train"));
  if (!shape.unknown.empty()) {
    memory.unknown = shape.unknown;
    return memory;
  }
  if (!shape.bytes_unknown.empty()) {
    memory.assumptions.push_back(
        "Workers keep their data in memory, and its size is not known: add it "
        "to --memory worker=, or name the data by --local_data.");
  }
  WEIR_ASSIGN_OR_RETURN(const Graph graph,
                        BuildGraph(spec.model(), shape.features,
                                   {TablesFromSpec(spec), shape.id_names}));
  WEIR_ASSIGN_OR_RETURN(const Declaration declaration,
                        DeclarationOf(spec, graph, options));
  WEIR_RETURN_IF_ERROR(
      EstimatePs(spec, declaration, graph, shape, options, &memory));
  WEIR_ASSIGN_OR_RETURN(const Layout layout,
                        LayoutFromDeclaration(declaration));
  const double flat_bytes = 4.0 * static_cast<double>(layout.flat_elements());
  WEIR_RETURN_IF_ERROR(EstimateWorker(spec, graph, flat_bytes, shape, &memory));
  if (spec.has_evaluation()) {
    WEIR_RETURN_IF_ERROR(
        EstimateEvaluator(spec, graph, flat_bytes, options, &memory));
  }
  return memory;
}

}  // namespace weir
