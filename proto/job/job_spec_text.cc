#include "proto/job/job_spec_text.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/status.h"
#include "common/io/sha256.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"
#include "proto/job/job_spec_defaults.h"

namespace weir {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::TextFormat;

constexpr int kMaxDepth = 32;          // A JobSpec nests less than ten deep.
constexpr size_t kMaxBytes = 4 << 20;  // It travels in one gRPC message.

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

// Keeps the first error, counted from 1.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    if (text.empty()) {
      position = absl::StrCat(line + 1, ":", column + 1);
      text = message;
    }
  }
  std::string position;
  std::string text;
};

// "line:column" of a byte, both counted from 1.
std::string PositionOf(const std::string& text, size_t byte) {
  const std::string before = text.substr(0, byte);
  const size_t line_begin = before.rfind('\n');
  return absl::StrCat(
      1 + std::count(before.begin(), before.end(), '\n'), ":",
      before.size() - (line_begin == std::string::npos ? 0 : line_begin + 1) +
          1);
}

// Accepts every JSON text; keeps where a wrong one goes wrong.
class SyntaxCheck : public nlohmann::json_sax<nlohmann::json> {
 public:
  size_t error_byte = 0;
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return true; }
  bool key(string_t&) override { return true; }
  bool end_object() override { return true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    error_byte = position;
    return false;
  }
};

absl::StatusOr<JobSpec> ParseJson(const std::string& text,
                                  const std::string& name) {
  SyntaxCheck syntax;
  if (!nlohmann::json::sax_parse(text, &syntax)) {
    const size_t byte = syntax.error_byte == 0 ? 0 : syntax.error_byte - 1;
    return Invalid(name, ":", PositionOf(text, byte), ": is not JSON here");
  }
  JobSpec spec;
  const auto status = google::protobuf::util::JsonStringToMessage(text, &spec);
  if (!status.ok()) {
    // "(field.path): what", perhaps with a picture of the text below it.
    const std::string message(status.message().data(), status.message().size());
    return Invalid(name, ": ", message.substr(0, message.find('\n')));
  }
  return spec;
}

absl::StatusOr<JobSpec> ParseText(const std::string& text,
                                  const std::string& name) {
  JobSpec spec;
  FirstError error;
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  parser.SetRecursionLimit(kMaxDepth);
  if (!parser.ParseFromString(text, &spec)) {
    return Invalid(name, ":", error.position, ": ", error.text);
  }
  return spec;
}

// ---------------------------------------------------------------- overrides

struct Step {
  const FieldDescriptor* field = nullptr;
  int index = -1;  // -1: no [i]
};

// "layer[2]" looked up in `type`; `path` is what was read so far, for messages.
absl::StatusOr<Step> ParseStep(const Descriptor* type, absl::string_view text,
                               const std::string& path) {
  Step step;
  const size_t bracket = text.find('[');
  const std::string name(text.substr(0, bracket));
  step.field = type->FindFieldByName(name);
  if (step.field == nullptr) {
    std::vector<std::string> names;
    for (int i = 0; i < type->field_count(); ++i) {
      names.push_back(type->field(i)->name());
    }
    return Invalid("there is no field '", name, "' in ",
                   path.empty() ? type->name() : path, "; it has ",
                   absl::StrJoin(names, ", "));
  }
  if (bracket == absl::string_view::npos) {
    return step;
  }
  absl::string_view index = text.substr(bracket + 1);
  if (!absl::ConsumeSuffix(&index, "]") ||
      !absl::SimpleAtoi(index, &step.index) || step.index < 0) {
    return Invalid("'", text, "' is not name[index]");
  }
  if (!step.field->is_repeated()) {
    return Invalid("'", name, "' is not a list; leave out [", step.index, "]");
  }
  return step;
}

// Entries of a list that a step may name: those there, and one more.
absl::Status CheckIndex(const Message& message, const Step& step,
                        const std::string& path) {
  const int size = message.GetReflection()->FieldSize(message, step.field);
  if (step.index > size) {
    return Invalid(path, " does not exist: the list has ", size, " entries");
  }
  return absl::OkStatus();
}

// The message that a step inside a path leads to, made if it is not there.
absl::StatusOr<Message*> Descend(Message* message, const Step& step,
                                 const std::string& path) {
  const Reflection* const reflection = message->GetReflection();
  if (step.field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
    return Invalid(path, " has no fields below it");
  }
  if (!step.field->is_repeated()) {
    return reflection->MutableMessage(message, step.field);
  }
  if (step.index < 0) {
    return Invalid(path, " is a list; name one entry, ", path, "[0]");
  }
  WEIR_RETURN_IF_ERROR(CheckIndex(*message, step, path));
  if (step.index == reflection->FieldSize(*message, step.field)) {
    return reflection->AddMessage(message, step.field);
  }
  return reflection->MutableRepeatedMessage(message, step.field, step.index);
}

// A string may come without quotes.
std::string QuoteIfNeeded(const FieldDescriptor* field, std::string value) {
  if (field->cpp_type() != FieldDescriptor::CPPTYPE_STRING ||
      absl::StartsWith(value, "\"") || absl::StartsWith(value, "'")) {
    return value;
  }
  return absl::StrCat("\"", absl::CEscape(value), "\"");
}

absl::Status ParseValue(const Step& step, const std::string& value,
                        const std::string& path, Message* message) {
  FirstError error;
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  parser.SetRecursionLimit(kMaxDepth);
  const FieldDescriptor* const field = step.field;
  const bool ok = field->is_repeated() && step.index < 0
                      ? parser.MergeFromString(
                            absl::StrCat(field->name(), ": ", value), message)
                      : parser.ParseFieldValueFromString(
                            QuoteIfNeeded(field, value), field, message);
  if (ok) {
    return absl::OkStatus();
  }
  return Invalid(path, ": '", value, "' does not fit a field of type ",
                 field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE
                     ? field->message_type()->name()
                     : field->type_name(),
                 error.text.empty() ? "" : absl::StrCat(": ", error.text));
}

absl::Status SetLeaf(Message* message, const Step& step,
                     const std::string& value, const std::string& path) {
  const Reflection* const reflection = message->GetReflection();
  if (!step.field->is_repeated() || step.index < 0) {
    reflection->ClearField(message, step.field);
    return ParseValue(step, value, path, message);
  }
  WEIR_RETURN_IF_ERROR(CheckIndex(*message, step, path));
  WEIR_RETURN_IF_ERROR(ParseValue(step, value, path, message));  // adds it
  const int last = reflection->FieldSize(*message, step.field) - 1;
  if (step.index < last) {
    reflection->SwapElements(message, step.field, step.index, last);
    reflection->RemoveLast(message, step.field);
  }
  return absl::OkStatus();
}

absl::Status ApplyTo(const std::string& path, const std::string& value,
                     Message* root) {
  const std::vector<std::string> parts = absl::StrSplit(path, '.');
  Message* message = root;
  std::string done;
  for (size_t i = 0; i < parts.size(); ++i) {
    WEIR_ASSIGN_OR_RETURN(const Step step,
                          ParseStep(message->GetDescriptor(), parts[i], done));
    absl::StrAppend(&done, done.empty() ? "" : ".", parts[i]);
    if (i + 1 == parts.size()) {
      return SetLeaf(message, step, value, done);
    }
    WEIR_ASSIGN_OR_RETURN(message, Descend(message, step, done));
  }
  return absl::OkStatus();
}

// ---------------------------------------------------------------- comparison

// One value as text on one line, whole; `index` -1 for a field that is no list.
std::string Show(const Message& message, const FieldDescriptor* field,
                 int index) {
  const Reflection* const reflection = message.GetReflection();
  const bool present =
      index >= 0
          ? index < reflection->FieldSize(message, field)
          : !field->has_presence() || reflection->HasField(message, field);
  if (!present) {
    return "unset";
  }
  TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  std::string text;
  printer.PrintFieldValueToString(message, field, index, &text);
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    text = absl::StrCat("{ ", text, "}");
  }
  return text;
}

std::string Shorten(const std::string& text) {
  return text.size() <= 80 ? text : absl::StrCat(text.substr(0, 77), "...");
}

std::string Difference(const Message& a, const Message& b,
                       const std::string& prefix);

std::string FieldDifference(const Message& a, const Message& b,
                            const FieldDescriptor* field, int index,
                            const std::string& path) {
  const Reflection* const of_a = a.GetReflection();
  const Reflection* const of_b = b.GetReflection();
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    const bool both = index < 0
                          ? of_a->HasField(a, field) && of_b->HasField(b, field)
                          : index < std::min(of_a->FieldSize(a, field),
                                             of_b->FieldSize(b, field));
    if (both) {
      return index < 0 ? Difference(of_a->GetMessage(a, field),
                                    of_b->GetMessage(b, field), path + ".")
                       : Difference(of_a->GetRepeatedMessage(a, field, index),
                                    of_b->GetRepeatedMessage(b, field, index),
                                    path + ".");
    }
  }
  const std::string in_a = Show(a, field, index);
  const std::string in_b = Show(b, field, index);
  return in_a == in_b ? ""
                      : absl::StrCat(path, ": ", Shorten(in_a), " against ",
                                     Shorten(in_b));
}

// REQUIRES: one type. Fields go by their number.
std::string Difference(const Message& a, const Message& b,
                       const std::string& prefix) {
  const Descriptor* const type = a.GetDescriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* const field = type->field(i);
    const std::string path = prefix + field->name();
    int count = 1;
    if (field->is_repeated()) {
      count = std::max(a.GetReflection()->FieldSize(a, field),
                       b.GetReflection()->FieldSize(b, field));
    }
    for (int k = 0; k < count; ++k) {
      const std::string difference =
          field->is_repeated()
              ? FieldDifference(a, b, field, k, absl::StrCat(path, "[", k, "]"))
              : FieldDifference(a, b, field, -1, path);
      if (!difference.empty()) {
        return difference;
      }
    }
  }
  return "";
}

}  // namespace

absl::StatusOr<JobSpec> ParseJobSpec(const std::string& text,
                                     const std::string& name) {
  if (text.size() > kMaxBytes) {
    return Invalid(name, ": has ", text.size(), " bytes; a job has at most ",
                   kMaxBytes);
  }
  const absl::string_view content = absl::StripLeadingAsciiWhitespace(text);
  return absl::EndsWith(name, ".json") || absl::StartsWith(content, "{")
             ? ParseJson(text, name)
             : ParseText(text, name);
}

absl::Status ApplyJobSpecOverride(const std::string& assignment,
                                  JobSpec* spec) {
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0) {
    return Invalid("--set '", assignment,
                   "': write path=value, as in train.batch_size=64");
  }
  JobSpec changed = *spec;
  const absl::Status status = ApplyTo(
      std::string(absl::StripAsciiWhitespace(assignment.substr(0, equals))),
      std::string(absl::StripAsciiWhitespace(assignment.substr(equals + 1))),
      &changed);
  if (!status.ok()) {
    return Annotate(status, absl::StrCat("--set '", assignment, "'"));
  }
  spec->Swap(&changed);
  return absl::OkStatus();
}

absl::StatusOr<JobSpec> LoadJobSpec(const std::string& path,
                                    const std::vector<std::string>& sets,
                                    Files* files) {
  const absl::StatusOr<std::string> text = files->ReadAll(path);
  if (!text.ok()) {
    return absl::InvalidArgumentError(text.status().message());
  }
  WEIR_ASSIGN_OR_RETURN(JobSpec spec, ParseJobSpec(*text, path));
  for (const std::string& set : sets) {
    WEIR_RETURN_IF_ERROR(ApplyJobSpecOverride(set, &spec));
  }
  ResolveDefaults(&spec);
  const absl::Status valid = ValidateJobSpec(spec);
  if (!valid.ok()) {
    return Annotate(valid, path);
  }
  return spec;
}

std::string CanonicalJobSpecText(const JobSpec& spec) {
  std::string text;
  TextFormat::PrintToString(spec, &text);
  return text;
}

std::string JobSpecHash(const JobSpec& spec) {
  return Sha256Hex(CanonicalJobSpecText(spec));
}

std::string FirstDifference(const Message& a, const Message& b) {
  return Difference(a, b, "");
}

}  // namespace weir
