#include "common/objects/any_store.h"

#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/mutex.h"
#include "common/base/printable.h"
#include "common/base/status.h"
#include "common/io/close_memory.h"
#include "common/objects/http.h"
#include "common/objects/s3_client.h"
#include "common/objects/s3_store.h"

namespace weir {
namespace {

constexpr char kScheme[] = "s3://";
constexpr char kAddressingStyle[] = "WEIR_S3_ADDRESSING_STYLE";

// What a bucket's store borrows, and the store.
struct Bucket {
  std::unique_ptr<HttpClient> http;
  std::unique_ptr<CredentialSource> credentials;
  std::unique_ptr<S3Client> client;
  std::unique_ptr<S3Store> store;
};

class EitherStore : public ObjectStore {
 public:
  EitherStore(Files* files, Environment environment)
      : files_(files), environment_(std::move(environment)) {}

  absl::StatusOr<std::unique_ptr<FileReader>> Open(
      const std::string& name) override {
    WEIR_ASSIGN_OR_RETURN(ObjectStore* const store, StoreOf(name));
    return store->Open(name);
  }
  absl::StatusOr<std::string> ReadAll(const std::string& name) override {
    WEIR_ASSIGN_OR_RETURN(ObjectStore* const store, StoreOf(name));
    return store->ReadAll(name);
  }
  absl::StatusOr<FileInfo> Stat(const std::string& name) override {
    WEIR_ASSIGN_OR_RETURN(ObjectStore* const store, StoreOf(name));
    return store->Stat(name);
  }
  absl::Status WriteAtomically(const std::string& name,
                               absl::string_view contents) override {
    WEIR_ASSIGN_OR_RETURN(ObjectStore* const store, StoreOf(name));
    return store->WriteAtomically(name, contents);
  }
  absl::Status WriteNew(const std::string& name,
                        absl::string_view contents) override {
    WEIR_ASSIGN_OR_RETURN(ObjectStore* const store, StoreOf(name));
    return store->WriteNew(name, contents);
  }
  absl::StatusOr<std::unique_ptr<ObjectWriter>> BeginWrite(
      const std::string& name, int64_t bytes_expected) override {
    WEIR_ASSIGN_OR_RETURN(ObjectStore* const store, StoreOf(name));
    return store->BeginWrite(name, bytes_expected);
  }
  absl::Status Append(const std::string& name,
                      absl::string_view contents) override {
    WEIR_ASSIGN_OR_RETURN(ObjectStore* const store, StoreOf(name));
    return store->Append(name, contents);
  }
  absl::StatusOr<std::vector<std::string>> List(
      const std::string& directory) override {
    WEIR_ASSIGN_OR_RETURN(ObjectStore* const store, StoreOf(directory));
    return store->List(directory);
  }
  absl::Status MakeDirectories(const std::string& path) override {
    WEIR_ASSIGN_OR_RETURN(ObjectStore* const store, StoreOf(path));
    return store->MakeDirectories(path);
  }
  absl::Status MakeDirectory(const std::string& path) override {
    WEIR_ASSIGN_OR_RETURN(ObjectStore* const store, StoreOf(path));
    return store->MakeDirectory(path);
  }
  absl::Status SyncDirectory(const std::string& path) override {
    WEIR_ASSIGN_OR_RETURN(ObjectStore* const store, StoreOf(path));
    return store->SyncDirectory(path);
  }
  absl::Status Remove(const std::string& name) override {
    WEIR_ASSIGN_OR_RETURN(ObjectStore* const store, StoreOf(name));
    return store->Remove(name);
  }
  absl::Status DropUnfinished(const std::string& directory) override {
    WEIR_ASSIGN_OR_RETURN(ObjectStore* const store, StoreOf(directory));
    return store->DropUnfinished(directory);
  }
  absl::StatusOr<std::unique_ptr<HeldLock>> TryLock(
      const std::string& name, const std::string& who) override {
    WEIR_ASSIGN_OR_RETURN(ObjectStore* const store, StoreOf(name));
    return store->TryLock(name, who);
  }

 private:
  absl::StatusOr<ObjectStore*> StoreOf(const std::string& name) {
    absl::string_view rest = name;
    if (!absl::ConsumePrefix(&rest, kScheme)) {
      return files_;
    }
    const std::string bucket(rest.substr(0, rest.find('/')));
    MutexLock lock(&mutex_);
    const auto found = buckets_.find(bucket);
    if (found != buckets_.end()) {
      return found->second.store.get();
    }
    CloseMemory();  // keys will be in it
    WEIR_ASSIGN_OR_RETURN(Bucket made, MakeBucket(bucket));
    return buckets_.emplace(bucket, std::move(made)).first->second.store.get();
  }

  std::string FirstSet(const char* first, const char* second,
                       const std::string& otherwise) const {
    return environment_(first).value_or(
        environment_(second).value_or(otherwise));
  }

  absl::StatusOr<Bucket> MakeBucket(const std::string& name) const {
    Bucket bucket;
    HttpClient::Options http;
    http.ca_file = environment_("AWS_CA_BUNDLE").value_or("");
    bucket.http = HttpClient::Create(http);
    CredentialSource::Options credentials;
    credentials.environment = environment_;
    credentials.files = files_;
    credentials.http = bucket.http.get();
    credentials.region =
        FirstSet("AWS_REGION", "AWS_DEFAULT_REGION", "us-east-1");
    bucket.credentials = std::make_unique<CredentialSource>(credentials);
    S3Client::Options client;
    client.bucket = name;
    client.region = credentials.region;
    client.endpoint = FirstSet("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "");
    const std::string style = environment_(kAddressingStyle).value_or("auto");
    if (style != "auto" && style != "path" && style != "virtual") {
      return Invalid(kAddressingStyle, " is '", Printable(style),
                     "'; it is auto, path or virtual");
    }
    if (style != "auto") {
      client.path_style = style == "path";
    }
    client.http = bucket.http.get();
    client.credentials = bucket.credentials.get();
    WEIR_ASSIGN_OR_RETURN(bucket.client, S3Client::Create(std::move(client)));
    bucket.store = std::make_unique<S3Store>(bucket.client.get());
    return bucket;
  }

  Files* const files_;
  const Environment environment_;
  Mutex mutex_;
  std::map<std::string, Bucket> buckets_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::Status CheckObjectUrl(const std::string& name) {
  absl::string_view rest = name;
  if (!absl::ConsumePrefix(&rest, kScheme)) {
    return Invalid("'", Printable(name), "': write s3://BUCKET/PREFIX");
  }
  const std::vector<std::string> parts = absl::StrSplit(rest, '/');
  WEIR_RETURN_IF_ERROR(CheckBucketName(parts[0]));
  for (size_t i = 1; i < parts.size(); ++i) {
    const bool last = i + 1 == parts.size();
    if ((parts[i].empty() && !last) || parts[i] == "." || parts[i] == "..") {
      return Invalid("'", Printable(name), "' cannot name a place");
    }
  }
  return absl::OkStatus();
}

bool IsObjectUrl(absl::string_view name) {
  return absl::StartsWith(name, kScheme);
}

std::string AbsolutePlace(const std::string& name) {
  if (name.empty()) {
    return "";
  }
  if (!IsObjectUrl(name)) {
    std::error_code gone;  // the directory where the process stands
    const auto absolute = std::filesystem::absolute(name, gone);
    return gone ? name : absolute.string();
  }
  size_t end = name.size();
  while (end > std::strlen(kScheme) && name[end - 1] == '/') {
    --end;
  }
  return name.substr(0, end);
}

std::string PlaceOfRun(const std::string& workdir,
                       const std::string& checkpoints) {
  return AbsolutePlace(checkpoints.empty() ? workdir : checkpoints);
}

std::unique_ptr<ObjectStore> MakeAnyStore(Files* files,
                                          Environment environment) {
  return std::make_unique<EitherStore>(files, std::move(environment));
}

ObjectStore* AnyStore() {
  static ObjectStore* const store =
      MakeAnyStore(Files::Real(), ProcessEnvironment).release();
  return store;
}

}  // namespace weir
