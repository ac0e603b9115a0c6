// What every ObjectStore promises (common/io/object_store.h).
//
// Place: object_store_test.cc registers each member with a function that makes
// an empty place.
#ifndef TESTS_COMMON_OBJECTS_OBJECT_STORE_CONTRACT_H_
#define TESTS_COMMON_OBJECTS_OBJECT_STORE_CONTRACT_H_

#include <functional>
#include <memory>
#include <string>

#include "common/io/object_store.h"

namespace weir {

struct ObjectStoreMember {
  std::string name;
  struct Made {
    std::shared_ptr<ObjectStore> store;
    std::string place;  // a directory in it, which holds nothing
  };
  std::function<Made()> make;
};

// Adds a test for each promise, under the name "<member>.<promise>".
void RegisterObjectStoreContract(const ObjectStoreMember& member);

}  // namespace weir

#endif  // TESTS_COMMON_OBJECTS_OBJECT_STORE_CONTRACT_H_
