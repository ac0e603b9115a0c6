// The files of the page that a browser shows of a job, inside the program.
//
// Place: the chief's admin port serves them beside `report` and `curve`, which
//   the page asks for by relative addresses. They hold nothing of a job.
// Threads: all constant.
#ifndef SERVER_CHIEF_PAGE_PAGE_FILES_H_
#define SERVER_CHIEF_PAGE_PAGE_FILES_H_

#include <span>

#include "absl/strings/string_view.h"

namespace weir {

struct PageFile {
  absl::string_view path;          // of a request: "/" is the page itself
  absl::string_view content_type;  // of HTTP; JavaScript needs the right one
  absl::string_view bytes;         // text in UTF-8
};

// All files, in the order in which a browser asks for them.
std::span<const PageFile> PageFiles();

}  // namespace weir

#endif  // SERVER_CHIEF_PAGE_PAGE_FILES_H_
