// Names for processes and files that nobody else has.
// Threads: safe.
#ifndef COMMON_BASE_IDENTITY_H_
#define COMMON_BASE_IDENTITY_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace weir {

// This machine's name; "unknown" if the system does not say it.
std::string HostName();

// This process's number on its machine.
int64_t ProcessId();

// A number that no other call returns, here or on another machine.
uint64_t RandomId();

// The same as hexadecimal digits; with 32 or more nobody can guess them.
// REQUIRES: `digits` is a multiple of 16.
std::string RandomHex(size_t digits);

}  // namespace weir

#endif  // COMMON_BASE_IDENTITY_H_
