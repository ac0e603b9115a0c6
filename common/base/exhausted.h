// Makes an error of what the system has no more of: memory or threads.
//
// Place: around work whose size a peer chooses. Without it an exception of the
// standard library would end the process, and so the job.
//
// Threads: safe.
// Errors: RESOURCE_EXHAUSTED  the system has no memory or no thread to give.
#ifndef COMMON_BASE_EXHAUSTED_H_
#define COMMON_BASE_EXHAUSTED_H_

#include <functional>
#include <new>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/threads/thread.h"

namespace weir {

// Returns what `call` returns, an absl::Status or StatusOr; RESOURCE_EXHAUSTED
// if it cannot have the memory or the thread that it asks for.
template <typename Call>
auto OrExhausted(Call call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("this process has no more memory");
  } catch (const std::length_error&) {
    // A container was asked for more than any machine has.
    return absl::ResourceExhaustedError("this process has no more memory");
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the system has no more of it to give: ", error.what()));
  }
}

// Starts a thread that runs `body`.
inline absl::StatusOr<Thread> StartThread(std::function<void()> body) {
  return OrExhausted(
      [&body]() -> absl::StatusOr<Thread> { return Thread(std::move(body)); });
}

}  // namespace weir

#endif  // COMMON_BASE_EXHAUSTED_H_
