#include "common/base/plant.h"

#ifdef WEIR_PLANTS

#include <cstdlib>
#include <set>
#include <string>

#include "absl/strings/str_split.h"

namespace weir {

bool Planted(const char* name) {
  static const auto* const names = [] {
    // Read once; the first caller may be any thread.
    const char* list = std::getenv("WEIR_PLANT");  // NOLINT
    if (list == nullptr) {
      list = "";
    }
    return new std::set<std::string>(
        absl::StrSplit(list, ',', absl::SkipWhitespace()));
  }();
  return !names->empty() && names->contains(name);
}

}  // namespace weir

#endif
