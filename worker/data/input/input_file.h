// Functions that all file readers share, for whole files, lines and numbers.
//
// Errors: NOT_FOUND  no such file.
//         DATA_LOSS  a packed file is cut or damaged.
#ifndef WORKER_DATA_INPUT_INPUT_FILE_H_
#define WORKER_DATA_INPUT_INPUT_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weir {

// Reads `path` whole, unpacked: see input_stream.h.
absl::StatusOr<std::string> ReadInputFile(const std::string& path);

// Parses all of `text` as a number; a leading '+' is allowed. Returns false,
// with *value unchanged, for anything else and for a number that is not finite.
bool ParseFinite(absl::string_view text, double* value);
// The same for a number that must be finite as a float.
bool ParseFinite(absl::string_view text, float* value);

// Quotes text from a file for a message: at most 32 bytes, nothing that a
// terminal would act on.
std::string QuoteInput(absl::string_view text);

// Makes INVALID_ARGUMENT "path:line: message".
absl::Status LineError(const std::string& path, int64_t line,
                       absl::string_view message);

}  // namespace weir

#endif  // WORKER_DATA_INPUT_INPUT_FILE_H_
