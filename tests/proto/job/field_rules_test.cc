#include "proto/job/field_rules.h"

#include <cfloat>
#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "proto/job_spec.pb.h"
#include "proto/ps.pb.h"

namespace weir {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using testing::HasSubstr;

template <class Proto>
Proto Parse(const std::string& text) {
  Proto proto;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &proto))
      << text;
  return proto;
}

// What is wrong with the message at path "m", or "OK".
std::string Check(const google::protobuf::Message& message) {
  const absl::Status status = CheckFields(message, "m");
  EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status));
  return status.ok() ? "OK" : std::string(status.message());
}

TEST(FieldRulesTest, BoundsAreInsideOrOutsideAsTheyAreWritten) {
  const auto dropout = [](float rate) {
    Dropout proto;
    proto.set_rate(rate);
    return Check(proto);
  };
  EXPECT_EQ(dropout(0), "OK");
  EXPECT_EQ(dropout(std::nextafter(1.0f, 0.0f)), "OK");
  EXPECT_EQ(dropout(1), "m.rate: 1 is not in [0, 1)");
  EXPECT_THAT(dropout(-FLT_MIN), HasSubstr(" is not in [0, 1)"));
  const auto decay = [](double fraction) {
    CosineDecay proto;
    proto.set_steps(1);
    proto.set_final_fraction(fraction);
    return Check(proto);
  };
  EXPECT_EQ(decay(1), "OK");
  EXPECT_THAT(decay(std::nextafter(1.0, 2.0)), HasSubstr("is not in [0, 1]"));
  EXPECT_EQ(Check(Parse<Clip>("norm: 0")), "m.norm: 0 is not > 0");
  EXPECT_EQ(Check(Parse<Clip>("norm: 1e-38")), "OK");
  EXPECT_EQ(Check(Parse<Sgd>("momentum: -1")), "m.momentum: -1 is not >= 0");
  EXPECT_EQ(Check(Parse<ClickLogSource>("count: 4294967296")),
            "m.count: 4294967296 is not in [1, 4294967295]");
  EXPECT_EQ(Check(Parse<Limits>("block_elements: 17")),
            "m.block_elements: 17 is not a multiple of 16");
}

TEST(FieldRulesTest, RefusesWhatAFloatCannotHold) {
  for (const double value :
       {std::nan(""), std::numeric_limits<double>::infinity(),
        -std::numeric_limits<double>::infinity(), 2.0 * FLT_MAX}) {
    Sgd sgd;
    sgd.set_weight_decay(value);
    EXPECT_THAT(Check(sgd), HasSubstr("is not finite")) << value;
    // There are no bounds here.
    NumericColumn column;
    column.set_mean(value);
    EXPECT_THAT(Check(column), HasSubstr("m.mean: ")) << value;
    column.clear_mean();
    column.add_boundary(0);
    column.add_boundary(value);
    EXPECT_THAT(Check(column), HasSubstr("m.boundary[1]: ")) << value;
  }
  Sgd sgd;
  sgd.set_weight_decay(FLT_MAX);
  EXPECT_EQ(Check(sgd), "OK");
}

TEST(FieldRulesTest, AnUnsetNumberIsZeroUnlessItMeansSomething) {
  EXPECT_EQ(Check(Dense()), "m.units: 0 is not in [1, 16777216]");
  EXPECT_EQ(Check(Compute()), "OK");   // has a default
  EXPECT_EQ(Check(Schedule()), "OK");  // may be unset
  EXPECT_EQ(Check(Adam()), "OK");      // optional
  EXPECT_EQ(Check(Parse<LayerNorm>("epsilon: 0")), "m.epsilon: 0 is not > 0");
}

TEST(FieldRulesTest, WhatIsRequiredIsSet) {
  EXPECT_EQ(Check(Data()),
            "m.train: is not set; choose one of idx, libsvm, "
            "csv, digits, criteo, click_log");
  EXPECT_EQ(Check(LibsvmSource()), "m.path: is not set");
  EXPECT_EQ(Check(Model()), "m.layer: is empty; add at least one");
  EXPECT_EQ(Check(Group()),
            "m.optimizer: is not set; choose one of sgd, adagrad, rmsprop, "
            "adadelta, adam, adamw, ftrl");
  EXPECT_EQ(Check(Parse<Group>("frozen: true")), "OK");
}

TEST(FieldRulesTest, AOneofHasAMember) {
  EXPECT_EQ(Check(Clip()), "m: no kind is set; choose one of value, norm");
  EXPECT_EQ(Check(Expiry()), "OK");  // may be empty
}

TEST(FieldRulesTest, StringsFollowTheirPattern) {
  const auto table = [](const std::string& name) {
    EmbeddingTable proto;
    proto.set_name(name);
    proto.set_dim(1);
    return Check(proto);
  };
  EXPECT_EQ(table(std::string(64, 'a')), "OK");
  EXPECT_EQ(table("A"), "m.name: 'A' is not 1 to 64 of a-z, 0-9 and _");
  EXPECT_EQ(table(""), "m.name: '' is not 1 to 64 of a-z, 0-9 and _");
  // The standard library's matcher would run out of stack.
  EXPECT_THAT(table(std::string(1 << 20, 'a')), HasSubstr("' is not 1 to 64"));
  EXPECT_EQ(Check(CategoricalColumn()), "OK");  // not required
  EXPECT_THAT(Check(Parse<ParameterGroup>("name: 'g' match: '('")),
              HasSubstr("m.match: '(' is not a regular expr"));
}

TEST(FieldRulesTest, NamesThatAreUniqueDiffer) {
  EXPECT_EQ(Check(Parse<Model>("layer { name: 'a' flatten {} }"
                               "layer { name: 'b' flatten {} }"
                               "layer { name: 'a' flatten {} }"
                               "loss { mean_squared_error {} }")),
            "m.layer[2].name: 'a' is that of m.layer[0] already; choose "
            "another one");
}

TEST(FieldRulesTest, ChoicesMayBeExcepted) {
  Compression compression = Parse<Compression>("pull: TOP_K");
  EXPECT_EQ(Check(compression),
            "m.pull: TOP_K is for gradients; choose one of F32, BF16, F16, "
            "INT8");
  compression.set_pull(static_cast<Encoding>(7));
  EXPECT_EQ(Check(compression),
            "m.pull: 7 is unknown; choose one of F32, BF16, F16, INT8");
  EXPECT_EQ(Check(Parse<EmbeddingTable>(
                "name: 't' dim: 1 initializer { he_normal {} }")),
            "m.initializer: rows have no fan in or out; choose one of zeros, "
            "constant, normal_stddev, uniform_limit");
}

TEST(FieldRulesTest, FillsDefaultsInAndKeepsWhatIsSet) {
  Adam adam = Parse<Adam>("beta1: 0");
  FillDefaults(&adam);
  EXPECT_EQ(adam.beta1(), 0);
  EXPECT_EQ(adam.beta2(), 0.999);
  EXPECT_EQ(adam.epsilon(), 1e-8);
  BatchNorm norm;
  FillDefaults(&norm);
  EXPECT_EQ(norm.momentum(), 0.1f);  // to the last bit
  EXPECT_EQ(norm.epsilon(), 1e-5f);
  CsvSource csv;
  FillDefaults(&csv);
  EXPECT_EQ(csv.separator(), ",");
}

TEST(FieldRulesTest, ADefaultMayHangOnAnotherField) {
  Dense dense;
  FillDefaults(&dense);
  EXPECT_TRUE(dense.kernel_initializer().has_glorot_uniform());
  EXPECT_TRUE(dense.bias_initializer().has_zeros());
  dense = Parse<Dense>("no_bias: true");
  FillDefaults(&dense);
  EXPECT_FALSE(dense.has_bias_initializer());
}

TEST(FieldRulesTest, ADefaultMayChooseTheMemberOfAOneof) {
  Update update;
  FillDefaults(&update);
  EXPECT_TRUE(update.has_async());
  update = Parse<Update>("sync {}");
  FillDefaults(&update);
  EXPECT_TRUE(update.has_sync());
}

TEST(FieldRulesTest, WhatIsLateIsLeftToItsUser) {
  JobSpec spec = Parse<JobSpec>(
      "optimizer { adam {} } table { name: 't' }"
      "parameter_group { optimizer { adam {} } }");
  FillDefaults(&spec);
  EXPECT_FALSE(spec.optimizer().adam().has_beta1());
  EXPECT_FALSE(spec.parameter_group(0).optimizer().adam().has_beta1());
  EXPECT_FALSE(spec.table(0).has_optimizer());
  FillDefaults(spec.mutable_table(0));
  EXPECT_TRUE(spec.table(0).optimizer().has_sgd());
}

// A rule of a field is checked when it is used, and not when it is compiled.
void ExpectGoodRule(const FieldDescriptor& field) {
  SCOPED_TRACE(field.full_name());
  const FieldRule& rule = field.options().GetExtension(weir::rule);
  EXPECT_FALSE(rule.has_min() && rule.has_above());
  EXPECT_FALSE(rule.has_max() && rule.has_below());
  EXPECT_EQ(rule.pattern().empty(), rule.expects().empty());
  EXPECT_EQ(rule.except().empty(), rule.because().empty());
  if (!rule.unless().empty()) {
    const FieldDescriptor* const flag =
        field.containing_type()->FindFieldByName(rule.unless());
    ASSERT_NE(flag, nullptr);
    EXPECT_EQ(flag->cpp_type(), FieldDescriptor::CPPTYPE_BOOL);
  }
  for (const std::string& name : rule.except()) {
    if (field.enum_type() != nullptr) {
      EXPECT_NE(field.enum_type()->FindValueByName(name), nullptr) << name;
    } else {
      EXPECT_NE(field.message_type()->FindFieldByName(name), nullptr) << name;
    }
  }
}

// The default of every field can be parsed and keeps to its own rule.
void ExpectGoodRules(const Descriptor& type) {
  auto* const factory = google::protobuf::MessageFactory::generated_factory();
  std::unique_ptr<google::protobuf::Message> message(
      factory->GetPrototype(&type)->New());
  FillDefaults(message.get());
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    ExpectGoodRule(field);
    const absl::Status status = CheckFields(*message, "");
    if (!field.options().GetExtension(weir::rule).default_().empty()) {
      EXPECT_EQ(status.message().find(field.name() + ":"), std::string::npos)
          << status;
    }
  }
}

TEST(FieldRulesTest, EveryRuleOfTheProtosIsWellFormed) {
  for (const FileDescriptor* file :
       {JobSpec::descriptor()->file(), Declaration::descriptor()->file()}) {
    for (int i = 0; i < file->message_type_count(); ++i) {
      ExpectGoodRules(*file->message_type(i));
    }
  }
}

}  // namespace
}  // namespace weir
