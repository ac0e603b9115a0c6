#include "server/ps/service/shm_tickets.h"

#include <chrono>
#include <string>
#include <vector>

#include "common/base/limits.h"
#include "gtest/gtest.h"
#include "proto/wire/shm_message.h"

namespace weir {
namespace {

TEST(ShmTicketsTest, OneIsGoodOnce) {
  ShmTickets tickets;
  const std::string ticket = tickets.Give();
  EXPECT_EQ(ticket.size(), kShmTicketBytes);
  EXPECT_NE(ticket, tickets.Give());
  EXPECT_TRUE(tickets.Take(ticket));
  EXPECT_FALSE(tickets.Take(ticket));
  EXPECT_FALSE(tickets.Take(std::string(kShmTicketBytes, '\0')));
  EXPECT_FALSE(tickets.Take(""));
}

TEST(ShmTicketsTest, OneIsGoodForAWhile) {
  FakeClock clock;
  ShmTickets tickets(&clock);
  const std::string early = tickets.Give();
  const std::string late = tickets.Give();
  clock.Advance(ShmTickets::kGood);
  EXPECT_TRUE(tickets.Take(early));
  clock.Advance(std::chrono::nanoseconds(1));
  EXPECT_FALSE(tickets.Take(late));
}

TEST(ShmTicketsTest, KeepsTheNewest) {
  ShmTickets tickets;
  std::vector<std::string> given;
  for (size_t i = 0; i <= kShmTicketsMax; ++i) {
    given.push_back(tickets.Give());
  }
  EXPECT_FALSE(tickets.Take(given.front()));
  EXPECT_TRUE(tickets.Take(given[1]));
  EXPECT_TRUE(tickets.Take(given.back()));
}

}  // namespace
}  // namespace weir
