#include "common/io/npy.h"

#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"
#include "tests/support/faulty_files.h"

namespace weir {
namespace {

// The bytes are those of numpy 1.24: np.save of a float32 array of shape (2,
// 3).
TEST(NpyTest, TheHeaderIsNumpys) {
  const std::string header = NpyHeader("<f4", {2, 3});
  EXPECT_EQ(header,
            std::string("\x93NUMPY\x01\x00\x76\x00", 10) +
                "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }" +
                std::string(58, ' ') + "\n");
}

TEST(NpyTest, DataBeginsAtAMultipleOf64WhateverTheShape) {
  std::vector<int64_t> shape;
  for (int dimensions = 0; dimensions < 20; ++dimensions) {
    const std::string header = NpyHeader("<i8", shape);
    EXPECT_EQ(header.size() % 64, 0u);
    EXPECT_EQ(header.back(), '\n');
    EXPECT_EQ(static_cast<unsigned char>(header[8]) +
                  256 * static_cast<unsigned char>(header[9]) + 10,
              static_cast<int>(header.size()));
    shape.push_back(int64_t{7} << dimensions);
  }
  EXPECT_NE(NpyHeader("<f4", {}).find("'shape': (), }"), std::string::npos);
  EXPECT_NE(NpyHeader("<f4", {5}).find("'shape': (5,), }"), std::string::npos);
}

TEST(NpyTest, AFailureLeavesNothing) {
  const std::string dir = MakeTempDir();
  FaultyFiles files(Files::Real());
  files.FailCall(3, absl::ResourceExhaustedError("disk full"));
  EXPECT_FALSE(
      WriteNpy(&files, dir + "/a.npy", "<f4", {1}, [](ObjectWriter& to) {
        const float one = 1;
        return to.Append(&one, sizeof(one));
      }).ok());
  EXPECT_TRUE(Files::Real()->List(dir)->empty());
}

}  // namespace
}  // namespace weir
