#include "proto/job/job_spec_defaults.h"

#include <string>

#include "common/job/layout.h"

namespace weir {
namespace {

void ResolveInitializers(Layer* layer) {
  if (layer->has_dense()) {
    Dense* const dense = layer->mutable_dense();
    if (!dense->has_kernel_initializer()) {
      dense->mutable_kernel_initializer()->mutable_glorot_uniform();
    }
    if (!dense->no_bias() && !dense->has_bias_initializer()) {
      dense->mutable_bias_initializer()->mutable_zeros();
    }
  }
  if (layer->has_conv2d()) {
    Conv2d* const conv = layer->mutable_conv2d();
    if (!conv->has_kernel_initializer()) {
      conv->mutable_kernel_initializer()->mutable_he_normal();
    }
    if (!conv->no_bias() && !conv->has_bias_initializer()) {
      conv->mutable_bias_initializer()->mutable_zeros();
    }
  }
}

// 0 is no legal stride, pool or count, so it can stand for "unset". Where zero
// is legal, as for a momentum, the field is `optional` and asked for by has_.
void ResolvePool(Pool* pool) {
  if (pool->stride() == 0) {
    pool->set_stride(pool->size());
  }
}

void ResolveLayer(Layer* layer) {
  ResolveInitializers(layer);
  if (layer->has_conv2d() && layer->conv2d().stride() == 0) {
    layer->mutable_conv2d()->set_stride(1);
  }
  if (layer->has_cross() && layer->cross().layers() == 0) {
    layer->mutable_cross()->set_layers(1);
  }
  if (layer->has_max_pool()) {
    ResolvePool(layer->mutable_max_pool());
  }
  if (layer->has_average_pool()) {
    ResolvePool(layer->mutable_average_pool());
  }
  if (layer->has_layer_norm() && !layer->layer_norm().has_epsilon()) {
    layer->mutable_layer_norm()->set_epsilon(1e-5f);
  }
  if (layer->has_batch_norm()) {
    BatchNorm* const norm = layer->mutable_batch_norm();
    if (!norm->has_epsilon()) {
      norm->set_epsilon(1e-5f);
    }
    if (!norm->has_momentum()) {
      norm->set_momentum(0.1f);
    }
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
    ResolveLayer(&layer);
  }
  if (!model->layer().empty() && model->loss().input().empty()) {
    model->mutable_loss()->set_input(before);
  }
}

void ResolveCsv(CsvSource* csv) {
  if (csv->separator().empty()) {
    csv->set_separator(",");
  }
  for (CsvColumn& column : *csv->mutable_column()) {
    if (column.has_numeric() && !column.numeric().has_stddev()) {
      column.mutable_numeric()->set_stddev(1.0);
    }
  }
}

void ResolveClickLog(ClickLogSource* log) {
  if (log->numeric() == 0) {
    log->set_numeric(13);
  }
  if (log->categorical() == 0) {
    log->set_categorical(26);
  }
  if (log->ids_per_feature() == 0) {
    log->set_ids_per_feature(1000000);
  }
  if (!log->has_exponent()) {
    log->set_exponent(1.05);
  }
  if (log->bag_size() == 0) {
    log->set_bag_size(1);
  }
}

}  // namespace

void ResolveSource(Source* source) {
  if (source->has_idx() && !source->idx().has_stddev()) {
    source->mutable_idx()->set_stddev(1.0f);
  }
  if (source->has_csv()) {
    ResolveCsv(source->mutable_csv());
  }
  if (source->has_click_log()) {
    ResolveClickLog(source->mutable_click_log());
  }
}

void ResolveDefaults(JobSpec* spec) {
  if (spec->has_model()) {
    ResolveModel(spec->mutable_model());
  }
  if (spec->data().has_train()) {
    ResolveSource(spec->mutable_data()->mutable_train());
  }
  if (spec->train().log_every_steps() == 0) {
    spec->mutable_train()->set_log_every_steps(10);
  }
  // A group's schedule replaces the job's as a whole, except for the learning
  // rate, which it may leave out.
  for (ParameterGroup& group : *spec->mutable_parameter_group()) {
    if (group.has_schedule() && group.schedule().learning_rate() == 0) {
      group.mutable_schedule()->set_learning_rate(
          spec->schedule().learning_rate());
    }
  }
  if (spec->update().mode_case() == Update::MODE_NOT_SET) {
    spec->mutable_update()->mutable_async();
  }
  if (spec->checkpoint().keep() == 0) {
    spec->mutable_checkpoint()->set_keep(5);
  }
  // Not set in jobs without tables: every field that is set is a part of the
  // text whose hash tells jobs apart.
  if (spec->table_size() > 0 && spec->checkpoint().tables_full_every() == 0) {
    spec->mutable_checkpoint()->set_tables_full_every(5);
  }
  if (spec->has_evaluation()) {
    Evaluation* const evaluation = spec->mutable_evaluation();
    if (evaluation->has_source()) {
      ResolveSource(evaluation->mutable_source());
    }
    if (evaluation->batch_size() == 0) {
      evaluation->set_batch_size(256);
    }
    if (!evaluation->has_wait_seconds()) {
      evaluation->set_wait_seconds(60);
    }
  }
  if (spec->compute().threads() == 0) {
    spec->mutable_compute()->set_threads(1);
  }
  // With other encodings a fraction is a mistake, which ValidateCompression
  // must be able to see.
  if (spec->compression().push() == TOP_K &&
      spec->compression().top_k_fraction() == 0) {
    spec->mutable_compression()->set_top_k_fraction(0.01);
  }
  Limits* const limits = spec->mutable_limits();
  if (limits->block_elements() == 0) {
    limits->set_block_elements(Layout::kDefaultBlockElements);
  }
  if (limits->out_of_order_bytes() == 0) {
    limits->set_out_of_order_bytes(uint64_t{256} << 20);
  }
  if (limits->lost_after_seconds() == 0) {
    limits->set_lost_after_seconds(10);
  }
}

}  // namespace weir
