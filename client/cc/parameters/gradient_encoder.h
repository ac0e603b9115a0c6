// Encodes gradients before they are sent, and keeps what the encoding takes
// away for the next contribution.
//
// Place: ParameterClient asks it for a block's bytes when it sends them.
//
// Terms
//   residual  what earlier contributions of this slot should have moved a
//             value by and did not. A contribution with gradient g sends
//             encode(g + residual), and what that decodes to is taken off the
//             residual.
//
// Invariants
//   I1. A block is encoded once per contribution: whoever asks again gets the
//       same bytes.
//   I2. Residuals are finite. A block with NaN or infinity travels as F32, so
//       that the ps can say which variable it is in; it changes no residual.
//   I3. Variables that a contribution leaves out keep their residuals.
//   I4. Blocks that hold buffers travel as F32: they are samples, not
//       increments (see "Buffers travel as samples" in docs/design_notes.md).
// Threads: safe for different blocks; one thread at a time for one block.
// Owns/borrows: borrows layout, gradients, transport.
// Cost: 4 bytes a parameter for the residuals, and at most as many for what is
//   encoded; one pass per block and contribution.
// Source: error feedback is of Seide et al., "1-Bit Stochastic Gradient
//         Descent", Interspeech 2014, and Stich et al., "Sparsified SGD with
//         Memory", NeurIPS 2018.
#ifndef CLIENT_CC_PARAMETERS_GRADIENT_ENCODER_H_
#define CLIENT_CC_PARAMETERS_GRADIENT_ENCODER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cc/transport/transport.h"
#include "common/job/layout.h"
#include "proto/job_spec.pb.h"
#include "proto/ps.pb.h"

namespace weir {

class GradientEncoder {
 public:
  struct Encoded {
    Encoding encoding = F32;
    std::span<const char> bytes;  // until the block's next contribution
  };

  // Makes an encoder of `gradients`, which is a flat space of `layout`.
  // REQUIRES: compression is valid, and its push is not F32.
  // Errors: RESOURCE_EXHAUSTED  there is no memory for what is encoded.
  static absl::StatusOr<std::unique_ptr<GradientEncoder>> Create(
      const Compression& compression, const Layout* layout,
      const float* gradients, Transport* transport);

  // Encodes the block's gradient for `push`, which names the contribution and
  // the variables that it leaves out.
  Encoded Encode(BlockId block, const Push& push);

 private:
  // Elements [begin, end) of a block.
  struct Range {
    int64_t begin = 0;
    int64_t end = 0;
  };
  struct Block {
    FlatRange range;
    std::vector<Segment> segments;
    bool has_buffers = false;
    char* out = nullptr;  // where the encoded bytes go
    size_t bytes = 0;     // 0: not encoded for `sequence`, or sent as F32
    uint64_t sequence = ~uint64_t{0};
  };

  GradientEncoder(const Compression& compression, const float* gradients)
      : encoding_(compression.push()),
        top_k_fraction_(compression.top_k_fraction()),
        gradients_(gradients) {}

  size_t BytesMax(int64_t elements) const;
  size_t PlacesIn(int64_t elements) const;
  std::vector<Range> Moved(const Block& block, const Push& push) const;
  size_t EncodeFixedSize(const Block& block, const std::vector<Range>& moved);
  size_t EncodeLargest(const Block& block, const std::vector<Range>& moved);

  const Encoding encoding_;
  const double top_k_fraction_;
  const float* const gradients_;
  std::vector<std::vector<Block>> shards_;
  std::shared_ptr<float> encoded_;  // the bytes of all blocks
  std::vector<float> residuals_;    // flat space
};

}  // namespace weir

#endif  // CLIENT_CC_PARAMETERS_GRADIENT_ENCODER_H_
