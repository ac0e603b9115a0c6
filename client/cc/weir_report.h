// What a program tells of its job, and what the servers tell of themselves.
//
// Place: the public C++ SDK includes it (weir.h).
#ifndef CLIENT_CC_WEIR_REPORT_H_
#define CLIENT_CC_WEIR_REPORT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "client/cc/weir_tables.h"

namespace weir::sdk {

// What a program measured, for Client::Report.
struct Metrics {
  // By name: "loss" for what is trained on, and what else there is to see. At
  // most 32, of 1 to 64 letters, digits, '_', '.', '/' or '-', and at most 128
  // names in a job. NaN and infinity are taken: the mean they are in is null.
  std::vector<std::pair<std::string, double>> values;
  // On how many examples. The mean over reports weighs each by them, and they
  // are counted. 0: not known; the report weighs 1.
  uint64_t examples = 0;
};

// One parameter server.
struct ServerStatus {
  std::string address;
  bool ready = false;  // holds tensors, takes pushes
  std::string job;
  uint64_t version_min = 0;  // updates applied, over its blocks
  uint64_t version_max = 0;
  uint64_t blocks_accepted = 0;
  uint64_t blocks_duplicate = 0;  // repeated after a broken connection
  uint64_t blocks_left_out = 0;   // with NaN or Inf
  uint64_t staleness_max = 0;     // async: updates between pull and push
  uint64_t bytes_resident = 0;
  std::vector<TableStatus> tables = {};
};

}  // namespace weir::sdk

#endif  // CLIENT_CC_WEIR_REPORT_H_
