// Writes trees as YAML, with words of explanation before each document.
//
// Place: the targets build trees, and this is the only place that knows YAML's
// syntax. Why no library does it: yaml-cpp's emitter writes the texts "true"
// and "1" without quotes, so the quotes, which are the hard part, would be our
// own even so.
//
// Invariants
//   I1. A reader of YAML 1.1 or 1.2 gets back the same tree: what it could take
//       for something else than a text is in quotes.
//   I2. The same tree gives the same bytes; keys stay in their order.
// Threads: safe.
// Source: YAML 1.2.2, chapters 7 and 8.
#ifndef DEPLOY_RENDER_YAML_H_
#define DEPLOY_RENDER_YAML_H_

#include <cstddef>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace weir {

using Tree = nlohmann::ordered_json;

// A document of a file.
struct Document {
  std::vector<std::string> comment;  // lines without their "# "
  Tree body;
};

// REQUIRES: every text is UTF-8.
std::string ToYaml(const Tree& body);
std::string ToYaml(const std::vector<Document>& documents);

// Cuts the text at blanks into lines of at most `columns`, where its words
// allow it.
std::vector<std::string> WrappedLines(const std::string& text, size_t columns);
// Appends each sentence as lines of a comment.
void AppendWrapped(const std::vector<std::string>& sentences,
                   std::vector<std::string>* comment);
// "# " before each line, "#" for an empty one.
std::string CommentLines(const std::vector<std::string>& comment);

}  // namespace weir

#endif  // DEPLOY_RENDER_YAML_H_
