#include "bench/tables/rows_draws.h"

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "common/io/files.h"
#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"

namespace weir {
namespace {

constexpr int64_t kRows = 26'000;
constexpr int64_t kSamples = 8;

std::vector<uint64_t> AllIds(const DrawnBatch& batch) {
  std::vector<uint64_t> ids;
  for (const SparseFeature& feature : batch.samples.features) {
    ids.insert(ids.end(), feature.ids.begin(), feature.ids.end());
  }
  return ids;
}

std::vector<uint64_t> Numbers(const std::string& path) {
  const std::string bytes = *Files::Real()->ReadAll(path);
  std::vector<uint64_t> numbers(bytes.size() / sizeof(uint64_t));
  std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(uint64_t));
  return numbers;
}

// I1.
TEST(RowsDrawsTest, ABatchHasItsSamplesIdsOnceAndAscending) {
  auto draws = Draws::Create(kRows, kSamples);
  ASSERT_TRUE(draws.ok()) << draws.status();
  const auto batches = draws->Next(3);
  ASSERT_TRUE(batches.ok()) << batches.status();
  ASSERT_EQ(batches->size(), 3u);
  double distinct = 0;
  for (const DrawnBatch& batch : *batches) {
    const std::vector<uint64_t> all = AllIds(batch);
    EXPECT_EQ(all.size(), static_cast<size_t>(kSamples * kFeatures));
    const std::set<uint64_t> want(all.begin(), all.end());
    EXPECT_EQ(batch.ids, std::vector<uint64_t>(want.begin(), want.end()));
    EXPECT_LT(batch.ids.back(), static_cast<uint64_t>(kRows));
    distinct += static_cast<double>(want.size());
  }
  EXPECT_EQ(CountRows(*batches), distinct);
}

// I2.
TEST(RowsDrawsTest, DrawsEverySampleOnce) {
  auto one = Draws::Create(kRows, kSamples);
  auto other = Draws::Create(kRows, kSamples);
  ASSERT_TRUE(one.ok() && other.ok());
  const DrawnBatches at_once = *one->Next(2);
  const DrawnBatches first = *other->Next(1);
  const DrawnBatches second = *other->Next(1);
  EXPECT_EQ(AllIds(first[0]), AllIds(at_once[0]));
  EXPECT_EQ(AllIds(second[0]), AllIds(at_once[1]));
  EXPECT_NE(AllIds(first[0]), AllIds(second[0]));
}

TEST(RowsDrawsTest, WritesTheListsThatTorchReads) {
  auto draws = Draws::Create(kRows, kSamples);
  ASSERT_TRUE(draws.ok()) << draws.status();
  const DrawnBatches batches = *draws->Next(2);
  const std::string prefix = MakeTempDir() + "/lists";

  ASSERT_TRUE(WriteLists(prefix, batches, /*repeats=*/false).ok());
  std::vector<uint64_t> want = batches[0].ids;
  want.insert(want.end(), batches[1].ids.begin(), batches[1].ids.end());
  EXPECT_EQ(Numbers(prefix + ".ids"), want);
  EXPECT_EQ(
      Numbers(prefix + ".counts"),
      (std::vector<uint64_t>{batches[0].ids.size(), batches[1].ids.size()}));

  ASSERT_TRUE(WriteLists(prefix, batches, /*repeats=*/true).ok());
  want = AllIds(batches[0]);
  const std::vector<uint64_t> more = AllIds(batches[1]);
  EXPECT_EQ(Numbers(prefix + ".counts"),
            (std::vector<uint64_t>{want.size(), more.size()}));
  want.insert(want.end(), more.begin(), more.end());
  EXPECT_EQ(Numbers(prefix + ".ids"), want);
}

TEST(RowsDrawsTest, SaysWhereItCannotWrite) {
  const absl::Status status = WriteLists("/no/such/lists", {}, false);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("/no/such/lists"), std::string::npos);
}

}  // namespace
}  // namespace weir
