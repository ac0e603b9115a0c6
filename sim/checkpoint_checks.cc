#include "sim/checkpoint_checks.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "common/io/crc32c.h"
#include "common/io/files.h"
#include "common/threads/scheduler.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "proto/checkpoint/evaluated.h"
#include "proto/checkpoint/table_file.h"
#include "sim/job_plan.h"

namespace weir::sim {
namespace {

// Calls take no time while it lives, so no other fibre runs. What is looked at
// goes to `observer`.
class FromOutside {
 public:
  FromOutside(Place* place, Place::Observer* observer)
      : place_(place), before_(place->SetObserver(observer)) {
    *observer = {.seen = {}, .changed = false};
  }
  ~FromOutside() { place_->SetObserver(before_); }

 private:
  Place* const place_;
  Place::Observer* const before_;
};

uint64_t ContributionsOf(const Manifest& manifest) {
  uint64_t contributions = 0;
  for (int i = 0; i + 1 < manifest.applied_range_size(); i += 2) {
    contributions += manifest.applied_range(i + 1) - manifest.applied_range(i);
  }
  for (const Deal& deal : manifest.deal()) {
    contributions +=
        std::accumulate(deal.next().begin(), deal.next().end(), uint64_t{0});
  }
  for (const uint64_t pushes : manifest.pushes()) {
    contributions += pushes;
  }
  return contributions;
}

absl::Status CheckAllThere(const Manifest& manifest, uint64_t last_step) {
  if (manifest.pushes_size() > 0) {
    return absl::OkStatus();  // of scripts, whose values say it
  }
  if (manifest.deal().empty() && manifest.applied_range_size() == 2 &&
      manifest.applied_range(0) == 0 &&
      manifest.applied_range(1) == manifest.contribution_count() &&
      manifest.step() == last_step) {
    return absl::OkStatus();
  }
  return absl::DataLossError(
      absl::StrCat("contributions are missing at step ", manifest.step(), ": ",
                   absl::StrJoin(manifest.applied_range(), ", "), " of ",
                   manifest.contribution_count()));
}

}  // namespace

absl::Status CheckpointChecks::Look() {
  if (!look_.changed && !whole_.changed) {
    return absl::OkStatus();
  }
  const FromOutside outside(place_, &look_);
  done_ = JobIsDone(objects_, run_, spec_text_);
  return CheckNewest();
}

absl::Status CheckpointChecks::CheckNewest() {  // I1
  const auto list = ListCheckpoints(objects_, JoinPath(run_, "checkpoints"));
  if (!list.ok() || (list->empty() && newest_ > 0 && rotten() == 0)) {
    return absl::DataLossError(
        absl::StrCat("there were checkpoints up to step ", newest_, ": ",
                     list.status().ToString()));
  }
  if (list->empty()) {
    return absl::OkStatus();
  }
  const uint64_t step = list->back().step;
  if (step < newest_ && newest_is_rotten_) {
    newest_ = step;  // I3: the rotten one was set aside
  } else if (step < newest_) {
    return absl::DataLossError(absl::StrCat("the newest checkpoint is of step ",
                                            step, " and was of ", newest_));
  }
  newest_name_ = list->back().name;
  if (step > newest_) {
    ++seen_;
    before_ = std::exchange(newest_, step);
  }
  const absl::Status whole = CheckWhole(list->back().path);
  newest_is_rotten_ = IsOfRot(whole);
  return newest_is_rotten_ ? absl::OkStatus()
                           : Annotate(whole, "the newest checkpoint");  // I2
}

absl::Status CheckpointChecks::CheckWhole(const std::string& path) {
  if (whole_.changed || whole_path_ != path) {
    whole_path_ = path;
    const FromOutside outside(place_, &whole_);
    whole_status_ = ReadWhole(path);
  }
  return whole_status_;
}

absl::Status CheckpointChecks::ReadWhole(const std::string& path) {
  WEIR_ASSIGN_OR_RETURN(const auto reader,
                        CheckpointReader::Open(objects_, path));
  WEIR_RETURN_IF_ERROR(reader->Verify());
  const Manifest& manifest = reader->manifest();
  contributions_ = ContributionsOf(manifest);
  WEIR_RETURN_IF_ERROR(VerifyTables(objects_, path, manifest));
  if (!keeps_values_) {
    return absl::OkStatus();
  }
  WEIR_ASSIGN_OR_RETURN(const std::vector<float> values,
                        ReadValues(path, reader.get()));
  const uint32_t crc = Crc32c(values.data(), values.size() * sizeof(float));
  if (values_.try_emplace(manifest.step(), crc).first->second != crc) {  // I4
    return absl::DataLossError(absl::StrCat(
        "there was one of step ", manifest.step(), " with other values"));
  }
  return absl::OkStatus();
}

bool CheckpointChecks::IsOfRot(const absl::Status& status) const {
  return !status.ok() &&
         std::any_of(rotten_.begin(), rotten_.end(), [&](const auto& file) {
           return absl::StrContains(status.message(), file);
         });
}

std::string CheckpointChecks::Rot() {
  const FromOutside outside(place_, &other_);
  std::vector<std::string> files;
  const auto list = ListCheckpoints(objects_, JoinPath(run_, "checkpoints"));
  if (!list.ok() || list->empty()) {
    return "";
  }
  const std::string& path = (*list)[RandomBelow(list->size())].path;
  const auto names = objects_->List(path);
  for (const std::string& name : names.value_or(files)) {
    if (name != kFinishedName && !IsTemporaryPath(name)) {
      files.push_back(JoinPath(path, name));
    }
  }
  if (files.empty()) {
    return "";
  }
  const std::string& file = files[RandomBelow(files.size())];
  if (!place_->Rot(file)) {
    return "";
  }
  ++rots_;
  rotten_.insert(file);
  return file;
}

absl::Status CheckpointChecks::CheckNoneIsWhole() {
  const FromOutside outside(place_, &other_);
  WEIR_ASSIGN_OR_RETURN(
      const auto list,
      ListCheckpoints(objects_, JoinPath(run_, "checkpoints")));
  for (const CheckpointInfo& info : list) {
    const absl::Status whole = ReadWhole(info.path);
    if (!IsOfRot(whole)) {
      return absl::DataLossError(
          absl::StrCat("a chief found no checkpoint that is whole, and ",
                       info.name, " is: ", whole.message()));
    }
  }
  return absl::OkStatus();
}

bool CheckpointChecks::Done() {
  // Look would say of the rest what is broken; here only DONE counts.
  if (look_.changed) {
    const FromOutside outside(place_, &other_);
    return JobIsDone(objects_, run_, spec_text_);
  }
  return done_;
}

bool CheckpointChecks::NewestIsEvaluated() {
  const FromOutside outside(place_, &other_);
  return EvaluatedCheckpoints(objects_, run_).count(newest_name_) > 0;
}

absl::StatusOr<std::vector<float>> CheckpointChecks::ReadLast(
    uint64_t last_step) {
  const FromOutside outside(place_, &other_);
  WEIR_ASSIGN_OR_RETURN(
      const std::string directory,
      ResolveCheckpoint(objects_,
                        absl::StrCat(run_, "/checkpoints/ckpt-", last_step)));
  WEIR_ASSIGN_OR_RETURN(const auto reader,
                        CheckpointReader::Open(objects_, directory));
  WEIR_RETURN_IF_ERROR(reader->Verify());
  WEIR_RETURN_IF_ERROR(CheckAllThere(reader->manifest(), last_step));
  return ReadValues(directory, reader.get());
}

absl::StatusOr<std::vector<float>> CheckpointChecks::ReadValues(
    const std::string& path, CheckpointReader* reader) {
  std::vector<float> values(
      static_cast<size_t>(reader->layout().flat_elements()));
  WEIR_RETURN_IF_ERROR(reader->ReadFlat(
      kValuesArray, 0, static_cast<int64_t>(values.size()), values.data()));
  std::map<std::pair<std::string, uint64_t>, std::vector<float>> rows;
  const auto take = [this, &rows](const TableFileEntry& table,
                                  const RowRecords& some) {
    const auto floats = static_cast<size_t>(table.row_floats);
    for (size_t i = 0; i < some.ids.size(); ++i) {
      const float* const row = some.floats.data() + i * floats;
      if (!keeps_values_ ||
          std::any_of(row, row + kRowDim, [](float v) { return v != 0.0f; })) {
        rows[{table.name, some.ids[i]}].assign(row, row + floats);
      }
    }
    return absl::OkStatus();
  };
  WEIR_RETURN_IF_ERROR(ReadTables(objects_, path, reader->manifest(), take));
  for (const auto& [name, row] : rows) {
    values.insert(values.end(), row.begin(), row.end());
  }
  return values;
}

}  // namespace weir::sim
