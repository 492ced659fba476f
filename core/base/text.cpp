// SPDX-License-Identifier: Apache-2.0
#include "core/base/text.hpp"

#include <algorithm>
#include <bit>

#include "core/base/error.hpp"

namespace eng {

std::vector<std::string> characters(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
    const auto lead = byte(0);
    const std::size_t size = lead < 0x80 ? 1 : lead < 0xc2 || lead > 0xf4 ? 0 : unsigned(std::countl_one(lead));
    bool valid = size > 0 && at + size <= text.size();
    for (std::size_t i = 1; valid && i < size; ++i) valid = (byte(i) & 0xc0) == 0x80;
    const bool control = lead < 0x20 || lead == 0x7f || (valid && lead == 0xc2 && byte(1) < 0xa0);
    out.push_back(lead == '\t' ? " " : !valid || control ? "?" : text.substr(at, size));
    at += valid ? size : 1;
  }
  return out;
}

std::string printable(const std::string& text, std::size_t most) {
  const auto all = characters(text);
  const auto end = all.begin() + static_cast<std::ptrdiff_t>(std::min(most, all.size()));
  return fmt::format("{}{}", fmt::join(all.begin(), end, ""), all.size() > most ? "..." : "");
}

void check_name(const char* what, const std::string& name) {
  constexpr std::size_t most = 1000;
  need(!name.empty(), "{} is empty", what);
  need(name.size() <= most, "{} has {} bytes, the limit is {}: `{}`", what, name.size(), most, printable(name, 60));
  if (std::all_of(name.begin(), name.end(), [](char c) { return c >= ' ' && c <= '~'; })) return;
  need(printable(name, most) == name, "{} contains control characters or is not UTF-8: `{}`", what,
       printable(name, 60));
}

}  // namespace eng
