// Tickets for sessions of the shared-memory transport: who has one was admitted
// as a worker over gRPC, so the session need not ask again.
//
// Place: Hello gives them out (parameter_service.h), and a session takes the
// one that its client brings (shm_session.h).
//
// Invariants
//   I1. A ticket opens one session, within kGood.
//   I2. At most kShmTicketsMax are kept; the oldest is forgotten first.
// Threads: safe.
#ifndef SERVER_PS_SERVICE_SHM_TICKETS_H_
#define SERVER_PS_SERVICE_SHM_TICKETS_H_

#include <chrono>
#include <cstdint>
#include <list>
#include <string>
#include <utility>

#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace weir {

class ShmTickets {
 public:
  static constexpr std::chrono::seconds kGood{10};

  explicit ShmTickets(Clock* clock = Clock::Real()) : clock_(clock) {}

  // kShmTicketBytes bytes that nobody can guess.
  std::string Give();
  // Whether `ticket` is good. It is used up.
  bool Take(const std::string& ticket);

 private:
  Clock* const clock_;

  Mutex mutex_;
  // With the time at which each ends; the oldest first.
  std::list<std::pair<std::string, int64_t>> tickets_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir

#endif  // SERVER_PS_SERVICE_SHM_TICKETS_H_
