#include "server/ps/table/table_options.h"

#include <functional>
#include <string>

#include "common/job/row_age.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

TableOptions Good() {
  TableOptions options;
  options.name = "users";
  options.dim = 8;
  return options;
}

// Good() after `change`.
absl::Status With(const std::function<void(TableOptions&)>& change) {
  TableOptions options = Good();
  change(options);
  return options.Validate();
}

TEST(TableOptionsTest, TakesEveryBoundAndRefusesWhatIsBehindIt) {
  EXPECT_TRUE(Good().Validate().ok());
  EXPECT_TRUE(
      With([](TableOptions& o) { o.dim = TableOptions::kMaxDim; }).ok());
  EXPECT_FALSE(
      With([](TableOptions& o) { o.dim = TableOptions::kMaxDim + 1; }).ok());
  EXPECT_FALSE(With([](TableOptions& o) { o.dim = 0; }).ok());
  EXPECT_TRUE(With([](TableOptions& o) { o.stripes = 1; }).ok());
  EXPECT_FALSE(With([](TableOptions& o) { o.stripes = 3; }).ok());
  EXPECT_FALSE(With([](TableOptions& o) { o.stripes = 2048; }).ok());
  EXPECT_FALSE(With([](TableOptions& o) { o.shard = 1; }).ok());
  EXPECT_FALSE(With([](TableOptions& o) { o.shard_count = 0; }).ok());
  EXPECT_TRUE(With([](TableOptions& o) { o.age_max = kRowAgeMax; }).ok());
  EXPECT_FALSE(With([](TableOptions& o) { o.age_max = kRowAgeMax + 1; }).ok());
}

TEST(TableOptionsTest, TheMessageNamesTableFieldValueAndRange) {
  EXPECT_EQ(With([](TableOptions& o) { o.stripes = 3; }).message(),
            "table \"users\": stripes 3 is not a power of two in [1, 1024]");
}

TEST(TableOptionsTest, ChecksOnlyTheFieldsOfThePolicyThatIsChosen) {
  const auto with = [](AdmissionPolicy policy) {
    return With([&](TableOptions& o) { o.admission = policy; }).ok();
  };
  AdmissionPolicy policy;
  policy.count = 0;
  policy.probability = -1;
  policy.filter_bytes = 0;
  EXPECT_TRUE(with(policy));  // kAlways looks at none of them
  policy.kind = AdmissionPolicy::Kind::kProbability;
  EXPECT_FALSE(with(policy));
  policy.probability = 1;
  EXPECT_TRUE(with(policy));
  policy.kind = AdmissionPolicy::Kind::kCount;
  policy.filter_bytes = 4096;  // a line for each of the 64 stripes
  EXPECT_FALSE(with(policy));
  policy.count = 255;
  EXPECT_TRUE(with(policy));
  policy.count = 256;
  EXPECT_FALSE(with(policy));
  policy.count = 255;
  policy.filter_bytes -= 1;
  EXPECT_FALSE(with(policy));
}

TEST(TableOptionsTest, ABudgetHasRoomForARowInEveryStripeAndTheFilter) {
  // The least is named in the message, and is enough.
  const auto least = [](TableOptions options) {
    options.memory_bytes_max = 1;
    const std::string message(options.Validate().message());
    const size_t at = message.find("at least ");
    EXPECT_NE(at, std::string::npos) << message;
    return std::stoll(message.substr(at + 9));
  };
  TableOptions options = Good();
  options.memory_bytes_max = least(options);
  EXPECT_TRUE(options.Validate().ok());
  --options.memory_bytes_max;
  EXPECT_FALSE(options.Validate().ok());
  // State needs room, too, and so does a filter.
  TableOptions adam = Good();
  adam.optimizer.mutable_adam();
  EXPECT_GT(least(adam), least(Good()));
  TableOptions counted = Good();
  counted.admission.kind = AdmissionPolicy::Kind::kCount;
  EXPECT_EQ(least(counted), least(Good()) + counted.admission.filter_bytes);
}

}  // namespace
}  // namespace weir
