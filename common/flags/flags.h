// Flags and subcommands of a command line.
//
// Place: CLI11 parses them. Its header takes three to four seconds to compile,
// more than the rest of a source that only adds flags; so those include this
// one, and what makes the CLI::App and parses includes CLI11's own.
//
// Each AddOption and AddFlag writes what the user gives into `*value`, which
// must live until the line is parsed. A line that does not fit ends as CLI11
// says, by a CLI::ParseError.
#ifndef COMMON_FLAGS_FLAGS_H_
#define COMMON_FLAGS_FLAGS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace weir {

// One flag, or one word that is known by its place. Each function changes the
// flag and returns it again.
class Flag {
 public:
  explicit Flag(CLI::Option* option) : option_(option) {}

  Flag Required(bool required = true);
  // In place of the help that it was added with.
  Flag Describe(const std::string& help);
  std::string help() const;
  // --help shows the variable's present value as the default.
  Flag ShowDefault();
  // --help does not show it.
  Flag Hidden();
  // Of a list: each value needs the flag again.
  Flag OneValueEach();
  // Not together with the other one.
  Flag Excludes(Flag other);
  // `check` returns what is wrong with a value, or "".
  Flag Check(const std::function<std::string(const std::string&)>& check);
  Flag OneOf(const std::vector<std::string>& values);
  // Both ends belong to it.
  Flag Range(int min, int max);
  Flag Range(int64_t min, int64_t max);
  Flag Range(double min, double max);
  Flag NonNegative();

 private:
  CLI::Option* option_;
};

// `name` is "--flag", or "word" for one that is known by its place. T is one of
// those at the end of flags.cc.
template <typename T>
Flag AddOption(CLI::App* app, const std::string& name, T* value,
               const std::string& help);

// As above, but `take` gets the text.
Flag AddOptionFunction(CLI::App* app, const std::string& name,
                       const std::function<void(const std::string&)>& take,
                       const std::string& help);

// A flag without a value; "--flag,!--noflag" can also be set to false.
Flag AddFlag(CLI::App* app, const std::string& name, bool* value,
             const std::string& help);
// Stays empty where nobody gives the flag.
Flag AddFlag(CLI::App* app, const std::string& name, std::optional<bool>* value,
             const std::string& help);

// One that was added before: a name that was not is a CLI::OptionNotFound.
Flag FindFlag(CLI::App* app, const std::string& name);

// Parsing calls `chosen` where the line has this subcommand.
CLI::App* AddSubcommand(CLI::App* app, const std::string& name,
                        const std::string& about,
                        const std::function<void()>& chosen);
// One that only holds subcommands, of which the user must choose one.
CLI::App* AddCommandGroup(CLI::App* app, const std::string& name,
                          const std::string& about);

// What --help ends with.
void SetFooter(CLI::App* app, const std::string& text);
// Adds a flag that prints `version` and ends.
void SetVersionFlag(CLI::App* app, const std::string& name,
                    const std::string& version, const std::string& help);

}  // namespace weir

#endif  // COMMON_FLAGS_FLAGS_H_
