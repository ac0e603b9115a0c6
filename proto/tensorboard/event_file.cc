#include "proto/tensorboard/event_file.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/identity.h"
#include "common/base/status.h"
#include "common/io/crc32c.h"

namespace weir {
namespace {

constexpr char kFileVersion[] = "brain.Event:2";

void AppendLittleEndian(uint64_t value, int bytes, std::string* text) {
  for (int i = 0; i < bytes; ++i) {
    text->push_back(static_cast<char>(value >> (8 * i)));
  }
}

// Masked, because a checksum of data that holds checksums finds less.
uint32_t MaskedCrc32c(absl::string_view data) {
  const uint32_t crc = Crc32c(data.data(), data.size());
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

}  // namespace

std::string EventRecord(absl::string_view event) {
  std::string record;
  AppendLittleEndian(event.size(), 8, &record);
  AppendLittleEndian(MaskedCrc32c(record), 4, &record);
  absl::StrAppend(&record, event);
  AppendLittleEndian(MaskedCrc32c(event), 4, &record);
  return record;
}

absl::Status EventFile::Open() {
  WEIR_RETURN_IF_ERROR(files_->MakeDirectories(directory_));
  const int64_t seconds = clock_->WallNowNs() / 1'000'000'000;
  const std::string name =
      absl::StrFormat("events.out.tfevents.%010d.%s.%d.%d", seconds, HostName(),
                      getpid(), opened_++);
  WEIR_ASSIGN_OR_RETURN(writer_, files_->CreateNew(JoinPath(directory_, name)));
  tensorboard::Event first;
  first.set_file_version(kFileVersion);
  first.mutable_source_metadata()->set_writer("weir");
  return Append(first);
}

absl::Status EventFile::Append(const tensorboard::Event& event) {
  tensorboard::Event timed = event;
  timed.set_wall_time(static_cast<double>(clock_->WallNowNs()) / 1e9);
  const std::string record = EventRecord(timed.SerializeAsString());
  absl::Status status = writer_->Append(record.data(), record.size());
  if (!status.ok()) {
    Close();  // I1
  }
  return status;
}

absl::Status EventFile::Write(uint64_t step, tensorboard::Summary summary) {
  if (closed()) {
    WEIR_RETURN_IF_ERROR(Open());
  }
  tensorboard::Event event;
  event.set_step(static_cast<int64_t>(step));
  *event.mutable_summary() = std::move(summary);
  return Append(event);
}

}  // namespace weir
