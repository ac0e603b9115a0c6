#include "proto/job/job_spec_text.h"

#include <string>

#include "common/io/files.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"
#include "proto/job/job_spec_defaults.h"
#include "tests/common/temp_dir.h"
#include "tests/proto/job/job_spec_builder.h"

namespace weir {
namespace {

using testing::HasSubstr;

std::string Message(const absl::Status& status) {
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

std::string Set(const std::string& assignment, JobSpec* spec) {
  const JobSpec before = *spec;
  const absl::Status status = ApplyJobSpecOverride(assignment, spec);
  if (!status.ok()) {
    EXPECT_EQ(FirstDifference(before, *spec), "") << assignment;
    return Message(status);
  }
  return "";
}

TEST(JobSpecTextTest, TextAndJsonGiveOneHash) {
  const auto from_text = ParseJobSpec(SmallJobText(), "job.textproto");
  ASSERT_TRUE(from_text.ok()) << from_text.status();
  std::string json;
  ASSERT_TRUE(
      google::protobuf::util::MessageToJsonString(*from_text, &json).ok());
  const auto by_content = ParseJobSpec("\n " + json, "job");
  const auto by_suffix = ParseJobSpec(json, "job.json");
  ASSERT_TRUE(by_content.ok()) << by_content.status();
  EXPECT_EQ(JobSpecHash(*by_content), JobSpecHash(*from_text));
  EXPECT_EQ(JobSpecHash(*by_suffix), JobSpecHash(*from_text));
  EXPECT_EQ(JobSpecHash(*from_text).size(), 64u);
  JobSpec other = *from_text;
  other.set_seed(8);
  EXPECT_NE(JobSpecHash(other), JobSpecHash(*from_text));
}

TEST(JobSpecTextTest, CanonicalTextReadsBackTheSame) {
  JobSpec spec = SmallJob();
  spec.mutable_schedule()->set_learning_rate(1.0 / 3);
  spec.mutable_model()->mutable_layer(4)->mutable_dropout()->set_rate(1.0f / 3);
  ResolveDefaults(&spec);
  const std::string text = CanonicalJobSpecText(spec);
  const auto again = ParseJobSpec(text, "x");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(FirstDifference(spec, *again), "");
  EXPECT_EQ(CanonicalJobSpecText(*again), text);
}

TEST(JobSpecTextTest, ParseErrorsNameFileLineAndColumn) {
  EXPECT_EQ(Message(ParseJobSpec("name: \"x\"\n  sede: 3\n", "a.txt").status()),
            "a.txt:2:7: Message type \"weir.JobSpec\" has no field named "
            "\"sede\".");
  EXPECT_THAT(Message(ParseJobSpec("train { batch_size: -1 }", "a").status()),
              HasSubstr("a:1:21: "));
  EXPECT_THAT(Message(ParseJobSpec("seed: 1 seed: 2", "a").status()),
              HasSubstr("a:1:"));
  EXPECT_EQ(
      Message(
          ParseJobSpec("{\"name\": \"x\",\n  \"seed\" 3}", "a.json").status()),
      "a.json:2:10: is not JSON here");
  EXPECT_THAT(
      Message(ParseJobSpec(R"({"train": {"batch_sise": 3}})", "a").status()),
      HasSubstr("batch_sise"));
  EXPECT_THAT(Message(ParseJobSpec("", "a.json").status()),
              HasSubstr("a.json:1:1"));
}

TEST(JobSpecTextTest, HugeAndDeepTextIsRefusedNotFatal) {
  EXPECT_THAT(Message(ParseJobSpec(std::string(5 << 20, ' '), "a").status()),
              HasSubstr("at most"));
  const std::string open(1 << 20, '[');
  const std::string shut(1 << 20, ']');
  EXPECT_FALSE(ParseJobSpec("{\"name\":" + open + shut + "}", "a").ok());
  EXPECT_FALSE(ParseJobSpec("{" + open, "a").ok());
  std::string deep;
  for (int i = 0; i < 100000; ++i) {
    deep += "model { ";
  }
  EXPECT_FALSE(ParseJobSpec(deep, "a").ok());
}

TEST(JobSpecTextTest, OverridesReachEveryKindOfField) {
  JobSpec spec = SmallJob();
  EXPECT_EQ(Set("seed=18446744073709551615", &spec), "");
  EXPECT_EQ(Set("model.layer[5].dense.units=64", &spec), "");
  EXPECT_EQ(Set(" optimizer.adam.beta1 = 0.8 ", &spec), "");
  EXPECT_EQ(Set("data.no_shuffle=true", &spec), "");
  EXPECT_EQ(Set("data.train.idx.images=dir/train images.gz", &spec), "");
  EXPECT_EQ(Set("data.train.idx.labels=\"quo\\\"ted\"", &spec), "");
  EXPECT_EQ(Set("parameter_group[0].match=a=b\\.c", &spec), "");
  EXPECT_EQ(spec.seed(), ~uint64_t{0});
  EXPECT_EQ(spec.model().layer(5).dense().units(), 64u);
  EXPECT_EQ(spec.optimizer().adam().beta1(), 0.8);
  EXPECT_TRUE(spec.data().no_shuffle());
  EXPECT_EQ(spec.data().train().idx().images(), "dir/train images.gz");
  EXPECT_EQ(spec.data().train().idx().labels(), "quo\"ted");
  EXPECT_EQ(spec.parameter_group(0).match(), "a=b\\.c");
  EXPECT_EQ(Set("data.train.libsvm.base=ONE", &spec), "");
  EXPECT_EQ(spec.data().train().libsvm().base(), LibsvmSource::ONE);
  EXPECT_FALSE(spec.data().train().has_idx());
}

TEST(JobSpecTextTest, NamingAMemberOfAChoiceChoosesIt) {
  JobSpec spec = SmallJob();
  EXPECT_EQ(Set("update.sync.contributions=4", &spec), "");
  EXPECT_EQ(spec.update().sync().contributions(), 4u);
  EXPECT_EQ(Set("update.async={}", &spec), "");
  EXPECT_TRUE(spec.update().has_async());
  EXPECT_EQ(Set("update.async={ lock_free: true }", &spec), "");
  EXPECT_TRUE(spec.update().async().lock_free());
  EXPECT_EQ(Set("update.async={}", &spec), "");
  EXPECT_FALSE(spec.update().async().lock_free());
  EXPECT_EQ(Set("optimizer.sgd.momentum=0.9", &spec), "");
  EXPECT_FALSE(spec.optimizer().has_adam());
}

TEST(JobSpecTextTest, OverridesOfListsReplaceAndAppend) {
  JobSpec spec = SmallJob();
  EXPECT_EQ(Set("model.layer[5].input[0]=flat", &spec), "");
  EXPECT_EQ(Set("model.layer[5].input[1]=drop", &spec), "");
  EXPECT_EQ(Set("model.layer[5].input[0]=norm", &spec), "");
  EXPECT_THAT(spec.model().layer(5).input(),
              testing::ElementsAre("norm", "drop"));
  EXPECT_EQ(Set("model.layer[5].input=['a', 'b', 'c']", &spec), "");
  EXPECT_EQ(spec.model().layer(5).input_size(), 3);
  EXPECT_EQ(Set("model.layer[6].name=last", &spec), "");
  EXPECT_EQ(spec.model().layer(6).name(), "last");
  EXPECT_EQ(Set("model.layer[0]={name: 'first'}", &spec), "");
  EXPECT_EQ(spec.model().layer_size(), 7);
  EXPECT_EQ(spec.model().layer(0).name(), "first");
  EXPECT_FALSE(spec.model().layer(0).has_conv2d());
  EXPECT_EQ(spec.model().layer(6).name(), "last");
  EXPECT_EQ(Set("model.layer=[]", &spec), "");
  EXPECT_EQ(spec.model().layer_size(), 0);
}

TEST(JobSpecTextTest, WrongOverridesNameThePathAndChangeNothing) {
  JobSpec spec = SmallJob();
  const std::pair<const char*, const char*> cases[] = {
      {"train.batch_size", "write path=value"},
      {"=3", "write path=value"},
      {"train.batchsize=3",
       "there is no field 'batchsize' in train; did you mean 'batch_size'? It "
       "has "
       "batch_size, epochs, steps"},
      {"trian=3",
       "there is no field 'trian' in JobSpec; did you mean 'train'? It has "},
      {"train.=3", "no field ''"},
      {"train.batch_size=x",
       "train.batch_size: 'x' does not fit a field of "
       "type uint32"},
      {"train.batch_size=-1", "'-1' does not fit"},
      {"train.batch_size=4294967296", "does not fit"},
      {"train.batch_size=1 2", "does not fit"},
      {"train.batch_size=", "does not fit"},
      {"train.batch_size.x=1", "train.batch_size has no fields below it"},
      {"train=3", "type Train"},
      {"train={bogus: 1}", "bogus"},
      {"train[0]={}", "'train' is not a list; leave out [0]"},
      {"model.layer.name=x", "model.layer is a list; name one entry"},
      {"model.layer[7].name=x", "the list has 6 entries"},
      {"model.layer[-1].name=x", "is not name[index]"},
      {"model.layer[0.name=x", "is not name[index]"},
      {"data.train.libsvm.base=TWO", "does not fit a field of type enum"},
  };
  for (const auto& [assignment, want] : cases) {
    const std::string message = Set(assignment, &spec);
    EXPECT_THAT(message, HasSubstr(want)) << assignment;
    EXPECT_EQ(message.rfind(std::string("--set '") + assignment, 0), 0u);
  }
}

TEST(JobSpecTextTest, FirstDifferenceNamesThePathAndBothValues) {
  const JobSpec a = SmallJob();
  const auto difference = [&](const std::string& assignment) {
    JobSpec b = a;
    EXPECT_EQ(Set(assignment, &b), "");
    return FirstDifference(a, b);
  };
  EXPECT_EQ(FirstDifference(a, a), "");
  EXPECT_EQ(difference("train.batch_size=128"),
            "train.batch_size: 64 against 128");
  EXPECT_EQ(difference("model.layer[5].dense.units=11"),
            "model.layer[5].dense.units: 10 against 11");
  EXPECT_EQ(difference("model.layer[5].input[0]=flat"),
            "model.layer[5].input[0]: unset against \"flat\"");
  EXPECT_EQ(difference("optimizer.adam.beta1=0.9"),
            "optimizer.adam.beta1: unset against 0.9");
  EXPECT_EQ(difference("optimizer.sgd={}"), "optimizer.sgd: unset against { }");
  EXPECT_EQ(difference("parameter_group=[]"),
            "parameter_group[0]: { name: \"bias\" match: \"/bias$\" schedule { "
            "warmup_steps: 3 } } against unset");
  // A difference behind what the message shows is found as well.
  JobSpec b = a;
  JobSpec c = a;
  b.set_name(std::string(200, 'x') + "b");
  c.set_name(std::string(200, 'x') + "c");
  EXPECT_THAT(FirstDifference(b, c), HasSubstr("name: \"xxx"));
}

TEST(JobSpecTextTest, EachModeHasItsName) {
  Update update;
  EXPECT_EQ(UpdateModeName(update), "async");
  update.mutable_sync();
  EXPECT_EQ(UpdateModeName(update), "sync");
  update.mutable_bounded_staleness();
  EXPECT_EQ(UpdateModeName(update), "bounded_staleness");
  update.mutable_async()->set_lock_free(true);
  EXPECT_EQ(UpdateModeName(update), "async_lock_free");
}

TEST(JobSpecTextTest, LoadResolvesAppliesAndValidates) {
  const std::string path = MakeTempDir() + "/job.textproto";
  ASSERT_TRUE(Files::Real()->WriteAtomically(path, SmallJobText()).ok());
  const auto spec = LoadJobSpec(path, {"train.batch_size=32", "seed=9"});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->train().batch_size(), 32u);
  EXPECT_EQ(spec->compute().threads(), 1u);
  EXPECT_EQ(Message(LoadJobSpec(path, {"train.batch_size=0"}).status()),
            path + ": train.batch_size: 0 is not in [1, 16777216]");
  EXPECT_TRUE(absl::IsInvalidArgument(LoadJobSpec(path + "x", {}).status()));
}

}  // namespace
}  // namespace weir
