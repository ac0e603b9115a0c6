// The names of checkpoints and of their shard files.
//
// Place: the chief chooses them, everyone who reads checkpoints parses them.
//
// The first directory that is made for a step is ckpt-<step>, the second one is
// ckpt-<step>-2, and so on: no name is used twice.
//
// Threads: safe.
#ifndef PROTO_CHECKPOINT_CHECKPOINT_NAMES_H_
#define PROTO_CHECKPOINT_CHECKPOINT_NAMES_H_

#include <cstdint>
#include <optional>
#include <string>

namespace weir {

// Ordered: of two checkpoints of one step the later attempt is the newer.
struct CheckpointId {
  uint64_t step = 0;
  uint64_t attempt = 1;
  bool operator<(const CheckpointId& other) const {
    return step != other.step ? step < other.step : attempt < other.attempt;
  }
};

// "ckpt-<step>" for the first attempt, "ckpt-<step>-<attempt>" for later ones.
std::string CheckpointName(uint64_t step, uint64_t attempt = 1);

// The step and the attempt that `name` says; nullopt if CheckpointName would
// never return it. Such a name has no slash, so it cannot lead out of a folder.
std::optional<CheckpointId> ParseCheckpointName(const std::string& name);

// "shard-<shard>-of-<shard_count>.safetensors"
std::string ShardFileName(int shard, int shard_count);

}  // namespace weir

#endif  // PROTO_CHECKPOINT_CHECKPOINT_NAMES_H_
