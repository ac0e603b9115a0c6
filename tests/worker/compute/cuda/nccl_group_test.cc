// Sums by NCCL, a fake one on the emulator: what is enqueued, and how errors
// end. Whole steps: replicas_on_cuda_test.cc.
#include "worker/compute/cuda/nccl_group.h"

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/compute/cuda/emulator/fake_nccl.h"
#include "weir_cuda_emulator.h"

namespace weir::cuda {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using weir_emulator::CountNccl;
using weir_emulator::FakeNccl;

constexpr int64_t kCount = 100;

// Streams on some devices, and floats that each holds.
class Devices {
 public:
  explicit Devices(std::vector<int> list, uint64_t seed = 1)
      : list_(std::move(list)) {
    weir_emulator::Configure({.devices = 4, .seed = seed});
    weir_emulator::ResetNccl();
    for (const int device : list_) {
      cudaSetDevice(device);
      NcclGroup::Part& part = parts_.emplace_back();
      cudaMalloc(reinterpret_cast<void**>(&part.x), kCount * sizeof(float));
      cudaStreamCreateWithFlags(&part.stream, cudaStreamNonBlocking);
    }
  }

  const std::vector<NcclGroup::Part>& parts() const { return parts_; }

  // Fills part i with i + 1 when its stream comes to it.
  void Fill() {
    for (size_t i = 0; i < parts_.size(); ++i) {
      host_.emplace_back(kCount, static_cast<float>(i + 1));
      cudaSetDevice(list_[i]);
      cudaMemcpyAsync(parts_[i].x, host_.back().data(), kCount * sizeof(float),
                      cudaMemcpyHostToDevice, parts_[i].stream);
    }
  }
  std::vector<float> Read(size_t part) {
    std::vector<float> values(kCount);
    cudaSetDevice(list_[part]);
    cudaMemcpyAsync(values.data(), parts_[part].x, kCount * sizeof(float),
                    cudaMemcpyDeviceToHost, parts_[part].stream);
    cudaStreamSynchronize(parts_[part].stream);
    return values;
  }

 private:
  const std::vector<int> list_;
  std::vector<NcclGroup::Part> parts_;
  std::vector<std::vector<float>> host_;
};

TEST(NcclGroupTest, SumsOntoTheFirstDeviceAndNoOther) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Devices devices({2, 0, 3}, seed);
    const auto group = NcclGroup::Create(FakeNccl(), {2, 0, 3}).value();
    devices.Fill();
    ASSERT_TRUE(group->Reduce(kCount, devices.parts()).ok());
    EXPECT_THAT(devices.Read(0), Each(6.0f));
    EXPECT_THAT(devices.Read(1), Each(2.0f));
    EXPECT_THAT(devices.Read(2), Each(3.0f));
    EXPECT_EQ(CountNccl().sums, 1);
    EXPECT_THAT(CountNccl().cliques, ElementsAre(ElementsAre(2, 0, 3)));
  }
}

TEST(NcclGroupTest, SaysWhyThereAreNoCommunicators) {
  const Devices devices({0, 1});
  weir_emulator::FailNext(cudaErrorInvalidValue, "ncclCommInitAll");
  const absl::Status status = NcclGroup::Create(FakeNccl(), {0, 1}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(status.message(), "ncclCommInitAll: unhandled cuda error");
  EXPECT_EQ(NcclGroup::Create(FakeNccl(), {0, 0}).status().message(),
            "ncclCommInitAll: invalid usage");
  EXPECT_EQ(CountNccl().open, 0);
}

TEST(NcclGroupTest, NamesTheCallThatFailedAndEndsWhatRuns) {
  for (const std::string function :
       {"ncclGroupStart", "ncclReduce", "ncclGroupEnd"}) {
    Devices devices({0, 1});
    const auto group = NcclGroup::Create(FakeNccl(), {0, 1}).value();
    devices.Fill();
    weir_emulator::FailNext(cudaErrorInvalidValue, function.c_str());
    // The second time nothing is tried.
    for (int time = 0; time < 2; ++time) {
      const absl::Status status = group->Reduce(kCount, devices.parts());
      EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
      EXPECT_EQ(status.message(), function + ": unhandled cuda error");
    }
    EXPECT_EQ(CountNccl().sums, 0);
    EXPECT_EQ(CountNccl().aborted, 2);
    EXPECT_EQ(CountNccl().open, 0);
    // No group was left open: another clique works.
    const auto other = NcclGroup::Create(FakeNccl(), {0, 1}).value();
    EXPECT_TRUE(other->Reduce(kCount, devices.parts()).ok());
    EXPECT_THAT(devices.Read(0), Each(3.0f));
  }
}

TEST(NcclGroupTest, WaitsForItsSumsBeforeItEnds) {
  Devices devices({0, 1, 2});
  auto group = NcclGroup::Create(FakeNccl(), {0, 1, 2}).value();
  devices.Fill();
  ASSERT_TRUE(group->Reduce(kCount, devices.parts()).ok());
  cudaSetDevice(1);
  group.reset();
  EXPECT_EQ(weir_emulator::Counts().pending, 0);
  EXPECT_EQ(CountNccl().open, 0);
  EXPECT_EQ(CountNccl().aborted, 0);
  int device = 0;
  cudaGetDevice(&device);
  EXPECT_EQ(device, 1);
}

using NcclGroupDeathTest = testing::Test;

// The fake finds what would hang.
TEST(NcclGroupDeathTest, AFakeThatWouldHangEnds) {
  const Devices devices({0, 1});
  const auto& api = FakeNccl();
  NcclComm* comms[2];
  const int list[] = {0, 1};
  ASSERT_EQ(api.init_all(comms, 2, list), kNcclSuccess);
  const auto reduce = [&](int rank, size_t count) {
    float* const x = devices.parts()[rank].x;
    api.reduce(x, x, count, kNcclFloat, kNcclSum, 0, comms[rank],
               devices.parts()[rank].stream);
  };
  EXPECT_DEATH(reduce(0, kCount), "outside a group");
  const auto alone = [&] {
    api.group_start();
    reduce(0, kCount);
    api.group_end();
  };
  EXPECT_DEATH(alone(), "rank 1 of 2 has no part");
  const auto unequal = [&] {
    api.group_start();
    reduce(0, kCount);
    reduce(1, kCount - 1);
    api.group_end();
  };
  EXPECT_DEATH(unequal(), "would hang");
  for (NcclComm* const comm : comms) {
    api.destroy(comm);
  }
}

}  // namespace
}  // namespace weir::cuda
