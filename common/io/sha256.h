// SHA-256 of a stream, by OpenSSL. It names a JobSpec and a cluster.
//
// Threads: compatible.
// Source: FIPS 180-4.
#ifndef COMMON_IO_SHA256_H_
#define COMMON_IO_SHA256_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

struct evp_md_ctx_st;

namespace weir {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Update(const void* data, size_t bytes);
  // Ends the stream. REQUIRES: it is called once, and nothing is called after
  // it.
  std::array<uint8_t, 32> Finish();
  // Does the same and returns 64 lower-case hexadecimal digits.
  std::string FinishHex();

 private:
  evp_md_ctx_st* const context_;
};

std::string Sha256Hex(absl::string_view bytes);

}  // namespace weir

#endif  // COMMON_IO_SHA256_H_
