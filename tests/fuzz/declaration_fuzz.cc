// A Declaration, as protobuf's text: what a chief tells a ps, and a program of
// the SDK the chief. What is accepted has a layout that deals every element to
// one block, and a plan that fits the memory.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/job/layout.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"
#include "proto/ps.pb.h"
#include "proto/wire/declaration_io.h"
#include "proto/wire/layout_io.h"
#include "server/ps/plan/shard_plan.h"

namespace weir {
namespace {

constexpr int64_t kMemoryBytes = 64 << 20;
constexpr int kBlocksMax = 4096;  // that are looked at here

class Silent : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int /*line*/, google::protobuf::io::ColumnNumber /*column*/,
                const std::string& /*message*/) override {}
};

void CheckLayout(const Layout& layout) {
  int64_t elements = 0;
  for (int s = 0; s < layout.shard_count(); ++s) {
    elements += layout.shard_elements(s);
  }
  WEIR_CHECK(elements == layout.flat_elements());
  for (int b = 0; b < std::min(layout.block_count(0), kBlocksMax); ++b) {
    const FlatRange range = layout.block({0, b});
    WEIR_CHECK(range.count > 0 && range.count <= layout.block_elements());
    WEIR_CHECK(layout.block_of(range.begin) == (BlockId{0, b}));
    for (const Segment& segment : layout.segments({0, b})) {
      WEIR_CHECK(segment.count > 0 && segment.block_offset >= 0 &&
                 segment.block_offset + segment.count <= range.count);
    }
  }
  for (size_t v = 0; v < layout.variables().size(); ++v) {
    WEIR_CHECK(layout.Find(layout.variables()[v].name) == static_cast<int>(v));
  }
}

void CheckPlan(const Declaration& declaration) {
  const auto plan = ShardPlan::Create(
      declaration, declaration.shard_count() / 2, kMemoryBytes);
  if (!plan.ok()) {
    return;
  }
  // What the plan was accepted with must fit, so it can be counted.
  int64_t elements = 0;
  for (const BlockPlan& block : (*plan)->blocks()) {
    elements += block.range.count;
  }
  WEIR_CHECK(elements * 4 <= kMemoryBytes);
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weir::Declaration declaration;
  weir::Silent silent;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&silent);
  if (!parser.ParseFromString(
          std::string(reinterpret_cast<const char*>(data), size),
          &declaration)) {
    return 0;
  }
  const auto layout = weir::LayoutFromDeclaration(declaration);
  if (layout.ok()) {
    weir::CheckLayout(*layout);
  }
  weir::CheckPlan(declaration);
  weir::Declaration other = declaration;
  WEIR_CHECK(
      weir::FirstVariableDifference(declaration.variable(), other.variable())
          .empty());
  other.clear_variable();
  weir::FirstTensorDifference(declaration, other);
  weir::FirstDeclarationDifference(other, declaration);
  for (const weir::EmbeddingTable& table : declaration.table()) {
    weir::RowInitOf(table).status().IgnoreError();
  }
  return 0;
}
