// The simulated store keeps the promises of every store.
#include "sim/object_store.h"

#include <gtest/gtest.h>

#include <memory>

#include "common/threads/scheduler.h"
#include "tests/common/objects/object_store_contract.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  weir::RegisterObjectStoreContract(
      {"SimObjectStore", [] {
         return weir::ObjectStoreMember::Made{
             std::make_shared<weir::sim::SimObjectStore>(), "s3://sim/place"};
       }});
  int failed = 1;
  weir::sim::RunWorld(/*seed=*/1, [&failed] { failed = RUN_ALL_TESTS(); });
  return failed;
}
