// An S3Store over a FakeS3, with all that lies between. Nothing sleeps: pauses
// are noted.
//
// Threads: safe.
#ifndef TESTS_SUPPORT_FAKE_S3_STORE_H_
#define TESTS_SUPPORT_FAKE_S3_STORE_H_

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/base/mutex.h"
#include "common/objects/credentials.h"
#include "common/objects/s3_client.h"
#include "common/objects/s3_store.h"
#include "tests/support/fake_s3.h"

namespace weir {

class FakeS3Store {
 public:
  explicit FakeS3Store(const FakeS3::Options& options = {})
      : s3_(options), credentials_(WithKeys()) {
    S3Client::Options client;
    client.bucket = "bucket";
    client.region = "us-east-1";
    client.endpoint =
        options.google ? "https://storage.googleapis.com" : "http://fake";
    client.http = &s3_;
    client.credentials = &credentials_;
    client.sleep = [this](std::chrono::milliseconds pause) {
      MutexLock lock(&mutex_);
      pauses_.push_back(pause);
    };
    auto made = S3Client::Create(std::move(client));
    WEIR_CHECK(made.ok());
    client_ = *std::move(made);
    store_ = std::make_unique<S3Store>(client_.get());
  }

  FakeS3* s3() { return &s3_; }
  S3Client* client() { return client_.get(); }
  S3Store* store() { return store_.get(); }
  std::vector<std::chrono::milliseconds> pauses() const {
    MutexLock lock(&mutex_);
    return pauses_;
  }

 private:
  static CredentialSource::Options WithKeys() {
    CredentialSource::Options options;
    options.environment = [](const std::string& name) {
      return name == "AWS_ACCESS_KEY_ID" || name == "AWS_SECRET_ACCESS_KEY"
                 ? std::optional<std::string>("key-of-a-test")
                 : std::nullopt;
    };
    return options;
  }

  FakeS3 s3_;
  CredentialSource credentials_;
  mutable Mutex mutex_;
  std::vector<std::chrono::milliseconds> pauses_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<S3Client> client_;
  std::unique_ptr<S3Store> store_;
};

}  // namespace weir

#endif  // TESTS_SUPPORT_FAKE_S3_STORE_H_
