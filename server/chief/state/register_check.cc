#include "server/chief/state/register_check.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "proto/job/job_spec_text.h"
#include "proto/wire/declaration_io.h"

namespace weir {

absl::Status RegisterCheck::Check(const RegisterRequest& request) {
  const std::string who =
      absl::StrCat("worker ", request.rank(), " (", request.host(), ")");
  WEIR_RETURN_IF_ERROR(CheckCluster(request, who));
  if (options_.sdk_job) {
    return CheckSdkJob(request.declaration(), who);
  }
  return CheckSpecJob(request, who);
}

absl::Status RegisterCheck::CheckCluster(const RegisterRequest& request,
                                         const std::string& who) const {
  if (request.rank() >= static_cast<uint32_t>(options_.worker_count)) {
    return absl::InvalidArgumentError(
        absl::StrCat(who, ": the cluster has ", options_.worker_count,
                     " workers; compare TF_CONFIG of both tasks"));
  }
  // 0: the worker was told only a part of the cluster and takes the ps from
  // its grant.
  if (request.cluster_fingerprint() != 0 &&
      request.cluster_fingerprint() != options_.cluster_fingerprint) {
    return absl::InvalidArgumentError(absl::StrCat(
        who, " lists other ps, or in another order, than the chief (",
        absl::StrJoin(options_.ps_addresses, ","),
        "); compare TF_CONFIG of both tasks"));
  }
  if (request.has_declaration() == options_.sdk_job) {
    return absl::OkStatus();
  }
  if (options_.sdk_job) {
    return absl::InvalidArgumentError(absl::StrCat(
        who, " runs a job file, the chief was started without --job"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      who, " is a program of the SDK, the chief was started with --job"));
}

absl::Status RegisterCheck::CheckSpecJob(const RegisterRequest& request,
                                         const std::string& who) {
  const std::string spec = FirstDifference(options_.spec, request.job_spec());
  if (!spec.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(who, " runs another JobSpec: ", spec));
  }
  if (request.variable_size() == 0 || request.sample_count() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        who, " has ", request.variable_size(), " variables and ",
        request.sample_count(), " samples; both must be at least 1"));
  }
  // The length of the job follows from the number of samples, so a worker with
  // other data would compute other contributions under the same numbers.
  if (sample_count_ != 0 && request.sample_count() != sample_count_) {
    return absl::InvalidArgumentError(
        absl::StrCat(who, " has a data set of ", request.sample_count(),
                     " samples, other workers have ", sample_count_));
  }
  auto list = request.variable();
  WEIR_RETURN_IF_ERROR(AssignGroups(options_.spec, &list));
  if (!variables_.empty()) {
    const std::string variable = FirstVariableDifference(variables_, list);
    if (!variable.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(who, " brings another model: ", variable));
    }
  }
  // I1: nothing is kept before the last check. I2: what is kept here is what
  // everybody was compared with, or the first that was said.
  if (variables_.empty()) {
    variables_ = list;
  }
  sample_count_ = request.sample_count();
  return absl::OkStatus();
}

absl::Status RegisterCheck::CheckSdkDeclaration(const Declaration& declaration,
                                                const std::string& who) const {
  if (declaration.shard_count() != options_.ps_addresses.size() ||
      declaration.slot_count() !=
          static_cast<uint32_t>(options_.worker_count)) {
    return absl::InvalidArgumentError(absl::StrCat(
        who, " names ", declaration.shard_count(), " ps and ",
        declaration.slot_count(), " workers, the chief ",
        options_.ps_addresses.size(), " and ", options_.worker_count,
        "; compare TF_CONFIG of both tasks"));
  }
  if (declaration.job().empty() ||
      declaration.variable_size() + declaration.table_size() == 0 ||
      declaration.group_size() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        who, " declares job '", declaration.job(), "' with ",
        declaration.variable_size(), " tensors, ", declaration.table_size(),
        " tables and ", declaration.group_size(),
        " groups; a job has a tensor or a table, and a group"));
  }
  // A program pushes when it likes, so only "one of each" ends a step that
  // nobody has counted out beforehand.
  const Update& update = declaration.update();
  if (update.has_sync() &&
      update.sync().contributions() != declaration.slot_count()) {
    return absl::InvalidArgumentError(absl::StrCat(
        who, ": a sync step has one push of every worker, not ",
        update.sync().contributions(), " of ", declaration.slot_count()));
  }
  return absl::OkStatus();
}

absl::Status RegisterCheck::CheckSdkJob(const Declaration& declaration,
                                        const std::string& who) {
  WEIR_RETURN_IF_ERROR(CheckSdkDeclaration(declaration, who));
  if (!declaration_.has_value()) {
    declaration_ = declaration;  // I2: the first one is the job
    return absl::OkStatus();
  }
  if (declaration_->job() != declaration.job()) {
    return absl::AlreadyExistsError(
        absl::StrCat(who, " declares job '", declaration.job(),
                     "', the chief runs '", declaration_->job(), "'"));
  }
  const std::string difference =
      FirstDeclarationDifference(*declaration_, declaration);
  if (!difference.empty()) {
    return absl::AlreadyExistsError(absl::StrCat(
        who, ": ", difference, "; every worker must declare the same"));
  }
  return absl::OkStatus();
}

void RegisterCheck::SetDeclaration(const Declaration& declaration) {
  variables_ = declaration.variable();
  if (options_.sdk_job) {
    declaration_ = declaration;
  }
}

}  // namespace weir
