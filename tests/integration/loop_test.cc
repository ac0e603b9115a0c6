// The whole training loop on the real binaries against PyTorch: the loss at
// every step and the parameters after 50. Goldens:
// goldens/make_loop_goldens.py.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>

#include "tests/integration/harness.h"

namespace weir {
namespace {

constexpr char kMlp[] = R"(
  layer { name: "flat" flatten {} }
  layer { name: "hidden" dense { units: 24 } }
  layer { name: "relu" relu {} }
  layer { name: "logits" dense { units: 10 } })";

constexpr char kConvnet[] = R"(
  layer { name: "conv1" conv2d { filters: 6 kernel_size: 3 padding: 1 } }
  layer { name: "relu" relu {} }
  layer { name: "pool1" max_pool { size: 2 } }
  layer { name: "conv2" conv2d { filters: 8 kernel_size: 3 } }
  layer { name: "tanh" tanh {} }
  layer { name: "pool2" average_pool { size: 2 } }
  layer { name: "flat" flatten {} }
  layer { name: "logits" dense { units: 10 } })";

struct Case {
  std::string net, optimizer, spec, learning_rate;
};

std::string JobText(const Case& c) {
  return "name: \"loop\" seed: 1\nmodel {" +
         std::string(c.net == "mlp" ? kMlp : kConvnet) + R"(
  loss { softmax_cross_entropy {} } }
data { no_shuffle: true
  train { idx { images: "images-idx3-ubyte" labels: "labels-idx1-ubyte" } } }
train { batch_size: 16 steps: 50 log_every_steps: 1 }
update { sync { contributions: 1 } }
limits { block_elements: 1024 }
optimizer { )" +
         c.spec + " }\nschedule { learning_rate: " + c.learning_rate + " }\n";
}

// Tensors of a safetensors file, by name.
std::map<std::string, std::vector<float>> ReadTensors(const std::string& path) {
  std::map<std::string, std::vector<float>> tensors;
  const std::string file = ReadFile(path);
  if (file.size() < 8) {
    return tensors;
  }
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  const auto header = nlohmann::json::parse(file.substr(8, length));
  for (const auto& [name, tensor] : header.items()) {
    if (name != "__metadata__") {
      const size_t begin = tensor["data_offsets"][0];
      const size_t end = tensor["data_offsets"][1];
      std::vector<float> values((end - begin) / 4);
      std::memcpy(values.data(), file.data() + 8 + length + begin, end - begin);
      tensors[name] = std::move(values);
    }
  }
  return tensors;
}

class LoopTest : public testing::TestWithParam<Case> {};

TEST_P(LoopTest, FollowsPyTorch) {
  const Case& c = GetParam();
  const std::string key = c.net + "_" + c.optimizer;
  const std::string goldens = Binary("tests/integration/goldens/");
  const std::string dir = FreshDir("loop_" + key);
  const std::string job = dir + ".textproto";
  WriteFile(job, JobText(c));
  const TrainRun run =
      RunTrain(dir, {job, "--ps", "2", "--workers", "1", "--data_dir", goldens,
                     "--init_from", goldens + c.net + "_initial.safetensors"});
  ASSERT_EQ(run.exit_code, 0) << run.output;

  const auto losses =
      nlohmann::json::parse(ReadFile(goldens + "losses.json"))[key];
  const auto curve = ReadJsonLines(dir + "/train.jsonl");
  ASSERT_GE(curve.size(), 50u);
  for (size_t step = 0; step < 50; ++step) {
    const double expected = losses[step];
    EXPECT_NEAR(curve[step]["loss"].get<double>(), expected, 1e-3 * expected)
        << "step " << step;
  }

  ASSERT_NE(ExportModel(dir, "ckpt-50"), "");
  const auto initial = ReadTensors(goldens + c.net + "_initial.safetensors");
  const auto expected = ReadTensors(goldens + key + ".safetensors");
  const auto trained = ReadTensors(dir + "/ckpt-50.safetensors");
  double difference = 0, moved = 0;
  for (const auto& [name, values] : expected) {
    ASSERT_EQ(trained.count(name), 1u) << name;
    ASSERT_EQ(trained.at(name).size(), values.size()) << name;
    for (size_t i = 0; i < values.size(); ++i) {
      difference += std::pow(trained.at(name)[i] - values[i], 2);
      moved += std::pow(values[i] - initial.at(name)[i], 2);
    }
  }
  EXPECT_LE(std::sqrt(difference), 1e-3 * std::sqrt(moved));
  EXPECT_GT(moved, 0);
}

INSTANTIATE_TEST_SUITE_P(
    All, LoopTest,
    testing::Values(Case{"mlp", "sgd", "sgd {}", "0.1"},
                    Case{"mlp", "momentum", "sgd { momentum: 0.9 }", "0.05"},
                    Case{"mlp", "adam", "adam {}", "0.005"},
                    Case{"convnet", "sgd", "sgd {}", "0.1"},
                    Case{"convnet", "momentum", "sgd { momentum: 0.9 }",
                         "0.05"},
                    Case{"convnet", "adam", "adam {}", "0.005"}),
    [](const auto& info) {
      return info.param.net + "_" + info.param.optimizer;
    });

}  // namespace
}  // namespace weir
