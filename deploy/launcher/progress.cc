#include "deploy/launcher/progress.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/printable.h"

namespace weir {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kPlainEveryNs = 5 * kSecondNs;

// 12345.6 -> "12,346".
std::string Thousands(double value) {
  const std::string digits = absl::StrFormat("%.0f", value);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) {
      text += ',';
    }
    text += digits[i];
  }
  return text;
}

std::string Minutes(double seconds) {
  const int64_t whole = std::llround(seconds);
  return absl::StrFormat("%d:%02d", whole / 60, whole % 60);
}

}  // namespace

std::string ProgressText(const ChiefStatus& status, double eta_seconds) {
  if (status.phase() == ChiefStatus::WAITING) {
    return Printable(status.message());
  }
  std::string text =
      absl::StrFormat("step %d/%d", status.step(), status.step_count());
  if (status.examples() > 0) {
    absl::StrAppendFormat(&text, "  loss %.4f  %s examples/s", status.loss(),
                          Thousands(status.examples_per_second()));
  }
  if (status.staleness_max() > 0) {
    absl::StrAppendFormat(&text, "  staleness %.1f (max %d)",
                          status.staleness_mean(), status.staleness_max());
  }
  if (status.phase() == ChiefStatus::FINISHING) {
    absl::StrAppend(&text, "  ", Printable(status.message()));
  } else if (eta_seconds >= 0) {
    absl::StrAppend(&text, "  ETA ", Minutes(eta_seconds));
  }
  return text;
}

double ProgressLine::Eta(const ChiefStatus& status, int64_t now_ns) {
  // A resumed job does not begin at step 0, and a chief that was started again
  // goes back to its checkpoint: the speed counts from the step seen first.
  if (first_ns_ == 0 || status.step() < first_step_) {
    first_ns_ = now_ns;
    first_step_ = status.step();
  }
  if (status.step() == first_step_) {
    return -1;
  }
  const double per_step = static_cast<double>(now_ns - first_ns_) /
                          static_cast<double>(status.step() - first_step_);
  return per_step * static_cast<double>(status.step_count() - status.step()) /
         kSecondNs;
}

void ProgressLine::Show(const ChiefStatus& status, int64_t now_ns) {
  const std::string text = ProgressText(status, Eta(status, now_ns));
  if (text == shown_ || text.empty()) {
    return;
  }
  if (terminal_) {
    // \033[K clears to the end of the line: the new text may be shorter.
    std::fprintf(out_, "\r\033[K%s", text.c_str());
  } else {
    // The first line comes at once, whatever the clock says.
    if (shown_ns_ != 0 && now_ns - shown_ns_ < kPlainEveryNs) {
      return;
    }
    std::fprintf(out_, "%s\n", text.c_str());
  }
  std::fflush(out_);
  shown_ = text;
  shown_ns_ = now_ns;
}

void ProgressLine::Note(const std::string& text) {
  Finish();
  std::fprintf(out_, "%s\n", text.c_str());
  std::fflush(out_);
}

void ProgressLine::Finish() {
  if (terminal_ && !shown_.empty()) {
    std::fprintf(out_, "\r\033[K");
    std::fflush(out_);
  }
  // What follows a note is shown again even if it has not changed.
  shown_.clear();
}

}  // namespace weir
