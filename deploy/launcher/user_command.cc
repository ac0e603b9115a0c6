#include "deploy/launcher/user_command.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace weir {
namespace {

bool IsProgram(const std::string& file) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(file, ignored) &&
         access(file.c_str(), X_OK) == 0;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> SplitWords(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;  // an empty '' is a word, too
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    // As in a shell: '...' has no escapes, and in "..." a \ is an escape before
    // a quote or another \ alone, so that "\n" keeps both its characters.
    const bool escapes =
        c == '\\' && quote != '\'' && i + 1 < text.size() &&
        (quote == 0 || text[i + 1] == '"' || text[i + 1] == '\\');
    if (escapes) {
      word += text[++i];
      in_word = true;
    } else if (quote != 0 && c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
      in_word = true;
    } else if (quote == 0 && (c == ' ' || c == '\t' || c == '\n')) {
      if (in_word) {
        words.push_back(std::exchange(word, ""));
      }
      in_word = false;
    } else {
      word += c;
      in_word = true;
    }
  }
  if (quote != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a quote (", std::string(1, quote), ") is not closed in: ", text));
  }
  if (in_word) {
    words.push_back(word);
  }
  return words;
}

absl::StatusOr<std::string> FindProgram(const std::string& name,
                                        const std::string& path) {
  std::error_code ignored;
  if (name.find('/') != std::string::npos) {
    if (IsProgram(name)) {
      return name;
    }
    if (!std::filesystem::exists(name, ignored)) {
      return absl::InvalidArgumentError(
          absl::StrCat("there is no '", name, "' to run"));
    }
    return absl::InvalidArgumentError(
        absl::StrCat("'", name,
                     "' is not executable; chmod +x it, or "
                     "name the program that runs it"));
  }
  for (const absl::string_view folder : absl::StrSplit(path, ':')) {
    // POSIX: an empty folder in PATH is the current one.
    const std::string file =
        absl::StrCat(folder.empty() ? "." : folder, "/", name);
    if (!name.empty() && IsProgram(file)) {
      return file;
    }
  }
  std::string message =
      absl::StrCat("command '", name, "' is not found in PATH");
  // Most often a script that was named without the program that runs it.
  if (!name.empty() && std::filesystem::exists(name, ignored)) {
    absl::StrAppend(&message, "; to run the file of this folder write python ",
                    name, " or ./", name);
  }
  return absl::InvalidArgumentError(message);
}

std::string RunName(const std::vector<std::string>& argv) {
  // The program of most runs is python, which says nothing about the run. The
  // first script is taken: later words are its own arguments.
  for (size_t i = 1; i < argv.size(); ++i) {
    const std::filesystem::path word = argv[i];
    if (word.extension() == ".py") {
      return word.stem();
    }
    if (argv[i] == "-m" && i + 1 < argv.size()) {
      return argv[i + 1].substr(argv[i + 1].rfind('.') + 1);
    }
  }
  return std::filesystem::path(argv[0]).stem();
}

}  // namespace weir
