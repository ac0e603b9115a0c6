#include "deploy/render/yaml.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace weir {
namespace {

constexpr size_t kColumns = 80;
constexpr int kIndent = 2;

// Line breaks of YAML 1.1, and the mark of byte order, in UTF-8: between quotes
// they are written as escapes, and no other text may have them.
struct Special {
  absl::string_view bytes;
  absl::string_view escape;
};
constexpr Special kSpecial[] = {{"\xC2\x85", "\\N"},
                                {"\xE2\x80\xA8", "\\L"},
                                {"\xE2\x80\xA9", "\\P"},
                                {"\xEF\xBB\xBF", "\\uFEFF"}};

const Special* SpecialAt(absl::string_view text) {
  for (const Special& special : kSpecial) {
    if (absl::StartsWith(text, special.bytes)) {
      return &special;
    }
  }
  return nullptr;
}

// I1. Such a text means itself in every place of a document. Digits, signs and
// blanks are left to the quotes, since numbers, dates and lists begin with
// them; an option may begin with its two dashes.
bool IsPlain(const std::string& text) {
  const size_t begin = absl::StartsWith(text, "--") ? 2 : 0;
  const char first = begin < text.size() ? text[begin] : '-';
  if (!absl::ascii_isalpha(static_cast<unsigned char>(first)) && first != '/' &&
      first != '_') {
    return false;
  }
  for (const char c : text) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) &&
        !absl::StrContains("_-./:=@;", absl::string_view(&c, 1))) {
      return false;
    }
  }
  if (text.back() == ':') {
    return false;
  }
  static constexpr absl::string_view kWords[] = {
      "true", "false", "yes", "no", "on", "off", "null", "y", "n"};
  const std::string lower = absl::AsciiStrToLower(text);
  return std::find(std::begin(kWords), std::end(kWords), lower) ==
         std::end(kWords);
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const Special* const special = SpecialAt(absl::string_view(text).substr(i));
    if (special != nullptr) {
      absl::StrAppend(&quoted, special->escape);
      i += special->bytes.size() - 1;
    } else if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += text[i];
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (c < 0x20 || c == 0x7F) {
      absl::StrAppendFormat(&quoted, "\\x%02X", c);
    } else {
      quoted += text[i];
    }
  }
  return quoted + "\"";
}

// I1. Whether a literal block ("|") gives the text back: lines that end with
// one line break, of which the first says how far the block is indented.
bool IsBlock(const std::string& text) {
  if (text.size() < 2 || text.back() != '\n' || text[text.size() - 2] == '\n' ||
      text[0] == ' ' || text[0] == '\t' || text[0] == '\n') {
    return false;
  }
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const bool control = (c < 0x20 && c != '\n' && c != '\t') || c == 0x7F;
    if (control || SpecialAt(absl::string_view(text).substr(i)) != nullptr) {
      return false;
    }
  }
  return absl::StrContains(absl::string_view(text).substr(0, text.size() - 1),
                           '\n');
}

std::string Scalar(const Tree& value) {
  if (!value.is_string()) {
    return value.dump();
  }
  const auto& text = value.get_ref<const std::string&>();
  return IsPlain(text) ? text : Quoted(text);
}

class Writer {
 public:
  std::string Take() { return std::move(out_); }

  // I2. Writes the entries of an object in their order, each on lines of its
  // own. The first line is under way up to `indent` where `begun` is true.
  void Object(const Tree& object, int indent, bool begun) {
    for (const auto& [key, value] : object.items()) {
      if (!begun) {
        out_.append(static_cast<size_t>(indent), ' ');
      }
      begun = false;
      absl::StrAppend(&out_, Scalar(Tree(key)), ":");
      Value(value, indent);
    }
  }

 private:
  // Writes what stands behind "key:" or "-".
  void Value(const Tree& value, int indent) {
    if (value.is_object() && !value.empty()) {
      out_ += '\n';
      Object(value, indent + kIndent, /*begun=*/false);
    } else if (value.is_array() && !value.empty()) {
      List(value, indent);
    } else if (value.is_string() &&
               IsBlock(value.get_ref<const std::string&>())) {
      Block(value.get_ref<const std::string&>(), indent + kIndent);
    } else {
      absl::StrAppend(&out_, " ", Scalar(value), "\n");
    }
  }

  void List(const Tree& list, int indent) {
    const bool scalars =
        std::none_of(list.begin(), list.end(), [](const Tree& entry) {
          return entry.is_structured() ||
                 (entry.is_string() &&
                  IsBlock(entry.get_ref<const std::string&>()));
        });
    if (scalars && Flow(list, indent)) {
      return;
    }
    out_ += '\n';
    for (const Tree& entry : list) {
      out_.append(static_cast<size_t>(indent + kIndent), ' ');
      out_ += '-';
      if (entry.is_object() && !entry.empty()) {
        out_ += ' ';
        Object(entry, indent + 2 * kIndent, /*begun=*/true);
      } else {
        Value(entry, indent + kIndent);
      }
    }
  }

  // Writes "[a, b]" where that fits on the line. Numbers go on in the next one.
  bool Flow(const Tree& list, int indent) {
    const size_t line_begin = out_.rfind('\n') + 1;  // npos + 1 is 0
    size_t column = out_.size() - line_begin;
    std::string flow = " [";
    column += flow.size();
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string entry =
          absl::StrCat(Scalar(list[i]), i + 1 < list.size() ? ", " : "]");
      if (column + entry.size() > kColumns) {
        if (!list[i].is_number()) {
          return false;
        }
        while (flow.back() == ' ') {
          flow.pop_back();
        }
        const auto next = static_cast<size_t>(indent + 2 * kIndent);
        absl::StrAppend(&flow, "\n", std::string(next, ' '));
        column = next;
      }
      flow += entry;
      column += entry.size();
    }
    absl::StrAppend(&out_, flow, "\n");
    return true;
  }

  void Block(absl::string_view text, int indent) {
    out_ += " |\n";
    text.remove_suffix(1);
    for (const absl::string_view line : absl::StrSplit(text, '\n')) {
      if (!line.empty()) {
        out_.append(static_cast<size_t>(indent), ' ');
      }
      absl::StrAppend(&out_, line, "\n");
    }
  }

  std::string out_;
};

}  // namespace

std::string ToYaml(const Tree& body) {
  Writer writer;
  writer.Object(body, 0, /*begun=*/false);
  return writer.Take();
}

std::string ToYaml(const std::vector<Document>& documents) {
  std::string text;
  for (const Document& document : documents) {
    if (!text.empty()) {
      text += "---\n";
    }
    absl::StrAppend(&text, CommentLines(document.comment),
                    ToYaml(document.body));
  }
  return text;
}

std::vector<std::string> WrappedLines(const std::string& text, size_t columns) {
  std::vector<std::string> lines = {""};
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    if (!lines.back().empty() &&
        lines.back().size() + 1 + word.size() > columns) {
      lines.emplace_back();
    }
    absl::StrAppend(&lines.back(), lines.back().empty() ? "" : " ", word);
  }
  return lines;
}

void AppendWrapped(const std::vector<std::string>& sentences,
                   std::vector<std::string>* comment) {
  constexpr size_t kMark = 2;  // "# "
  for (const std::string& sentence : sentences) {
    for (std::string& line : WrappedLines(sentence, kColumns - kMark)) {
      comment->push_back(std::move(line));
    }
  }
}

std::string CommentLines(const std::vector<std::string>& comment) {
  std::string text;
  for (const std::string& line : comment) {
    absl::StrAppend(&text, line.empty() ? "#" : "# ", line, "\n");
  }
  return text;
}

}  // namespace weir
