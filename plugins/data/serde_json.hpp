// SPDX-License-Identifier: Apache-2.0
// JSON with the numbers of the `tokenizers` library. Its parser, Rust's serde_json, reads the digits of a fraction as a
// whole number and divides it by a power of ten. So it rounds twice, and one number in eight is not the nearest one to
// its text. Where two ways to split a text have equal sums of scores, that decides which one is taken.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "json_text.hpp"

namespace text_data {

// `text` is a number of JSON with a fraction or an exponent.
inline double serde_number(const std::string& text) {
  static const std::array<double, 309> powers = [] {
    std::array<double, 309> out{};
    for (std::size_t k = 0; k < out.size(); ++k) out[k] = std::stod("1e" + std::to_string(k));
    return out;
  }();
  const bool negative = text[0] == '-';
  uint64_t digits = 0;
  int exponent = 0;
  bool fraction = false, full = false;
  std::size_t at = negative ? 1 : 0;
  for (; at < text.size() && text[at] != 'e' && text[at] != 'E'; ++at) {
    if (text[at] < '0' || text[at] > '9') {
      fraction = true;
      full = false;
      continue;
    }
    const auto digit = static_cast<uint64_t>(text[at] - '0');
    full = full || digits > (UINT64_MAX - digit) / 10;  // the rest is left out
    if (!full) digits = digits * 10 + digit;
    exponent += fraction ? -!full : full;
  }
  if (at < text.size())
    exponent += static_cast<int>(std::clamp(std::strtol(text.c_str() + at + 1, nullptr, 10), -99999L, 99999L));
  auto value = static_cast<double>(digits);
  for (; exponent < -308 && value != 0; exponent += 308) value /= 1e308;
  const double power = powers[static_cast<std::size_t>(std::min(std::abs(exponent), 308))];
  value = exponent < 0 ? value / power : value * power;
  return negative ? -value : value;
}

// As parse_json, with such numbers.
inline nlohmann::json parse_serde_json(const std::string& text, const std::string& file) {
  struct Handler : nlohmann::detail::json_sax_dom_parser<nlohmann::json> {
    using nlohmann::detail::json_sax_dom_parser<nlohmann::json>::json_sax_dom_parser;
    bool number_float(double, const std::string& digits) {
      return nlohmann::detail::json_sax_dom_parser<nlohmann::json>::number_float(serde_number(digits), digits);
    }
  };
  check_json_depth(text, file, 32);
  try {
    nlohmann::json out;
    Handler handler(out, true);
    nlohmann::json::sax_parse(text, &handler);
    return out;
  } catch (const nlohmann::json::exception& error) {
    throw Failure(ENG_INVALID, file + ": not valid JSON: " + printable(error.what()));
  }
}

}  // namespace text_data
