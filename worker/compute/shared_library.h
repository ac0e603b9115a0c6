// A library that is opened at run time, so that Weir builds and runs where it
// is not installed.
//
// Place: plug-ins, NVML, cuDNN and NCCL are opened with it.
// Threads: compatible.
// Owns/borrows: closes the library at the end, unless LeaveOpen was called.
#ifndef WORKER_COMPUTE_SHARED_LIBRARY_H_
#define WORKER_COMPUTE_SHARED_LIBRARY_H_

#include <dlfcn.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace weir {

class SharedLibrary {
 public:
  // RTLD_LOCAL: later libraries must not bind to symbols of this one.
  // Errors: NOT_FOUND  it cannot be opened; says why.
  static absl::StatusOr<SharedLibrary> Open(const std::string& name) {
    void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      // glibc keeps it for each thread. NOLINTNEXTLINE(concurrency-mt-unsafe)
      const char* const why = dlerror();
      return absl::NotFoundError(
          why != nullptr ? why : absl::StrCat("cannot open ", name));
    }
    return SharedLibrary(handle);
  }

  // Sets *function to what is called `symbol`, or to null. The prototype must
  // be right: a name is all that the library knows of it.
  template <class Function>
  void Find(const char* symbol, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(handle_.get(), symbol));
    if (*function == nullptr && missing_ == nullptr) {
      missing_ = symbol;
    }
  }
  // The first name that Find did not find, or null. It says best what the
  // library is not.
  const char* missing() const { return missing_; }

  void LeaveOpen() { static_cast<void>(handle_.release()); }

 private:
  struct Close {
    void operator()(void* handle) const { dlclose(handle); }
  };

  explicit SharedLibrary(void* handle) : handle_(handle) {}

  std::unique_ptr<void, Close> handle_;
  const char* missing_ = nullptr;
};

}  // namespace weir

#endif  // WORKER_COMPUTE_SHARED_LIBRARY_H_
