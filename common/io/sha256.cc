#include "common/io/sha256.h"

#include <openssl/evp.h>

#include "absl/strings/escaping.h"
#include "common/base/check.h"

namespace weir {

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  WEIR_CHECK(context_ != nullptr);
  WEIR_CHECK(EVP_DigestInit_ex(context_, EVP_sha256(), nullptr) == 1);
}

Sha256::~Sha256() { EVP_MD_CTX_free(context_); }

void Sha256::Update(const void* data, size_t bytes) {
  WEIR_CHECK(EVP_DigestUpdate(context_, data, bytes) == 1);
}

std::array<uint8_t, 32> Sha256::Finish() {
  std::array<uint8_t, 32> digest = {};
  unsigned int bytes = 0;
  WEIR_CHECK(EVP_DigestFinal_ex(context_, digest.data(), &bytes) == 1);
  WEIR_CHECK(bytes == digest.size());
  return digest;
}

std::string Sha256::FinishHex() {
  const std::array<uint8_t, 32> digest = Finish();
  return absl::BytesToHexString(absl::string_view(
      reinterpret_cast<const char*>(digest.data()), digest.size()));
}

std::string Sha256Hex(absl::string_view bytes) {
  Sha256 sha;
  sha.Update(bytes.data(), bytes.size());
  return sha.FinishHex();
}

}  // namespace weir
