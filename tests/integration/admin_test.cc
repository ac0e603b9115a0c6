// The admin ports of a real job: health, metrics, the report and the page.
#include <gtest/gtest.h>
#include <httplib.h>
#include <signal.h>

#include <map>
#include <string>

#include "tests/integration/hand_cluster.h"
#include "tests/integration/harness.h"

namespace weir {
namespace {

// The status code and the body of a GET; 0 where nobody answers.
std::pair<int, std::string> Get(const std::string& address,
                                const std::string& path,
                                const std::string& token = "") {
  httplib::Client client("http://" + address);
  httplib::Headers headers;
  if (!token.empty()) {
    headers.emplace("Authorization", "Bearer " + token);
  }
  const auto answer = client.Get(path, headers);
  return answer ? std::make_pair(answer->status, answer->body)
                : std::make_pair(0, std::string());
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(AdminTest, EveryTaskShowsItsMetricsWhereItsAddressWasAskedFor) {
  HandCluster cluster(FreshDir("admin_metrics"),
                      DigitsJob(1'000'000, "update { sync {} }"), 1, 1, true);
  std::map<std::string, std::string> ports;
  for (const std::string role : {"ps", "chief", "worker"}) {
    ports[role] = FreeAddress();
    cluster.Start(role, 0,
                  {"--admin_address", "127.0.0.1", "--admin_port",
                   ports[role].substr(ports[role].find(':') + 1)});
  }
  const std::map<std::string, std::string> counts = {
      {"ps", "weir_ps_updates_total{result=\"accepted\"} "},
      {"chief", "weir_job_phase{phase=\"training\"} 1\n"},
      {"worker", "weir_worker_phase_seconds_total{phase=\"compute\"} "}};
  for (const auto& [role, address] : ports) {
    std::string text;
    EXPECT_TRUE(WaitUntil(60,
                          [&, &address = address, &role = role] {
                            text = Get(address, "/metrics").second;
                            return Has(text, counts.at(role));
                          }))
        << role << ": " << text << cluster.task(role, 0).Log();
    EXPECT_TRUE(Has(text, "weir_task_info{")) << text;
    EXPECT_TRUE(Has(text, "process_cpu_seconds_total ")) << text;
    EXPECT_EQ(Get(address, "/healthz").first, 200);
    EXPECT_TRUE(WaitUntil(30, [&, &address = address] {
      return Get(address, "/readyz").first == 200;
    })) << role;
    // The chief alone has a page, for those who show the token.
    EXPECT_EQ(Get(address, "/").first, role == "chief" ? 401 : 404) << role;
  }
}

TEST(AdminTest, TheLinkOfARunOpensItsPageAndNothingElseDoes) {
  const std::string dir = FreshDir("admin_page");
  const std::string job = FreshDir("admin_job") + "/job.textproto";
  WriteFile(job, DigitsJob(1'000'000, "update { async {} }"));
  Process train = StartTrain(dir, {job, "--admin_port", "0"});
  CommandResult page;
  ASSERT_TRUE(WaitUntil(60, [&] {
    page = RunWeir({"page", dir});
    return page.exit_code == 0;
  })) << page.output;
  const size_t at = page.output.find("http://");
  const size_t token_at = page.output.find("/?token=");
  ASSERT_NE(token_at, std::string::npos) << page.output;
  const std::string address = page.output.substr(at + 7, token_at - at - 7);
  std::string token = page.output.substr(token_at + 8);
  token.resize(token.find_first_not_of("0123456789abcdef"));
  for (const char* path : {"/", "/report", "/curve", "/metrics"}) {
    EXPECT_EQ(Get(address, path).first / 100, 4) << path;
    EXPECT_EQ(Get(address, path, std::string(token.size(), '0')).first / 100, 4)
        << path;
    EXPECT_EQ(Get(address, path, token).first, 200) << path;
  }
  EXPECT_TRUE(Has(Get(address, "/", token).second, "<html"));
  nlohmann::json report;
  EXPECT_TRUE(WaitUntil(60, [&] {
    report = nlohmann::json::parse(Get(address, "/report", token).second,
                                   nullptr, /*exceptions=*/false);
    return report.is_object() && report["phase"] == "training" &&
           report["step"] > 10 &&
           report["worker"][0]["examples_per_second"] > 0;
  })) << report.dump(1);
  const nlohmann::json curve = nlohmann::json::parse(
      Get(address, "/curve", token).second, nullptr, /*exceptions=*/false);
  ASSERT_TRUE(curve.is_object());
  ASSERT_FALSE(curve["step"].empty());
  EXPECT_EQ(curve["step"].size(), curve["loss"].size());
  train.Signal(SIGTERM);
  EXPECT_EQ(train.Wait(60), 143);
}

TEST(AdminTest, APortInUseIsNamed) {
  HandCluster cluster(FreshDir("admin_port"),
                      DigitsJob(100, "update { async {} }"), 1, 1, true);
  const std::string address = FreeAddress();
  const std::string port = address.substr(address.find(':') + 1);
  cluster.Start("ps", 0, {"--admin_port", port});
  ASSERT_TRUE(
      WaitUntil(30, [&] { return Get(address, "/healthz").first == 200; }));
  Process& chief = cluster.Start("chief", 0, {"--admin_port", port});
  EXPECT_EQ(chief.Wait(30), 2) << chief.Log();
  EXPECT_TRUE(Has(chief.Log(), port)) << chief.Log();
}

}  // namespace
}  // namespace weir
