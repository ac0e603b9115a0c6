// What the tasks of a job send by TCP, recorded byte by byte: who listens finds
// no parameter, no gradient and no name in it.
//
// Every address that a task knows is a proxy's, which records and leads to the
// task that is meant; shared memory is off. So the record is whole. What is
// looked for there is found if the job is insecure, and not otherwise.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "client/cc/weir.h"
#include "common/io/files.h"
#include "common/io/safetensors.h"
#include "nlohmann/json.hpp"
#include "proto/wire/id_list.h"
#include "tests/integration/hand_cluster.h"
#include "tests/integration/harness.h"
#include "tests/support/chaos_proxy.h"

namespace weir {
namespace {

// Longer than what could be found by chance.
constexpr size_t kWindowBytes = 16;

class Wire {
 public:
  // Makes two addresses: one that peers are to know, and one to listen at.
  struct Addresses {
    std::string known;
    std::string listen;
  };
  Addresses NewAddresses() {
    const std::string listen = FreeAddress();
    proxies_.push_back(std::make_unique<ChaosProxy>(
        listen, ChaosProxy::Options{.record = true}));
    return {proxies_.back()->address(), listen};
  }

  // Ends the connections. Returns what went over each, in each direction.
  std::vector<std::string> Record() {
    std::vector<std::string> all;
    for (const auto& proxy : proxies_) {
      const std::deque<std::string> recorded = proxy->Recorded();
      EXPECT_FALSE(recorded.empty()) << "nobody called " << proxy->address();
      all.insert(all.end(), recorded.begin(), recorded.end());
    }
    return all;
  }

 private:
  std::vector<std::unique_ptr<ChaosProxy>> proxies_;
};

size_t BytesOf(const std::vector<std::string>& record) {
  size_t bytes = 0;
  for (const std::string& stream : record) {
    bytes += stream.size();
  }
  return bytes;
}

bool Has(const std::vector<std::string>& record, const std::string& text) {
  for (const std::string& stream : record) {
    if (stream.find(text) != std::string::npos) {
      return true;
    }
  }
  return false;
}

// Cuts `values` into windows of four floats. Returns the share of them that the
// record has. Zeros, which may be anything's, do not count.
double ShareFound(const std::vector<std::string>& record,
                  const std::string& values) {
  absl::flat_hash_map<std::string_view, bool> found;
  const std::string zeros(kWindowBytes, '\0');
  for (size_t at = 0; at + kWindowBytes <= values.size(); at += kWindowBytes) {
    const std::string_view window(values.data() + at, kWindowBytes);
    if (window != zeros) {
      found[window] = false;
    }
  }
  EXPECT_FALSE(found.empty());
  for (const std::string_view stream : record) {
    for (size_t at = 0; at + kWindowBytes <= stream.size(); ++at) {
      const auto window = found.find(stream.substr(at, kWindowBytes));
      if (window != found.end()) {
        window->second = true;
      }
    }
  }
  size_t count = 0;
  for (const auto& [window, was_found] : found) {
    count += was_found ? 1 : 0;
  }
  return static_cast<double>(count) / static_cast<double>(found.size());
}

// The parameter: whether the job is insecure.
class WireTest : public testing::TestWithParam<bool> {
 protected:
  static bool insecure() { return GetParam(); }
  // An environment variable.
  static std::string mode() {
    return insecure() ? "WEIR_INSECURE=1"
                      : std::string("WEIR_SECRET=") + kTestSecret;
  }

  static void ExpectTexts(const std::vector<std::string>& record,
                          const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
      EXPECT_EQ(Has(record, text), insecure()) << text;
    }
    EXPECT_FALSE(Has(record, kTestSecret));
  }
  // gRPC cuts messages into frames, and with them a window here and there.
  static void ExpectValues(const std::vector<std::string>& record,
                           const std::string& what, const std::string& values) {
    const double share = ShareFound(record, values);
    if (insecure()) {
      EXPECT_GT(share, 0.98) << what;
    } else {
      EXPECT_EQ(share, 0) << what;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Modes, WireTest, testing::Bool(),
                         [](const auto& info) {
                           return info.param ? "Insecure" : "Secret";
                         });

std::vector<float> Draw(size_t count) {
  static std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) {
    value = normal(random);
  }
  return values;
}

std::string TextOf(std::span<const float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

// The values of the model of DigitsJob, by name.
struct Model {
  std::vector<SafetensorsArray> arrays = {
      {.name = "hidden/kernel", .dtype = "F32", .shape = {784, 8}},
      {.name = "hidden/bias", .dtype = "F32", .shape = {8}},
      {.name = "logits/kernel", .dtype = "F32", .shape = {8, 10}},
      {.name = "logits/bias", .dtype = "F32", .shape = {10}}};
  std::string values = TextOf(Draw(784 * 8 + 8 + 8 * 10 + 10));

  void Write(const std::string& path) const {
    const auto writer =
        SafetensorsWriter::Create(Files::Real(), path, arrays, {});
    ASSERT_TRUE(writer.ok()) << writer.status();
    const auto bytes = static_cast<int64_t>(values.size());
    ASSERT_TRUE((*writer)->Append(values.data(), bytes).ok());
    ASSERT_TRUE((*writer)->Finish().ok());
  }
};

constexpr int kSteps = 60;
constexpr int kWorkers = 2;

// Tasks of every role train from `first` to the end. Returns the record.
std::vector<std::string> RecordJob(const std::string& dir, const Model& first,
                                   const std::string& mode) {
  WriteFile(dir + "/job.textproto",
            DigitsJob(kSteps,
                      "update { sync {} } "
                      "evaluation { source { digits { count: 100 } } }"));
  first.Write(dir + "/first.safetensors");
  Wire wire;
  const Wire::Addresses ps[] = {wire.NewAddresses(), wire.NewAddresses()};
  const Wire::Addresses chief = wire.NewAddresses();
  const nlohmann::json cluster = {{"ps", {ps[0].known, ps[1].known}},
                                  {"chief", {chief.known}},
                                  {"worker", {FreeAddress(), FreeAddress()}}};
  std::deque<Process> tasks;
  const auto start = [&](const std::string& role, int index,
                         const std::vector<std::string>& flags) {
    std::vector<std::string> argv = {RoleBinary(role)};
    argv.insert(argv.end(), flags.begin(), flags.end());
    if (role != "ps") {
      argv.insert(argv.end(),
                  {"--job", dir + "/job.textproto", "--workdir", dir});
    }
    tasks.emplace_back(
        argv, std::vector<std::string>{mode, TfConfig(cluster, role, index)},
        dir + "/" + role + "-" + std::to_string(index) + ".log");
  };
  for (int i = 0; i < 2; ++i) {
    start("ps", i,
          {"--address", ps[i].listen, "--transport", "grpc",
           "--checkpoint_root", dir + "/checkpoints"});
  }
  start("chief", 0,
        {"--address", chief.listen, "--evaluator_expected", "--init_from",
         dir + "/first.safetensors"});
  for (int i = 0; i < kWorkers; ++i) {
    start("worker", i, {"--transport", "grpc"});
  }
  start("evaluator", 0, {});
  for (Process& task : tasks) {
    EXPECT_EQ(task.Wait(120), 0) << task.Log();
  }
  return wire.Record();
}

TEST_P(WireTest, AJobSendsNoParameterAndNoName) {
  const std::string dir = FreshDir("wire");
  const Model first;
  const std::vector<std::string> record = RecordJob(dir, first, mode());
  // Each worker pulled and pushed all parameters in each step.
  EXPECT_GT(BytesOf(record), 2 * kWorkers * kSteps * first.values.size());
  std::vector<std::string> texts = {
      "/weir.ParameterServer/PushPull", "/weir.ParameterServer/Declare",
      "/weir.ParameterServer/Snapshot", "/weir.Chief/Register",
      "/weir.Chief/Heartbeat",          "digits"};
  for (const SafetensorsArray& array : first.arrays) {
    texts.push_back(array.name);
  }
  ExpectTexts(record, texts);
  ExpectValues(record, "the first parameters", first.values);
  if (!insecure()) {  // nobody pulls what the last step has made
    const std::string last = ExportModel(dir, "ckpt-" + std::to_string(kSteps));
    ExpectValues(record, "the last parameters", last);
  }
}

// A program of the SDK, in this process.
TEST_P(WireTest, AProgramSendsNoGradientAndNoRow) {
  const std::string dir = FreshDir("wire_sdk");
  Wire wire;
  const Wire::Addresses address = wire.NewAddresses();
  Process ps(
      {Binary("server/ps/weir_ps"), "--cluster", "ps=" + address.known,
       "--task_index", "0", "--address", address.listen, "--transport", "grpc"},
      {mode()}, dir + "/ps.log");
  const std::vector<float> values = Draw(4096);
  const std::vector<float> gradient = Draw(4096);
  const std::vector<uint64_t> ids = {0x1234567890abcdef, 0x234567890abcdef1};
  const std::vector<float> rows = Draw(2 * 1024);
  {
    const std::string name = mode().substr(0, mode().find('='));
    // No other thread looks at the environment.
    setenv(name.c_str(), mode().c_str() + name.size() + 1, 1);  // NOLINT
    sdk::Options options;
    options.ps = {address.known};
    options.job = "wire_job";
    options.transport = "grpc";
    auto client = sdk::Client::Connect(options);
    unsetenv(name.c_str());  // NOLINT
    ASSERT_TRUE(client.ok()) << client.status().message();
    sdk::Status status = client->Declare(
        {{.name = "wire_tensor", .shape = {4096}, .values = values}},
        {{.name = "wire_table", .dim = 1024}});
    ASSERT_TRUE(status.ok()) << status.message();
    status = client->Pull();
    ASSERT_TRUE(status.ok()) << status.message();
    const std::span<float> own = client->Gradient("wire_tensor");
    std::copy(gradient.begin(), gradient.end(), own.begin());
    status = client->Push({}, {{"wire_table", ids, rows}});
    ASSERT_TRUE(status.ok()) << status.message();
  }
  const std::vector<std::string> record = wire.Record();
  ExpectTexts(record, {"wire_job", "wire_tensor", "wire_table", EncodeIds(ids),
                       "/weir.ParameterServer/PushRows"});
  ExpectValues(record, "values", TextOf(values));
  ExpectValues(record, "the gradient", TextOf(gradient));
  ExpectValues(record, "gradients of rows", TextOf(rows));
}

}  // namespace
}  // namespace weir
