#include "proto/checkpoint/evaluated.h"

#include <sstream>

#include "common/io/growing_file.h"
#include "nlohmann/json.hpp"

namespace weir {

std::set<std::string> EvaluatedCheckpoints(ObjectStore* files,
                                           const std::string& workdir) {
  std::set<std::string> names;
  const std::string path = JoinPath(workdir, kEvaluationsName);
  std::istringstream lines(GrowingFile(files, path).ReadAll().value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_object() && json.contains("checkpoint") &&
        json["checkpoint"].is_string()) {
      names.insert(json["checkpoint"].get<std::string>());
    }
  }
  return names;
}

}  // namespace weir
