#include "common/io/npy.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"

namespace weir {

std::string NpyHeader(const std::string& descr,
                      const std::vector<int64_t>& shape) {
  constexpr size_t kAlign = 64;
  constexpr size_t kBefore = 10;  // magic, version, length
  std::string text = absl::StrCat("{'descr': '", descr,
                                  "', 'fortran_order': False, 'shape': (",
                                  absl::StrJoin(shape, ", "));
  // The header is Python, where (5) is a number and (5,) a tuple.
  if (shape.size() == 1) {
    text += ',';
  }
  text += "), }";
  text.append(kAlign - 1 - (kBefore + text.size()) % kAlign, ' ');
  text.push_back('\n');
  const auto low = static_cast<char>(text.size() & 0xff);
  const auto high = static_cast<char>(text.size() >> 8);
  return std::string("\x93NUMPY\x01\x00", 8) + low + high + text;
}

absl::Status WriteNpy(ObjectStore* files, const std::string& path,
                      const std::string& descr,
                      const std::vector<int64_t>& shape,
                      const std::function<absl::Status(ObjectWriter&)>& data) {
  const std::string header = NpyHeader(descr, shape);
  WEIR_ASSIGN_OR_RETURN(const auto writer,
                        files->BeginWrite(path, /*bytes_expected=*/0));
  WEIR_RETURN_IF_ERROR(writer->Append(header.data(), header.size()));
  WEIR_RETURN_IF_ERROR(data(*writer));
  return writer->Finish();
}

}  // namespace weir
