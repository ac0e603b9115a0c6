#include "deploy/render/explain.h"

#include "absl/strings/str_cat.h"
#include "deploy/render/yaml.h"

namespace weir {
namespace {

constexpr size_t kColumns = 80;

void AppendText(const std::string& text, const std::string& indent,
                std::string* to) {
  for (const std::string& line : WrappedLines(text, kColumns - indent.size())) {
    absl::StrAppend(to, indent, line, "\n");
  }
}

}  // namespace

std::string Explain(const std::vector<Choice>& choices,
                    const std::vector<std::string>& remarks) {
  std::string text;
  for (const Choice& choice : choices) {
    absl::StrAppend(&text, choice.what, ": ", choice.value, "\n");
    AppendText(choice.why, "    ", &text);
  }
  for (const std::string& remark : remarks) {
    text += "\n";
    AppendText(remark, "", &text);
  }
  return text;
}

}  // namespace weir
