// Makes text of a peer fit for a log, a terminal or an error.
//
// Place: where a text comes in from the wire, once, and where the command line
// prints names that a ps or a manifest told. A raw text could forge lines of
// the log, move a terminal's cursor or turn its direction of writing.
//
// Threads: safe.
#ifndef COMMON_BASE_PRINTABLE_H_
#define COMMON_BASE_PRINTABLE_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "common/base/limits.h"

namespace weir {

// Returns `text` in one line of at most `bytes_max` bytes, of which the last
// three are "..." if it was cut. Control characters, bytes that are no UTF-8
// and marks that change the direction of writing are escaped as in C; all else
// stays, so text that is printable already comes back unchanged.
// REQUIRES: bytes_max >= 3.
std::string Printable(absl::string_view text,
                      size_t bytes_max = kPeerNameBytesMax);

}  // namespace weir

#endif  // COMMON_BASE_PRINTABLE_H_
