#include "proto/security/audit_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/logging.h"
#include "nlohmann/json.hpp"

namespace weir {
namespace {

constexpr size_t kTextBytesMax = 300;
constexpr int64_t kSecondNs = 1'000'000'000;

// "2026-01-31T12:00:00.123Z"
std::string Timestamp(int64_t wall_ns) {
  const time_t seconds = static_cast<time_t>(wall_ns / kSecondNs);
  tm parts = {};
  gmtime_r(&seconds, &parts);
  char text[32];
  strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &parts);
  return absl::StrFormat("%s.%03dZ", text, wall_ns % kSecondNs / 1'000'000);
}

}  // namespace

int AuditLog::File() {
  MutexLock lock(&mutex_);
  if (!tried_ && !path_.empty()) {
    file_ = FileDescriptor(
        open(path_.c_str(),
             O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file_.valid()) {
      LOG_WARN("the audit log {} cannot be opened, its lines stand here: {}",
               path_, std::generic_category().message(errno));
    }
  }
  tried_ = true;
  return file_.get();
}

void AuditLog::Add(const Event& event) {
  int64_t left_out = 0;
  if (!event.status.ok()) {
    MutexLock lock(&mutex_);
    const int64_t second = clock_->NowNs() / kSecondNs;
    if (second != second_) {
      second_ = second;
      in_second_ = 0;
    }
    if (in_second_ == kRefusalLinesPerSecond) {  // I2
      ++left_out_;
      return;
    }
    ++in_second_;
    left_out = left_out_;
    left_out_ = 0;
  }
  Write(event, left_out);
}

void AuditLog::Write(const Event& event, int64_t left_out) {
  nlohmann::ordered_json line = {
      {"at", Timestamp(clock_->WallNowNs())},
      {"peer", event.peer},
      {"address", event.address},
      {"method", event.method.substr(0, kTextBytesMax)},
      {"status", absl::StatusCodeToString(event.status.code())}};
  std::string detail = event.detail;
  if (!event.status.ok()) {
    absl::StrAppend(&detail, detail.empty() ? "" : ": ",
                    event.status.message());
  }
  line["detail"] = detail.substr(0, kTextBytesMax);
  if (left_out > 0) {
    line["refusals_left_out"] = left_out;
  }
  // I1. Bytes that are no UTF-8 are replaced; control characters are escaped.
  const std::string text =
      line.dump(-1, ' ', /*ensure_ascii=*/true,
                nlohmann::ordered_json::error_handler_t::replace);
  const int file = File();
  if (file < 0) {
    LOG_INFO("audit {}", text);
    return;
  }
  const std::string whole = text + "\n";
  // One write appends a whole line. A full disk must not stop the job.
  if (write(file, whole.data(), whole.size()) < 0) {
    LOG_WARN("the audit log cannot be written: {}", text);
  }
}

}  // namespace weir
