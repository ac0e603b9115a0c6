// A file of events that TensorBoard reads while it grows.
//
// Place: board.h writes curves with it. One writer has a directory at a time,
//   but files of earlier ones may be there.
//
//   <dir>/events.out.tfevents.<seconds>.<host>.<process>.<n>
//   record: u64 length | u32 checksum of these 8 bytes | event | u32 checksum
//           of the event; little endian, a checksum is masked CRC32C
//
// Invariants
//   I1. A record that may be there in part is the last one of its file: after a
//       failure the next event begins a new file.
// Threads: compatible.
// Errors: those of Files.
// Source: TensorFlow, tensorflow/core/lib/io/record_writer.h and
//   tensorflow/core/util/event.proto.
#ifndef PROTO_TENSORBOARD_EVENT_FILE_H_
#define PROTO_TENSORBOARD_EVENT_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/io/files.h"
#include "proto/tensorboard.pb.h"

namespace weir {

class EventFile {
 public:
  // Borrows files and clock. Nothing is made before the first event.
  EventFile(Files* files, Clock* clock, std::string directory)
      : files_(files), clock_(clock), directory_(std::move(directory)) {}

  absl::Status Write(uint64_t step, tensorboard::Summary summary);
  // The next event begins a new file.
  void Close() { writer_.reset(); }
  // Whether the next event begins a new file.
  bool closed() const { return writer_ == nullptr; }

 private:
  absl::Status Open();
  absl::Status Append(const tensorboard::Event& event);

  Files* const files_;
  Clock* const clock_;
  const std::string directory_;
  std::unique_ptr<FileWriter> writer_;
  int opened_ = 0;  // files so far
};

// `event` as a record of the file.
std::string EventRecord(absl::string_view event);

}  // namespace weir

#endif  // PROTO_TENSORBOARD_EVENT_FILE_H_
