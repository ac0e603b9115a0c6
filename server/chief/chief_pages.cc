#include "server/chief/chief_pages.h"

#include <google/protobuf/util/json_util.h>

#include <chrono>
#include <string>

#include "common/base/status.h"
#include "server/chief/chief_metrics.h"
#include "server/chief/page/page_files.h"

namespace weir {
namespace {

// The port's one thread waits meanwhile.
constexpr std::chrono::milliseconds kTimeout{500};

// Every field is there, also one that is 0.
absl::StatusOr<AdminServer::Answer> Json(
    const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions print;
  print.always_print_primitive_fields = true;
  print.preserve_proto_field_names = true;
  AdminServer::Answer answer = {"application/json", ""};
  const auto status =
      google::protobuf::util::MessageToJsonString(message, &answer.body, print);
  if (!status.ok()) {
    return absl::InternalError(std::string(status.message()));
  }
  return answer;
}

}  // namespace

void AddChiefPages(ChiefRunner* runner, AdminServer* admin) {
  if (admin == nullptr) {
    return;
  }
  using Request = AdminServer::Request;
  using Answer = AdminServer::Answer;
  admin->AddMetrics([runner](MetricPage* page) {
    if (const auto report = runner->WaitForReport(kTimeout); report.ok()) {
      AddChiefMetrics(**report, page);
    }
  });
  admin->Handle("/report", AdminServer::Access::kToken,
                [runner](const Request&) -> absl::StatusOr<Answer> {
                  WEIR_ASSIGN_OR_RETURN(const auto report,
                                        runner->WaitForReport(kTimeout));
                  return Json(*report);
                });
  admin->Handle("/curve", AdminServer::Access::kToken,
                [runner](const Request&) -> absl::StatusOr<Answer> {
                  WEIR_ASSIGN_OR_RETURN(const CurveReport curve,
                                        runner->WaitForCurve(kTimeout));
                  return Json(curve);
                });
  // They hold nothing of the job, but no stranger need know that it is one.
  for (const PageFile& file : PageFiles()) {
    admin->Handle(std::string(file.path), AdminServer::Access::kToken,
                  [&file](const Request&) -> absl::StatusOr<Answer> {
                    return Answer{std::string(file.content_type),
                                  std::string(file.bytes)};
                  });
  }
}

}  // namespace weir
