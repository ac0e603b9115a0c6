// Writes NumPy's .npy files, version 1.0, with one array in each.
//
// Place: `weir checkpoint export --numpy`.
//
//   93 'NUMPY' 01 00 | u16 LE header_bytes | header_bytes of text | data
//   {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
// Spaces and a line feed end the text, so that data begins at a multiple of 64
// bytes. Data is little-endian, C order.
//
// Source: numpy/lib/format.py, "Format Version 1.0".
#ifndef COMMON_IO_NPY_H_
#define COMMON_IO_NPY_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/io/files.h"

namespace weir {

// The bytes that come before the data. `descr` is what numpy.dtype.str says,
// such as "<f4".
std::string NpyHeader(const std::string& descr,
                      const std::vector<int64_t>& shape);

// Writes `path` as a whole, or leaves it as it was. `data` appends the
// elements.
absl::Status WriteNpy(ObjectStore* files, const std::string& path,
                      const std::string& descr,
                      const std::vector<int64_t>& shape,
                      const std::function<absl::Status(ObjectWriter&)>& data);

}  // namespace weir

#endif  // COMMON_IO_NPY_H_
