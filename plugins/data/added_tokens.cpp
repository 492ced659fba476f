// SPDX-License-Identifier: Apache-2.0
#include "added_tokens.hpp"

#include <algorithm>
#include <utility>

#include "normaliser.hpp"
#include "splitter.hpp"
#include "utf8.hpp"

namespace text_data {
namespace {

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
                   [](const AddedToken& a, const AddedToken& b) { return a.content < b.content; });
  one_first_ = !tokens_.empty() && tokens_.front().content[0] == tokens_.back().content[0];
  for (const AddedToken& token : tokens_) {
    const auto first = static_cast<unsigned char>(token.content[0]);
    for (unsigned second = 0; second < 256; ++second)
      if (token.content.size() == 1 || second == static_cast<unsigned char>(token.content[1]))
        beginnings_.set(first * 256u + second);
  }
}

// The longest token that the text begins with. The list is sorted: tokens with the same beginning stand together, and
// the shortest of them is the first.
const AddedToken* AddedTokens::at(std::string_view rest) const {
  const AddedToken* longest = nullptr;
  auto first = tokens_.begin(), last = tokens_.end();
  for (std::size_t depth = 0; first != last; ++depth) {
    if (first->content.size() == depth) longest = &*first;
    if (depth == rest.size()) break;
    const auto byte = [&](const AddedToken& t) {
      return t.content.size() > depth ? static_cast<int>(static_cast<unsigned char>(t.content[depth])) : -1;
    };
    const int wanted = static_cast<unsigned char>(rest[depth]);
    first = std::partition_point(first, last, [&](const AddedToken& t) { return byte(t) < wanted; });
    last = std::partition_point(first, last, [&](const AddedToken& t) { return byte(t) == wanted; });
  }
  return longest;
}

bool AddedTokens::next(std::string_view text, std::size_t from, std::size_t taken, Found* found) const {
  if (tokens_.empty()) return false;
  for (std::size_t i = from; i < text.size(); ++i) {
    if (one_first_) {  // often all begin with `<`
      i = text.find(tokens_.front().content[0], i);
      if (i == std::string_view::npos) return false;
    }
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
    if (token->lstrip && taken >= end) {  // the library drops what is empty behind the white space of the match before
      i = after - 1;
      continue;
    }
    *found = {std::max(begin, taken), end, after, token->id};
    return true;
  }
  return false;
}

}  // namespace text_data
