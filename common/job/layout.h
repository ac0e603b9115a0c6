// Where every parameter lives: variables -> flat space -> blocks -> shards.
//
// Place: client, ps and chief share it. It is a pure function of (variables,
// shard count, block size), so each computes it and they compare fingerprints.
//
// Terms
//   variable  a named float32 tensor, trained or a buffer.
//   flat      all variables, trained first, then buffers, each in declared
//             order and aligned to 16 elements (64 bytes); the gaps are
//             padding.
//   block     a range of the flat space: block_elements, or less at the end.
//             The unit of transfer, versioning, locking, identity, checksum.
//   segment   one variable's part of one block.
//   shard     the blocks of one ps. Full rounds deal block r*S+s to shard s;
//             the rest of the flat space is cut into S equal ranges (multiples
//             of 16), each one last block of its shard; such a range may be
//             empty, and then the shard has no such block.
//
// Invariants
//   I1. Every flat element is in exactly one block.
//   I2. Shards differ by at most 16 elements.
//   I3. A segment never holds padding.
// Threads: immutable, safe.
#ifndef COMMON_JOB_LAYOUT_H_
#define COMMON_JOB_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weir {

// How the ps fills a variable: element i is a pure function of
// (seed, variable index, i).
enum class InitKind : int {
  kConstant = 0,  // scale everywhere
  kNormal = 1,    // mean 0, standard deviation scale
  kUniform = 2,   // [-scale, scale)
  // kNormal, drawn again beyond 2 scale. Rows of tables only, as yet.
  kTruncatedNormal = 3,
};

struct InitSpec {
  InitKind kind = InitKind::kConstant;
  float scale = 0.0f;
  bool operator==(const InitSpec&) const = default;
};

enum class VariableKind : int {
  kTrained = 0,
  // A contribution brings a sample s in place of a gradient and the ps moves
  // the value by buffer_rate * (s - value). Rate 0: only assigned.
  kBuffer = 1,
};

struct VariableSpec {
  std::string name;
  std::vector<int64_t> shape;  // empty: a scalar
  VariableKind kind = VariableKind::kTrained;
  InitSpec init;
  int group = 0;                     // parameter group; 0 is the job's own
  float buffer_rate = 0.0f;          // buffers only, in [0, 1]
  std::string export_dtype = "F32";  // safetensors dtype to export in
  std::vector<std::string> aliases;  // further names to export under
  bool operator==(const VariableSpec&) const = default;

  int64_t elements() const;
};

struct Segment {
  int variable = 0;             // index into Layout::variables()
  int64_t block_offset = 0;     // first element inside the block
  int64_t variable_offset = 0;  // first element inside the variable
  int64_t count = 0;            // elements, > 0
};

struct BlockId {
  int shard = 0;
  int index = 0;  // inside the shard
  bool operator==(const BlockId&) const = default;
};

struct FlatRange {
  int64_t begin = 0;
  int64_t count = 0;
};

class Layout {
 public:
  static constexpr int64_t kAlignElements = 16;
  static constexpr int64_t kDefaultBlockElements = 256 * 1024;
  // A chunk plus its header must fit gRPC's 4 MiB default.
  static constexpr int64_t kMaxBlockElements = 768 * 1024;
  static constexpr int64_t kMaxFlatElements = int64_t{1} << 40;
  static constexpr int kMaxShards = 4096;
  // What a peer may declare: its list is sorted, searched and kept before
  // anything is known of the sender.
  static constexpr size_t kMaxVariables = 65536;
  static constexpr size_t kMaxNameBytes = 256;
  // Of a shard; each costs about 1 KiB beside its values.
  static constexpr int64_t kMaxBlocks = int64_t{1} << 24;

  // Without variables the layout is empty: a job may have tables alone.
  // Errors: INVALID_ARGUMENT names the variable or the bound that does not fit
  //   (duplicate name, dimension < 1, too large, too many, block size not a
  //   multiple of 16, buffer_rate outside [0, 1]).
  static absl::StatusOr<Layout> Create(std::vector<VariableSpec> variables,
                                       int shard_count, int64_t block_elements);

  const std::vector<VariableSpec>& variables() const { return variables_; }
  int shard_count() const { return shard_count_; }
  int64_t block_elements() const { return block_elements_; }
  // Elements of the flat space, padding included; a multiple of 16.
  int64_t flat_elements() const { return flat_elements_; }
  // First flat element of variable `v`.
  int64_t flat_begin(int v) const { return flat_begin_[v]; }
  // Names, shapes, kinds, groups, S and block size; not the initialisers.
  uint64_t fingerprint() const { return fingerprint_; }

  int block_count(int shard) const;
  int64_t shard_elements(int shard) const;
  // The flat range of a block. REQUIRES: id exists.
  FlatRange block(BlockId id) const;
  // First element of a block inside its shard's arrays (blocks end to end).
  int64_t shard_offset(int index) const { return index * block_elements_; }
  // The block that holds a flat element.
  BlockId block_of(int64_t flat_element) const;
  // The segments of a block, by offset. Cost: O(log variables + segments).
  std::vector<Segment> segments(BlockId id) const;
  // Index of the variable `name`, or -1.
  int Find(const std::string& name) const;

 private:
  Layout() = default;

  std::vector<VariableSpec> variables_;
  std::vector<int> flat_order_;  // variables by flat_begin
  std::vector<int64_t> flat_begin_;
  int shard_count_ = 0;
  int64_t block_elements_ = 0;
  int64_t flat_elements_ = 0;
  int64_t rounds_ = 0;         // full rounds of S blocks
  std::vector<int64_t> tail_;  // S + 1 flat boundaries of the last blocks
  uint64_t fingerprint_ = 0;
};

}  // namespace weir

#endif  // COMMON_JOB_LAYOUT_H_
