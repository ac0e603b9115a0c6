#include "proto/wire/layout_io.h"

#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(LayoutIoTest, VariablesSurviveTheRoundTrip) {
  VariableSpec spec;
  spec.name = "layer/kernel";
  spec.shape = {3, 5};
  spec.kind = VariableKind::kBuffer;
  spec.init = {InitKind::kUniform, 0.25f};
  spec.group = 2;
  spec.buffer_rate = 0.5f;
  spec.export_dtype = "I64";
  spec.aliases = {"x", "y"};
  EXPECT_EQ(*VariableFromProto(VariableToProto(spec)), spec);
  EXPECT_EQ(*VariableFromProto(VariableToProto(VariableSpec())),
            VariableSpec());
}

TEST(LayoutIoTest, RefusesWhatNoLayoutCanHave) {
  Variable variable;
  variable.set_name("v");
  variable.set_kind(static_cast<Variable::Kind>(7));
  EXPECT_EQ(VariableFromProto(variable).status().code(),
            absl::StatusCode::kInvalidArgument);
  variable.set_kind(Variable::TRAINED);
  variable.set_init(static_cast<Variable::Init>(7));
  EXPECT_FALSE(VariableFromProto(variable).ok());
  variable.set_init(Variable::CONSTANT);
  variable.set_group(UINT32_MAX);
  EXPECT_FALSE(VariableFromProto(variable).ok());

  Declaration declaration;
  declaration.add_variable()->set_name("v");
  declaration.set_shard_count(UINT32_MAX);
  declaration.set_block_elements(16);
  EXPECT_FALSE(LayoutFromDeclaration(declaration).ok());
  declaration.set_shard_count(2);
  declaration.set_block_elements(UINT64_MAX - 15);
  EXPECT_FALSE(LayoutFromDeclaration(declaration).ok());
  declaration.set_block_elements(16);
  const auto layout = LayoutFromDeclaration(declaration);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->shard_count(), 2);
  EXPECT_EQ(layout->flat_elements(), 16);
}

}  // namespace
}  // namespace weir
