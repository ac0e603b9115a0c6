// The secret that the tasks of a job share, and what is derived from it.
//
// Place: who has it may take part in the job. The certificates of a job that
// has a secret come from it (certificates.h), so no task handles files.
//
// It is never written to a log, a command line or a manifest; it travels in the
// environment or in a file that others cannot read.
//
// Threads: safe.
// Errors: INVALID_ARGUMENT  too short, or a file that cannot be read or that
//                           others may read; the message says what to do, and
//                           never holds the secret.
// Source: HKDF is RFC 5869, with SHA-256 by OpenSSL.
#ifndef PROTO_SECURITY_JOB_SECRET_H_
#define PROTO_SECURITY_JOB_SECRET_H_

#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weir {

class JobSecret {
 public:
  // 32 hexadecimal digits are 128 bits, which nobody can guess.
  static constexpr size_t kCharsMin = 32;
  static constexpr size_t kCharsMax = 4096;

  // 64 hexadecimal digits from the system's generator.
  static JobSecret Draw();
  // Takes `text` without the white space around it.
  static absl::StatusOr<JobSecret> Parse(absl::string_view text);
  // Reads a file that neither others may read nor the group may write.
  static absl::StatusOr<JobSecret> FromFile(const std::string& path);

  // What another task of the job must be given.
  const std::string& text() const { return text_; }

  // Bytes that nobody can compute without the secret. Another `purpose` gives
  // other bytes, which say nothing of these.
  std::string Derive(absl::string_view purpose, size_t bytes) const;

 private:
  explicit JobSecret(std::string text) : text_(std::move(text)) {}

  std::string text_;
};

}  // namespace weir

#endif  // PROTO_SECURITY_JOB_SECRET_H_
