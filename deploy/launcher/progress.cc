#include "deploy/launcher/progress.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/printable.h"
#include "deploy/watch/terminal.h"

namespace weir {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kPlainEveryNs = 5 * kSecondNs;
// An even number of losses, so that they can be halved.
constexpr size_t kLossesMax = 256;
constexpr int kCurveColumns = 24;
constexpr int kCurveColumnsMin = 8;  // fewer show nothing

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

std::string Sparkline(const std::vector<double>& values, int columns) {
  constexpr const char* kBars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr int kBarCount = static_cast<int>(std::size(kBars));
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  for (const double value : values) {
    if (std::isfinite(value)) {
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  const int count = static_cast<int>(values.size());
  const int shown = std::min(count, columns);
  std::string line;
  for (int c = 0; c < shown; ++c) {
    const int begin = c * count / shown;
    const int end = (c + 1) * count / shown;
    double sum = 0.0;
    for (int i = begin; i < end; ++i) {
      sum += std::isfinite(values[i]) ? values[i] : high;
    }
    const double mean = sum / (end - begin);
    if (low > high) {  // no value is finite
      line += kBars[kBarCount - 1];
      continue;
    }
    const double share = high > low ? (mean - low) / (high - low) : 0.0;
    const int bar = static_cast<int>(share * (kBarCount - 1) + 0.5);
    line += kBars[std::clamp(bar, 0, kBarCount - 1)];
  }
  return line;
}

void ProgressLine::AddLoss(const ChiefStatus& status) {
  if (status.examples() == 0 || status.step() == loss_step_ ||
      ++losses_skipped_ < losses_every_) {
    return;
  }
  loss_step_ = status.step();
  losses_skipped_ = 0;
  losses_.push_back(status.loss());
  if (losses_.size() < kLossesMax) {
    return;
  }
  for (size_t i = 0; i < kLossesMax / 2; ++i) {
    losses_[i] = (losses_[2 * i] + losses_[2 * i + 1]) / 2;
  }
  losses_.resize(kLossesMax / 2);
  losses_every_ *= 2;
}

void ProgressLine::Show(const ChiefStatus& status, int64_t now_ns,
                        int columns) {
  std::string text = ProgressText(status, Eta(status, now_ns));
  if (terminal_) {
    AddLoss(status);
    // A line that is as long as the terminal's would move the cursor into the
    // next one, and \r would not lead back.
    text = CutToColumns(text, columns - 1);
    const int curve = std::min(kCurveColumns, columns - 3 - ColumnsOf(text));
    if (losses_.size() > 1 && status.phase() == ChiefStatus::TRAINING &&
        curve >= kCurveColumnsMin) {
      absl::StrAppend(&text, "  ", Sparkline(losses_, curve));
    }
  }
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
