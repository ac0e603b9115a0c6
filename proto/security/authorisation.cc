#include "proto/security/authorisation.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace weir {
namespace {

constexpr Access kNo = Access::kNo;
constexpr Access kYes = Access::kYes;
constexpr Access kFirst = Access::kFirst;
constexpr Access kLeads = Access::kLeads;
constexpr Access kOwnSlot = Access::kOwnSlot;

constexpr AccessRow kTable[] = {
    // method                        chief worker    reader admin
    {"/weir.ParameterServer/Hello", kYes, kYes, kYes, kYes},
    {"/weir.ParameterServer/GetStatus", kYes, kYes, kYes, kYes},
    {"/weir.ParameterServer/Declare", kYes, kLeads, kNo, kNo},
    {"/weir.ParameterServer/Restore", kYes, kLeads, kNo, kNo},
    {"/weir.ParameterServer/Assign", kYes, kFirst, kNo, kNo},
    {"/weir.ParameterServer/SetSlots", kYes, kOwnSlot, kNo, kNo},
    {"/weir.ParameterServer/Pull", kYes, kYes, kYes, kNo},
    {"/weir.ParameterServer/PushPull", kNo, kYes, kNo, kNo},
    {"/weir.ParameterServer/PullRows", kNo, kYes, kYes, kNo},
    {"/weir.ParameterServer/PushRows", kNo, kYes, kNo, kNo},
    {"/weir.ParameterServer/Shrink", kYes, kNo, kNo, kYes},
    {"/weir.ParameterServer/Trace", kNo, kNo, kNo, kYes},
    {"/weir.ParameterServer/Snapshot", kYes, kLeads, kNo, kNo},
    {"/weir.ParameterServer/Shutdown", kYes, kLeads, kNo, kYes},
    {"/weir.Chief/Register", kNo, kYes, kNo, kNo},
    {"/weir.Chief/Heartbeat", kNo, kYes, kNo, kNo},
    {"/weir.Chief/GetStatus", kYes, kYes, kYes, kYes},
    {"/weir.Chief/GetReport", kNo, kNo, kYes, kYes},
    {"/weir.Chief/Trace", kNo, kNo, kNo, kYes},
    {"/weir.Chief/PutTrace", kNo, kYes, kNo, kNo},
    {"/grpc.health.v1.Health/Check", kYes, kYes, kYes, kYes, /*ps=*/kYes},
};

Access AccessOf(const AccessRow& row, PeerRole role) {
  switch (role) {
    case PeerRole::kChief:
      return row.chief;
    case PeerRole::kWorker:
      return row.worker;
    case PeerRole::kReader:
      return row.reader;
    case PeerRole::kAdmin:
      return row.admin;
    case PeerRole::kPs:
      return row.ps;
  }
  return kNo;
}

bool IsFirst(const PeerIdentity& caller) {
  return caller.index.value_or(0) == 0;
}

// Why `access` does not let the caller in; empty if it does.
absl::string_view Refusal(Access access, const PeerIdentity& caller,
                          bool has_chief) {
  switch (access) {
    case kYes:
    case kOwnSlot:
      return "";
    case kFirst:
      return IsFirst(caller) ? "" : "of the workers only worker 0 may";
    case kLeads:
      if (has_chief) {
        return "in a cluster that has a chief only the chief may";
      }
      return IsFirst(caller) ? "" : "of the workers only worker 0 may";
    case kNo:
      break;
  }
  return "this role may not";
}

}  // namespace

std::span<const AccessRow> AccessTable() { return kTable; }

absl::Status Authorise(absl::string_view method, const PeerIdentity& caller,
                       bool has_chief) {
  const auto row =
      std::find_if(std::begin(kTable), std::end(kTable),
                   [&](const AccessRow& r) { return r.method == method; });
  if (row == std::end(kTable)) {  // I1
    return absl::UnauthenticatedError(
        absl::StrCat("no role may call ", method.substr(0, 100)));
  }
  const absl::string_view why =
      Refusal(AccessOf(*row, caller.role), caller, has_chief);
  if (why.empty()) {
    return absl::OkStatus();
  }
  return absl::UnauthenticatedError(
      absl::StrCat(caller.ToUri(), " may not call ", method, ": ", why));
}

}  // namespace weir
