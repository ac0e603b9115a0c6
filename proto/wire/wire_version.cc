#include "proto/wire/wire_version.h"

#include "absl/strings/str_cat.h"

namespace weir {

absl::Status CheckWireVersion(const std::string& peer, uint32_t theirs) {
  if (theirs == kWireVersion) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      peer, " speaks wire version ", theirs, ", this process ", kWireVersion,
      ": run the same release of Weir in every task"));
}

}  // namespace weir
