// Measures what an encoding of the wire costs, for a block of 1 MiB: the
// worker's side of a push (with its residuals), the ps's side of a pull, and
// decoding.
//
//   bazel run //bench/transport:encoding_bench
//
// "GB" is float32 a second of CPU time; the label has the bytes on the wire as
// a share of float32's.
#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "client/cc/parameters/gradient_encoder.h"
#include "client/cc/transport/grpc_transport.h"
#include "common/math/random.h"
#include "proto/wire/value_encoding.h"

namespace weir {
namespace {

constexpr int64_t kCount = 256 << 10;
constexpr int64_t kBlocks = 8;  // so that a block has left the L1

struct Gradients {
  explicit Gradients(Encoding encoding)
      : transport(MakeGrpcTransport({})), values(kCount * kBlocks) {
    std::vector<VariableSpec> variables(1);
    variables[0].name = std::string(1, 'v');
    variables[0].shape = {kCount * kBlocks};
    layout = std::make_unique<Layout>(
        Layout::Create(std::move(variables), 1, kCount).value());
    RandomStream random(1);
    for (float& value : values) {
      value = random.NextNormal();
    }
    Compression compression;
    compression.set_push(encoding);
    compression.set_top_k_fraction(0.01);
    encoder = GradientEncoder::Create(compression, layout.get(), values.data(),
                                      transport.get())
                  .value();
  }

  std::unique_ptr<Transport> transport;
  std::unique_ptr<Layout> layout;
  std::vector<float> values;
  std::unique_ptr<GradientEncoder> encoder;
};

void Finish(benchmark::State& state, Encoding encoding, size_t bytes) {
  state.counters["GB"] =
      benchmark::Counter(static_cast<double>(kCount * sizeof(float)) * 1e-9,
                         benchmark::Counter::kIsIterationInvariantRate);
  state.SetLabel(
      absl::StrFormat("%s %.4f", Encoding_Name(encoding),
                      static_cast<double>(bytes) / (kCount * sizeof(float))));
}

void BM_PushEncode(benchmark::State& state) {
  const auto encoding = static_cast<Encoding>(state.range(0));
  Gradients gradients(encoding);
  Push push;
  int64_t i = 0;
  size_t bytes = 0;
  for (auto _ : state) {
    push.set_sequence(static_cast<uint64_t>(i / kBlocks));
    const GradientEncoder::Encoded encoded =
        gradients.encoder->Encode({0, static_cast<int>(i++ % kBlocks)}, push);
    bytes = encoded.bytes.size();
    benchmark::DoNotOptimize(encoded.bytes.data());
  }
  Finish(state, encoding, bytes);
}
BENCHMARK(BM_PushEncode)->Arg(BF16)->Arg(F16)->Arg(INT8)->Arg(TOP_K);

void BM_PushDecode(benchmark::State& state) {
  const auto encoding = static_cast<Encoding>(state.range(0));
  Gradients gradients(encoding);
  const GradientEncoder::Encoded encoded =
      gradients.encoder->Encode({0, 0}, Push());
  const Payload payload = Payload::Borrowed(encoded.bytes);
  std::vector<float> out(kCount);
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        DecodeFloats(payload, encoded.encoding, kCount, out.data()).ok());
  }
  Finish(state, encoding, encoded.bytes.size());
}
BENCHMARK(BM_PushDecode)->Arg(BF16)->Arg(F16)->Arg(INT8)->Arg(TOP_K);

void BM_PullEncode(benchmark::State& state) {
  const auto encoding = static_cast<Encoding>(state.range(0));
  const Gradients gradients(INT8);
  std::vector<char> out(EncodedBytes(encoding, kCount));
  for (auto _ : state) {
    EncodeFloats(gradients.values.data(), kCount, encoding, out.data());
    benchmark::ClobberMemory();
  }
  Finish(state, encoding, out.size());
}
BENCHMARK(BM_PullEncode)->Arg(F32)->Arg(BF16)->Arg(F16)->Arg(INT8);

}  // namespace
}  // namespace weir

BENCHMARK_MAIN();
