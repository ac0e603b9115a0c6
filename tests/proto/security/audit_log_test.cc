#include "proto/security/audit_log.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/common/temp_dir.h"

namespace weir {
namespace {

nlohmann::json LastLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::string last;
  while (std::getline(file, line)) {
    last = line;
  }
  return nlohmann::json::parse(last);
}

size_t LineCount(const std::string& path) {
  std::ifstream file(path);
  return static_cast<size_t>(std::count(std::istreambuf_iterator<char>(file),
                                        std::istreambuf_iterator<char>(),
                                        '\n'));
}

TEST(AuditLogTest, APeersTextStaysInsideOfItsLine) {
  const std::string path = MakeTempDir() + "/audit.jsonl";
  AuditLog log(path);
  log.Add({.peer = "weir://j/worker/1",
           .address = "ipv4:127.0.0.1:1",
           .method = "/weir.ParameterServer/Shutdown",
           .status = absl::InternalError("bye\n{\"at\": \"forged\"}\x1b[31m"),
           .detail = std::string(1000, 'x') + "\xff"});
  EXPECT_EQ(LineCount(path), 1);
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)),
                         std::istreambuf_iterator<char>());
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_LT(text.size(), 700);
  const nlohmann::json line = LastLine(path);
  EXPECT_EQ(line["peer"], "weir://j/worker/1");
  EXPECT_EQ(line["status"], "INTERNAL");
}

// I2.
TEST(AuditLogTest, RefusalsAndFailuresAreSampled) {
  FakeClock clock;
  const std::string path = MakeTempDir() + "/audit.jsonl";
  AuditLog log(path, &clock);
  AuditLog::Event event = {.peer = "",
                           .address = "ipv4:127.0.0.1:1",
                           .method = "",
                           .status = absl::UnauthenticatedError("no"),
                           .detail = ""};
  for (int i = 0; i < 500; ++i) {
    event.status = absl::UnauthenticatedError("not of this job");
    log.Add(event);
    event.status = absl::PermissionDeniedError("an old generation");
    log.Add(event);
  }
  EXPECT_EQ(LineCount(path), kRefusalLinesPerSecond);
  clock.Advance(std::chrono::seconds(1));
  log.Add(event);
  EXPECT_EQ(LineCount(path), kRefusalLinesPerSecond + 1);
  EXPECT_EQ(LastLine(path)["refusals_left_out"], 990);
  // What was done is never left out.
  event.status = absl::OkStatus();
  for (int i = 0; i < 100; ++i) {
    log.Add(event);
  }
  EXPECT_EQ(LineCount(path), kRefusalLinesPerSecond + 101);
}

TEST(AuditLogTest, IsForThisUserAlone) {
  const std::string path = MakeTempDir() + "/audit.jsonl";
  AuditLog(path).Add({});
  struct stat facts = {};
  ASSERT_EQ(stat(path.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600);
  // A link in its place may lead anywhere.
  const std::string link = MakeTempDir() + "/audit.jsonl";
  ASSERT_EQ(symlink(path.c_str(), link.c_str()), 0);
  AuditLog(link).Add({});
  EXPECT_EQ(LineCount(path), 1);
}

}  // namespace
}  // namespace weir
