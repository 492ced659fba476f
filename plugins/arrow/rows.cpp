// SPDX-License-Identifier: Apache-2.0
#include "rows.hpp"

#include <arrow/array.h>
#include <arrow/array/util.h>

#include <algorithm>
#include <initializer_list>

namespace arrow_format {
namespace {

using arrow::Type;

bool is_text(const arrow::DataType& type) {
  switch (type.id()) {
    case Type::STRING:
    case Type::LARGE_STRING:
    case Type::STRING_VIEW:
    case Type::BINARY:
    case Type::LARGE_BINARY:
    case Type::BINARY_VIEW:
      return true;
    case Type::DICTIONARY:
      return is_text(*static_cast<const arrow::DictionaryType&>(type).value_type());
    case Type::EXTENSION:
      return is_text(*static_cast<const arrow::ExtensionType&>(type).storage_type());
    default:
      return false;
  }
}

// The text at `i`; false: it is null.
bool text_at(const arrow::Array& values, int64_t i, std::string_view* out) {
  if (values.IsNull(i)) return false;
  switch (values.type_id()) {
    case Type::LARGE_STRING:
    case Type::LARGE_BINARY:
      *out = static_cast<const arrow::LargeBinaryArray&>(values).GetView(i);
      return true;
    case Type::STRING_VIEW:
    case Type::BINARY_VIEW:
      *out = static_cast<const arrow::BinaryViewArray&>(values).GetView(i);
      return true;
    case Type::DICTIONARY: {
      const auto& indices = static_cast<const arrow::DictionaryArray&>(values);
      return text_at(*indices.dictionary(), indices.GetValueIndex(i), out);
    }
    case Type::EXTENSION:
      return text_at(*static_cast<const arrow::ExtensionArray&>(values).storage(), i, out);
    default:
      *out = static_cast<const arrow::BinaryArray&>(values).GetView(i);
      return true;
  }
}

// Texts as bytes, which need not be UTF-8: the source checks that.
std::shared_ptr<arrow::Array> as_bytes(const std::shared_ptr<arrow::Array>& values) {
  const std::shared_ptr<arrow::DataType> type = values->type_id() == Type::STRING         ? arrow::binary()
                                                : values->type_id() == Type::LARGE_STRING ? arrow::large_binary()
                                                : values->type_id() == Type::STRING_VIEW  ? arrow::binary_view()
                                                                                          : nullptr;
  if (!type) return values;
  const std::shared_ptr<arrow::ArrayData> data = values->data()->Copy();
  data->type = type;
  return arrow::MakeArray(data);
}

std::string in_quotes(const std::string& name) {
  return "\"" + printable(name, 60) + "\"";
}

}  // namespace

std::string Place::row(int64_t i) const {
  return part + ", row " + std::to_string(first_part + i + 1) + " of it (row " + std::to_string(first + i + 1) +
         " of the file)";
}

void Rows::open(const arrow::Schema& schema) {
  if (whole()) return;
  way_.assign(1, asked_.field);
  if (schema.GetAllFieldIndices(asked_.field).empty() && asked_.field.find('.') != std::string::npos) {
    way_.clear();
    for (std::size_t at = 0, dot = 0; dot != std::string::npos; at = dot + 1) {
      dot = asked_.field.find('.', at);
      way_.push_back(asked_.field.substr(at, dot - at));
    }
  }
  const std::vector<int> found = schema.GetAllFieldIndices(way_[0]);
  if (found.empty()) no_field(schema);
  if (found.size() > 1) throw Failure(ENG_INVALID, "several columns have the name " + in_quotes(way_[0]));
  std::shared_ptr<arrow::DataType> type = schema.field(found[0])->type();
  for (std::size_t i = 1; i < way_.size(); ++i) {
    const auto* outer = type->id() == Type::STRUCT ? static_cast<const arrow::StructType*>(type.get()) : nullptr;
    const int inner = outer ? outer->GetFieldIndex(way_[i]) : -1;  // -1 as well if several have the name
    if (inner < 0)
      throw Failure(ENG_INVALID, "no field " + in_quotes(asked_.field) + ": " + in_quotes(way_[i - 1]) + " is " +
                                     printable(type->ToString()) + ", and has no field " + in_quotes(way_[i]));
    type = outer->field(inner)->type();
  }
  if (is_text(*type)) return;
  const bool messages = type->id() == Type::LIST || type->id() == Type::LARGE_LIST;
  throw Failure(ENG_INVALID, "column " + in_quotes(asked_.field) + " is " + printable(type->ToString()) +
                                 ", not text: set [data] field to the column that holds the text" +
                                 (messages ? ". Conversations are read by [data] plugin = \"chat\"" : ""));
}

void Rows::no_field(const arrow::Schema& schema) const {
  std::string names;
  const int most = std::min(schema.num_fields(), 20);
  for (int i = 0; i < most; ++i) names += (i ? ", " : "") + in_quotes(schema.field(i)->name());
  if (schema.num_fields() > most) names += ", ... (" + std::to_string(schema.num_fields()) + " in all)";
  const auto any = [&](std::initializer_list<const char*> some) {
    return std::any_of(some.begin(), some.end(),
                       [&](const char* name) { return !schema.GetAllFieldIndices(name).empty(); });
  };
  throw Failure(ENG_INVALID,
                "no column " + in_quotes(asked_.field) + "; there are " + (names.empty() ? "none" : names) +
                    ": set [data] field to the one that holds the text" +
                    (any({"chosen", "rejected"}) ? ". Pairs of preferred answers are read by [data] plugin = \"pairs\""
                     : any({"messages", "conversations", "instruction", "prompt", "completion", "response"})
                         ? ". Conversations, and questions with answers, are read by [data] plugin = \"chat\""
                         : ""));
}

void Rows::put_text(std::string_view text) {
  const eng_status status = out_.put(&out_, text.data(), text.size(), 0, error_);
  if (status != ENG_OK) throw Stopped{status};
}

void Rows::put(const arrow::RecordBatch& batch, const Place& place, const Content& content) {
  content.check(whole() ? batch.ValidateFull() : batch.Validate(), place.part);
  rows_ += static_cast<uint64_t>(batch.num_rows());
  if (whole()) {
    std::string text;
    for (int64_t i = 0; i < batch.num_rows(); ++i) {
      text = "{";
      for (int c = 0; c < batch.num_columns(); ++c) {
        if (c > 0) text += ", ";
        append_quoted(batch.schema()->field(c)->name(), text);
        text += ": ";
        try {
          append_json(*batch.column(c), i, text);
        } catch (const Failure& failure) {
          throw Failure(failure.status,
                        place.row(i) + ": column " + in_quotes(batch.schema()->field(c)->name()) + " " + failure.text);
        }
      }
      put_text(text += "}");
    }
    return;
  }
  std::vector<std::shared_ptr<arrow::Array>> levels = {batch.GetColumnByName(way_[0])};
  for (std::size_t i = 1; i < way_.size(); ++i)
    levels.push_back(static_cast<const arrow::StructArray&>(*levels.back()).GetFieldByName(way_[i]));
  const std::shared_ptr<arrow::Array> texts = as_bytes(levels.back());
  content.check(texts->ValidateFull(), place.part);
  levels.pop_back();
  for (int64_t i = 0; i < batch.num_rows(); ++i) {
    std::string_view text;
    const bool outer = std::all_of(levels.begin(), levels.end(), [&](const auto& level) { return level->IsValid(i); });
    if (outer && text_at(*texts, i, &text)) {
      put_text(text);
    } else if (asked_.skip) {
      ++seen_.left_out;
    } else {
      throw Failure(ENG_INVALID, place.row(i) + ": " + in_quotes(asked_.field) +
                                     " is null. With [data] missing = \"skip\" such rows are left out, and counted");
    }
  }
}

void Rows::begin_part(uint64_t part) {
  if (part == 0 || !ENG_HAS(&out_, part)) return;
  const eng_status status = out_.part(&out_, part, error_);
  if (status != ENG_OK) throw Stopped{status};
}

void Rows::finish(bool whole_file) const {
  if (whole_file && rows_ > 0 && seen_.left_out == rows_)
    throw Failure(ENG_INVALID, "none of its " + std::to_string(rows_) + " rows has a text in the column " +
                                   in_quotes(asked_.field) + ", so [data] missing = \"skip\" would leave out all");
}

}  // namespace arrow_format
