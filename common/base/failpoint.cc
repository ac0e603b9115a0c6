#include "common/base/failpoint.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/clock.h"
#include "common/base/status.h"

namespace weir {
namespace {

// The header says what each one means; tests/style holds the two lists equal.
constexpr const char* kNames[] = {
    "chief.after_manifest",
    "chief.before_declare",
    "chief.before_done",
    "chief.before_hold",
    "chief.before_manifest",
    "chief.before_shutdown",
    "chief.before_snapshot",
    "chief.gc",
    "chief.mid_declare",
    "chief.mid_restore",
    "evaluator.mid_read",
    "files.after_rename",
    "files.before_rename",
    "ps.before_ack",
    "ps.before_apply",
    "ps.before_restore",
    "ps.before_table_apply",
    "ps.before_table_write",
    "ps.before_write",
    "ps.mid_apply",
    "ps.mid_restore",
    "ps.mid_write",
    "ps.recv",
    "worker.before_ack",
    "worker.before_batch",
    "worker.before_pull",
    "worker.before_push",
    "worker.before_register",
    "worker.before_rows",
    "worker.in_barrier",
    "worker.mid_fanout",
    "worker.mid_push",
};

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

struct Armed {
  Armed(std::string name, int64_t left, int64_t sleep_ms, bool counts)
      : name(std::move(name)), left(left), sleep_ms(sleep_ms), counts(counts) {}
  const std::string name;
  std::atomic<int64_t> left;  // hits until the process dies
  const int64_t sleep_ms;     // at each hit
  const bool counts;          // and never kills
};

using ArmedList = std::vector<std::unique_ptr<Armed>>;

// Written before any thread exists, and only read after that, so without a
// lock. Never deleted: threads that outlive main may still reach a failpoint.
ArmedList& List() {
  static auto* const list = new ArmedList();
  return *list;
}

bool Known(absl::string_view name) {
  return absl::StartsWith(name, "test.") ||
         std::any_of(std::begin(kNames), std::end(kNames),
                     [name](const char* known) { return name == known; });
}

// Prints "failpoint ps.recv: reached 12 times" for each one that was reached.
void PrintCounts() {
  for (const std::unique_ptr<Armed>& point : List()) {
    const int64_t hits = kNever - point->left;
    if (hits > 0 && point->counts) {
      std::fprintf(stderr, "failpoint %s: reached %lld times\n",
                   point->name.c_str(), static_cast<long long>(hits));
    }
  }
}

void CountAll(ArmedList* list) {
  for (const char* name : kNames) {
    list->push_back(std::make_unique<Armed>(name, kNever, 0, true));
  }
  // Processes end on either way: some mains skip the destructors.
  std::atexit(PrintCounts);
  std::at_quick_exit(PrintCounts);
}

// "name:nth" or "name:5ms".
absl::Status Arm(absl::string_view part, ArmedList* list) {
  const std::pair<std::string, std::string> pair =
      absl::StrSplit(part, absl::MaxSplits(':', 1));
  absl::string_view number = pair.second;
  const bool sleeps = absl::ConsumeSuffix(&number, "ms");
  int64_t value = 0;
  if (!absl::SimpleAtoi(number, &value) || value < 1) {
    return Invalid("WEIR_FAILPOINT: '", part,
                   "' is not name:nth or name:5ms with at least 1");
  }
  if (!Known(pair.first)) {
    return Invalid("WEIR_FAILPOINT: no failpoint is called '", pair.first,
                   "'; common/base/failpoint.h lists them");
  }
  int64_t left = value;
  int64_t sleep_ms = 0;
  if (sleeps) {
    left = kNever;
    sleep_ms = value;
  }
  list->push_back(
      std::make_unique<Armed>(pair.first, left, sleep_ms, /*counts=*/false));
  return absl::OkStatus();
}

}  // namespace

namespace failpoint_internal {

std::atomic<bool> armed{false};

void Hit(const char* name) {
  for (const std::unique_ptr<Armed>& point : List()) {
    if (point->name != name) {
      continue;
    }
    if (point->sleep_ms > 0) {
      Clock::Real()->SleepFor(std::chrono::milliseconds(point->sleep_ms));
    } else if (point->left.fetch_sub(1) == 1) {
      // fetch_sub gives each hit its own number, so exactly one thread is here.
      std::fprintf(stderr, "failpoint %s: SIGKILL\n", name);
      ::kill(::getpid(), SIGKILL);
      for (;;) {
        ::pause();  // The signal may take another thread first.
      }
    }
  }
}

}  // namespace failpoint_internal

absl::Status InitFailpointsFromEnv() {
  // Read once at start, before any thread exists.
  const char* spec = std::getenv("WEIR_FAILPOINT");  // NOLINT
  if (spec == nullptr) {
    spec = "";
  }
  return InitFailpoints(spec);
}

absl::Status InitFailpoints(const std::string& spec) {
  // All or nothing: a wrong part leaves what was armed before.
  ArmedList list;
  for (const absl::string_view part :
       absl::StrSplit(spec, ',', absl::SkipWhitespace())) {
    if (part == "count") {
      CountAll(&list);
    } else {
      WEIR_RETURN_IF_ERROR(Arm(part, &list));
    }
  }
  List() = std::move(list);
  failpoint_internal::armed = !List().empty();
  return absl::OkStatus();
}

}  // namespace weir
