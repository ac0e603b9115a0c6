#include "proto/job/field_rules.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "google/protobuf/text_format.h"
#include "re2/re2.h"

namespace weir {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;
using google::protobuf::Reflection;

// Of a text that breaks its rule, in a message.
constexpr size_t kShownBytesMax = 1024;

const FieldRule& RuleOf(const FieldDescriptor* field) {
  return field->options().GetExtension(rule);
}

bool IsMessage(const FieldDescriptor* field) {
  return field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
}

bool IsExcepted(const FieldRule& rule, const std::string& name) {
  return std::find(rule.except().begin(), rule.except().end(), name) !=
         rule.except().end();
}

// Whether the bool that the rule's `unless` names is true.
bool IsWaived(const Message& message, const FieldRule& rule) {
  if (rule.unless().empty()) {
    return false;
  }
  return message.GetReflection()->GetBool(
      message, message.GetDescriptor()->FindFieldByName(rule.unless()));
}

// ---------------------------------------------------------------- defaults

void SetDefault(const FieldDescriptor* field, Message* message) {
  const std::string& value = RuleOf(field).default_();
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    message->GetReflection()->SetString(message, field, value);
    return;
  }
  google::protobuf::TextFormat::Parser parser;
  WEIR_CHECK(parser.ParseFieldValueFromString(value, field, message));
}

void FillField(const FieldDescriptor* field, Message* message) {
  const FieldRule& rule = RuleOf(field);
  const Reflection* const reflection = message->GetReflection();
  if (rule.late()) {
    return;
  }
  if (field->is_repeated()) {
    for (int i = 0;
         IsMessage(field) && i < reflection->FieldSize(*message, field); ++i) {
      FillDefaults(reflection->MutableRepeatedMessage(message, field, i));
    }
    return;
  }
  const OneofDescriptor* const oneof = field->real_containing_oneof();
  const bool is_set = oneof == nullptr ? reflection->HasField(*message, field)
                                       : reflection->HasOneof(*message, oneof);
  if (!is_set && !rule.default_().empty() && !IsWaived(*message, rule)) {
    SetDefault(field, message);
  }
  if (IsMessage(field) && reflection->HasField(*message, field)) {
    FillDefaults(reflection->MutableMessage(message, field));
  }
}

// ---------------------------------------------------------------- checks

// One value of a field: of a list, entry `index`.
struct Place {
  const Message& message;
  const FieldDescriptor* field;
  int index;  // -1: not a list
  std::string path;
};

std::string Show(const Place& place) {
  std::string text;
  google::protobuf::TextFormat::PrintFieldValueToString(
      place.message, place.field, place.index, &text);
  return text;
}

absl::Status CheckNumber(const Place& place, const FieldRule& rule) {
  const std::string text = Show(place);
  double value = 0.0;
  if (!absl::SimpleAtod(text, &value)) {
    return absl::OkStatus();  // a bool
  }
  if (!std::isfinite(value)) {
    return InvalidField(place.path, text, " is not finite");
  }
  if (std::fabs(value) > FLT_MAX) {
    return InvalidField(place.path, text, " is not finite as a float32");
  }
  const bool in_range = (!rule.has_min() || value >= rule.min()) &&
                        (!rule.has_above() || value > rule.above()) &&
                        (!rule.has_max() || value <= rule.max()) &&
                        (!rule.has_below() || value < rule.below());
  if (!in_range) {
    return InvalidField(place.path, text, " is not ", RangeOf(*place.field));
  }
  if (rule.multiple_of() > 0 &&
      std::fmod(value, static_cast<double>(rule.multiple_of())) != 0) {
    return InvalidField(place.path, text, " is not a multiple of ",
                        rule.multiple_of());
  }
  return absl::OkStatus();
}

// Patterns stand in the protos, so they are few: each is compiled once.
const RE2& CompiledPattern(const std::string& pattern) {
  static Mutex mutex;
  static auto* const compiled = new std::map<std::string, const RE2*>;
  MutexLock lock(&mutex);
  const RE2*& regex = (*compiled)[pattern];
  if (regex == nullptr) {
    regex = new RE2(pattern);
  }
  return *regex;
}

absl::Status CheckString(const Place& place, const FieldRule& rule) {
  std::string buffer;
  const Reflection* const from = place.message.GetReflection();
  const std::string& text =
      place.index < 0
          ? from->GetStringReference(place.message, place.field, &buffer)
          : from->GetRepeatedStringReference(place.message, place.field,
                                             place.index, &buffer);
  if (!rule.pattern().empty() &&
      !RE2::FullMatch(text, CompiledPattern(rule.pattern()))) {
    return InvalidField(place.path, "'", text.substr(0, kShownBytesMax),
                        "' is not ", rule.expects());
  }
  if (rule.required() && text.empty()) {
    return InvalidField(place.path, "is not set");
  }
  if (rule.regex()) {
    const RE2 regex(text, RE2::Quiet);
    if (!regex.ok()) {
      return InvalidField(place.path, "'", text.substr(0, kShownBytesMax),
                          "' is not a regular expression: ", regex.error());
    }
  }
  return absl::OkStatus();
}

absl::Status CheckEnum(const Place& place, const FieldRule& rule) {
  const std::string text = Show(place);  // the name, or a number without one
  const EnumDescriptor* const type = place.field->enum_type();
  if (type->FindValueByName(text) == nullptr) {
    return InvalidField(place.path, text, " is unknown; choose one of ",
                        ChoicesOf(*type, rule));
  }
  if (IsExcepted(rule, text)) {
    return InvalidField(place.path, rule.because(), "; choose one of ",
                        ChoicesOf(*type, rule));
  }
  return absl::OkStatus();
}

absl::Status CheckMessage(const Place& place, const FieldRule& rule) {
  const Reflection* const from = place.message.GetReflection();
  const Message& value =
      place.index < 0
          ? from->GetMessage(place.message, place.field)
          : from->GetRepeatedMessage(place.message, place.field, place.index);
  for (const std::string& name : rule.except()) {
    const FieldDescriptor* const member =
        value.GetDescriptor()->FindFieldByName(name);
    if (value.GetReflection()->HasField(value, member)) {
      return InvalidField(place.path, rule.because(), "; choose one of ",
                          ChoicesOf(*member->containing_oneof(), rule));
    }
  }
  return CheckFields(value, place.path);
}

absl::Status CheckValue(const Place& place) {
  const FieldRule& rule = RuleOf(place.field);
  switch (place.field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return CheckString(place, rule);
    case FieldDescriptor::CPPTYPE_ENUM:
      return CheckEnum(place, rule);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return CheckMessage(place, rule);
    default:
      return CheckNumber(place, rule);
  }
}

// The strings below `list` that must differ from entry to entry.
absl::Status CheckUnique(const Place& list) {
  const Reflection* const from = list.message.GetReflection();
  const Descriptor* const type = list.field->message_type();
  for (int f = 0; f < type->field_count(); ++f) {
    const FieldDescriptor* const field = type->field(f);
    std::map<std::string, int> seen;
    const int size = from->FieldSize(list.message, list.field);
    for (int i = 0; RuleOf(field).unique() && i < size; ++i) {
      const Message& entry =
          from->GetRepeatedMessage(list.message, list.field, i);
      const std::string text = entry.GetReflection()->GetString(entry, field);
      const auto [first, is_new] = seen.emplace(text, i);
      if (!is_new) {
        return InvalidField(
            absl::StrCat(list.path, "[", i, "].", field->name()), "'", text,
            "' is that of ", list.path, "[", first->second,
            "] already; choose another one");
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckList(Place place) {
  const std::string path = place.path;
  const int size =
      place.message.GetReflection()->FieldSize(place.message, place.field);
  if (size == 0 && RuleOf(place.field).required()) {
    return InvalidField(path, "is empty; add at least one");
  }
  for (place.index = 0; place.index < size; ++place.index) {
    place.path = absl::StrCat(path, "[", place.index, "]");
    WEIR_RETURN_IF_ERROR(CheckValue(place));
  }
  place.path = path;
  return IsMessage(place.field) ? CheckUnique(place) : absl::OkStatus();
}

absl::Status CheckField(const Place& place) {
  const FieldDescriptor* const field = place.field;
  if (field->is_repeated()) {
    return CheckList(place);
  }
  if (place.message.GetReflection()->HasField(place.message, field)) {
    return CheckValue(place);
  }
  const FieldRule& rule = RuleOf(field);
  if (IsMessage(field) && rule.required() && !IsWaived(place.message, rule)) {
    const Descriptor* const type = field->message_type();
    if (type->real_oneof_decl_count() == 0) {
      return InvalidField(place.path, "is not set");
    }
    return InvalidField(place.path, "is not set; choose one of ",
                        ChoicesOf(*type->oneof_decl(0)));
  }
  // Whether a oneof has a member is asked of the whole message.
  const bool may_be_unset =
      IsMessage(field) || field->containing_oneof() != nullptr ||
      rule.may_be_unset() || !rule.default_().empty() ||
      (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING &&
       !rule.required());
  return may_be_unset ? absl::OkStatus() : CheckValue(place);
}

template <typename NameOf>
std::string Choices(int count, const FieldRule& rule, const NameOf& name_of) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) {
    if (!IsExcepted(rule, name_of(i))) {
      names.push_back(name_of(i));
    }
  }
  return absl::StrJoin(names, ", ");
}

std::string Bound(const FieldDescriptor& field, double value) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_FLOAT:
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return absl::StrCat(value);
    default:
      return absl::StrCat(static_cast<uint64_t>(value));
  }
}

// How many letters must be added, left out or changed to make `b` of `a`.
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);  // for the letters of `a` so far
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t k = 0; k < b.size(); ++k) {
      const size_t changed = diagonal + (a[i] == b[k] ? 0 : 1);
      diagonal = row[k + 1];
      row[k + 1] = std::min({row[k] + 1, row[k + 1] + 1, changed});
    }
  }
  return row.back();
}

}  // namespace

void FillDefaults(Message* message) {
  const Descriptor* const type = message->GetDescriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    FillField(type->field(i), message);
  }
}

absl::Status CheckFields(const Message& message, const std::string& path) {
  const Descriptor* const type = message.GetDescriptor();
  for (int i = 0; i < type->real_oneof_decl_count(); ++i) {
    const OneofDescriptor* const oneof = type->oneof_decl(i);
    if (!oneof->options().GetExtension(may_be_empty) &&
        !message.GetReflection()->HasOneof(message, oneof)) {
      return InvalidField(path, "no ", oneof->name(), " is set; choose one of ",
                          ChoicesOf(*oneof));
    }
  }
  const std::string prefix = path.empty() ? "" : path + ".";
  for (int i = 0; i < type->field_count(); ++i) {
    WEIR_RETURN_IF_ERROR(CheckField(
        {message, type->field(i), -1, prefix + type->field(i)->name()}));
  }
  return absl::OkStatus();
}

absl::StatusOr<const FieldDescriptor*> FindField(const Descriptor& type,
                                                 const std::string& name,
                                                 const std::string& path) {
  if (const FieldDescriptor* const field = type.FindFieldByName(name)) {
    return field;
  }
  std::vector<std::string> names;
  for (int i = 0; i < type.field_count(); ++i) {
    names.push_back(type.field(i)->name());
  }
  const std::string all = absl::StrJoin(names, ", ");
  // What shares no more than some letters is no help.
  size_t least = name.size() / 2 + 1;
  const std::string* nearest = nullptr;
  for (const std::string& other : names) {
    // No distance is less than that of the lengths, which costs nothing.
    const auto [shorter, longer] = std::minmax({other.size(), name.size()});
    if (longer - shorter >= least) {
      continue;
    }
    const size_t distance = EditDistance(name, other);
    if (distance < least) {
      least = distance;
      nearest = &other;
    }
  }
  std::string advice = "; it has ";
  if (nearest != nullptr) {
    advice = absl::StrCat("; did you mean '", *nearest, "'? It has ");
  }
  return Invalid("there is no field '", name, "' in ",
                 path.empty() ? type.name() : path, advice, all);
}

std::string RangeOf(const FieldDescriptor& field) {
  const FieldRule& rule = RuleOf(&field);
  const bool has_low = rule.has_min() || rule.has_above();
  if (!has_low && !rule.has_max() && !rule.has_below()) {
    return "";
  }
  // Only one of each pair is there, and the other one is 0.
  const std::string low = Bound(field, rule.min() + rule.above());
  const std::string high = Bound(field, rule.max() + rule.below());
  if (!rule.has_max() && !rule.has_below()) {
    return absl::StrCat(rule.has_above() ? "> " : ">= ", low);
  }
  // A bound from above alone is an unsigned number's, which begins at 0.
  return absl::StrCat("in ", rule.has_above() ? "(" : "[", low, ", ", high,
                      rule.has_below() ? ")" : "]");
}

std::string ChoicesOf(const OneofDescriptor& oneof, const FieldRule& rule) {
  return Choices(oneof.field_count(), rule,
                 [&](int i) { return oneof.field(i)->name(); });
}

std::string ChoicesOf(const EnumDescriptor& type, const FieldRule& rule) {
  return Choices(type.value_count(), rule,
                 [&](int i) { return type.value(i)->name(); });
}

}  // namespace weir
