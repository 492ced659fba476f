// SPDX-License-Identifier: Apache-2.0
#include "text.hpp"

#include <cmath>

#include "../../../charts/page.hpp"

namespace curvature::report {
namespace {

// Bytes of the UTF-8 character that begins at text[at]; 0 if none does.
size_t character_length(const std::string& text, size_t at) {
  const auto byte = [&](size_t k) { return k < text.size() ? static_cast<unsigned char>(text[k]) : 0u; };
  const unsigned first = byte(at);
  const size_t length = first < 0x80 ? 1 : first >= 0xc2 && first < 0xe0 ? 2 : first >= 0xe0 && first < 0xf0 ? 3 : 4;
  if ((first >= 0x80 && first < 0xc2) || first > 0xf4) return 0;
  for (size_t k = 1; k < length; ++k)
    if ((byte(at + k) & 0xc0) != 0x80) return 0;
  const unsigned second = byte(at + 1);
  const bool wrong = (first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ||
                     (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f);
  return wrong ? 0 : length;
}

// C0, DEL, C1, the separators of lines, marks of direction (they reorder what follows), and the two non-characters.
bool is_control(const std::string& character) {
  const auto byte = [&](size_t k) { return static_cast<unsigned char>(character[k]); };
  if (character.size() == 1) return byte(0) < 0x20 || byte(0) == 0x7f;
  if (character.size() == 2) return byte(0) == 0xc2 && byte(1) < 0xa0;
  if (character.size() != 3) return false;
  if (byte(0) == 0xef) return byte(1) == 0xbf && byte(2) >= 0xbe;
  if (byte(0) != 0xe2) return false;
  return (byte(1) == 0x80 && ((byte(2) >= 0x8e && byte(2) <= 0x8f) || (byte(2) >= 0xa8 && byte(2) <= 0xae))) ||
         (byte(1) == 0x81 && byte(2) >= 0xa6 && byte(2) <= 0xa9);
}

}  // namespace

std::string clean(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t length = character_length(text, at);
    const std::string character = text.substr(at, length ? length : 1);
    out += !length || is_control(character) ? "?" : character;
    at += character.size();
  }
  return out;
}

std::string brief(const std::string& text, size_t most) {
  const std::string all = clean(text);
  if (all.size() <= most) return all;
  while (most > 0 && (static_cast<unsigned char>(all[most]) & 0xc0) == 0x80) --most;  // not within a character
  return all.substr(0, most) + "…";
}

std::string escaped(const std::string& text) {
  return charts::markup(clean(text));
}

std::string short_number(double value) {
  return std::isfinite(value) ? fmt::format("{:.4g}", value) : "–";
}

std::string exact_number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "";
}

const char* class_name(Class kind) {
  return kind == Class::functional ? "functional" : kind == Class::sensitive ? "sensitive" : "both";
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("{}", fmt::join(shape, " x "));
}

uint64_t hessian_data_size(const Results& results) {
  uint64_t sum = 0;
  for (const Tensor& tensor : results.tensors) sum += tensor.measures.elements;
  return sum;
}

uint64_t measured_rows(const Results& results) {
  uint64_t sum = 0;
  for (const Tensor& tensor : results.tensors) sum += tensor.measured_rows.size();
  return sum;
}

}  // namespace curvature::report
