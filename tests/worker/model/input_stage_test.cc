// The way of features to a device. network_on_cuda_test has whole steps.
#include "worker/model/input_stage.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "worker/compute/cpu/operations.h"

namespace weir {
namespace {

// Memory of its own, in which copies aside happen as late as they may.
class FakeDevice : public Backend {
 public:
  explicit FakeDevice(bool shares) : shares_(shares) {}
  std::string name() const override { return "fake"; }
  bool shares_host_memory() const override { return shares_; }
  absl::StatusOr<float*> Allocate(int64_t elements) override {
    auto memory = std::make_unique<std::vector<float>>(elements + 1, -1.0f);
    float* const begin = memory->data();
    memory_[begin] = std::move(memory);
    return begin;
  }
  void Release(float* device) override { memory_.erase(device); }
  absl::StatusOr<float*> MirrorHost(float*, int64_t elements) override {
    return Allocate(elements);
  }
  void Upload(float* device, const float* host, int64_t elements) override {
    ++uploads;
    std::copy_n(host, elements, device);
  }
  void UploadAside(float* device, const float* host,
                   int64_t elements) override {
    aside_.emplace_back([=] { std::copy_n(host, elements, device); });
  }
  void JoinUploadsAside() override {
    for (const auto& copy : aside_) {
      copy();
    }
    aside_.clear();
  }
  absl::Status UploadNow(float*, HostPieces) override {
    return absl::UnimplementedError("no values come here");
  }
  void Download(float*, const float*, int64_t) override {}
  void ReduceFromPeers(int64_t, float, float*,
                       std::span<const PeerTerm>) override {}
  uint64_t Mark() override { return 0; }
  bool Reached(uint64_t) override { return true; }
  void Wait(uint64_t) override {}
  absl::Status TakeStatus() override { return absl::OkStatus(); }
  void Run(const Operation& operation) override {
    if (const auto* copy = std::get_if<op::CopyColumns>(&operation)) {
      cpu::Compute(*copy);
    } else {
      cpu::Compute(std::get<op::BytesToFloats>(operation));
    }
  }
  void SetKeys(std::span<const uint64_t>) override {}
  size_t blocks() const { return memory_.size(); }

  int uploads = 0;

 private:
  const bool shares_;
  std::map<float*, std::unique_ptr<std::vector<float>>> memory_;
  std::vector<std::function<void()>> aside_;
};

constexpr int64_t kWidth = 3;

class InputStageTest : public testing::Test {
 protected:
  InputStageTest() {
    for (int b = 0; b < 256; ++b) {
      table_.push_back(static_cast<float>(b) / 2.0f);
    }
  }
  std::vector<float> At(const float* device, int64_t count) {
    return {device, device + count};
  }
  FakeDevice device_{false};
  std::vector<float> table_;
  std::vector<float> place_ = std::vector<float>(100, -2.0f);
};

TEST_F(InputStageTest, SharedMemoryIsReadWhereItIs) {
  FakeDevice shared(true);
  InputStage stage(kWidth, true, &shared);
  const std::vector<float> floats(6, 1.0f);
  EXPECT_TRUE(stage.SendAhead(floats.data(), 2).ok());
  EXPECT_EQ(stage.Stage(floats.data(), 2, nullptr).value(), floats.data());
  const uint8_t byte = 1;
  EXPECT_EQ(
      stage.Stage(Features(&byte, table_.data()), 1, nullptr).status().code(),
      absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(shared.blocks(), 0u);
}

TEST_F(InputStageTest, BytesAndFloatsArriveSentAheadOrNot) {
  {
    InputStage stage(kWidth, true, &device_);
    const std::vector<float> floats = {1, 2, 3, 4, 5, 6};
    const std::vector<uint8_t> bytes = {2, 4, 255, 0, 1, 3, 9, 9};
    const std::vector<float> values = {1, 2, 127.5, 0, 0.5, 1.5};
    const Features as_bytes(bytes.data(), table_.data());
    for (const bool ahead : {false, true, true, false}) {
      if (ahead) {
        ASSERT_TRUE(stage.SendAhead(floats.data(), 2).ok());
      }
      EXPECT_EQ(stage.Stage(floats.data(), 2, place_.data()).value(),
                place_.data());
      EXPECT_EQ(At(place_.data(), 6), floats);
      if (ahead) {
        ASSERT_TRUE(stage.SendAhead(as_bytes, 2).ok());
      }
      EXPECT_TRUE(stage.Stage(as_bytes, 2, place_.data()).ok());
      EXPECT_EQ(At(place_.data(), 6), values);
      EXPECT_EQ(place_[6], -2.0f);
    }
  }
  EXPECT_EQ(device_.blocks(), 0u);
}

TEST_F(InputStageTest, WhatWasSentForAnotherBatchIsNotUsed) {
  InputStage stage(kWidth, true, &device_);
  const std::vector<float> first(30, 1.0f);
  const std::vector<float> second(30, 2.0f);
  ASSERT_TRUE(stage.SendAhead(first.data(), 10).ok());
  EXPECT_TRUE(stage.Stage(second.data(), 10, place_.data()).ok());
  EXPECT_EQ(At(place_.data(), 30), second);
  // The same batch with fewer rows is another one, and what was used is gone.
  ASSERT_TRUE(stage.SendAhead(first.data(), 10).ok());
  EXPECT_TRUE(stage.Stage(first.data(), 4, place_.data()).ok());
  const int before = device_.uploads;
  EXPECT_TRUE(stage.Stage(first.data(), 10, place_.data()).ok());
  EXPECT_EQ(device_.uploads, before + 1);
}

TEST_F(InputStageTest, WhatWasDroppedIsSentAgainFromTheSameAddress) {
  InputStage stage(kWidth, true, &device_);
  std::vector<float> floats(6, 1.0f);
  ASSERT_TRUE(stage.SendAhead(floats.data(), 2).ok());
  stage.DropAhead();
  std::fill(floats.begin(), floats.end(), 2.0f);
  EXPECT_TRUE(stage.Stage(floats.data(), 2, place_.data()).ok());
  EXPECT_EQ(At(place_.data(), 6), floats);
}

TEST_F(InputStageTest, WithoutTransfersABatchIsSentOnce) {
  InputStage stage(kWidth, false, &device_);
  const std::vector<float> floats(6, 1.0f);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(stage.Stage(floats.data(), 2, place_.data()).ok());
  }
  EXPECT_EQ(device_.uploads, 1);
  EXPECT_TRUE(stage.SendAhead(floats.data(), 2).ok());
  EXPECT_EQ(device_.blocks(), 0u);
  stage.Forget();
  EXPECT_TRUE(stage.Stage(floats.data(), 2, place_.data()).ok());
  EXPECT_EQ(device_.uploads, 2);
}

TEST_F(InputStageTest, FeaturesMayBeNone) {
  InputStage stage(0, true, &device_);
  EXPECT_TRUE(stage.SendAhead(nullptr, 2).ok());
  EXPECT_EQ(stage.Stage(nullptr, 2, place_.data()).value(), place_.data());
  EXPECT_EQ(device_.uploads, 0);
}

}  // namespace
}  // namespace weir
