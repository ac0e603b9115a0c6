#include "common/io/sha256.h"

#include <string>

#include "gtest/gtest.h"

namespace weir {
namespace {

// The values are those of FIPS 180-4's examples.
TEST(Sha256Test, MatchesThePublishedExamples) {
  EXPECT_EQ(Sha256Hex("abc"),
            "ba7816bf8f01cfea414140de5dae2223"
            "b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Hex(""),
            "e3b0c44298fc1c149afbf4c8996fb924"
            "27ae41e4649b934ca495991b7852b855");
}

TEST(Sha256Test, PiecesGiveTheDigestOfTheWhole) {
  Sha256 sha;
  const std::string thousand(1000, 'a');
  for (int i = 0; i < 1000; ++i) {
    sha.Update(thousand.data(), thousand.size());
  }
  EXPECT_EQ(sha.FinishHex(),
            "cdc76e5c9914fb9281a1c7e284d73e67"
            "f1809a48a497200e046d39ccc7112cd0");
}

}  // namespace
}  // namespace weir
