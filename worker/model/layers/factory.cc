#include <limits>

#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "worker/model/layers/layers.h"

namespace weir {
namespace {

struct InputCount {
  size_t min = 1;
  size_t max = 1;
  const char* text = "one";
};

constexpr size_t kAny = std::numeric_limits<size_t>::max();
constexpr InputCount kOneOrMore = {1, kAny, "one or more"};
constexpr InputCount kTwoOrMore = {2, kAny, "two or more"};

struct Kind {
  Layer::KindCase kind;
  MadeLayer (*make)(const LayerSource& source);
  // Most read elements in the order of a JobSpec's dims.
  std::optional<Format> wanted = Format::kPlain;
  InputCount inputs = {};
};

const Kind kKinds[] = {
    {Layer::kDense, &MakeDense},
    {Layer::kConv2D, &MakeConv2d, Format::kChannelsLast},
    {Layer::kMaxPool, &MakePool, Format::kChannelsLast},
    {Layer::kAveragePool, &MakePool, Format::kChannelsLast},
    // Element by element, so the order of elements does not matter.
    {Layer::kRelu, &MakeActivation, std::nullopt},
    {Layer::kSigmoid, &MakeActivation, std::nullopt},
    {Layer::kTanh, &MakeActivation, std::nullopt},
    {Layer::kDropout, &MakeDropout, std::nullopt},
    {Layer::kFlatten, &MakeFlatten},
    {Layer::kLayerNorm, &MakeLayerNorm},
    {Layer::kBatchNorm, &MakeBatchNorm, Format::kChannelsLast},
    {Layer::kAdd, &MakeAdd, std::nullopt, kTwoOrMore},
    {Layer::kConcat, &MakeConcat, Format::kPlain, kTwoOrMore},
    {Layer::kEmbeddingBag,
     &MakeEmbeddingBag,
     Format::kPlain,
     {0, 0, "none, but features of the data"}},
    {Layer::kFactorizationMachine, &MakePairs, Format::kPlain, kOneOrMore},
    {Layer::kDotInteraction, &MakePairs, Format::kPlain, kOneOrMore},
    {Layer::kCross, &MakeCross},
};

const Kind* Find(const Layer& spec) {
  for (const Kind& kind : kKinds) {
    if (kind.kind == spec.kind_case()) {
      return &kind;
    }
  }
  return nullptr;
}

std::string Names() {
  const auto* const kinds = Layer::descriptor()->FindOneofByName("kind");
  std::vector<std::string> names;
  for (int i = 0; i < kinds->field_count(); ++i) {
    names.push_back(kinds->field(i)->name());
  }
  return absl::StrJoin(names, ", ");
}

}  // namespace

std::optional<Format> WantedFormat(const Layer& spec) {
  const Kind* const kind = Find(spec);
  return kind == nullptr ? Format::kPlain : kind->wanted;
}

MadeLayer MakeLayer(const LayerSource& source) {
  const Kind* const kind = Find(source.spec);
  if (kind == nullptr) {
    // A kind that a newer version knows arrives as one that is not set.
    return Invalid(
        "no kind is set, or one that this version does not know; "
        "set one of ",
        Names());
  }
  const size_t count = source.inputs.size();
  if (count < kind->inputs.min || count > kind->inputs.max) {
    return Invalid("has ", count, " inputs; it takes ", kind->inputs.text);
  }
  return kind->make(source);
}

}  // namespace weir
