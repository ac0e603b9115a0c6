#include "client/cc/transport/transport.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

namespace weir {
namespace {

TEST(SendUntilWholeTest, SendsOnceWhatArrivesWhole) {
  int calls = 0;
  EXPECT_TRUE(SendUntilWhole([&] {
                ++calls;
                return absl::OkStatus();
              }).ok());
  EXPECT_EQ(calls, 1);
}

TEST(SendUntilWholeTest, SendsAgainWhatArrivedDamaged) {
  int calls = 0;
  const absl::Status status = SendUntilWhole([&]() -> absl::Status {
    if (++calls < 3) {
      return absl::DataLossError("checksum");
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(calls, 3);
}

TEST(SendUntilWholeTest, GivesUpAfterFiveDamagedTries) {
  int calls = 0;
  const absl::Status status = SendUntilWhole([&] {
    ++calls;
    return absl::DataLossError("checksum");
  });
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_EQ(calls, 5);
}

TEST(SendUntilWholeTest, DoesNotRepeatOtherErrors) {
  // The outcome of a call that was UNAVAILABLE is unknown; the caller decides.
  int calls = 0;
  const absl::Status status = SendUntilWhole([&] {
    ++calls;
    return absl::UnavailableError("away");
  });
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(calls, 1);
}

TEST(NewPrivateBufferTest, IsZeroedAlignedAndWritable) {
  for (const size_t elements : {size_t{0}, size_t{1}, size_t{1} << 20}) {
    const std::shared_ptr<float> buffer = NewPrivateBuffer(elements);
    ASSERT_NE(buffer, nullptr);
    EXPECT_EQ(reinterpret_cast<size_t>(buffer.get()) % 64, 0u);
    EXPECT_TRUE(std::all_of(buffer.get(), buffer.get() + elements,
                            [](float value) { return value == 0.0f; }));
    std::fill_n(buffer.get(), elements, 1.0f);
  }
}

TEST(NewPrivateBufferTest, BuffersDoNotOverlap) {
  const size_t elements = 3000;
  std::vector<std::shared_ptr<float>> buffers;
  for (int i = 0; i < 8; ++i) {
    buffers.push_back(NewPrivateBuffer(elements));
    std::fill_n(buffers.back().get(), elements, static_cast<float>(i));
  }
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(std::count(buffers[i].get(), buffers[i].get() + elements,
                         static_cast<float>(i)),
              static_cast<int64_t>(elements));
  }
}

TEST(NewPrivateBufferTest, IsNullWhenThereIsNoMemory) {
  EXPECT_EQ(NewPrivateBuffer(size_t{1} << 58), nullptr);
}

}  // namespace
}  // namespace weir
