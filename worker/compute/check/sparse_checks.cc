// Gathers over lists of rows, interactions of vectors.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "worker/compute/check/check_run.h"

namespace weir {
namespace {

using reference::Lists;
using reference::Values;

struct GatherCase {
  int64_t lists, rows, width;
  uint32_t longest;
  // The first list has this many entries more.
  int64_t first = 0;
};

constexpr GatherCase kGatherCases[] = {
    {1, 1, 1, 1},      {4, 1, 3, 0},      {0, 5, 4, 3},
    {7, 5, 3, 4},      {100, 40, 16, 3},  {33, 17, 20, 5},
    {64, 10, 130, 2},  {5000, 300, 4, 2}, {70, 900, 8, 3, 5003},
    {3, 9, 1, 4, 999}, {4300, 9, 3, 200}, {9, 3000, 33, 1, 2100},
    {2, 2, 516, 40}};
constexpr GatherCase kLargeGatherCases[] = {
    {100000, 70000, 16, 2}, {1000, 5000, 128, 9, 100001}, {4097, 100, 257, 30}};

Lists DrawLists(const GatherCase& c, bool weighted, CheckRun* run) {
  Lists lists;
  for (int64_t l = 0; l < c.lists; ++l) {
    int64_t entries = run->random()->NextBelow(c.longest + 1);
    if (l == 0) {
      entries += c.first;
    }
    for (; entries > 0; --entries) {
      lists.index.push_back(static_cast<int32_t>(
          run->random()->NextBelow(static_cast<uint32_t>(c.rows))));
    }
    lists.offsets.push_back(static_cast<int32_t>(lists.index.size()));
  }
  if (weighted) {
    for (const float w : run->Draw(lists.index.size(), 0.1f, 1.0f)) {
      lists.weights.push_back(w);
    }
  }
  return lists;
}

// The lists that each row is in: what a backward pass gathers by. A row that is
// in a list several times gets it as often, or `once`.
Lists Inverse(const Lists& lists, int64_t rows, bool once) {
  Lists inverse;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t l = 0; l < lists.count(); ++l) {
      bool seen = false;
      for (int32_t e = lists.offsets[l]; e < lists.offsets[l + 1]; ++e) {
        if (lists.index[e] == r && !(once && seen)) {
          seen = true;
          inverse.index.push_back(static_cast<int32_t>(l));
          if (!lists.weights.empty()) {
            inverse.weights.push_back(lists.weights[e]);
          }
        }
      }
    }
    inverse.offsets.push_back(static_cast<int32_t>(inverse.index.size()));
  }
  return inverse;
}

const int32_t* Integers(const std::vector<int32_t>& values, CheckRun* run) {
  return reinterpret_cast<const int32_t*>(
      run->Exactly(AsFloats(values)).device);
}

RowLists OnDevice(const Lists& lists, CheckRun* run) {
  RowLists device{.count = lists.count(),
                  .offsets = Integers(lists.offsets, run),
                  .index = Integers(lists.index, run)};
  if (!lists.weights.empty()) {
    device.weights =
        run->Exactly({lists.weights.begin(), lists.weights.end()}).device;
  }
  return device;
}

std::string Describe(const GatherCase& c) {
  std::string text = absl::StrCat(c.lists, " lists of up to ", c.longest);
  if (c.first > 0) {
    absl::StrAppend(&text, " and one of ", c.first);
  }
  return absl::StrCat(text, " of ", c.rows, "x", c.width);
}

// Checks the sum that overwrites, then the one that adds to what is there.
void CheckSum(const char* what, const Lists& lists, int64_t width,
              const CheckRun::Input& x, const Values& expected, CheckRun* run) {
  const RowLists device = OnDevice(lists, run);
  float* y = run->Output(lists.count() * width);
  run->Run(op::GatherSum{device, width, x.device, /*add=*/false, y});
  const CheckRun::Input old = run->Random(lists.count() * width, 0.1f, 1.0f);
  run->Run(
      op::GatherSum{device, width, x.device, /*add=*/true, run->InPlace(old)});
  run->Near(what, y, expected);
  Values sum = expected;
  for (size_t i = 0; i < sum.size(); ++i) {
    sum[i] += old.values[i];
  }
  run->NearSum("added", old.device, sum, old.values);
}

void GatherSum(CheckRun* run) {
  for (const GatherCase& c : run->Cases(kGatherCases, kLargeGatherCases)) {
    for (const bool weighted : {false, true}) {
      run->Begin(absl::StrCat(Describe(c), weighted ? ", weighted" : ""));
      const Lists lists = DrawLists(c, weighted, run);
      const CheckRun::Input x =
          run->Factors(c.rows * c.width, c.lists * c.width);
      CheckSum("y", lists, c.width, x,
               reference::GatherSum(lists, c.width, x.values), run);
      if (c.lists * c.rows > 50000000) {
        continue;  // Inverse() would take minutes: it looks at every pair
      }
      const CheckRun::Input dy =
          run->Factors(c.lists * c.width, c.rows * c.width);
      CheckSum("dx", Inverse(lists, c.rows, /*once=*/false), c.width, dy,
               reference::GatherSumBackward(lists, c.rows, c.width, dy.values),
               run);
    }
  }
}

void GatherMax(CheckRun* run) {
  for (const GatherCase& c : run->Cases(kGatherCases, kLargeGatherCases)) {
    run->Begin(Describe(c));
    const Lists lists = DrawLists(c, /*weighted=*/false, run);
    std::vector<float> values = run->Draw(c.rows * c.width, -4.0f, 4.0f);
    for (float& value : values) {
      value = std::floor(value);  // so that there are equals
    }
    const CheckRun::Input x = run->Exactly(values);
    const reference::MaxResult expected =
        reference::GatherMax(lists, c.width, x.values);
    const int64_t count = c.lists * c.width;
    float* y = run->Output(count);
    float* chosen = run->Output(count);
    auto* const integers = reinterpret_cast<int32_t*>(chosen);
    run->Run(
        op::GatherMax{OnDevice(lists, run), c.width, x.device, y, integers});
    // A maximum is one of its inputs, so it is exact.
    run->Near("y", y, expected.y, 0.0);
    if (count > 0) {
      run->Equal("chosen", chosen, AsFloats(expected.chosen));
    }
    if (c.lists * c.rows > 50000000) {
      continue;  // as in GatherSum
    }
    const CheckRun::Input dy = run->Random(count, 0.1f, 1.0f);
    const Values gradient = reference::GatherMaxBackward(
        expected.chosen, c.rows, c.width, dy.values);
    const RowLists inverse =
        OnDevice(Inverse(lists, c.rows, /*once=*/true), run);
    float* dx = run->Output(c.rows * c.width);
    run->Run(op::GatherChosen{inverse, c.width, dy.device, integers,
                              /*add=*/false, dx});
    run->Near("dx", dx, gradient);
    const CheckRun::Input old = run->Random(c.rows * c.width, 0.1f, 1.0f);
    run->Run(op::GatherChosen{inverse, c.width, dy.device, integers,
                              /*add=*/true, run->InPlace(old)});
    Values sum = gradient;
    for (size_t i = 0; i < sum.size(); ++i) {
      sum[i] += old.values[i];
    }
    run->Near("added", old.device, sum);
  }
}

void NanWins(CheckRun* run) {
  run->Begin("3 rows of 2");
  const float nan = std::nanf("");
  const CheckRun::Input x = run->Exactly({1, 2, nan, 1, 3, nan});
  float* y = run->Output(2);
  float* chosen = run->Output(2);
  run->Run(op::GatherMax{OnDevice({.offsets = {0, 3}, .index = {0, 1, 2}}, run),
                         2, x.device, y, reinterpret_cast<int32_t*>(chosen)});
  const std::vector<float> actual = run->Read(y, 2);
  run->Expect("NaN is the maximum",
              std::isnan(actual[0]) && std::isnan(actual[1]));
  run->Equal("chosen", chosen, AsFloats({1, 2}));
}

constexpr VectorsShape kVectorsShapes[] = {
    {1, 2, 1},   {3, 2, 4},    {5, 3, 7},     {64, 27, 16}, {7, 40, 1},
    {2, 2, 900}, {300, 5, 12}, {3, 100, 130}, {1, 257, 3}};
constexpr VectorsShape kLargeVectorsShapes[] = {{4096, 27, 64}, {100, 130, 32}};

std::string Describe(const VectorsShape& s) {
  return absl::StrCat(s.batch, "x", s.vectors, "x", s.dim);
}

void PairSum(CheckRun* run) {
  for (const VectorsShape& s :
       run->Cases(kVectorsShapes, kLargeVectorsShapes)) {
    run->Begin(Describe(s));
    const CheckRun::Input x =
        run->Random(s.elements(), 0.1f, 1.0f);  // no cancelling
    const CheckRun::Input dy = run->Scale(s.batch);
    // The sum over the pairs is the sum of PairDots, so every pair's dy is that
    // of its sample.
    const Values dots = reference::PairDots(s, x.values);
    Values expected(s.batch);
    Values by_pair(dots.size());
    for (size_t i = 0; i < dots.size(); ++i) {
      const auto sample = static_cast<int64_t>(i) / s.pairs();
      expected[sample] += dots[i];
      by_pair[i] = dy.values[sample];
    }
    float* y = run->Output(s.batch);
    run->Run(op::PairForward{PairKind::kSum, s, x.device, y});
    run->Near("y", y, expected);
    float* dx = run->Output(s.elements());
    run->Run(op::PairBackward{PairKind::kSum, s, x.device, dy.device, dx});
    run->Near("dx", dx, reference::PairDotsBackward(s, x.values, by_pair));
  }
}

void PairDots(CheckRun* run) {
  for (const VectorsShape& s :
       run->Cases(kVectorsShapes, kLargeVectorsShapes)) {
    run->Begin(Describe(s));
    const int64_t pairs = s.batch * s.pairs();
    const CheckRun::Input x = run->Factors(s.elements(), pairs);
    const CheckRun::Input dy = run->Factors(pairs, s.elements());
    float* y = run->Output(pairs);
    run->Run(op::PairForward{PairKind::kDots, s, x.device, y});
    run->Near("y", y, reference::PairDots(s, x.values));
    float* dx = run->Output(s.elements());
    run->Run(op::PairBackward{PairKind::kDots, s, x.device, dy.device, dx});
    run->Near("dx", dx, reference::PairDotsBackward(s, x.values, dy.values));
  }
}

}  // namespace

std::vector<OperationCheck> SparseChecks() {
  return {{"gather sum", &GatherSum},
          {"gather max", &GatherMax},
          {"gather max: NaN wins", &NanWins},
          {"pair sum", &PairSum},
          {"pair dots", &PairDots}};
}

}  // namespace weir
