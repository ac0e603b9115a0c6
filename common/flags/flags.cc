#include "common/flags/flags.h"

#include "CLI/CLI.hpp"

namespace weir {

Flag Flag::Required(bool required) {
  option_->required(required);
  return *this;
}

Flag Flag::Describe(const std::string& help) {
  option_->description(help);
  return *this;
}

std::string Flag::help() const { return option_->get_description(); }

Flag Flag::ShowDefault() {
  option_->capture_default_str();
  return *this;
}

Flag Flag::Hidden() {
  option_->group("");
  return *this;
}

Flag Flag::OneValueEach() {
  option_->allow_extra_args(false);
  return *this;
}

Flag Flag::Excludes(Flag other) {
  option_->excludes(other.option_);
  return *this;
}

Flag Flag::Check(const std::function<std::string(const std::string&)>& check) {
  option_->check(check);
  return *this;
}

Flag Flag::OneOf(const std::vector<std::string>& values) {
  option_->check(CLI::IsMember(values));
  return *this;
}

Flag Flag::Range(int min, int max) {
  option_->check(CLI::Range(min, max));
  return *this;
}

Flag Flag::Range(int64_t min, int64_t max) {
  option_->check(CLI::Range(min, max));
  return *this;
}

Flag Flag::Range(double min, double max) {
  option_->check(CLI::Range(min, max));
  return *this;
}

Flag Flag::NonNegative() {
  option_->check(CLI::NonNegativeNumber);
  return *this;
}

template <typename T>
Flag AddOption(CLI::App* app, const std::string& name, T* value,
               const std::string& help) {
  return Flag(app->add_option(name, *value, help));
}

Flag AddOptionFunction(CLI::App* app, const std::string& name,
                       const std::function<void(const std::string&)>& take,
                       const std::string& help) {
  return Flag(app->add_option_function<std::string>(name, take, help));
}

Flag AddFlag(CLI::App* app, const std::string& name, bool* value,
             const std::string& help) {
  return Flag(app->add_flag(name, *value, help));
}

Flag AddFlag(CLI::App* app, const std::string& name, std::optional<bool>* value,
             const std::string& help) {
  // CLI11 would set an optional to 0 where nobody gives the flag.
  return Flag(app->add_flag_function(
      name, [value](int64_t count) { *value = count > 0; }, help));
}

Flag FindFlag(CLI::App* app, const std::string& name) {
  return Flag(app->get_option(name));
}

CLI::App* AddSubcommand(CLI::App* app, const std::string& name,
                        const std::string& about,
                        const std::function<void()>& chosen) {
  CLI::App* const sub = app->add_subcommand(name, about);
  sub->callback(chosen);
  return sub;
}

CLI::App* AddCommandGroup(CLI::App* app, const std::string& name,
                          const std::string& about) {
  CLI::App* const group = app->add_subcommand(name, about);
  group->require_subcommand(1);
  return group;
}

void SetFooter(CLI::App* app, const std::string& text) { app->footer(text); }

void SetVersionFlag(CLI::App* app, const std::string& name,
                    const std::string& version, const std::string& help) {
  app->set_version_flag(name, version, help);
}

#define WEIR_OPTION_TYPE(...)                                          \
  template Flag AddOption(CLI::App*, const std::string&, __VA_ARGS__*, \
                          const std::string&)
WEIR_OPTION_TYPE(int);
WEIR_OPTION_TYPE(int64_t);
WEIR_OPTION_TYPE(uint32_t);
WEIR_OPTION_TYPE(uint64_t);
WEIR_OPTION_TYPE(double);
WEIR_OPTION_TYPE(std::string);
WEIR_OPTION_TYPE(std::optional<int>);
WEIR_OPTION_TYPE(std::optional<uint32_t>);
WEIR_OPTION_TYPE(std::optional<uint64_t>);
WEIR_OPTION_TYPE(std::optional<double>);
WEIR_OPTION_TYPE(std::vector<std::string>);
#undef WEIR_OPTION_TYPE

}  // namespace weir
