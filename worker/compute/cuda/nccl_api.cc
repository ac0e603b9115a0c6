#include "worker/compute/cuda/nccl_api.h"

#include <dlfcn.h>

#include <type_traits>

#include "absl/strings/str_cat.h"

namespace weir::cuda {

std::string NcclVersionText(int version) {
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".",
                      version % 100);
}

absl::StatusOr<NcclApi> LoadNccl(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    // glibc keeps it for each thread. NOLINTNEXTLINE(concurrency-mt-unsafe)
    const char* const why = dlerror();
    if (why != nullptr) {
      return absl::NotFoundError(why);
    }
    return absl::NotFoundError(absl::StrCat("cannot open ", library));
  }
  NcclApi api;
  // I1 makes this cast right: dlsym() knows a name but no prototype. The first
  // name that is missing says best what the library is not.
  const char* missing = nullptr;
  const auto find = [&](const char* symbol, auto* function) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(
        dlsym(handle, symbol));
    if (*function == nullptr && missing == nullptr) {
      missing = symbol;
    }
  };
  find("ncclGetVersion", &api.get_version);
  find("ncclGetErrorString", &api.get_error_string);
  find("ncclCommInitAll", &api.init_all);
  find("ncclCommDestroy", &api.destroy);
  find("ncclCommAbort", &api.abort);
  find("ncclGroupStart", &api.group_start);
  find("ncclGroupEnd", &api.group_end);
  find("ncclReduce", &api.reduce);
  if (missing != nullptr) {
    dlclose(handle);
    return absl::FailedPreconditionError(
        absl::StrCat(library, " is no NCCL: it has no ", missing));
  }
  // 22703 is 2.27.3. Up to 2.8 a version had four digits, so those are refused
  // as well as 3.0 and later, whose prototypes may be others (I1).
  int version = 0;
  if (api.get_version(&version) != kNcclSuccess ||
      version / 10000 != kNcclMajor) {
    dlclose(handle);
    return absl::FailedPreconditionError(
        absl::StrCat(library, " is NCCL of version ", version,
                     ", not of 2.9 or newer, below 3"));
  }
  return api;
}

}  // namespace weir::cuda
