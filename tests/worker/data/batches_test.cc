#include "worker/data/batches.h"

#include <limits>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/math/random.h"
#include "gtest/gtest.h"
#include "tests/worker/data/fake_dataset.h"

namespace weir {
namespace {

Batches::Options Epochs(double epochs, int64_t batch_size) {
  Batches::Options options;
  options.batch_size = batch_size;
  options.epochs = epochs;
  options.seed = 5;
  return options;
}

std::unique_ptr<Batches> Make(const Batches::Options& options,
                              const Dataset* dataset) {
  auto batches = Batches::Create(options, dataset);
  EXPECT_TRUE(batches.ok()) << batches.status().message();
  return batches.ok() ? *std::move(batches) : nullptr;
}

Batch BatchOf(const Batches& batches, int64_t contribution) {
  Batch batch;
  EXPECT_TRUE(batches.Make(contribution, &batch).ok());
  return batch;
}

// Returns the labels of all contributions, end to end. In FakeDataset they are
// the sample numbers.
std::vector<int> Sequence(const Batches& batches) {
  std::vector<int> samples;
  for (int64_t c = 0; c < batches.contributions(); ++c) {
    const Batch batch = BatchOf(batches, c);
    samples.insert(samples.end(), batch.labels.begin(), batch.labels.end());
  }
  return samples;
}

// The row of a shuffled batch would help nobody.
TEST(BatchesTest, NamesTheSampleWhoseLabelIsWrong) {
  const FakeDataset dataset(20);
  Batches::Options options = Epochs(1, 20);
  options.check_label = [](float label) {
    return label == 7 ? absl::InvalidArgumentError("label 7 is not one of 0..6")
                      : absl::OkStatus();
  };
  for (const bool as_bytes : {false, true}) {
    options.as_bytes = as_bytes;
    Batch batch;
    EXPECT_EQ(Make(options, &dataset)->Make(0, &batch),
              absl::InvalidArgumentError(
                  "data.train: sample 7, counted from 0: label 7 is not one of "
                  "0..6"));
  }
}

TEST(BatchesTest, EverySampleIsOnceInEveryEpoch) {
  // Batches that divide the epoch, do not, are as large and are larger.
  for (const int64_t batch_size : {1, 4, 7, 20, 33, 100}) {
    const FakeDataset dataset(20);
    const auto batches = Make(Epochs(5, batch_size), &dataset);
    const std::vector<int> samples = Sequence(*batches);
    ASSERT_EQ(samples.size(), 100u) << batch_size;
    for (int epoch = 0; epoch < 5; ++epoch) {
      std::vector<int> count(20);
      for (int i = 0; i < 20; ++i) {
        ++count[samples[epoch * 20 + i]];
      }
      EXPECT_EQ(count, std::vector<int>(20, 1)) << batch_size << " " << epoch;
    }
  }
}

TEST(BatchesTest, TheSequenceDoesNotDependOnTheBatchSize) {
  const FakeDataset dataset(20);
  EXPECT_EQ(Sequence(*Make(Epochs(4, 7), &dataset)),
            Sequence(*Make(Epochs(4, 33), &dataset)));
}

TEST(BatchesTest, EpochsAndSeedsHaveOrdersOfTheirOwn) {
  const FakeDataset dataset(50);
  const auto batches = Make(Epochs(3, 10), &dataset);
  Batches::Options other = Epochs(3, 10);
  other.seed = 6;
  EXPECT_NE(*batches->EpochOrder(0), *batches->EpochOrder(1));
  EXPECT_NE(*batches->EpochOrder(0), *Make(other, &dataset)->EpochOrder(0));
  EXPECT_EQ(*batches->EpochOrder(1),
            *Make(Epochs(9, 3), &dataset)->EpochOrder(1));
}

TEST(BatchesTest, OrdersAreEquallyLikely) {
  // 3 samples have 6 orders; over 6000 epochs each comes 1000 times, give or
  // take 5 standard deviations of 29.
  const FakeDataset dataset(3);
  const auto batches = Make(Epochs(1, 1), &dataset);
  std::vector<int> count(27);
  for (int64_t epoch = 0; epoch < 6000; ++epoch) {
    const auto order = batches->EpochOrder(epoch);
    ++count[(*order)[0] * 9 + (*order)[1] * 3 + (*order)[2]];
  }
  int seen = 0;
  for (const int c : count) {
    if (c > 0) {
      ++seen;
      EXPECT_NEAR(c, 1000, 145);
    }
  }
  EXPECT_EQ(seen, 6);
}

TEST(BatchesTest, TheFirstOrderNeverChanges) {
  // A resumed job must see the same order.
  const FakeDataset dataset(8);
  EXPECT_EQ(*Make(Epochs(1, 8), &dataset)->EpochOrder(0),
            (std::vector<uint32_t>{1, 0, 6, 7, 3, 4, 5, 2}));
}

TEST(BatchesTest, NoShuffleIsTheOrderOfTheFile) {
  const FakeDataset dataset(5);
  Batches::Options options = Epochs(2, 3);
  options.shuffle = false;
  EXPECT_EQ(Sequence(*Make(options, &dataset)),
            (std::vector<int>{0, 1, 2, 3, 4, 0, 1, 2, 3, 4}));
}

TEST(BatchesTest, OnlyTheLastIsShortAndItsWeightSaysSo) {
  const FakeDataset dataset(10);
  const auto batches = Make(Epochs(3, 8), &dataset);
  ASSERT_EQ(batches->contributions(), 4);
  for (int64_t c = 0; c < 3; ++c) {
    EXPECT_EQ(BatchOf(*batches, c).rows, 8);
    EXPECT_EQ(BatchOf(*batches, c).weight, 1.0f);
  }
  const Batch last = BatchOf(*batches, 3);
  EXPECT_EQ(last.contribution, 3);
  EXPECT_EQ(last.rows, 6);
  EXPECT_EQ(last.weight, 0.75f);
  EXPECT_EQ(last.features.size(), 12u);
  EXPECT_EQ(last.labels.size(), 6u);
  const Batch beyond = BatchOf(*batches, 4);
  EXPECT_EQ(beyond.rows, 0);
  EXPECT_EQ(beyond.weight, 0.0f);
  EXPECT_TRUE(beyond.features.empty());
}

TEST(BatchesTest, AJobInStepsHasNoShortBatch) {
  const FakeDataset dataset(10);
  Batches::Options options = Epochs(0, 8);
  options.contributions = 7;
  const auto batches = Make(options, &dataset);
  EXPECT_EQ(batches->contributions(), 7);
  EXPECT_EQ(Sequence(*batches).size(), 56u);
}

TEST(BatchesTest, BytesAreTheSameInWhateverOrderTheyAreAskedFor) {
  const FakeDataset dataset(31);
  const auto first = Make(Epochs(6, 9), &dataset);
  const auto second = Make(Epochs(6, 9), &dataset);
  RandomStream random(3);
  Batch reused;
  for (int i = 0; i < 200; ++i) {
    const int64_t c =
        random.NextBelow(static_cast<uint32_t>(first->contributions()));
    ASSERT_TRUE(second->Make(c, &reused).ok());
    const Batch batch = BatchOf(*first, c);
    EXPECT_EQ(batch.features, reused.features);
    EXPECT_EQ(batch.labels, reused.labels);
    EXPECT_EQ(batch.rows, reused.rows);
    for (int64_t row = 0; row < batch.rows; ++row) {
      EXPECT_EQ(batch.features[2 * row], batch.labels[row]);
      EXPECT_EQ(batch.features[2 * row + 1], batch.labels[row] + 0.5f);
    }
  }
}

TEST(BatchesTest, GivesBytesInTheOrderOfFloats) {
  class Observer : public PageObserver {
   public:
    void OnAllocate(void*, size_t bytes) override {
      ++held;
      held_bytes = bytes;
    }
    void OnFree(void*) override { --held; }
    int held = 0;
    size_t held_bytes = 0;
  };
  const FakeDataset dataset(31);
  const auto floats = Make(Epochs(6, 9), &dataset);
  Observer observer;
  Batches::Options options = Epochs(6, 9);
  options.as_bytes = true;
  options.pages = &observer;
  const auto bytes = Make(options, &dataset);
  {
    Batch reused;
    for (int64_t c = 0; c < floats->contributions(); ++c) {
      ASSERT_TRUE(bytes->Make(c, &reused).ok());
      const Batch batch = BatchOf(*floats, c);
      EXPECT_EQ(batch.labels, reused.labels);
      EXPECT_TRUE(reused.features.empty());
      ASSERT_EQ(reused.bytes.size(), batch.features.size());
      // Whole floats from any byte on.
      EXPECT_GE(observer.held_bytes, reused.bytes.size() + 3);
      for (int64_t row = 0; row < batch.rows; ++row) {
        EXPECT_EQ(reused.bytes[2 * row], batch.features[2 * row]);
        EXPECT_EQ(reused.bytes[2 * row + 1], 255 - batch.features[2 * row]);
      }
    }
    EXPECT_EQ(observer.held, 1);
  }
  EXPECT_EQ(observer.held, 0);
}

TEST(BatchesTest, BagsAreThoseOfTheRowsAndNothingStaysFromTheLastBatch) {
  const FakeDataset dataset(31);
  const auto batches = Make(Epochs(2, 9), &dataset);
  Batch batch;
  for (int64_t c = 0; c <= batches->contributions(); ++c) {
    ASSERT_TRUE(batches->Make(c, &batch).ok());
    ASSERT_EQ(batch.sparse.features.size(), 2u);
    const SparseFeature& even = batch.sparse.features[0];
    const SparseFeature& own = batch.sparse.features[1];
    ASSERT_EQ(std::ssize(even.offsets), batch.rows + 1);
    ASSERT_EQ(std::ssize(own.ids), batch.rows);
    for (int64_t row = 0; row < batch.rows; ++row) {
      const auto sample = static_cast<uint64_t>(batch.labels[row]);
      EXPECT_EQ(own.ids[own.offsets[row]], sample);
      const std::vector<uint64_t> bag(even.ids.begin() + even.offsets[row],
                                      even.ids.begin() + even.offsets[row + 1]);
      EXPECT_EQ(bag, sample % 2 == 0
                         ? (std::vector<uint64_t>{sample, 2 * sample})
                         : std::vector<uint64_t>{});
    }
  }
}

TEST(BatchesTest, NamesTheFieldThatDoesNotFit) {
  const FakeDataset dataset(10);
  Batches::Options both = Epochs(1, 4);
  both.contributions = 3;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::pair<Batches::Options, std::string> cases[] = {
      {Epochs(1, 0), "train.batch_size"},
      {Epochs(1, int64_t{1} << 40), "train.batch_size"},
      {Epochs(-1, 4), "train.epochs"},
      {Epochs(nan, 4), "train.epochs"},
      {Epochs(1e9, 4), "train.epochs"},
      {Epochs(0, 4), "exactly one of epochs and steps"},
      {both, "exactly one of epochs and steps"},
  };
  for (const auto& [options, expected] : cases) {
    const auto batches = Batches::Create(options, &dataset);
    EXPECT_EQ(batches.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(batches.status().message().find(expected),
              absl::string_view::npos)
        << batches.status().message();
  }
}

TEST(BatchesTest, ErrorsOfTheDataSetComeThrough) {
  const FakeDataset dataset(10, /*broken=*/3);
  const auto batches = Make(Epochs(1, 10), &dataset);
  Batch batch;
  EXPECT_EQ(batches->Make(0, &batch).code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace weir
