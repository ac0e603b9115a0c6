// Sends one object in parts while it is being written.
//
// Invariants
//   I1. At most `parts` are held, under way or being filled.
//   I2. A writer that does not finish aborts its upload.
// Threads: one owner; it has threads of its own.
// Errors: those of ObjectWriter.
#ifndef COMMON_OBJECTS_S3_WRITER_H_
#define COMMON_OBJECTS_S3_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/base/page_buffer.h"
#include "common/io/object_store.h"
#include "common/objects/s3_client.h"
#include "common/threads/thread.h"

namespace weir {

// OK as well if there is no such upload any more.
absl::Status AbortUpload(S3Client* client, const std::string& key,
                         const std::string& upload_id);

class S3Writer : public ObjectWriter {
 public:
  S3Writer(S3Client* client, std::string key, int64_t part_bytes, int parts);
  ~S3Writer() override;

  absl::Status Append(const void* data, size_t bytes) override;
  absl::Status Finish() override;

 private:
  struct Part {
    int number = 0;  // from 1
    PageBuffer memory;
    size_t bytes = 0;  // of it
  };

  absl::Status Begin();
  // Hands the part that is full to the threads.
  absl::Status Send();
  // Takes an empty part to fill; waits for one that is sent.
  absl::Status TakeEmpty();
  void Run();  // of each thread
  absl::Status SendPart(const Part& part);
  void StopThreads();
  absl::Status Complete();
  absl::Status PutWhole();
  // Whether the object is there with the size that was written.
  absl::Status CheckSize() const;

  S3Client* const client_;
  const std::string key_;
  const int64_t part_bytes_;
  const int parts_max_;
  std::string upload_id_;  // "": not begun
  bool finished_ = false;
  int64_t written_ = 0;
  int parts_ = 0;  // that were handed over
  PageBuffer filling_;
  size_t filled_ = 0;  // bytes of it
  std::vector<Thread> threads_;

  Mutex mutex_;
  CondVar changed_;
  std::deque<Part> waiting_ ABSL_GUARDED_BY(mutex_);
  std::vector<PageBuffer> empty_ ABSL_GUARDED_BY(mutex_);  // to be filled
  int under_way_ ABSL_GUARDED_BY(mutex_) = 0;  // waiting or being sent
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> etags_ ABSL_GUARDED_BY(mutex_);  // by number - 1
};

}  // namespace weir

#endif  // COMMON_OBJECTS_S3_WRITER_H_
