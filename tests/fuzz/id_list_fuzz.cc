// A list of ids from the wire: what is accepted has as many ids as it says, and
// they ascend and read back from what is written of them.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>

#include "common/base/check.h"
#include "proto/wire/id_list.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weir::FuzzInput input(data, size);
  const uint32_t count = input.Number32();
  const auto ids = weir::DecodeIds(input.Rest(), count);
  if (!ids.ok()) {
    return 0;
  }
  WEIR_CHECK(ids->size() == count);
  WEIR_CHECK(std::adjacent_find(ids->begin(), ids->end(),
                                std::greater_equal<>()) == ids->end());
  WEIR_CHECK(*weir::DecodeIds(weir::EncodeIds(*ids), count) == *ids);
  WEIR_CHECK(weir::NameOfIds(*ids) != 0);
  return 0;
}
