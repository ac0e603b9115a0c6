// Gives bench/tables/ctr_bench.py what it needs of Weir: the rows of a job's
// click log as plain arrays, so that another program trains on the same ones,
// and the memory of tables while a job runs.
//
//   ctr_tool rows JOB DIRECTORY [--set path=value ...]
//   ctr_tool watch ADDRESS,...
//
// rows: for "train" and "held_out" the little-endian files NAME.features
// (float32 [rows, numeric]), NAME.ids (int64 [rows, categorical]), NAME.labels
// and NAME.truth (float32 [rows]: the probability of a click).
// watch: asks every ps each 20 ms until one is gone, then prints a JSON array,
// for each ps its tables' rows, bytes and rows dropped at the end, and the most
// bytes that any answer had.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "bench/support/bench_main.h"
#include "client/cc/transport/grpc_transport.h"
#include "common/base/status.h"
#include "nlohmann/json.hpp"
#include "proto/job/job_spec_text.h"
#include "worker/data/formats/click_log_dataset.h"
#include "worker/data/formats/dataset.h"

namespace weir {
namespace {

constexpr auto kTimeout = std::chrono::seconds(5);
constexpr useconds_t kPollUs = 20000;

class Column {
 public:
  explicit Column(const std::string& path)
      : path_(path), file_(path, std::ios::binary) {}
  void Write(const void* data, size_t bytes) {
    file_.write(static_cast<const char*>(data),
                static_cast<std::streamsize>(bytes));
  }
  absl::Status Close() {
    file_.close();
    return file_ ? absl::OkStatus()
                 : absl::UnavailableError("cannot write " + path_);
  }

 private:
  const std::string path_;
  std::ofstream file_;
};

absl::Status WriteRows(const Source& source, uint64_t seed,
                       const std::string& prefix) {
  if (!source.has_click_log() || source.click_log().bag_size() > 1) {
    return absl::InvalidArgumentError(
        prefix + ": only click logs with one id a feature");
  }
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Dataset> any,
                        CreateDataset(source, "", seed, "source"));
  const auto& data = dynamic_cast<const ClickLogDataset&>(*any);
  Column features(prefix + ".features");
  Column ids(prefix + ".ids");
  Column labels(prefix + ".labels");
  Column truth(prefix + ".truth");
  std::vector<float> numbers(static_cast<size_t>(data.feature_elements()));
  for (int64_t i = 0; i < data.size(); ++i) {
    float label = 0;
    WEIR_RETURN_IF_ERROR(data.ReadSample(i, numbers.data(), &label));
    SparseBatch bags;
    bags.features.resize(data.sparse_features().size());
    WEIR_RETURN_IF_ERROR(data.ReadSparse(i, &bags));
    const auto probability = static_cast<float>(data.Probability(i));
    features.Write(numbers.data(), numbers.size() * sizeof(float));
    for (const SparseFeature& feature : bags.features) {
      ids.Write(feature.ids.data(), feature.ids.size() * sizeof(uint64_t));
    }
    labels.Write(&label, sizeof(label));
    truth.Write(&probability, sizeof(probability));
  }
  for (Column* const column : {&features, &ids, &labels, &truth}) {
    WEIR_RETURN_IF_ERROR(column->Close());
  }
  return absl::OkStatus();
}

absl::Status Rows(const std::string& job, const std::string& directory,
                  const std::vector<std::string>& sets) {
  WEIR_ASSIGN_OR_RETURN(const JobSpec spec, LoadJobSpec(job, sets));
  WEIR_RETURN_IF_ERROR(
      WriteRows(spec.data().train(), spec.seed(), directory + "/train"));
  return WriteRows(spec.evaluation().source(), spec.seed(),
                   directory + "/held_out");
}

absl::Status Watch(const std::vector<std::string>& addresses) {
  const std::unique_ptr<Transport> transport = MakeGrpcTransport();
  std::vector<std::unique_ptr<ControlLink>> links;
  for (const std::string& address : addresses) {
    links.push_back(transport->Connect(address));
  }
  nlohmann::json found = nlohmann::json::array();
  found.get_ref<nlohmann::json::array_t&>().resize(links.size(),
                                                   nlohmann::json::object());
  for (;; usleep(kPollUs)) {
    for (size_t s = 0; s < links.size(); ++s) {
      const absl::StatusOr<PsStatus> status = links[s]->GetStatus({}, kTimeout);
      if (!status.ok()) {
        std::printf("%s\n", found.dump().c_str());
        return absl::OkStatus();
      }
      for (const TableStatus& table : status->table()) {
        nlohmann::json& of = found[s][table.name()];
        of["rows"] = table.rows();
        of["bytes"] = table.bytes();
        of["rows_dropped"] = table.rows_dropped();
        of["bytes_most"] =
            std::max<uint64_t>(of.value("bytes_most", 0), table.bytes());
        of["answers"] = of.value("answers", 0) + 1;
      }
    }
  }
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  std::string job;
  std::string directory;
  std::vector<std::string> sets;
  std::vector<std::string> addresses;
  CLI::App app("The click logs of jobs, and the memory of their tables.");
  app.require_subcommand(1);
  CLI::App* const rows = app.add_subcommand("rows", "write a click log");
  rows->add_option("job", job)->required();
  rows->add_option("directory", directory)->required();
  rows->add_option("--set", sets, "path=value, overrides the job");
  CLI::App* const watch = app.add_subcommand("watch", "watch ps");
  watch->add_option("addresses", addresses)->delimiter(',')->required();
  return weir::BenchMain(&app, argc, argv, [&] {
    return *rows ? weir::Rows(job, directory, sets) : weir::Watch(addresses);
  });
}
