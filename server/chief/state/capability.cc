#include "server/chief/state/capability.h"

#include <cstring>

#include "common/io/sha256.h"

namespace weir {

Capability CapabilityOf(const std::string& chief_secret, uint64_t history,
                        uint32_t slot, uint32_t generation) {
  Capability capability;
  if (chief_secret.empty()) {
    return capability;
  }
  // The secret has a fixed length, and so has everything after it.
  Sha256 hash;
  hash.Update(chief_secret.data(), chief_secret.size());
  hash.Update("slot", 4);
  hash.Update(&history, sizeof(history));
  hash.Update(&slot, sizeof(slot));
  hash.Update(&generation, sizeof(generation));
  const auto digest = hash.Finish();
  std::memcpy(&capability.high, digest.data(), sizeof(capability.high));
  std::memcpy(&capability.low, digest.data() + sizeof(capability.high),
              sizeof(capability.low));
  return capability;
}

}  // namespace weir
