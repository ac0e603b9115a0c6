#include "proto/tensorboard/summaries.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace weir {
namespace {

using google::protobuf::FieldDescriptor;

enum Type { kFloat = 1, kDouble = 2, kString = 7 };
// Of the single bucket that equal numbers are in.
constexpr double kNarrowBucket = 1.0;
enum Class { kScalarClass = 1, kTensorClass = 2 };

void SetMetadata(const char* plugin, int data_class,
                 tensorboard::SummaryValue* value) {
  tensorboard::SummaryMetadata* const metadata = value->mutable_metadata();
  metadata->mutable_plugin_data()->set_plugin_name(plugin);
  metadata->set_data_class(data_class);
}

tensorboard::SummaryValue* AddFloat(const std::string& tag, float number,
                                    tensorboard::Summary* summary) {
  tensorboard::SummaryValue* const value = summary->add_value();
  value->set_tag(tag);
  value->mutable_tensor()->set_dtype(kFloat);
  value->mutable_tensor()->mutable_shape();
  value->mutable_tensor()->add_float_val(number);
  return value;
}

// All that "hparams" has to say stands in its metadata.
void AddHparamsData(const std::string& tag, tensorboard::HparamsData data,
                    tensorboard::Summary* summary) {
  data.set_version(0);
  tensorboard::SummaryValue* const value = AddFloat(tag, 0.0F, summary);
  SetMetadata("hparams", 0, value);
  value->mutable_metadata()->mutable_plugin_data()->set_content(
      data.SerializeAsString());
}

// Null for a field of a type that has no place among hyperparameters.
bool ToValue(const google::protobuf::Message& message,
             const FieldDescriptor* field, google::protobuf::Value* value) {
  const google::protobuf::Reflection* const reflection =
      message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      value->set_bool_value(reflection->GetBool(message, field));
      return true;
    case FieldDescriptor::CPPTYPE_STRING:
      value->set_string_value(reflection->GetString(message, field));
      return true;
    case FieldDescriptor::CPPTYPE_ENUM:
      value->set_string_value(reflection->GetEnum(message, field)->name());
      return true;
    case FieldDescriptor::CPPTYPE_FLOAT:
      value->set_number_value(reflection->GetFloat(message, field));
      return true;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      value->set_number_value(reflection->GetDouble(message, field));
      return true;
    case FieldDescriptor::CPPTYPE_UINT32:
      value->set_number_value(reflection->GetUInt32(message, field));
      return true;
    case FieldDescriptor::CPPTYPE_UINT64:
      value->set_number_value(
          static_cast<double>(reflection->GetUInt64(message, field)));
      return true;
    case FieldDescriptor::CPPTYPE_INT32:
      value->set_number_value(reflection->GetInt32(message, field));
      return true;
    case FieldDescriptor::CPPTYPE_INT64:
      value->set_number_value(
          static_cast<double>(reflection->GetInt64(message, field)));
      return true;
    default:
      return false;
  }
}

}  // namespace

void AddScalar(const std::string& tag, float value, bool first,
               tensorboard::Summary* summary) {
  tensorboard::SummaryValue* const added = AddFloat(tag, value, summary);
  if (first) {
    SetMetadata("scalars", kScalarClass, added);
  }
}

void AddHistogram(const std::string& tag, const Histogram& histogram,
                  bool first, tensorboard::Summary* summary) {
  const int buckets = histogram.count_size();
  if (buckets == 0) {
    return;
  }
  // [buckets, 3]: left edge, right edge, how many numbers.
  std::vector<double> rows;
  double left = histogram.min();
  double right = histogram.max();
  if (!(left < right)) {
    left -= kNarrowBucket / 2;  // TensorBoard draws nothing that has no width
    right += kNarrowBucket / 2;
  }
  const auto edge = [&](int k) {
    return k == buckets ? right : left + (right - left) * k / buckets;
  };
  for (int k = 0; k < buckets; ++k) {
    rows.insert(rows.end(), {edge(k), edge(k + 1),
                             static_cast<double>(histogram.count(k))});
  }
  tensorboard::SummaryValue* const value = summary->add_value();
  value->set_tag(tag);
  tensorboard::Tensor* const tensor = value->mutable_tensor();
  tensor->set_dtype(kDouble);
  tensor->mutable_shape()->add_dim()->set_size(buckets);
  tensor->mutable_shape()->add_dim()->set_size(3);
  // Little endian, as this machine is.
  tensor->set_content(rows.data(), rows.size() * sizeof(double));
  if (first) {
    SetMetadata("histograms", kTensorClass, value);
  }
}

void AddText(const std::string& tag, const std::string& markdown,
             tensorboard::Summary* summary) {
  tensorboard::SummaryValue* const value = summary->add_value();
  value->set_tag(tag);
  value->mutable_tensor()->set_dtype(kString);
  value->mutable_tensor()->mutable_shape()->add_dim()->set_size(1);
  value->mutable_tensor()->add_string_val(markdown);
  SetMetadata("text", kTensorClass, value);
}

void AddHparams(const Hparams& hparams, double start_seconds,
                tensorboard::Summary* summary) {
  tensorboard::HparamsData data;
  tensorboard::SessionStart* const start = data.mutable_session_start_info();
  for (const auto& [name, value] : hparams) {
    (*start->mutable_hparams())[name] = value;
  }
  start->set_start_time_secs(start_seconds);
  AddHparamsData("_hparams_/session_start_info", std::move(data), summary);
}

void AddEnd(bool success, double end_seconds, tensorboard::Summary* summary) {
  tensorboard::HparamsData data;
  data.mutable_session_end_info()->set_status(success ? 1 : 2);
  data.mutable_session_end_info()->set_end_time_secs(end_seconds);
  AddHparamsData("_hparams_/session_end_info", std::move(data), summary);
}

void AddLayout(const std::vector<std::pair<std::string, std::string>>& charts,
               tensorboard::Summary* summary) {
  tensorboard::Layout layout;
  tensorboard::Category* const category = layout.add_category();
  category->set_title("Weir");
  for (const auto& [title, tags] : charts) {
    tensorboard::Chart* const chart = category->add_chart();
    chart->set_title(title);
    chart->mutable_multiline()->add_tag(tags);
  }
  tensorboard::SummaryValue* const value = summary->add_value();
  value->set_tag("custom_scalars__config__");
  value->mutable_tensor()->set_dtype(kString);
  value->mutable_tensor()->mutable_shape();
  value->mutable_tensor()->add_string_val(layout.SerializeAsString());
  SetMetadata("custom_scalars", 0, value);
}

void AddFields(const google::protobuf::Message& message,
               const std::string& path, Hparams* hparams) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->is_repeated()) {
      continue;
    }
    const std::string name = absl::StrCat(path, ".", field->name());
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      AddFields(message.GetReflection()->GetMessage(message, field), name,
                hparams);
      continue;
    }
    google::protobuf::Value value;
    if (ToValue(message, field, &value)) {
      (*hparams)[name] = std::move(value);
    }
  }
}

}  // namespace weir
