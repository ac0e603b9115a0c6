#include "server/ps/rows/answer_budget.h"

namespace weir {

AnswerBudget::Room AnswerBudget::Take(const Sender& sender, int64_t bytes) {
  Key key = {0, 0};  // readers
  if (sender.generation() != 0) {
    key = {sender.slot(), sender.generation()};
  }
  {
    MutexLock lock(&mutex_);
    const auto held = held_.find(key);
    // I1: what is found here holds something.
    if (held != held_.end() &&
        (held->second + bytes > per_sender_ || used_ + bytes > all_)) {
      return nullptr;  // I2
    }
    held_[key] += bytes;
    used_ += bytes;
  }
  return Room(static_cast<const void*>(this),
              [self = shared_from_this(), key, bytes](const void*) {
                self->GiveBack(key, bytes);
              });
}

void AnswerBudget::GiveBack(const Key& key, int64_t bytes) {
  MutexLock lock(&mutex_);
  used_ -= bytes;
  const auto held = held_.find(key);
  held->second -= bytes;
  if (held->second == 0) {
    held_.erase(held);
  }
}

int64_t AnswerBudget::used() const {
  MutexLock lock(&mutex_);
  return used_;
}

}  // namespace weir
