#include "bench/tables/rows_draws.h"

#include <algorithm>
#include <fstream>

#include "common/base/status.h"
#include "proto/job_spec.pb.h"

namespace weir {

absl::StatusOr<Draws> Draws::Create(int64_t rows, int64_t samples) {
  Source source;
  ClickLogSource& log = *source.mutable_click_log();
  log.set_count(~uint32_t{0});  // more samples than any run draws
  log.set_numeric(1);
  log.set_categorical(kFeatures);
  log.set_ids_per_feature(static_cast<uint64_t>(rows / kFeatures));
  log.set_exponent(1.05);
  log.set_bag_size(1);
  WEIR_ASSIGN_OR_RETURN(auto dataset, CreateDataset(source, "", 0, "source"));
  return Draws(std::move(dataset), samples);
}

absl::StatusOr<DrawnBatches> Draws::Next(int count) {
  DrawnBatches batches(static_cast<size_t>(count));
  for (DrawnBatch& batch : batches) {
    batch.samples.Clear(kFeatures);
    for (int64_t i = 0; i < samples_; ++i) {
      // I2: the data set is a function of the sample's number.
      WEIR_RETURN_IF_ERROR(log_->ReadSparse(next_++, &batch.samples));
    }
    for (const SparseFeature& feature : batch.samples.features) {
      batch.ids.insert(batch.ids.end(), feature.ids.begin(), feature.ids.end());
    }
    // I1: as TableBatch gives a ps the ids of a batch.
    std::sort(batch.ids.begin(), batch.ids.end());
    batch.ids.erase(std::unique(batch.ids.begin(), batch.ids.end()),
                    batch.ids.end());
  }
  return batches;
}

double CountRows(const DrawnBatches& batches) {
  double count = 0;
  for (const DrawnBatch& batch : batches) {
    count += static_cast<double>(batch.ids.size());
  }
  return count;
}

absl::Status WriteLists(const std::string& prefix, const DrawnBatches& batches,
                        bool repeats) {
  std::ofstream ids(prefix + ".ids", std::ios::binary);
  std::ofstream counts(prefix + ".counts", std::ios::binary);
  const auto write = [](std::ofstream* file, const uint64_t* data, size_t n) {
    file->write(reinterpret_cast<const char*>(data),
                static_cast<std::streamsize>(n * sizeof(uint64_t)));
  };
  for (const DrawnBatch& batch : batches) {
    uint64_t count = 0;
    if (repeats) {
      for (const SparseFeature& feature : batch.samples.features) {
        write(&ids, feature.ids.data(), feature.ids.size());
        count += feature.ids.size();
      }
    } else {
      write(&ids, batch.ids.data(), batch.ids.size());
      count = batch.ids.size();
    }
    write(&counts, &count, 1);
  }
  ids.close();
  counts.close();
  if (!ids || !counts) {
    return absl::UnavailableError("cannot write " + prefix);
  }
  return absl::OkStatus();
}

}  // namespace weir
