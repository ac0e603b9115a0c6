#include "server/chief/start/initial_values.h"

#include <string>
#include <vector>

#include "common/math/half.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"
#include "tests/server/chief/scripted_link.h"

namespace weir {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Two variables: "a" of 32 elements, and "b" of [2, 8] with the alias "old_b".
// With blocks of 16 and one shard they take three blocks.
Declaration Model() {
  Declaration declaration;
  declaration.set_job("ours");
  declaration.set_shard_count(1);
  declaration.set_slot_count(1);
  declaration.set_block_elements(16);
  Variable* const a = declaration.add_variable();
  a->set_name("a");
  a->add_shape(32);
  Variable* const b = declaration.add_variable();
  b->set_name("b");
  b->add_shape(2);
  b->add_shape(8);
  b->add_alias("old_b");
  return declaration;
}

Sender Chief() {
  Sender sender;
  sender.set_history(7);
  return sender;
}

// `count` values from `first` on, in steps of one.
std::vector<float> Rising(float first, int count) {
  std::vector<float> values;
  for (int i = 0; i < count; ++i) {
    values.push_back(first + static_cast<float>(i));
  }
  return values;
}

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()),
          values.size() * sizeof(T)};
}

std::string Write(const std::vector<SafetensorsArray>& arrays,
                  const std::string& data) {
  const std::string path = MakeTempDir() + "/init.safetensors";
  auto writer = *SafetensorsWriter::Create(Files::Real(), path, arrays, {});
  EXPECT_TRUE(
      writer->Append(data.data(), static_cast<int64_t>(data.size())).ok());
  EXPECT_TRUE(writer->Finish().ok());
  return path;
}

absl::Status Assign(const std::string& path, ScriptedLink* link) {
  const auto values = InitialValues::Open(Files::Real(), path);
  if (!values.ok()) {
    return values.status();
  }
  return (*values)->Assign(Model(), Chief(), /*shard=*/0, link);
}

void ExpectRefused(const std::string& path, const std::string& text) {
  ScriptedLink link;
  const absl::Status status = Assign(path, &link);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  EXPECT_TRUE(link.assigned().empty());
}

TEST(InitialValuesTest, EveryElementGoesToItsPlace) {
  ScriptedLink link;
  const std::string path =
      Write({{"b", "F32", {2, 8}, 0, 0}, {"a", "F32", {32}, 0, 0}},
            Bytes(Rising(100, 16)) + Bytes(Rising(0, 32)));
  const absl::Status status = Assign(path, &link);
  ASSERT_TRUE(status.ok()) << status;
  const std::vector<ScriptedLink::Assigned> assigned = link.assigned();
  ASSERT_EQ(assigned.size(), 3u);
  for (uint32_t block = 0; block < 3; ++block) {
    EXPECT_EQ(assigned[block].header.block(), block);
    EXPECT_EQ(assigned[block].header.offset(), 0u);
    EXPECT_EQ(assigned[block].header.sender().history(), 7u);
  }
  EXPECT_EQ(assigned[0].values, Rising(0, 16));
  EXPECT_EQ(assigned[1].values, Rising(16, 16));
  EXPECT_EQ(assigned[2].values, Rising(100, 16));
  EXPECT_THAT(link.calls(), ElementsAre("Assign"));
}

TEST(InitialValuesTest, HalvesBecomeFloats) {
  std::string data(32 * 2, '\0');
  FloatsToF16(Rising(0, 32).data(), 32, data.data());
  std::string second(16 * 2, '\0');
  FloatsToBf16(Rising(100, 16).data(), 16, second.data());
  ScriptedLink link;
  const absl::Status status =
      Assign(Write({{"a", "F16", {32}, 0, 0}, {"b", "BF16", {2, 8}, 0, 0}},
                   data + second),
             &link);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(link.assigned().size(), 3u);
  EXPECT_EQ(link.assigned()[1].values, Rising(16, 16));
  EXPECT_EQ(link.assigned()[2].values, Rising(100, 16));  // exact up to 256
}

TEST(InitialValuesTest, AVariableIsFoundByItsAliasAndItsNameComesFirst) {
  ScriptedLink link;
  ASSERT_TRUE(
      Assign(Write({{"a", "F32", {32}, 0, 0}, {"old_b", "F32", {2, 8}, 0, 0}},
                   Bytes(Rising(0, 32)) + Bytes(Rising(50, 16))),
             &link)
          .ok());
  EXPECT_EQ(link.assigned()[2].values, Rising(50, 16));
  ScriptedLink both;
  ASSERT_TRUE(Assign(Write({{"a", "F32", {32}, 0, 0},
                            {"old_b", "F32", {2, 8}, 0, 0},
                            {"b", "F32", {2, 8}, 0, 0}},
                           Bytes(Rising(0, 32)) + Bytes(Rising(50, 16)) +
                               Bytes(Rising(70, 16))),
                     &both)
                  .ok());
  EXPECT_EQ(both.assigned()[2].values, Rising(70, 16));
}

TEST(InitialValuesTest, AFileThatDoesNotFitIsRefusedBeforeAnythingIsSent) {
  const std::string a = Bytes(Rising(0, 32));
  ExpectRefused(Write({{"a", "F32", {32}, 0, 0}}, a), "has no tensor 'b'");
  ExpectRefused(Write({{"a", "F32", {32}, 0, 0}, {"b", "F32", {16}, 0, 0}},
                      a + Bytes(Rising(0, 16))),
                "has shape [16], the model's is [2,8]");
  ExpectRefused(Write({{"a", "F32", {32}, 0, 0}, {"b", "I32", {2, 8}, 0, 0}},
                      a + Bytes(Rising(0, 16))),
                "has dtype I32");
  ExpectRefused(Write({{"a", "F32", {32}, 0, 0},
                       {"b", "F32", {2, 8}, 0, 0},
                       {"c", "F32", {1}, 0, 0}},
                      a + Bytes(Rising(0, 17))),
                "has no variable 'c'");
}

TEST(InitialValuesTest, ADamagedCallIsMadeAgainWithTheSameValues) {
  ScriptedLink link;
  link.EndWith({absl::DataLossError("checksum")});
  const absl::Status status =
      Assign(Write({{"a", "F32", {32}, 0, 0}, {"b", "F32", {2, 8}, 0, 0}},
                   Bytes(Rising(0, 48))),
             &link);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(link.calls(), ElementsAre("Assign", "Assign"));
  ASSERT_EQ(link.assigned().size(), 3u);
  EXPECT_EQ(link.assigned()[0].values, Rising(0, 16));
}

TEST(InitialValuesTest, AnErrorOfTheShardComesBack) {
  ScriptedLink link;
  link.EndWith({absl::FailedPreconditionError("another history")});
  EXPECT_EQ(Assign(Write({{"a", "F32", {32}, 0, 0}, {"b", "F32", {2, 8}, 0, 0}},
                         Bytes(Rising(0, 48))),
                   &link)
                .code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace weir
