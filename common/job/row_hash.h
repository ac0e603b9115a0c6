// The two fixed hashes of the ids of rows. One says which shard holds a row,
// the other where inside the shard it is.
//
// Both are bijections of 64 bits with constants of their own, so that the ids
// of one shard are still spread evenly inside it. Neither may ever change:
// clients route by the one, and checkpoints are in the order of the other.
//
// Source: ShardHash is the finaliser of MurmurHash3 (Appleby); IndexHash is
//         "Mix13" of Stafford, "Better Bit Mixing", 2011, as in SplitMix64.
#ifndef COMMON_JOB_ROW_HASH_H_
#define COMMON_JOB_ROW_HASH_H_

#include <cstdint>

namespace weir {

constexpr uint64_t ShardHash(uint64_t id) {
  id = (id ^ (id >> 33)) * 0xff51afd7ed558ccdu;
  id = (id ^ (id >> 33)) * 0xc4ceb9fe1a85ec53u;
  return id ^ (id >> 33);
}

// The shard of S that holds row `id`: the upper 32 bits of the hash, scaled.
// REQUIRES: 1 <= shard_count < 2^31.
constexpr int ShardOfId(uint64_t id, int shard_count) {
  const uint64_t upper = ShardHash(id) >> 32;
  return static_cast<int>((upper * static_cast<uint64_t>(shard_count)) >> 32);
}

constexpr uint64_t IndexHash(uint64_t id) {
  id = (id ^ (id >> 30)) * 0xbf58476d1ce4e5b9u;
  id = (id ^ (id >> 27)) * 0x94d049bb133111ebu;
  return id ^ (id >> 31);
}

}  // namespace weir

#endif  // COMMON_JOB_ROW_HASH_H_
