// Ids that crowd a table's index, as somebody who supplies data can choose
// them.
#ifndef TESTS_SERVER_PS_TABLE_ID_OF_HASH_H_
#define TESTS_SERVER_PS_TABLE_ID_OF_HASH_H_

#include <cstdint>

namespace weir {

// The id with this IndexHash: the steps of it backwards, from the last to the
// first. x ^ (x >> k) is undone by as many shifts as fit, and a product by the
// inverse of its odd factor.
inline uint64_t IdOfHash(uint64_t hash) {
  const auto unshift = [](uint64_t x, int k) {
    uint64_t undone = x;
    for (int i = k; i < 64; i += k) {
      undone = x ^ (undone >> k);
    }
    return undone;
  };
  const auto inverse = [](uint64_t factor) {
    uint64_t x = factor;  // right in 3 bits; each step doubles them
    for (int i = 0; i < 5; ++i) {
      x *= 2 - factor * x;
    }
    return x;
  };
  hash = unshift(hash, 31) * inverse(0x94d049bb133111ebu);
  hash = unshift(hash, 27) * inverse(0xbf58476d1ce4e5b9u);
  return unshift(hash, 30);
}

}  // namespace weir

#endif  // TESTS_SERVER_PS_TABLE_ID_OF_HASH_H_
