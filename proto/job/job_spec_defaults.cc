#include "proto/job/job_spec_defaults.h"

#include <string>

#include "proto/job/field_rules.h"

namespace weir {
namespace {

void ResolvePool(Pool* pool) {
  if (pool->stride() == 0) {
    pool->set_stride(pool->size());
  }
}

void ResolveModel(Model* model) {
  // A layer without inputs takes the layer before it, and the first one takes
  // the data. An embedding bag takes no input at all, but is one to the next.
  std::string before = "features";
  for (Layer& layer : *model->mutable_layer()) {
    if (layer.input().empty() && !layer.has_embedding_bag()) {
      layer.add_input(before);
    }
    before = layer.name();
    if (layer.has_max_pool()) {
      ResolvePool(layer.mutable_max_pool());
    }
    if (layer.has_average_pool()) {
      ResolvePool(layer.mutable_average_pool());
    }
  }
  if (!model->layer().empty() && model->loss().input().empty()) {
    model->mutable_loss()->set_input(before);
  }
}

}  // namespace

void ResolveDefaults(JobSpec* spec) {
  FillDefaults(spec);
  if (spec->has_model()) {
    ResolveModel(spec->mutable_model());
  }
  // A group's schedule replaces the job's as a whole, except for the learning
  // rate, which it may leave out.
  for (ParameterGroup& group : *spec->mutable_parameter_group()) {
    if (group.has_schedule() && group.schedule().learning_rate() == 0) {
      group.mutable_schedule()->set_learning_rate(
          spec->schedule().learning_rate());
    }
  }
  // Not set in jobs without tables: every field that is set is a part of the
  // text whose hash tells jobs apart.
  if (spec->table_size() > 0 && spec->checkpoint().tables_full_every() == 0) {
    spec->mutable_checkpoint()->set_tables_full_every(5);
  }
  // With other encodings a fraction is a mistake, which ValidateCompression
  // must be able to see.
  if (spec->compression().push() == TOP_K &&
      spec->compression().top_k_fraction() == 0) {
    spec->mutable_compression()->set_top_k_fraction(0.01);
  }
}

}  // namespace weir
