// From the public SDK's options and tensors to what the ps are told.
//
// Place: client/cc/sdk/weir.cc alone; pure functions.
//
// Errors: INVALID_ARGUMENT  names the option, tensor or value, and its range.
#ifndef CLIENT_CC_SDK_DECLARATION_H_
#define CLIENT_CC_SDK_DECLARATION_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cc/weir.h"
#include "common/job/layout.h"
#include "proto/job_spec.pb.h"
#include "proto/ps.pb.h"

namespace weir::sdk {

absl::Status CheckOptions(const Options& options);

absl::StatusOr<Compression> ToCompression(const Options& options);

absl::StatusOr<std::vector<VariableSpec>> ToVariables(
    const Options& options, const std::vector<Tensor>& tensors);

// Without a history.
Declaration ToDeclaration(const Options& options,
                          const std::vector<VariableSpec>& variables);

// Their names, sizes and learning rates are checked here, the rest by the ps.
absl::Status AddTables(const std::vector<Table>& tables, Declaration* to);

// REQUIRES: groups are in range.
std::vector<Hyper> ToHyper(const std::vector<GroupSettings>& settings);

ServerStatus ToServerStatus(const std::string& address, const PsStatus& status);

}  // namespace weir::sdk

#endif  // CLIENT_CC_SDK_DECLARATION_H_
