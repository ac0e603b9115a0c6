// The SDK job of the chief's tests.
#ifndef TESTS_SERVER_CHIEF_SMALL_DECLARATION_H_
#define TESTS_SERVER_CHIEF_SMALL_DECLARATION_H_

#include <cstdint>

#include "proto/ps.pb.h"

namespace weir {

// What the workers of an async job with one tensor of 200 elements declare.
inline Declaration SmallDeclaration(int shards, int workers) {
  Declaration declaration;
  declaration.set_job("script");
  declaration.set_shard_count(static_cast<uint32_t>(shards));
  declaration.set_slot_count(static_cast<uint32_t>(workers));
  declaration.set_block_elements(16);
  declaration.mutable_update()->mutable_async();
  declaration.add_group()->mutable_optimizer()->mutable_sgd();
  Variable* const variable = declaration.add_variable();
  variable->set_name("w");
  variable->add_shape(200);
  return declaration;
}

}  // namespace weir

#endif  // TESTS_SERVER_CHIEF_SMALL_DECLARATION_H_
