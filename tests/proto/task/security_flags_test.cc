#include "proto/task/security_flags.h"

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using testing::ElementsAre;

TEST(SecurityFlagsTest, FlagsGoBeforeTheEnvironment) {
  Security::Options options;
  options.tls_dir = "/of/the/environment";
  CLI::App app;
  AddSecurityFlags(&app, &options);
  app.parse("--tls_dir /d --identity spiffe://a/b=worker --identity c=ps",
            false);
  EXPECT_EQ(options.tls_dir, "/d");
  EXPECT_THAT(options.identity_rules,
              ElementsAre("spiffe://a/b=worker", "c=ps"));
  EXPECT_FALSE(options.insecure);
}

TEST(SecurityFlagsTest, WithoutFlagsTheEnvironmentStands) {
  Security::Options options;
  options.insecure = true;
  CLI::App app;
  AddSecurityFlags(&app, &options);
  app.parse("", false);
  EXPECT_TRUE(options.insecure);
}

TEST(SecurityFlagsTest, ASecretHasNoFlag) {
  Security::Options options;
  CLI::App app;
  AddSecurityFlags(&app, &options);
  EXPECT_THROW(app.parse("--secret x", false), CLI::ParseError);
}

}  // namespace
}  // namespace weir
