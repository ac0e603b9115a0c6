#include "proto/security/job_secret.h"

#include <fcntl.h>
#include <openssl/core_names.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <system_error>

#include "absl/strings/ascii.h"
#include "common/base/check.h"
#include "common/base/identity.h"
#include "common/base/status.h"
#include "common/io/file_descriptor.h"

namespace weir {
namespace {

std::string ErrnoText() { return std::generic_category().message(errno); }

}  // namespace

JobSecret JobSecret::Draw() { return JobSecret(RandomHex(64)); }

absl::StatusOr<JobSecret> JobSecret::Parse(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  if (text.size() < kCharsMin || text.size() > kCharsMax) {
    return Invalid("the secret has ", text.size(), " characters, not ",
                   kCharsMin, " to ", kCharsMax,
                   "; `weir secret` prints a good one");
  }
  return JobSecret(std::string(text));
}

absl::StatusOr<JobSecret> JobSecret::FromFile(const std::string& path) {
  // A FIFO must not hold the task up.
  const FileDescriptor file(
      open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat facts = {};
  if (!file.valid() || fstat(file.get(), &facts) != 0) {
    return Invalid("the secret's file ", path, ": ", ErrnoText());
  }
  if (!S_ISREG(facts.st_mode)) {
    return Invalid("the secret's file ", path, " is not a regular file");
  }
  if ((facts.st_mode & (S_IRWXO | S_IWGRP)) != 0) {
    return Invalid("the secret's file ", path,
                   " can be read or changed by others; run: chmod 600 ", path);
  }
  std::string text(kCharsMax + 256, '\0');
  const ssize_t bytes = read(file.get(), text.data(), text.size());
  if (bytes < 0) {
    return Invalid("the secret's file ", path, ": ", ErrnoText());
  }
  text.resize(static_cast<size_t>(bytes));
  absl::StatusOr<JobSecret> secret = Parse(text);
  return secret.ok() ? secret : Annotate(secret.status(), path);
}

std::string JobSecret::Derive(absl::string_view purpose, size_t bytes) const {
  const std::unique_ptr<EVP_KDF, decltype(&EVP_KDF_free)> kdf(
      EVP_KDF_fetch(nullptr, "HKDF", nullptr), EVP_KDF_free);
  const std::unique_ptr<EVP_KDF_CTX, decltype(&EVP_KDF_CTX_free)> context(
      EVP_KDF_CTX_new(kdf.get()), EVP_KDF_CTX_free);
  char digest[] = "SHA256";
  std::string key = text_;
  std::string info(purpose);
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, key.data(),
                                        key.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info.data(),
                                        info.size()),
      OSSL_PARAM_construct_end()};
  std::string derived(bytes, '\0');
  WEIR_CHECK(EVP_KDF_derive(context.get(),
                            reinterpret_cast<unsigned char*>(derived.data()),
                            bytes, parameters) > 0);
  return derived;
}

}  // namespace weir
