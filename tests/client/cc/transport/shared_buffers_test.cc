#include "client/cc/transport/shared_buffers.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <memory>
#include <span>
#include <vector>

#include "common/io/shared_memory.h"

namespace weir {
namespace {

constexpr size_t kBytes = 4096;

std::span<const char> Bytes(const std::shared_ptr<float>& buffer, size_t begin,
                            size_t count) {
  return {reinterpret_cast<const char*>(buffer.get()) + begin, count};
}

TEST(SharedBuffersTest, FindsABufferByAnyBytesInIt) {
  const auto buffers = std::make_shared<SharedBuffers>();
  const auto first = SharedBuffers::New(buffers, kBytes);
  const auto second = SharedBuffers::New(buffers, kBytes);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  const auto memory = buffers->Find(Bytes(first, 0, kBytes));
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(memory->data(), reinterpret_cast<const char*>(first.get()));
  EXPECT_EQ(buffers->Find(Bytes(first, 100, 8)), memory);
  EXPECT_EQ(buffers->Find(Bytes(first, memory->bytes() - 1, 1)), memory);
  EXPECT_NE(buffers->Find(Bytes(second, 0, 1)), memory);
}

TEST(SharedBuffersTest, DoesNotFindWhatIsNotWhollyInside) {
  const auto buffers = std::make_shared<SharedBuffers>();
  const auto buffer = SharedBuffers::New(buffers, kBytes);
  ASSERT_NE(buffer, nullptr);
  const size_t end = buffers->Find(Bytes(buffer, 0, 1))->bytes();
  EXPECT_EQ(buffers->Find(Bytes(buffer, end - 8, 9)), nullptr);
  EXPECT_EQ(buffers->Find(Bytes(buffer, end + 1, 1)), nullptr);
  EXPECT_EQ(buffers->Find(Bytes(buffer, 8, ~size_t{0} - 4)), nullptr);
  const std::vector<char> elsewhere(16);
  EXPECT_EQ(buffers->Find(elsewhere), nullptr);
}

TEST(SharedBuffersTest, ForgetsABufferThatNobodyHolds) {
  const auto buffers = std::make_shared<SharedBuffers>();
  auto buffer = SharedBuffers::New(buffers, kBytes);
  ASSERT_NE(buffer, nullptr);
  const std::span<const char> bytes = Bytes(buffer, 0, kBytes);
  ASSERT_NE(buffers->Find(bytes), nullptr);
  buffer.reset();
  EXPECT_EQ(buffers->Find(bytes), nullptr);
}

TEST(SharedBuffersTest, ABufferOutlivesTheListThatFindsIt) {
  auto buffers = std::make_shared<SharedBuffers>();
  auto buffer = SharedBuffers::New(buffers, kBytes);
  ASSERT_NE(buffer, nullptr);
  buffers.reset();
  *buffer = 1.0f;
  EXPECT_EQ(*buffer, 1.0f);
}

TEST(SharedBuffersTest, ABufferThatIsPrivateIsNotSharedAnyMore) {
  const auto buffers = std::make_shared<SharedBuffers>();
  const auto buffer = SharedBuffers::New(buffers, kBytes);
  ASSERT_NE(buffer, nullptr);
  const auto memory = buffers->Find(Bytes(buffer, 0, kBytes));
  ASSERT_NE(memory, nullptr);
  *buffer = 1.0f;
  // A ps maps the same memory.
  void* const seen =
      mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, memory->fd(), 0);
  ASSERT_NE(seen, MAP_FAILED);
  ASSERT_TRUE(buffers->MakePrivate(*memory).ok());
  EXPECT_EQ(buffers->Find(Bytes(buffer, 0, kBytes)), nullptr);
  EXPECT_EQ(*buffer, 1.0f);  // the caller's values stay
  *buffer = 2.0f;
  EXPECT_EQ(*static_cast<const float*>(seen), 1.0f);
  // A second connection to the same ps may ask again.
  EXPECT_TRUE(buffers->MakePrivate(*memory).ok());
  EXPECT_EQ(*buffer, 2.0f);
  munmap(seen, kBytes);
}

}  // namespace
}  // namespace weir
