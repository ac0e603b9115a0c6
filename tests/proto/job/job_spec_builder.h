// The spec that the proto tests start from: every kind of thing, once.
#ifndef TESTS_PROTO_JOB_JOB_SPEC_BUILDER_H_
#define TESTS_PROTO_JOB_JOB_SPEC_BUILDER_H_

#include <string>

#include "google/protobuf/text_format.h"
#include "proto/job_spec.pb.h"

namespace weir {

inline std::string SmallJobText() {
  return R"(name: "small"
seed: 7
model {
  layer { name: "conv" conv2d { filters: 2 kernel_size: 3 } }
  layer { name: "pool" max_pool { size: 2 } }
  layer { name: "norm" batch_norm {} }
  layer { name: "flat" flatten {} }
  layer { name: "drop" dropout { rate: 0.5 } }
  layer { name: "out" dense { units: 10 } }
  loss { softmax_cross_entropy {} }
}
data { train { idx { images: "a.gz" labels: "b.gz" } } }
train { batch_size: 64 epochs: 1.5 }
optimizer { adam {} }
schedule { learning_rate: 0.01 }
parameter_group { name: "bias" match: "/bias$" schedule { warmup_steps: 3 } }
evaluation { source { digits { count: 5 } } }
)";
}

inline JobSpec SmallJob() {
  JobSpec spec;
  google::protobuf::TextFormat::ParseFromString(SmallJobText(), &spec);
  return spec;
}

// The same with a model over rows of a table, which the job lacks.
inline JobSpec JobOfTables() {
  JobSpec spec = SmallJob();
  spec.mutable_model()->clear_layer();
  Layer* const bag = spec.mutable_model()->add_layer();
  bag->set_name("bag");
  bag->mutable_embedding_bag()->set_table("t");
  Layer* const flat = spec.mutable_model()->add_layer();
  flat->set_name("flat");
  flat->mutable_flatten();
  Layer* const cross = spec.mutable_model()->add_layer();
  cross->set_name("cross");
  cross->mutable_cross();
  return spec;
}

}  // namespace weir

#endif  // TESTS_PROTO_JOB_JOB_SPEC_BUILDER_H_
