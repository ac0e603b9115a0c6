#include "proto/wire/health_check.h"

#include <gtest/gtest.h>

#include <string>

namespace weir {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

TEST(HealthCheckTest, AServerThatAnswersIsServing) {
  for (const char* service : {"", "weir.Chief"}) {
    HealthCheckRequest request;
    request.set_service(service);
    const auto response = CheckHealth(request, "weir.Chief");
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_EQ(response->status(), HealthCheckResponse::SERVING);
  }
}

TEST(HealthCheckTest, AServiceThatIsNotHereIsNamed) {
  HealthCheckRequest request;
  request.set_service("weir.Other\n");
  const auto response = CheckHealth(request, "weir.Chief");
  EXPECT_TRUE(absl::IsNotFound(response.status()));
  EXPECT_NE(response.status().message().find("weir.Other"), std::string::npos);
  EXPECT_EQ(response.status().message().find('\n'), std::string::npos);
}

}  // namespace
}  // namespace weir
