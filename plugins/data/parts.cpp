// SPDX-License-Identifier: Apache-2.0
#include "parts.hpp"

#include <algorithm>
#include <utility>

#include "failure.hpp"

namespace text_data {
namespace {

bool letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

}  // namespace

Cut cut_of(const Tokenizer& tokenizer) {
  if (!tokenizer.cuttable()) return Cut::never;
  const auto same = [&](const std::vector<std::string_view>& parts) {
    for (const std::string whole : {"some text that Stands here", "I will be"}) {
      std::vector<int32_t> ids, joined;
      tokenizer.encode(whole, ids);
      const std::size_t space = whole.find(' ');
      tokenizer.encode(std::string_view(whole).substr(0, space), joined);
      tokenizer.encode(std::string(parts[0]) + whole.substr(space + 1), joined);
      if (ids != joined) return false;
    }
    return true;
  };
  try {
    return same({" "}) ? Cut::before_space : same({""}) ? Cut::for_space : Cut::never;
  } catch (const Failure&) {
    return Cut::never;  // the vocabulary lacks a word of these texts
  }
}

void Batch::encode(const Tokenizer& tokenizer) {
  ids.clear();
  std::size_t at = 0;
  for (Part& part : parts) {
    tokenizer.encode(std::string_view(text).substr(at, part.end - at), ids);
    at = part.end;
    part.ids = ids.size();
  }
}

void Batcher::add(std::string_view text, bool last) {
  batch_.text += text;
  batch_.parts.push_back({batch_.text.size(), first_, last});
  first_ = false;
  if (batch_.text.size() >= batch_bytes) finish();
}

void Batcher::text(std::string_view text) {
  rest_ += text;
  std::size_t begin = 0;  // of what is in no part yet
  while (cut_ != Cut::never && rest_.size() - begin >= part_bytes) {
    std::size_t at = std::max(looked_, begin + part_bytes / 2);
    while (at + 1 < rest_.size() && !(rest_[at] == ' ' && letter(rest_[at - 1]) && letter(rest_[at + 1]))) ++at;
    looked_ = at;
    if (at + 1 >= rest_.size()) break;
    add(std::string_view(rest_).substr(begin, at - begin), false);
    begin = at + (cut_ == Cut::for_space ? 1 : 0);
  }
  rest_.erase(0, begin);
  looked_ -= std::min(looked_, begin);
}

void Batcher::end() {
  add(rest_, true);
  rest_.clear();
  looked_ = 0;
}

void Batcher::finish() {
  if (batch_.parts.empty()) return;
  take_(std::exchange(batch_, Batch()));
}

}  // namespace text_data
