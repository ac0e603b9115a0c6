// An object store in memory that speaks S3's protocol, and fails as a test
// says.
//
// Place: it stands where the HTTP client does, so no socket is used. What it
// does is checked by object_store_contract.h against stores that others wrote.
//
// Threads: safe.
// Source: Amazon S3 API Reference.
#ifndef TESTS_SUPPORT_FAKE_S3_H_
#define TESTS_SUPPORT_FAKE_S3_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/objects/http.h"

namespace weir {

class FakeS3 : public HttpClient {
 public:
  // What happens to one request.
  enum class Fault {
    kNone,
    kCut,         // no answer, and nothing was done
    kLostAnswer,  // no answer, and it was done
    kSlowDown,    // 503
    kError,       // 500
    kLostPart,    // a part of an upload is taken and forgotten
    // Half of a body came when the client gave up waiting: nothing was done, or
    // half of the answer is in the caller's memory.
    kSlowBody,
  };

  struct Options {
    std::string bucket = "bucket";
    bool conditional = true;  // whether "if-none-match" is obeyed
    int page_entries = 3;     // of a list
    // As Cloud Storage: its own condition alone, lists as of old, and no header
    // of AWS.
    bool google = false;
  };

  explicit FakeS3(Options options) : options_(std::move(options)) {}
  FakeS3() : FakeS3(Options()) {}

  // Is asked before each request.
  void SetFaults(std::function<Fault(const HttpRequest&)> faults);

  absl::StatusOr<HttpResponse> Do(const HttpRequest& request) override;

  int64_t requests() const;
  // Keys of objects, and of uploads that were neither completed nor aborted.
  std::vector<std::string> keys() const;
  std::vector<std::string> uploads() const;
  // Puts an object past all faults.
  void PutObject(const std::string& key, const std::string& contents);

 private:
  struct Upload {
    std::string key;
    std::map<int, std::string> parts;
  };

  HttpResponse Handle(const HttpRequest& request, Fault fault)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  HttpResponse OfBucket(const HttpRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  HttpResponse OfUpload(const HttpRequest& request, const std::string& key,
                        Fault fault) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  HttpResponse OfObject(const HttpRequest& request, const std::string& key)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  HttpResponse Read(const HttpRequest& request, const std::string& contents)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  HttpResponse List(const HttpRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  HttpResponse Complete(const HttpRequest& request, const std::string& id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  mutable Mutex mutex_;
  std::function<Fault(const HttpRequest&)> faults_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::string> objects_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Upload> uploads_ ABSL_GUARDED_BY(mutex_);
  int64_t requests_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t next_upload_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace weir

#endif  // TESTS_SUPPORT_FAKE_S3_H_
