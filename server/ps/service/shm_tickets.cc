#include "server/ps/service/shm_tickets.h"

#include <algorithm>

#include "common/base/identity.h"
#include "common/base/limits.h"
#include "proto/wire/shm_message.h"

namespace weir {

std::string ShmTickets::Give() {
  const uint64_t halves[] = {RandomId(), RandomId()};
  static_assert(sizeof(halves) == kShmTicketBytes);
  std::string ticket(reinterpret_cast<const char*>(halves), sizeof(halves));
  const int64_t end_ns =
      clock_->NowNs() + std::chrono::nanoseconds(kGood).count();
  MutexLock lock(&mutex_);
  if (tickets_.size() == kShmTicketsMax) {  // I2
    tickets_.pop_front();
  }
  tickets_.emplace_back(ticket, end_ns);
  return ticket;
}

bool ShmTickets::Take(const std::string& ticket) {
  const int64_t now_ns = clock_->NowNs();
  MutexLock lock(&mutex_);
  while (!tickets_.empty() && tickets_.front().second < now_ns) {
    tickets_.pop_front();
  }
  const auto found =
      std::find_if(tickets_.begin(), tickets_.end(),
                   [&](const auto& entry) { return entry.first == ticket; });
  if (found == tickets_.end()) {
    return false;
  }
  tickets_.erase(found);  // I1
  return true;
}

}  // namespace weir
