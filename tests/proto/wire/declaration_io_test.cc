#include "proto/wire/declaration_io.h"

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

JobSpec SpecWithGroups() {
  JobSpec spec;
  spec.mutable_optimizer()->mutable_adam();
  spec.mutable_schedule()->set_learning_rate(0.5);
  ParameterGroup* head = spec.add_parameter_group();
  head->set_name("head");
  head->set_match("^logits/");
  head->mutable_schedule()->set_warmup_steps(7);
  ParameterGroup* frozen = spec.add_parameter_group();
  frozen->set_name("frozen");
  frozen->set_match("kernel$");
  frozen->set_frozen(true);
  return spec;
}

TEST(DeclarationIoTest, FirstGroupThatMatchesTakesTheVariable) {
  google::protobuf::RepeatedPtrField<Variable> list;
  for (const char* name : {"logits/kernel", "hidden/kernel", "hidden/bias"}) {
    list.Add()->set_name(name);
  }
  ASSERT_TRUE(AssignGroups(SpecWithGroups(), &list).ok());
  EXPECT_EQ(list[0].group(), 1u);
  EXPECT_EQ(list[1].group(), 2u);
  EXPECT_EQ(list[2].group(), 0u);
}

TEST(DeclarationIoTest, GroupsInheritWhatTheyLeaveUnset) {
  const std::vector<Group> groups = GroupsFromSpec(SpecWithGroups());
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_TRUE(groups[1].optimizer().has_adam());
  EXPECT_EQ(groups[1].schedule().warmup_steps(), 7u);
  EXPECT_EQ(groups[1].schedule().learning_rate(), 0.5);
  EXPECT_TRUE(groups[2].frozen());
}

TEST(DeclarationIoTest, BadPatternNamesItsGroup) {
  JobSpec spec = SpecWithGroups();
  spec.mutable_parameter_group(0)->set_match("(");
  google::protobuf::RepeatedPtrField<Variable> list;
  const absl::Status status = AssignGroups(spec, &list);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("'head'"), absl::string_view::npos);
}

// std::regex calls itself for each character of the one, and tries more ways
// through the other than there is time for.
TEST(DeclarationIoTest, NamesAreSearchedInTimeThatTheirLengthBounds) {
  JobSpec spec = SpecWithGroups();
  spec.mutable_parameter_group(0)->set_match("(.*)bias");
  spec.mutable_parameter_group(1)->set_match("(a+)+$");
  google::protobuf::RepeatedPtrField<Variable> list;
  list.Add()->set_name(std::string(1 << 20, 'x') + "bias");
  list.Add()->set_name(std::string(1 << 20, 'a') + "b");
  ASSERT_TRUE(AssignGroups(spec, &list).ok());
  EXPECT_EQ(list[0].group(), 1u);
  EXPECT_EQ(list[1].group(), 0u);
}

TEST(DeclarationIoTest, CountsContributions) {
  Train train;
  train.set_batch_size(64);
  train.set_epochs(3);
  EXPECT_EQ(*ContributionCount(train, 10000, 0), 469u);  // 468.75
  EXPECT_EQ(*ContributionCount(train, 10000, 4), 469u);
  train.set_epochs(0);
  train.set_steps(100);
  EXPECT_EQ(*ContributionCount(train, 10000, 0), 100u);
  EXPECT_EQ(*ContributionCount(train, 10000, 4), 400u);
  train.set_steps(uint64_t{1} << 63);
  EXPECT_FALSE(ContributionCount(train, 10000, 4).ok());
  train.set_steps(0);
  EXPECT_FALSE(ContributionCount(train, 10000, 0).ok());
}

TEST(DeclarationIoTest, CountsTheContributionsThatAWorkerMakes) {
  Train train;
  train.set_batch_size(1);
  // In doubles 2.22 * 10^7 is 22200000.000000004.
  train.set_epochs(2.22);
  EXPECT_EQ(*ContributionCount(train, 10000000, 0), 22200000u);
}

TEST(DeclarationIoTest, NamesTheFirstDifference) {
  google::protobuf::RepeatedPtrField<Variable> ours;
  ours.Add()->set_name("w");
  ours[0].add_shape(3);
  google::protobuf::RepeatedPtrField<Variable> theirs = ours;
  EXPECT_EQ(FirstVariableDifference(ours, theirs), "");
  theirs[0].set_shape(0, 4);
  EXPECT_NE(FirstVariableDifference(ours, theirs).find("'w'"),
            std::string::npos);
  theirs = ours;
  theirs.Add()->set_name("extra");
  EXPECT_EQ(FirstVariableDifference(ours, theirs), "2 variables in place of 1");
}

}  // namespace
}  // namespace weir
