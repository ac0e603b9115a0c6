#include "worker/data/formats/digits_dataset.h"

#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/worker/data/label_facts.h"
#include "worker/data/formats/digits.h"

namespace weir {
namespace {

TEST(DigitsDatasetTest, ManyThreadsReadTheSameSamples) {
  constexpr int kCount = 60;
  const DigitsDataset dataset(kCount, 1, 7);
  EXPECT_EQ(dataset.size(), kCount);
  EXPECT_EQ(dataset.feature_shape(), (std::vector<int64_t>{1, 28, 28}));
  std::vector<std::vector<float>> seen(4);
  std::vector<std::thread> threads;
  for (std::vector<float>& pixels : seen) {
    threads.emplace_back([&pixels, &dataset] {
      pixels.resize(size_t{kCount} * kDigitPixels);
      float label = 0.0f;
      for (int round = 0; round < 2; ++round) {
        for (int i = 0; i < kCount; ++i) {
          if (!dataset.ReadSample(i, &pixels[size_t{kDigitPixels} * i], &label)
                   .ok() ||
              label != static_cast<float>(DigitLabel(7, 1, i))) {
            pixels.clear();
            return;
          }
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  std::vector<uint8_t> expected(kDigitPixels);
  for (int i = 0; i < kCount; ++i) {
    RenderDigit(7, 1, i, expected.data());
    for (int p = 0; p < kDigitPixels; ++p) {
      ASSERT_EQ(seen[0][i * kDigitPixels + p],
                static_cast<float>(expected[p]) / 255.0f);
    }
  }
  for (const std::vector<float>& pixels : seen) {
    EXPECT_EQ(pixels, seen[0]);
  }
  EXPECT_EQ(LabelFactsOf(dataset).class_count, 10);
}

TEST(DigitsDatasetTest, SamplesBeyondTheKeptOnesAreDrawnEachTime) {
  const DigitsDataset dataset(DigitsDataset::kKeptMax + 2, 0, 7);
  const int64_t last = DigitsDataset::kKeptMax + 1;
  std::vector<float> pixels(kDigitPixels);
  float label = 0.0f;
  ASSERT_TRUE(dataset.ReadSample(last, pixels.data(), &label).ok());
  std::vector<uint8_t> expected(kDigitPixels);
  EXPECT_EQ(label,
            static_cast<float>(RenderDigit(7, 0, last, expected.data())));
  EXPECT_EQ(pixels[400], static_cast<float>(expected[400]) / 255.0f);
}

}  // namespace
}  // namespace weir
