#include "worker/data/batches.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/failpoint.h"
#include "common/base/status.h"
#include "common/job/contribution_list.h"
#include "common/math/random.h"

namespace weir {
namespace {

constexpr uint64_t kShuffleDomain = 0x73687566666c65ULL;  // "shuffle"
// A batch must fit memory with room for activations; also keeps products of
// the fields below far from overflow.
constexpr int64_t kBatchSizeMax = int64_t{1} << 24;
constexpr double kEpochsMax = 1e6;
// A device copies bytes as whole floats, also those of a part of a batch.
constexpr int64_t kBytesBehind = sizeof(float) - 1;

}  // namespace

absl::Status Batches::Options::Validate() const {
  if (batch_size < 1 || batch_size > kBatchSizeMax) {
    return Invalid("train.batch_size: ", batch_size, " is not between 1 and ",
                   kBatchSizeMax);
  }
  if ((epochs != 0.0) == (contributions != 0)) {
    return absl::InvalidArgumentError(
        "train: give exactly one of epochs and steps");
  }
  // The negations also catch NaN.
  if (contributions == 0 && !(epochs > 0.0 && epochs <= kEpochsMax)) {
    return Invalid("train.epochs: ", epochs, " is not in (0, 1e6]");
  }
  if (contributions < 0 || contributions > kContributionsMax) {
    return Invalid("train.steps: ", contributions,
                   " contributions are not between 1 and 2^38");
  }
  return absl::OkStatus();
}

Batches::Batches(const Options& options, const Dataset* dataset)
    : options_(options), dataset_(dataset) {
  // I2: a job in steps has whole batches; it ends within an epoch.
  if (options.contributions > 0) {
    contributions_ = options.contributions;
    samples_ = contributions_ * options.batch_size;
  } else {
    samples_ = SamplesOf(options.epochs, dataset->size());
    contributions_ =
        ContributionsOf(options.epochs, dataset->size(), options.batch_size);
  }
}

absl::StatusOr<std::unique_ptr<Batches>> Batches::Create(
    const Options& options, const Dataset* dataset) {
  WEIR_RETURN_IF_ERROR(options.Validate());
  WEIR_CHECK(!options.as_bytes || dataset->value_of_byte() != nullptr);
  if (dataset->size() < 1 ||
      dataset->size() > std::numeric_limits<uint32_t>::max()) {
    return Invalid("data: ", dataset->size(),
                   " samples are not between 1 and 2^32 - 1");
  }
  return std::unique_ptr<Batches>(new Batches(options, dataset));
}

std::shared_ptr<const std::vector<uint32_t>> Batches::EpochOrder(
    int64_t epoch) const {
  // One thread makes an order, others that want it wait for it: making it twice
  // would cost as much.
  MutexLock lock(&mutex_);
  for (const Kept& kept : kept_) {
    if (kept.epoch == epoch) {
      return kept.order;
    }
  }
  // I1: a permutation, whatever the random numbers are.
  auto order = std::make_shared<std::vector<uint32_t>>(dataset_->size());
  std::iota(order->begin(), order->end(), 0u);
  if (options_.shuffle) {
    RandomStream random(MixKey(MixKey(options_.seed, kShuffleDomain),
                               static_cast<uint64_t>(epoch)));
    for (uint32_t i = static_cast<uint32_t>(order->size()) - 1; i > 0; --i) {
      // NextBelow takes up to 2^32 - 1 and i + 1 is at most the size.
      std::swap((*order)[i], (*order)[random.NextBelow(i + 1)]);
    }
  }
  // Contributions ascend, so the smaller epoch is the one that nobody asks for
  // again. A batch that still reads it holds a reference.
  Kept* oldest = &kept_[0];
  if (kept_[1].epoch <= kept_[0].epoch) {
    oldest = &kept_[1];
  }
  oldest->epoch = epoch;
  oldest->order = std::move(order);
  return oldest->order;
}

absl::Status Batches::Make(int64_t contribution, Batch* batch) const {
  Failpoint("worker.before_batch");
  WEIR_CHECK(contribution >= 0);
  const int64_t size = dataset_->size();
  const int64_t width = dataset_->feature_elements();
  batch->contribution = contribution;
  batch->rows = 0;  // I3
  if (contribution < contributions_) {
    batch->rows = std::min(options_.batch_size,
                           samples_ - contribution * options_.batch_size);
  }
  batch->weight =
      static_cast<float>(batch->rows) / static_cast<float>(options_.batch_size);
  if (batch->features.get_allocator().observer() != options_.pages) {
    batch->features = PageVector<float>(PageAllocator<float>(options_.pages));
    batch->bytes = PageVector<uint8_t>(PageAllocator<uint8_t>(options_.pages));
  }
  batch->features.resize(options_.as_bytes ? 0 : batch->rows * width);
  if (options_.as_bytes) {
    batch->bytes.reserve(batch->rows * width + kBytesBehind);
  }
  batch->bytes.resize(options_.as_bytes ? batch->rows * width : 0);
  batch->labels.resize(batch->rows);
  batch->sparse.Clear(dataset_->sparse_features().size());
  std::shared_ptr<const std::vector<uint32_t>> order;
  int64_t order_epoch = -1;
  for (int64_t row = 0; row < batch->rows; ++row) {
    const int64_t place = contribution * options_.batch_size + row;
    const int64_t epoch = place / size;
    int64_t sample = place % size;
    if (options_.shuffle) {
      if (epoch != order_epoch) {
        order = EpochOrder(epoch);
        order_epoch = epoch;
      }
      sample = (*order)[sample];
    }
    float* const label = batch->labels.data() + row;
    if (options_.as_bytes) {
      dataset_->ReadBytes(sample, batch->bytes.data() + row * width, label);
    } else {
      WEIR_RETURN_IF_ERROR(dataset_->ReadSample(
          sample, batch->features.data() + row * width, label));
    }
    WEIR_RETURN_IF_ERROR(dataset_->ReadSparse(sample, &batch->sparse));
    const absl::Status good =
        options_.check_label ? options_.check_label(*label) : absl::OkStatus();
    if (!good.ok()) {
      return Annotate(good, absl::StrCat("data.train: sample ", sample,
                                         ", counted from 0"));
    }
  }
  return absl::OkStatus();
}

}  // namespace weir
