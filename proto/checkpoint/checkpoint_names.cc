#include "proto/checkpoint/checkpoint_names.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace weir {
namespace {

constexpr char kCheckpointPrefix[] = "ckpt-";

}  // namespace

std::string CheckpointName(uint64_t step, uint64_t attempt) {
  if (attempt == 1) {
    return absl::StrCat(kCheckpointPrefix, step);
  }
  return absl::StrCat(kCheckpointPrefix, step, "-", attempt);
}

std::optional<CheckpointId> ParseCheckpointName(const std::string& name) {
  if (!absl::StartsWith(name, kCheckpointPrefix)) {
    return std::nullopt;
  }
  const std::vector<std::string> numbers =
      absl::StrSplit(name.substr(sizeof(kCheckpointPrefix) - 1), '-');
  // The last condition refuses what only reads as such a name: "ckpt-07" and
  // "ckpt-7" must not be two names of one checkpoint.
  CheckpointId id;
  if (numbers.size() > 2 || !absl::SimpleAtoi(numbers[0], &id.step) ||
      (numbers.size() == 2 && !absl::SimpleAtoi(numbers[1], &id.attempt)) ||
      id.attempt == 0 || name != CheckpointName(id.step, id.attempt)) {
    return std::nullopt;
  }
  return id;
}

std::string ShardFileName(int shard, int shard_count) {
  return absl::StrCat("shard-", shard, "-of-", shard_count, ".safetensors");
}

}  // namespace weir
