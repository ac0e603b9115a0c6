// Translates the public SDK's options, tensors and tables into the messages
// that the ps and the chief take.
//
// Place: client/cc/sdk/session.cc uses it. Pure functions.
//
// Threads: safe.
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

// Checks what needs neither a ps nor tensors.
absl::Status CheckOptions(const Options& options);

absl::StatusOr<Compression> ToCompression(const Options& options);

// The tensors as variables, in their order. Names and shapes are checked by
// Layout::Create.
absl::StatusOr<std::vector<VariableSpec>> ToVariables(
    const Options& options, const std::vector<Tensor>& tensors);

// The declaration of the job, without tables and without a history.
Declaration ToDeclaration(const Options& options,
                          const std::vector<VariableSpec>& variables);

// Adds tables to a declaration, checked as the ps will check them.
absl::Status AddTables(const std::vector<Table>& tables, Declaration* to);

// A group below 0 becomes one that no job has.
std::vector<Hyper> ToHyper(const std::vector<GroupSettings>& settings);

ServerStatus ToServerStatus(const std::string& address, const PsStatus& status);

}  // namespace weir::sdk

#endif  // CLIENT_CC_SDK_DECLARATION_H_
