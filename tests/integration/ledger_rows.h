// The table of ledger_test, and which of its rows a contribution adds to.
#ifndef TESTS_INTEGRATION_LEDGER_ROWS_H_
#define TESTS_INTEGRATION_LEDGER_ROWS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/job/row_hash.h"
#include "proto/job_spec.pb.h"

namespace weir {

inline constexpr int kLedgerDim = 4;

// Plain SGD at learning rate 1; rows begin as zeros.
inline EmbeddingTable LedgerTable() {
  EmbeddingTable table;
  table.set_name("t");
  table.set_dim(kLedgerDim);
  table.mutable_optimizer()->mutable_sgd();
  table.mutable_schedule()->set_learning_rate(1.0);
  table.mutable_initializer()->mutable_zeros();
  return table;
}

// Ids that no other (slot, sequence) has, all over the 64 bits; ascending.
inline std::vector<uint64_t> LedgerIds(uint32_t slot, uint64_t sequence,
                                       int count) {
  std::vector<uint64_t> ids;
  for (int i = 0; i < count; ++i) {
    const uint64_t of_contribution = (uint64_t{slot} << 32 | sequence) * 16;
    ids.push_back(IndexHash(of_contribution + static_cast<uint64_t>(i)));
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace weir

#endif  // TESTS_INTEGRATION_LEDGER_ROWS_H_
