#include "proto/job/job_spec_reference.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "google/protobuf/descriptor.pb.h"
#include "proto/job/field_rules.h"
#include "proto/job_spec_descriptors.h"

namespace weir {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::OneofDescriptor;

// JobSpec as the .proto has it, with comments.
const Descriptor* Root() {
  static const Descriptor* const root = [] {
    google::protobuf::FileDescriptorSet files;
    WEIR_CHECK(files.ParseFromArray(
        kJobSpecDescriptors, static_cast<int>(sizeof(kJobSpecDescriptors))));
    auto* const pool = new DescriptorPool;
    for (const auto& file : files.file()) {
      WEIR_CHECK(pool->BuildFile(file) != nullptr);
    }
    return pool->FindMessageTypeByName("weir.JobSpec");
  }();
  return root;
}

// The lines of the comment at a message, a field, an enum or a value.
template <class Element>
std::vector<std::string> CommentOf(const Element& element) {
  google::protobuf::SourceLocation at;
  WEIR_CHECK(element.GetSourceLocation(&at));
  std::vector<std::string> lines;
  for (const absl::string_view line : absl::StrSplit(
           absl::StrCat(at.leading_comments, at.trailing_comments), '\n')) {
    lines.push_back(std::string(absl::StripAsciiWhitespace(line)));
  }
  lines.pop_back();  // behind the last end of a line
  return lines;
}

// The comment at a message or an enum as it is, or "".
template <class Type>
std::string Paragraph(const Type& type) {
  std::string text;
  for (const std::string& line : CommentOf(type)) {
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

std::string TypeOf(const FieldDescriptor& field) {
  std::string type = field.type_name();
  if (field.message_type() != nullptr) {
    type = field.message_type()->name();
  } else if (field.enum_type() != nullptr) {
    type = field.enum_type()->name();
  }
  return field.is_repeated() ? "list of " + type : type;
}

// What the rule of a field says: "in [1, 1024]; default 1".
std::string RuleText(const FieldDescriptor& field) {
  const FieldRule& rule = field.options().GetExtension(weir::rule);
  std::vector<std::string> parts;
  if (rule.required()) {
    parts.push_back("required");
  }
  if (field.enum_type() != nullptr) {
    parts.push_back("one of " + ChoicesOf(*field.enum_type(), rule));
  } else if (!rule.except().empty()) {
    parts.push_back("not " + absl::StrJoin(rule.except(), ", "));
  }
  parts.push_back(RangeOf(field));
  if (rule.multiple_of() > 0) {
    parts.push_back(absl::StrCat("a multiple of ", rule.multiple_of()));
  }
  parts.push_back(rule.expects());
  if (rule.unique()) {
    parts.push_back("unique");
  }
  if (field.real_containing_oneof() != nullptr && !rule.default_().empty()) {
    parts.push_back("the default");
  } else if (!rule.default_().empty() && rule.default_() != "{}") {
    const bool is_text = field.type() == FieldDescriptor::TYPE_STRING;
    const char* const quote = is_text ? "\"" : "";
    parts.push_back(absl::StrCat("default ", quote, rule.default_(), quote));
  }
  if (!rule.unless().empty()) {
    parts.push_back(absl::StrCat("not with ", rule.unless()));
  }
  parts.erase(std::remove(parts.begin(), parts.end(), ""), parts.end());
  return absl::StrJoin(parts, "; ");
}

// "One of epochs, steps is set."
std::vector<std::string> ChoicesIn(const Descriptor& type) {
  std::vector<std::string> lines;
  for (int i = 0; i < type.real_oneof_decl_count(); ++i) {
    const OneofDescriptor& oneof = *type.oneof_decl(i);
    lines.push_back(absl::StrCat(
        oneof.options().GetExtension(may_be_empty) ? "At most one" : "One",
        " of ", ChoicesOf(oneof), " is set."));
  }
  return lines;
}

std::string FieldList(const Descriptor& type) {
  std::string text;
  for (const std::string& line : ChoicesIn(type)) {
    absl::StrAppend(&text, "\n", line, "\n");
  }
  absl::StrAppend(&text, "\n");
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    absl::StrAppend(&text, absl::StrFormat("  %-22s %-20s %s", field.name(),
                                           TypeOf(field), RuleText(field)));
    absl::StripTrailingAsciiWhitespace(&text);
    absl::StrAppend(&text, "\n");
  }
  return text;
}

// ---------------------------------------------------------------- the page

// A cell of a table: one line.
std::string Cell(const std::string& text) {
  return absl::StrReplaceAll(text, {{"|", "\\|"}, {"\n", " "}});
}

std::string Link(const std::string& type) {
  return absl::StrCat("[", type, "](#", absl::AsciiStrToLower(type), ")");
}

std::string TypeLink(const FieldDescriptor& field) {
  if (field.message_type() == nullptr && field.enum_type() == nullptr) {
    return TypeOf(field);
  }
  std::string type = TypeOf(field);
  const size_t name = type.rfind(' ') + 1;  // npos + 1 is 0
  return type.substr(0, name) + Link(type.substr(name));
}

template <class Type>
std::string Heading(const Type& type) {
  const std::string about = Paragraph(type);
  return absl::StrCat("\n## ", type.name(), "\n\n", about,
                      about.empty() ? "" : "\n");
}

std::string EnumSection(const EnumDescriptor& type) {
  std::string text = Heading(type) + "| value | meaning |\n|---|---|\n";
  for (int i = 0; i < type.value_count(); ++i) {
    absl::StrAppend(&text, "| `", type.value(i)->name(), "` | ",
                    Cell(absl::StrJoin(CommentOf(*type.value(i)), " ")),
                    " |\n");
  }
  return text;
}

std::string MessageSection(const Descriptor& type) {
  std::string text = Heading(type);
  for (const std::string& line : ChoicesIn(type)) {
    absl::StrAppend(&text, line, "\n\n");
  }
  if (type.field_count() == 0) {
    return text + "It has no fields.\n";
  }
  absl::StrAppend(&text,
                  "| field | type | allowed | meaning |\n|---|---|---|---|\n");
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    absl::StrAppend(&text, "| `", field.name(), "` | ", TypeLink(field), " | ",
                    Cell(RuleText(field)), " | ",
                    Cell(absl::StrJoin(CommentOf(field), " ")), " |\n");
  }
  return text;
}

// The section of `type` and those of all types below it that are not in `seen`.
void AppendSections(const Descriptor& type, std::set<std::string>* seen,
                    std::string* page) {
  if (!seen->insert(type.full_name()).second) {
    return;
  }
  absl::StrAppend(page, MessageSection(type));
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.message_type() != nullptr) {
      AppendSections(*field.message_type(), seen, page);
    } else if (field.enum_type() != nullptr &&
               seen->insert(field.enum_type()->full_name()).second) {
      absl::StrAppend(page, EnumSection(*field.enum_type()));
    }
  }
}

}  // namespace

absl::StatusOr<std::string> ExplainField(const std::string& path) {
  const Descriptor* type = Root();
  if (path.empty()) {
    return Paragraph(*type) + FieldList(*type);
  }
  const FieldDescriptor* field = nullptr;
  std::string done;
  const std::vector<std::string> parts = absl::StrSplit(path, '.');
  for (const std::string& part : parts) {
    if (type == nullptr) {
      return absl::InvalidArgumentError(done + " has no fields below it");
    }
    const std::string name = part.substr(0, part.find('['));
    WEIR_ASSIGN_OR_RETURN(field, FindField(*type, name, done));
    absl::StrAppend(&done, done.empty() ? "" : ".", name);
    type = field->message_type();
  }
  std::string text = absl::StrCat(done, ": ", TypeOf(*field));
  const std::string rule = RuleText(*field);
  absl::StrAppend(&text, rule.empty() ? "" : "; ", rule, "\n");
  for (const std::string& line : CommentOf(*field)) {
    absl::StrAppend(&text, "  ", line, "\n");
  }
  if (type == nullptr) {
    return text;
  }
  const std::string about = Paragraph(*type);
  return absl::StrCat(text, about.empty() ? "" : "\n", about, FieldList(*type));
}

std::string JobSpecPage() {
  std::string page =
      "# The job file, field by field\n\n"
      "This page is made of the comments and rules in\n"
      "[`proto/job_spec.proto`](../proto/job_spec.proto), by\n"
      "`weir config explain --markdown`. `weir config explain FIELD` prints a "
      "part of it.\n"
      "What a job file looks like, with examples, is in [jobs](jobs.md).\n";
  std::set<std::string> seen;
  AppendSections(*Root(), &seen, &page);
  return page;
}

}  // namespace weir
