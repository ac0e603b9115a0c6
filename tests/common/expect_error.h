// Expectations of errors, by code and message.
#ifndef TESTS_COMMON_EXPECT_ERROR_H_
#define TESTS_COMMON_EXPECT_ERROR_H_

#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {

// Expects an error with `code` whose message holds `text`.
inline void ExpectError(const absl::Status& status, absl::StatusCode code,
                        const std::string& text) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr(text));
}

inline void ExpectInvalid(const absl::Status& status, const std::string& text) {
  ExpectError(status, absl::StatusCode::kInvalidArgument, text);
}

}  // namespace weir

#endif  // TESTS_COMMON_EXPECT_ERROR_H_
