// SPDX-License-Identifier: Apache-2.0
// Values as JSON, as `json.dumps` of Python writes what pyarrow gives for them: a line of JSON Lines with the same row
// reads the same.
#include <arrow/array.h>
#include <arrow/scalar.h>
#include <arrow/util/float16.h>
#include <arrow/util/utf8.h>

#include <charconv>
#include <cmath>

#include "rows.hpp"

namespace arrow_format {
namespace {

using arrow::Type;

template <class Array>
void whole_number(const arrow::Array& values, int64_t i, std::string& out) {
  out += std::to_string(static_cast<const Array&>(values).Value(i));
}

void real_number(double value, std::string& out) {
  if (!std::isfinite(value))
    throw Failure(ENG_INVALID, "holds " + std::to_string(value) + ", which JSON does not have: write null instead");
  char text[40];
  const std::string_view digits(text,
                                static_cast<std::size_t>(std::to_chars(text, text + sizeof(text), value).ptr - text));
  out += digits;
  if (digits.find_first_of(".e") == std::string_view::npos) out += ".0";
}

// The elements [first, first + count).
void elements(const arrow::Array& values, int64_t first, int64_t count, std::string& out) {
  out += '[';
  for (int64_t k = 0; k < count; ++k) {
    if (k > 0) out += ", ";
    append_json(values, first + k, out);
  }
  out += ']';
}

template <class List>
void list(const arrow::Array& values, int64_t i, std::string& out) {
  const auto& lists = static_cast<const List&>(values);
  elements(*lists.values(), lists.value_offset(i), lists.value_length(i), out);
}

template <class Bytes>
void text(const arrow::Array& values, int64_t i, std::string& out) {
  append_quoted(static_cast<const Bytes&>(values).GetView(i), out);
}

template <class Bytes>
void bytes(const arrow::Array& values, int64_t i, std::string& out) {
  const std::string_view value = static_cast<const Bytes&>(values).GetView(i);
  if (arrow::util::ValidateUTF8(value))
    append_quoted(value, out);
  else
    out += "null";
}

void object(const arrow::StructArray& values, int64_t i, std::string& out) {
  out += '{';
  for (int k = 0; k < values.num_fields(); ++k) {
    if (k > 0) out += ", ";
    append_quoted(values.struct_type()->field(k)->name(), out);
    out += ": ";
    append_json(*values.field(k), i, out);
  }
  out += '}';
}

void map(const arrow::MapArray& values, int64_t i, std::string& out) {
  out += '{';
  for (int64_t k = values.value_offset(i), end = k + values.value_length(i); k < end; ++k) {
    if (out.back() != '{') out += ", ";
    const arrow::Type::type key = values.keys()->type_id();
    if (key != Type::STRING && key != Type::LARGE_STRING)
      throw Failure(ENG_UNSUPPORTED, "is a map whose keys are not strings");
    append_json(*values.keys(), k, out);
    out += ": ";
    append_json(*values.items(), k, out);
  }
  out += '}';
}

}  // namespace

void append_quoted(std::string_view text, std::string& out) {
  constexpr char digits[] = "0123456789abcdef";
  out += '"';
  for (std::size_t at = 0, begin = 0;; ++at) {
    const unsigned char c = at < text.size() ? static_cast<unsigned char>(text[at]) : 0;
    if (at < text.size() && c >= 0x20 && c != '"' && c != '\\') continue;
    out += text.substr(begin, at - begin);
    begin = at + 1;
    if (at >= text.size()) break;
    if (c == '"' || c == '\\')
      (out += '\\') += static_cast<char>(c);
    else
      ((out += "\\u00") += digits[c >> 4]) += digits[c & 15];
  }
  out += '"';
}

void append_json(const arrow::Array& values, int64_t i, std::string& out) {
  if (values.IsNull(i)) {
    out += "null";
    return;
  }
  switch (values.type_id()) {
    case Type::NA:
      out += "null";
      return;
    case Type::BOOL:
      out += static_cast<const arrow::BooleanArray&>(values).Value(i) ? "true" : "false";
      return;
    case Type::INT8:
      return whole_number<arrow::Int8Array>(values, i, out);
    case Type::INT16:
      return whole_number<arrow::Int16Array>(values, i, out);
    case Type::INT32:
      return whole_number<arrow::Int32Array>(values, i, out);
    case Type::INT64:
      return whole_number<arrow::Int64Array>(values, i, out);
    case Type::UINT8:
      return whole_number<arrow::UInt8Array>(values, i, out);
    case Type::UINT16:
      return whole_number<arrow::UInt16Array>(values, i, out);
    case Type::UINT32:
      return whole_number<arrow::UInt32Array>(values, i, out);
    case Type::UINT64:
      return whole_number<arrow::UInt64Array>(values, i, out);
    case Type::HALF_FLOAT: {
      const uint16_t bits = static_cast<const arrow::HalfFloatArray&>(values).Value(i);
      return real_number(arrow::util::Float16::FromBits(bits).ToDouble(), out);
    }
    case Type::FLOAT:
      return real_number(static_cast<const arrow::FloatArray&>(values).Value(i), out);
    case Type::DOUBLE:
      return real_number(static_cast<const arrow::DoubleArray&>(values).Value(i), out);
    case Type::STRING:
      return text<arrow::BinaryArray>(values, i, out);
    case Type::LARGE_STRING:
      return text<arrow::LargeBinaryArray>(values, i, out);
    case Type::STRING_VIEW:
      return text<arrow::BinaryViewArray>(values, i, out);
    case Type::BINARY:
      return bytes<arrow::BinaryArray>(values, i, out);
    case Type::LARGE_BINARY:
      return bytes<arrow::LargeBinaryArray>(values, i, out);
    case Type::BINARY_VIEW:
      return bytes<arrow::BinaryViewArray>(values, i, out);
    case Type::FIXED_SIZE_BINARY:
      return bytes<arrow::FixedSizeBinaryArray>(values, i, out);
    case Type::LIST:
      return list<arrow::ListArray>(values, i, out);
    case Type::LARGE_LIST:
      return list<arrow::LargeListArray>(values, i, out);
    case Type::FIXED_SIZE_LIST:
      return list<arrow::FixedSizeListArray>(values, i, out);
    case Type::LIST_VIEW:
      return list<arrow::ListViewArray>(values, i, out);
    case Type::LARGE_LIST_VIEW:
      return list<arrow::LargeListViewArray>(values, i, out);
    case Type::MAP:
      return map(static_cast<const arrow::MapArray&>(values), i, out);
    case Type::STRUCT:
      return object(static_cast<const arrow::StructArray&>(values), i, out);
    case Type::DICTIONARY: {
      const auto& indices = static_cast<const arrow::DictionaryArray&>(values);
      return append_json(*indices.dictionary(), indices.GetValueIndex(i), out);
    }
    case Type::EXTENSION:
      return append_json(*static_cast<const arrow::ExtensionArray&>(values).storage(), i, out);
    default: {  // dates, times, decimal numbers and others
      const arrow::Result<std::shared_ptr<arrow::Scalar>> value = values.GetScalar(i);
      if (!value.ok()) throw Failure(ENG_UNSUPPORTED, "is " + printable(values.type()->ToString()));
      append_quoted((*value)->ToString(), out);
    }
  }
}

}  // namespace arrow_format
