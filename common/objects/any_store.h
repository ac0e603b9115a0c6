// The store of every name that a user may write: a path, or "s3://bucket/key".
//
// Place: mains and commands give it to whatever reads or writes checkpoints.
//
// What a URL does not say comes from the variables that AWS's own tools read,
// once for each bucket and when it is first named:
//   AWS_REGION, AWS_DEFAULT_REGION           us-east-1 if neither is set
//   AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL    "http://minio:9000"; the bucket
//                                            then stands in the path
//   WEIR_S3_ADDRESSING_STYLE                 "path" or "virtual": where the
//                                            bucket stands instead
//   AWS_CA_BUNDLE                            file of trusted CAs, PEM
//   and those of CredentialSource.
//
// A process that opens an object store leaves no core file from there on, and
// shows its memory to no other: its keys are there.
// Threads: safe.
// Errors: those of ObjectStore.
#ifndef COMMON_OBJECTS_ANY_STORE_H_
#define COMMON_OBJECTS_ANY_STORE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/io/files.h"
#include "common/io/object_store.h"
#include "common/objects/credentials.h"

namespace weir {

// Whether `name` is that of an object store, and no path.
bool IsObjectUrl(absl::string_view name);

// INVALID_ARGUMENT for what cannot be the URL of a place in an object store.
absl::Status CheckObjectUrl(const std::string& name);

// A directory's name wherever the process stands: an absolute path, or a URL
// without a slash at its end. "" stays.
std::string AbsolutePlace(const std::string& name);

// Where a run keeps what outlives it: `checkpoints`, or else `workdir`; an
// AbsolutePlace.
std::string PlaceOfRun(const std::string& workdir,
                       const std::string& checkpoints);

// `files` is borrowed.
std::unique_ptr<ObjectStore> MakeAnyStore(Files* files,
                                          Environment environment);

// The process's own, of Files::Real() and its environment; never deleted.
ObjectStore* AnyStore();

}  // namespace weir

#endif  // COMMON_OBJECTS_ANY_STORE_H_
