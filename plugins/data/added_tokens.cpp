// SPDX-License-Identifier: Apache-2.0
#include "added_tokens.hpp"

#include <algorithm>
#include <utility>

#include "unicode.hpp"
#include "utf8.hpp"

namespace text_data {
namespace {

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
         c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

// The library's \w: alphabetic characters (also letters in circles), marks, digits, connectors and joiners.
bool is_word(char32_t c) {
  if (c == 0x200c || c == 0x200d || (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
      (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189))
    return true;
  const std::string_view category = unicode_category(c);
  return category[0] == 'L' || category[0] == 'M' || category == "Nd" || category == "Nl" || category == "Pc";
}

// The last character and where it begins.
char32_t last(std::string_view text, std::size_t* begin) {
  std::size_t at = text.size() - 1, length = 0;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
  *begin = at;
  return utf8_decode(text.substr(at), &length);
}

}  // namespace

bool ends_in_word(std::string_view text) {
  std::size_t begin = 0;
  return !text.empty() && is_word(last(text, &begin));
}

bool begins_with_word(std::string_view text) {
  std::size_t length = 0;
  return !text.empty() && is_word(utf8_decode(text, &length));
}

void AddedTokens::set(std::vector<AddedToken> tokens) {
  tokens_ = std::move(tokens);
  std::stable_sort(tokens_.begin(), tokens_.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.content.size() > b.content.size(); });
  for (const AddedToken& token : tokens_) {
    const auto first = static_cast<unsigned char>(token.content[0]);
    for (unsigned second = 0; second < 256; ++second)
      if (token.content.size() == 1 || second == static_cast<unsigned char>(token.content[1]))
        beginnings_.set(first * 256u + second);
  }
}

const AddedToken* AddedTokens::at(std::string_view rest) const {
  for (const AddedToken& token : tokens_)
    if (rest.substr(0, token.content.size()) == token.content) return &token;
  return nullptr;
}

bool AddedTokens::next(std::string_view text, std::size_t from, std::size_t taken, Found* found) const {
  if (tokens_.empty()) return false;
  for (std::size_t i = from; i < text.size(); ++i) {
    const auto first = static_cast<unsigned char>(text[i]);
    const unsigned second = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
    if (!beginnings_.test(first * 256u + second)) continue;
    const AddedToken* token = at(text.substr(i));
    if (token == nullptr) continue;
    std::size_t begin = i, end = i + token->content.size(), length = 0;
    if (token->single_word && (ends_in_word(text.substr(0, begin)) || begins_with_word(text.substr(end)))) {
      i = end - 1;  // as the library does: a refused match is not tried again
      continue;
    }
    const std::size_t after = end;
    std::size_t before = 0;
    while (token->lstrip && begin > taken && is_space(last(text.substr(0, begin), &before))) begin = before;
    while (token->rstrip && end < text.size() && is_space(utf8_decode(text.substr(end), &length))) end += length;
    *found = {std::max(begin, taken), end, after, token->id};
    return true;
  }
  return false;
}

}  // namespace text_data
