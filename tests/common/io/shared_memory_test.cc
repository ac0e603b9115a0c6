#include "common/io/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace weir {
namespace {

using Access = SharedMemory::Access;

FileDescriptor Copy(int fd) { return FileDescriptor(dup(fd)); }

TEST(SharedMemoryTest, WhatOneMappingWritesTheOtherReads) {
  const auto made = SharedMemory::Create(10000);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ((*made)->data()[9999], 0);
  const auto mapped =
      SharedMemory::Map(Copy((*made)->fd()), 10000, Access::kReadWrite);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  EXPECT_NE((*mapped)->data(), (*made)->data());
  std::memcpy((*made)->data() + 5000, "here", 4);
  EXPECT_EQ(std::memcmp((*mapped)->data() + 5000, "here", 4), 0);
  (*mapped)->data()[0] = 7;
  EXPECT_EQ((*made)->data()[0], 7);
}

TEST(SharedMemoryTest, AReadOnlyDescriptorCannotBeMappedForWriting) {
  const auto made = SharedMemory::Create(4096);
  ASSERT_TRUE(made.ok()) << made.status();
  auto fd = (*made)->ReadOnlyFd();
  ASSERT_TRUE(fd.ok()) << fd.status();
  EXPECT_FALSE(
      SharedMemory::Map(Copy(fd->get()), 4096, Access::kReadWrite).ok());
  EXPECT_TRUE(SharedMemory::Map(*std::move(fd), 4096, Access::kRead).ok());
}

TEST(SharedMemoryTest, CannotShrinkUnderAReader) {
  const auto made = SharedMemory::Create(8192);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_NE(ftruncate((*made)->fd(), 4096), 0);
}

// In a process of its own: above the limit the kernel would end it (SIGXFSZ).
TEST(SharedMemoryDeathTest, SaysThatItMayHaveNoFileOfThatSize) {
  constexpr size_t kMiB = size_t{1} << 20;
  const auto create_two = [] {
    const rlimit limit = {kMiB, kMiB};
    const bool limited =
        setrlimit(RLIMIT_FSIZE, &limit) == 0 && SharedMemory::Create(kMiB).ok();
    const absl::Status status = SharedMemory::Create(2 * kMiB).status();
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    std::exit(limited && absl::IsUnavailable(status) ? 0 : 1);
  };
  EXPECT_EXIT(create_two(), testing::ExitedWithCode(0),
              "at most 1048576 \\(ulimit -f\\)");
}

// To read such memory would end the process if no huge page is free.
TEST(SharedMemoryTest, ReservedHugePagesAreRefused) {
  constexpr size_t kBytes = size_t{2} << 20;
  FileDescriptor huge(memfd_create("t", MFD_HUGETLB | MFD_ALLOW_SEALING));
  if (!huge.valid() || ftruncate(huge.get(), kBytes) != 0) {
    GTEST_SKIP() << "this system has no reserved huge pages";
  }
  ASSERT_EQ(fcntl(huge.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_EQ(
      SharedMemory::Map(std::move(huge), kBytes, Access::kRead).status().code(),
      absl::StatusCode::kInvalidArgument);
}

TEST(SharedMemoryTest, WhatIsNotSealedOrNotOfItsSizeIsRefused) {
  FileDescriptor open_memory(memfd_create("t", MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(open_memory.get(), 4096), 0);
  const auto unsealed =
      SharedMemory::Map(Copy(open_memory.get()), 4096, Access::kRead);
  EXPECT_EQ(unsealed.status().code(), absl::StatusCode::kInvalidArgument);

  FileDescriptor file(open("/proc/self/exe", O_RDONLY));
  EXPECT_EQ(
      SharedMemory::Map(std::move(file), 4096, Access::kRead).status().code(),
      absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(SharedMemory::Map(FileDescriptor(), 4096, Access::kRead).ok());

  const auto made = SharedMemory::Create(4096);
  ASSERT_TRUE(made.ok()) << made.status();
  for (const size_t bytes : {size_t{0}, size_t{4095}, size_t{8192}}) {
    EXPECT_FALSE(
        SharedMemory::Map(Copy((*made)->fd()), bytes, Access::kRead).ok());
  }
}

}  // namespace
}  // namespace weir
