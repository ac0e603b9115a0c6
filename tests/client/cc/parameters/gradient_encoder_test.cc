#include "client/cc/parameters/gradient_encoder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "common/math/random.h"
#include "proto/wire/value_encoding.h"
#include "tests/support/in_process_transport.h"

namespace weir {
namespace {

// Two variables of 600 in one block of 1216 (the first is padded to 608), then
// whatever `more` adds in blocks behind it.
Layout MakeLayout(std::vector<VariableSpec> more = {}) {
  std::vector<VariableSpec> variables(2);
  for (int v = 0; v < 2; ++v) {
    variables[v].name = "v" + std::to_string(v);
    variables[v].shape = {600};
  }
  variables.insert(variables.end(), more.begin(), more.end());
  return Layout::Create(std::move(variables), 1, 1216).value();
}

Compression PushOnly(Encoding encoding, double fraction = 0.0) {
  Compression compression;
  compression.set_push(encoding);
  compression.set_top_k_fraction(fraction);
  return compression;
}

struct Tester {
  explicit Tester(const Compression& compression, Layout used = MakeLayout())
      : layout(std::move(used)),
        gradients(layout.flat_elements(), 0.0f),
        encoder(GradientEncoder::Create(compression, &layout, gradients.data(),
                                        &transport)
                    .value()) {}

  // What the ps makes of block `index` of contribution `contribution`.
  std::vector<float> Push(uint64_t sequence, int index = 0,
                          const std::vector<uint32_t>& left_out = {}) {
    ::weir::Push push;
    push.set_sequence(sequence);
    for (const uint32_t variable : left_out) {
      push.add_left_out(variable);
    }
    encoded = encoder->Encode({0, index}, push);
    std::vector<float> decoded(layout.block({0, index}).count);
    EXPECT_TRUE(DecodeFloats(Payload::Borrowed(encoded.bytes), encoded.encoding,
                             decoded.size(), decoded.data())
                    .ok());
    return decoded;
  }

  Layout layout;
  InProcessTransport transport;
  std::vector<float> gradients;
  std::unique_ptr<GradientEncoder> encoder;
  GradientEncoder::Encoded encoded;
};

// Over many contributions nothing is lost: what was sent differs from the sum
// of the gradients by the residual of the last contribution, which does not
// grow.
TEST(GradientEncoderTest, WhatIsTakenAwayIsSentLater) {
  for (const auto& [compression, error] : {std::pair(PushOnly(BF16), 0.01),
                                           {PushOnly(F16), 0.001},
                                           {PushOnly(INT8), 0.02},
                                           {PushOnly(TOP_K, 0.1), 30.0}}) {
    Tester tester(compression);
    RandomStream random(1);
    std::vector<double> due(1216, 0.0);
    std::vector<double> sent(1216, 0.0);
    double without = 0.0;  // the worst error of one contribution alone
    for (uint64_t sequence = 0; sequence < 300; ++sequence) {
      for (const int v : {0, 1}) {
        for (int64_t i = 0; i < 600; ++i) {
          const int64_t at = tester.layout.flat_begin(v) + i;
          tester.gradients[at] =
              (random.NextFloat() - 0.3f) * (v == 0 ? 0.01f : 1.0f);
          due[at] += tester.gradients[at];
        }
      }
      const std::vector<float> decoded = tester.Push(sequence);
      EXPECT_EQ(tester.encoded.encoding, compression.push());
      for (size_t i = 0; i < sent.size(); ++i) {
        sent[i] += decoded[i];
        without = std::max(without,
                           std::fabs(double{decoded[i]} - tester.gradients[i]));
      }
    }
    for (size_t i = 0; i < sent.size(); ++i) {
      EXPECT_NEAR(sent[i], due[i], error) << i;
    }
    EXPECT_GT(without, 0.0);
  }
}

TEST(GradientEncoderTest, TopKSendsThatShare) {
  Tester tester(PushOnly(TOP_K, 0.01));
  for (float& gradient : tester.gradients) {
    gradient = 1.0f;
  }
  tester.gradients[700] = -5.0f;
  const std::vector<float> decoded = tester.Push(0);
  EXPECT_EQ(decoded[700], -5.0f);
  int sent = 0;
  for (const float value : decoded) {
    sent += value != 0.0f ? 1 : 0;
  }
  EXPECT_EQ(sent, 13);  // of 1216
}

TEST(GradientEncoderTest, ARepeatIsTheSameBytes) {
  for (const Compression& compression :
       {PushOnly(INT8), PushOnly(TOP_K, 0.05)}) {
    Tester tester(compression);
    for (size_t i = 0; i < tester.gradients.size(); ++i) {
      tester.gradients[i] = 0.0017f * static_cast<float>(i % 89);
    }
    const std::vector<float> first = tester.Push(0);
    EXPECT_EQ(tester.Push(0), first);
    EXPECT_EQ(tester.Push(0), first);
    EXPECT_NE(tester.Push(1), first);
  }
}

TEST(GradientEncoderTest, WhatIsLeftOutKeepsItsResidual) {
  Tester tester(PushOnly(INT8));
  tester.gradients[0] = 1.0f;
  tester.gradients[1] = 0.003f;  // below half a step of 1 / 127
  EXPECT_EQ(tester.Push(0)[1], 0.0f);
  tester.gradients[0] = tester.gradients[1] = 0.0f;
  tester.Push(1, 0, /*left_out=*/{0});
  EXPECT_FLOAT_EQ(tester.Push(2)[1], 0.003f);
}

TEST(GradientEncoderTest, NanTravelsAsItIsAndSpoilsNothing) {
  Tester tester(PushOnly(INT8));
  tester.gradients[0] = 1.0f;
  tester.gradients[1] = 0.003f;
  tester.Push(0);
  tester.gradients[700] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> bad = tester.Push(1);
  EXPECT_EQ(tester.encoded.encoding, F32);
  EXPECT_TRUE(std::isnan(bad[700]));
  EXPECT_EQ(bad[1], 0.003f);
  tester.gradients.assign(tester.gradients.size(), 0.0f);
  EXPECT_FLOAT_EQ(tester.Push(2)[1], 0.003f);
}

TEST(GradientEncoderTest, TooLargeForF16IsSentInParts) {
  Tester tester(PushOnly(F16));
  tester.gradients[0] = 100000.0f;
  EXPECT_EQ(tester.Push(0)[0], 65504.0f);
  tester.gradients[0] = 0.0f;
  EXPECT_NEAR(tester.Push(1)[0], 100000.0f - 65504.0f, 16.0f);
  tester.gradients[0] = 3.4e38f;
  tester.Push(2);
  EXPECT_TRUE(std::isfinite(tester.Push(3)[0]));
}

TEST(GradientEncoderTest, BlocksWithBuffersTravelAsTheyAre) {
  VariableSpec buffer;
  buffer.name = "mean";
  buffer.shape = {16};
  buffer.kind = VariableKind::kBuffer;
  Tester tester(PushOnly(TOP_K, 0.01), MakeLayout({buffer}));
  for (float& gradient : tester.gradients) {
    gradient = 0.25f;
  }
  EXPECT_EQ(tester.Push(0, 1), std::vector<float>(16, 0.25f));
  EXPECT_EQ(tester.encoded.encoding, F32);
}

}  // namespace
}  // namespace weir
