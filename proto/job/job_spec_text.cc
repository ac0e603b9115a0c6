#include "proto/job/job_spec_text.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status.h"
#include "common/io/files.h"
#include "common/io/sha256.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"
#include "proto/job/field_rules.h"
#include "proto/job/job_spec_checks.h"
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

// Keeps the first error and where it is, counted from 1. Later errors are often
// consequences of the first.
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
  const size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0
  return absl::StrCat(1 + std::count(before.begin(), before.end(), '\n'), ":",
                      before.size() - line_begin + 1);
}

// The byte at which `text` is no JSON, counted from 0, which protobuf's own
// parser does not tell; -1 if it is JSON. nlohmann's parser reports it by an
// exception, which ends here.
int64_t ByteOfMistake(const std::string& text) {
  try {
    const auto parsed = nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    // It counts the bytes that it has read, the wrong one included.
    return std::max<int64_t>(static_cast<int64_t>(error.byte), 1) - 1;
  } catch (const nlohmann::json::exception&) {
    // A number that no double can hold, which protobuf reports with its field.
  }
  return -1;
}

absl::StatusOr<JobSpec> ParseJson(const std::string& text,
                                  const std::string& name) {
  const int64_t mistake = ByteOfMistake(text);
  if (mistake >= 0) {
    return Invalid(name, ":", PositionOf(text, static_cast<size_t>(mistake)),
                   ": is not JSON here");
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
  WEIR_ASSIGN_OR_RETURN(step.field, FindField(*type, name, path));
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
  if (step.index > size) {  // `size` itself adds an entry
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
  bool ok = false;
  if (field->is_repeated() && step.index < 0) {
    // A whole list, "[a, b]", is only understood behind the field's name.
    ok = parser.MergeFromString(absl::StrCat(field->name(), ": ", value),
                                message);
  } else {
    ok = parser.ParseFieldValueFromString(QuoteIfNeeded(field, value), field,
                                          message);
  }
  if (ok) {
    return absl::OkStatus();
  }
  std::string type = field->type_name();
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    type = field->message_type()->name();
  }
  return Invalid(path, ": '", value, "' does not fit a field of type ", type,
                 error.text.empty() ? "" : ": ", error.text);
}

absl::Status SetLeaf(Message* message, const Step& step,
                     const std::string& value, const std::string& path) {
  const Reflection* const reflection = message->GetReflection();
  if (!step.field->is_repeated() || step.index < 0) {
    // The parser merges into what is there, and an override replaces it.
    reflection->ClearField(message, step.field);
    return ParseValue(step, value, path, message);
  }
  WEIR_RETURN_IF_ERROR(CheckIndex(*message, step, path));
  // The parser can only add an entry to a list. So the value is added at the
  // end, and if it belongs elsewhere it changes places with the old one there.
  WEIR_RETURN_IF_ERROR(ParseValue(step, value, path, message));
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

// True if `message` has a value there; `index` is -1 for a field that is not a
// list. A scalar that is not `optional` always has one.
bool IsPresent(const Message& message, const FieldDescriptor* field,
               int index) {
  const Reflection* const reflection = message.GetReflection();
  if (index >= 0) {
    return index < reflection->FieldSize(message, field);
  }
  return !field->has_presence() || reflection->HasField(message, field);
}

// One value as text on one line, not shortened.
std::string Show(const Message& message, const FieldDescriptor* field,
                 int index) {
  if (!IsPresent(message, field, index)) {
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
  // Where both sides have the message, the difference is somewhere inside it.
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
      IsPresent(a, field, index) && IsPresent(b, field, index)) {
    if (index < 0) {
      return Difference(of_a->GetMessage(a, field), of_b->GetMessage(b, field),
                        path + ".");
    }
    return Difference(of_a->GetRepeatedMessage(a, field, index),
                      of_b->GetRepeatedMessage(b, field, index), path + ".");
  }
  // The whole texts are compared: what is shortened may differ in its tail.
  const std::string in_a = Show(a, field, index);
  const std::string in_b = Show(b, field, index);
  if (in_a == in_b) {
    return "";
  }
  return absl::StrCat(path, ": ", Shorten(in_a), " against ", Shorten(in_b));
}

std::string Difference(const Message& a, const Message& b,
                       const std::string& prefix) {
  const Descriptor* const type = a.GetDescriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* const field = type->field(i);
    const std::string path = prefix + field->name();
    if (!field->is_repeated()) {
      const std::string difference = FieldDifference(a, b, field, -1, path);
      if (!difference.empty()) {
        return difference;
      }
      continue;
    }
    // The longer list: an entry that one side lacks is a difference as well.
    const int count = std::max(a.GetReflection()->FieldSize(a, field),
                               b.GetReflection()->FieldSize(b, field));
    for (int k = 0; k < count; ++k) {
      const std::string difference =
          FieldDifference(a, b, field, k, absl::StrCat(path, "[", k, "]"));
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
  // Text format cannot begin with a brace, so the first character decides.
  const absl::string_view content = absl::StripLeadingAsciiWhitespace(text);
  if (absl::EndsWith(name, ".json") || absl::StartsWith(content, "{")) {
    return ParseJson(text, name);
  }
  return ParseText(text, name);
}

absl::Status ApplyJobSpecOverride(const std::string& assignment,
                                  JobSpec* spec) {
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0) {
    return Invalid("--set '", assignment,
                   "': write path=value, as in train.batch_size=64");
  }
  // Applied to a copy, because a path may make messages before it fails.
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
                                    const std::vector<std::string>& sets) {
  const absl::StatusOr<std::string> text = Files::Real()->ReadAll(path);
  // Whatever the reason: the one who started the task named a wrong file, and
  // another start with the same flags would find the same.
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
  // The printer goes through the fields by number and the spec has no map, so
  // equal specs have one text.
  std::string text;
  TextFormat::PrintToString(spec, &text);
  return text;
}

std::string UpdateModeName(const Update& update) {
  switch (update.mode_case()) {
    case Update::kSync:
      return "sync";
    case Update::kBoundedStaleness:
      return "bounded_staleness";
    default:  // async is also the mode of a job that names none
      return update.async().lock_free() ? "async_lock_free" : "async";
  }
}

std::string JobSpecHash(const JobSpec& spec) {
  return Sha256Hex(CanonicalJobSpecText(spec));
}

std::string FirstDifference(const Message& a, const Message& b) {
  // Mostly they are equal, which the bytes tell without a text of each field.
  return a.SerializeAsString() == b.SerializeAsString() ? ""
                                                        : Difference(a, b, "");
}

}  // namespace weir
