#include "worker/compute/factory.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(FactoryTest, MakesTheCpuBackendByDefault) {
  EXPECT_EQ(CreateBackend({}).value()->name(), "cpu");
}

BackendOptions On(const std::string& device, const std::string& plugin = "") {
  BackendOptions options;
  options.device = device;
  options.plugin_path = plugin;
  return options;
}

std::string PluginPath(const std::string& name) {
  return std::string("tests/worker/compute/") + name;
}

TEST(FactoryTest, NamesADeviceThatIsNone) {
  for (const char* device :
       {"abacus", "cuda:", "cuda:x", "cuda:-1", "", "cuda:0,", "cuda:0,x",
        "cpu,cuda:0", "cuda:0,cpu", "cuda:all,0"}) {
    const absl::Status status = CreateBackend(On(device)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("auto, cpu, cuda or cuda:N"));
  }
}

TEST(FactoryTest, TakesTheCpuWhereThereIsNoPlugin) {
  EXPECT_EQ(CreateBackend(On("auto")).value()->name(), "cpu");
  const absl::Status status = CreateBackend(On("cuda")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("libweir_cuda.so"));
}

TEST(FactoryTest, RefusesAPluginOfAnotherVersion) {
  const std::string path = PluginPath("plugin_of_another_abi.so");
  const absl::Status status = CreateBackend(On("cuda", path)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(HasSubstr(path), HasSubstr("another version")));
  EXPECT_EQ(CreateBackend(On("auto", path)).value()->name(), "cpu");
}

TEST(FactoryTest, RefusesALibraryThatIsNoPlugin) {
  const absl::Status status =
      CreateBackend(On("cuda", PluginPath("no_plugin.so"))).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no compute plug-in"));
}

TEST(FactoryTest, RefusesAFileThatIsNoLibrary) {
  const absl::Status status =
      CreateBackend(On("cuda", "/proc/self/status")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/proc/self/status"));
}

// The plug-in of this test has three devices, and each backend is a CPU's.
TEST(FactoryTest, SpreadsTasksOverDevices) {
  const std::string path = PluginPath("three_devices.so");
  EXPECT_EQ(CreateBackend(On("cuda:2", path)).value()->name(), "device 2");
  EXPECT_EQ(CreateBackend(On("cuda", path)).value()->name(), "device 0");
  BackendOptions options = On("auto", path);
  for (const int index : {0, 1, 2, 3, 7}) {
    options.auto_index = index;
    EXPECT_EQ(CreateBackend(options).value()->name(),
              "device " + std::to_string(index % 3));
  }
}

std::vector<std::string> Names(const std::string& device) {
  std::vector<std::string> names;
  const auto backends =
      CreateBackends(On(device, PluginPath("three_devices.so"))).value();
  for (const auto& backend : backends) {
    names.push_back(backend->name());
  }
  return names;
}

TEST(FactoryTest, MakesABackendForEveryDeviceOfAList) {
  EXPECT_THAT(Names("cuda:2,0"), ElementsAre("device 2", "device 0"));
  EXPECT_THAT(Names("cuda:1"), ElementsAre("device 1"));
  EXPECT_THAT(Names("cuda:all"),
              ElementsAre("device 0", "device 1", "device 2"));
  EXPECT_THAT(Names("auto"), ElementsAre("device 0"));
  EXPECT_THAT(Names("cpu"), ElementsAre("cpu"));
}

TEST(FactoryTest, TakesTheFirstOfAListWhereOneIsWanted) {
  const std::string path = PluginPath("three_devices.so");
  EXPECT_EQ(CreateBackend(On("cuda:2,0", path)).value()->name(), "device 2");
  EXPECT_EQ(CreateBackend(On("cuda:all", path)).value()->name(), "device 0");
}

TEST(FactoryTest, RefusesADeviceTwice) {
  const absl::Status status =
      CreateBackends(On("cuda:1,0,1", PluginPath("three_devices.so"))).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("'cuda:1,0,1', which names cuda:1 twice"));
}

TEST(FactoryTest, TellsThePluginHowToCompute) {
  BackendOptions options = On("cuda:1", PluginPath("three_devices.so"));
  options.deterministic = true;
  options.cudnn_library = "none";
  EXPECT_EQ(CreateBackend(options).value()->name(),
            "device 1 deterministic cuDNN none");
}

BackendOptions WithThreads(int threads) {
  BackendOptions options;
  options.threads = threads;
  return options;
}

TEST(FactoryTest, RefusesThreadCountsOutOfRange) {
  for (const int threads : {0, -1, 1025}) {
    const absl::Status status = CreateBackend(WithThreads(threads)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("compute.threads"));
  }
}

}  // namespace
}  // namespace weir
