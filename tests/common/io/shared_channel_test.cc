#include "common/io/shared_channel.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>

#include "common/math/random.h"

namespace weir {
namespace {

struct Ends {
  std::shared_ptr<SharedMemory> memory =
      *SharedMemory::Create(SharedChannel::kMemoryBytes);
  SharedChannel client{memory, SharedChannel::kClient};
  SharedChannel server{memory, SharedChannel::kServer};
};

// The text of message number `i` of a known sequence.
std::string Text(uint64_t i, size_t bytes_max) {
  RandomStream random(i);
  std::string text(random.NextBelow(static_cast<uint32_t>(bytes_max)), '\0');
  for (char& c : text) {
    c = static_cast<char>(random.NextBelow(256));
  }
  return text;
}

TEST(SharedChannelTest, MessagesKeepOrderAndBytesPastTheRingsEnd) {
  Ends ends;
  std::string message;
  EXPECT_FALSE(*ends.server.TryRead(&message));
  for (uint64_t i = 0; i < 2000; ++i) {
    const std::string text = Text(i, 3000);
    const size_t cut = text.size() / 3;
    ASSERT_TRUE(ends.client.TryWrite({text.data(), cut},
                                     {text.data() + cut, text.size() - cut}));
    ASSERT_TRUE(ends.server.TryWrite(text, {}));
    ASSERT_TRUE(*ends.server.TryRead(&message));
    EXPECT_TRUE(message == text) << i;
    ASSERT_TRUE(*ends.client.TryRead(&message));
    EXPECT_TRUE(message == text) << i;
  }
  EXPECT_FALSE(*ends.client.TryRead(&message));
}

TEST(SharedChannelTest, AFullRingTakesNoMoreAndRingsWhenThereIsRoom) {
  Ends ends;
  const std::string text(60000, 'x');
  int written = 0;
  while (ends.client.TryWrite(text, {})) {
    ++written;
  }
  EXPECT_EQ(written, 4);
  const uint32_t seen = ends.client.bell();
  std::string message;
  ASSERT_TRUE(*ends.server.TryRead(&message));
  EXPECT_NE(ends.client.bell(), seen);
  EXPECT_TRUE(ends.client.TryWrite(text, {}));
}

TEST(SharedChannelTest, AWaitEndsByTheBellOrByTime) {
  Ends ends;
  const uint32_t seen = ends.server.bell();
  ends.server.Wait(seen, std::chrono::milliseconds(10));
  EXPECT_EQ(ends.server.bell(), seen);
  std::thread waiter([&] {
    while (ends.server.bell() == seen) {
      ends.server.Wait(seen, std::chrono::seconds(60));
    }
  });
  ASSERT_TRUE(ends.client.TryWrite(std::string("wake"), {}));
  waiter.join();
}

TEST(SharedChannelTest, TwoThreadsLoseNothing) {
  Ends ends;
  constexpr uint64_t kMessages = 20000;
  std::thread reader([&] {
    std::string message;
    for (uint64_t i = 0; i < kMessages;) {
      const uint32_t seen = ends.server.bell();
      if (*ends.server.TryRead(&message)) {
        ASSERT_TRUE(message == Text(i, 200)) << i;
        ++i;
      } else {
        ends.server.Wait(seen, std::chrono::seconds(10));
      }
    }
  });
  for (uint64_t i = 0; i < kMessages;) {
    const uint32_t seen = ends.client.bell();
    if (ends.client.TryWrite(Text(i, 200), {})) {
      ++i;
    } else {
      ends.client.Wait(seen, std::chrono::seconds(10));
    }
  }
  reader.join();
}

// I1: every word that the other side may write is set to nonsense.
TEST(SharedChannelTest, ABrokenPeerIsDataLossOrAFullRingNeverACrash) {
  for (const size_t offset : {128, 192, 256, 512}) {
    for (const uint64_t nonsense :
         {uint64_t{1}, uint64_t{7}, uint64_t{1} << 32, ~uint64_t{0}}) {
      Ends ends;
      ASSERT_TRUE(ends.client.TryWrite(std::string(100, 'x'), {}));
      std::memcpy(ends.memory->data() + offset, &nonsense, sizeof(nonsense));
      std::string message;
      const auto read = ends.server.TryRead(&message);
      if (!read.ok()) {
        EXPECT_EQ(read.status().code(), absl::StatusCode::kDataLoss);
      }
      ends.client.TryWrite(std::string(100, 'x'), {});
    }
  }
  Ends ends;
  const uint64_t far = SharedChannel::kRingBytes + 8;
  std::memcpy(ends.memory->data() + 128, &far, sizeof(far));
  std::string message;
  EXPECT_EQ(ends.server.TryRead(&message).status().code(),
            absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace weir
