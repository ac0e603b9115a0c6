#include "proto/checkpoint/evaluated.h"

#include "absl/strings/string_view.h"
#include "common/io/growing_file.h"
#include "nlohmann/json.hpp"

namespace weir {

std::set<std::string> EvaluatedCheckpoints(ObjectStore* files,
                                           const std::string& workdir) {
  std::set<std::string> names;
  GrowingFile file(files, JoinPath(workdir, kEvaluationsName));
  const absl::Status read = file.ReadLines([&](absl::string_view line) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_object() && json.contains("checkpoint") &&
        json["checkpoint"].is_string()) {
      names.insert(json["checkpoint"].get<std::string>());
    }
  });
  read.IgnoreError();  // whoever waits for a line looks again
  return names;
}

}  // namespace weir
