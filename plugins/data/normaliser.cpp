// SPDX-License-Identifier: Apache-2.0
#include "normaliser.hpp"

#include <utf8proc.h>

#include <algorithm>

#include "failure.hpp"
#include "inert_characters.hpp"
#include "unicode.hpp"
#include "utf8.hpp"

namespace text_data {
namespace {

using Form = Normaliser::Form;

bool composes(Form form) {
  return form == Form::nfc || form == Form::nfkc;
}

void check_unicode(utf8proc_ssize_t size) {
  if (size < 0)
    throw Failure(size == UTF8PROC_ERROR_NOMEM ? ENG_NO_MEMORY : ENG_INTERNAL,
                  std::string("Unicode normalisation failed: ") + utf8proc_errmsg(size));
}

// Marks in the order of their classes. utf8proc_map would do it in a time that grows with the square of their number.
void order_marks(std::vector<int32_t>& characters) {
  const auto rank = [](int32_t c) { return utf8proc_get_property(c)->combining_class; };
  for (std::size_t begin = 0; begin < characters.size();) {
    if (rank(characters[begin]) == 0) {
      ++begin;
      continue;
    }
    std::size_t end = begin + 1;
    while (end < characters.size() && rank(characters[end]) != 0) ++end;
    const auto at = [&](std::size_t i) { return characters.begin() + static_cast<std::ptrdiff_t>(i); };
    if (end - begin > 1) std::stable_sort(at(begin), at(end), [&](int32_t a, int32_t b) { return rank(a) < rank(b); });
    begin = end;
  }
}

int options_of(Form form) {
  return UTF8PROC_STABLE | (composes(form) ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
         (form == Form::nfkc || form == Form::nfkd ? UTF8PROC_COMPAT : 0);
}

void append_normal(std::string& kept, std::string_view text, Form form, std::vector<int32_t>& characters) {
  const int options = options_of(form);
  characters.clear();
  int boundary = 0;
  for (std::size_t at = 0, length = 0; at < text.size(); at += length) {
    const auto c = static_cast<int32_t>(utf8_decode(text.substr(at), &length));
    if (c < 0x80) {
      characters.push_back(c);
      continue;
    }
    int32_t parts[32];
    utf8proc_ssize_t count = utf8proc_decompose_char(c, parts, 32, static_cast<utf8proc_option_t>(options), &boundary);
    check_unicode(count);
    characters.insert(characters.end(), parts, parts + std::min<utf8proc_ssize_t>(count, 32));
  }
  order_marks(characters);
  const utf8proc_ssize_t count = utf8proc_normalize_utf32(
      characters.data(), static_cast<utf8proc_ssize_t>(characters.size()), static_cast<utf8proc_option_t>(options));
  check_unicode(count);
  for (utf8proc_ssize_t i = 0; i < count; ++i)
    utf8_append(kept, static_cast<char32_t>(characters[static_cast<std::size_t>(i)]));
}

const InertCharacters& inert_characters(Form form) {
  switch (form) {
    case Form::nfc: {
      static const InertCharacters out(options_of(Form::nfc));
      return out;
    }
    case Form::nfd: {
      static const InertCharacters out(options_of(Form::nfd));
      return out;
    }
    case Form::nfkc: {
      static const InertCharacters out(options_of(Form::nfkc));
      return out;
    }
    default: {
      static const InertCharacters out(options_of(Form::nfkd));
      return out;
    }
  }
}

// False if the text is in this form already, as far as is easy to see.
bool to_form(std::string_view text, Form form, std::string& kept, std::vector<int32_t>& characters) {
  // No character below U+0300 composes with its neighbour, and none below U+0080 is another spelling of anything.
  const unsigned char first_other = form == Form::nfc ? 0xcc : 0x80;
  std::size_t plain = 0;
  while (plain < text.size() && static_cast<unsigned char>(text[plain]) < first_other) ++plain;
  if (plain == text.size()) return false;
  const InertCharacters& inert = inert_characters(form);
  std::size_t other = inert.find_other(text, 0), done = 0;
  if (other == text.size()) return false;
  kept.clear();
  while (other < text.size()) {
    // From the character before it, with which it may compose, to the next one that is inert.
    std::size_t begin = other, end = other, length = 0;
    if (begin > done) {
      do --begin;
      while ((static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80);
      if (newer_than_normalisers(utf8_decode(text.substr(begin), &length))) begin = other;
    }
    while (end < text.size() && !inert.test(utf8_decode(text.substr(end), &length))) end += length;
    kept += text.substr(done, begin - done);
    append_normal(kept, text.substr(begin, end - begin), form, characters);
    done = end;
    other = inert.find_other(text, end);
  }
  kept += text.substr(done);
  return true;
}

// True if the replacement of the first characters no longer begins where they did, as the library sees it.
bool moves(std::string_view replaced, const std::string& by) {
  std::size_t length = 0;
  if (!replaced.empty()) utf8_decode(replaced, &length);
  return by.empty() || replaced.size() > length;
}

bool replace_literal(std::string_view text, const std::string& what, const std::string& by, std::string& kept) {
  std::size_t at = text.find(what);
  if (at == std::string_view::npos) return false;
  kept.clear();
  std::size_t done = 0;
  for (; at != std::string_view::npos; at = text.find(what, done)) {
    kept.append(text.substr(done, at - done)).append(by);
    done = at + what.size();
  }
  kept.append(text.substr(done));
  return true;
}

bool replace_matches(std::string_view text, const Pattern& pattern, const std::string& by, std::string& kept,
                     const MatchState& state, bool* moved) {
  const bool exact = pattern.needs_exact(text);
  Pattern::Position position;
  std::size_t done = 0, begin = 0, end = 0;
  bool any = false;
  kept.clear();
  while (!text.empty() && pattern.next(text, position, exact, state, &begin, &end)) {
    kept.append(text.substr(done, begin - done)).append(by);
    if (done == 0 && begin == 0) *moved = *moved || moves(text.substr(0, end), by);
    done = end;
    any = true;
  }
  kept.append(text.substr(done));
  return any;
}

std::string_view stripped(std::string_view text, bool left, bool right) {
  std::size_t length = 0;
  while (left && !text.empty() && is_space(utf8_decode(text, &length))) text.remove_prefix(length);
  while (right && !text.empty()) {
    std::size_t at = text.size() - 1;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
    if (!is_space(utf8_decode(text.substr(at), &length))) break;
    text = text.substr(0, at);
  }
  return text;
}

}  // namespace

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
         c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

std::string_view Normaliser::apply(std::string_view text, Buffers& buffers, const MatchState& state,
                                   bool* moved) const {
  std::string* spare = &buffers.first;
  std::string* other = &buffers.second;  // holds `text`, where a step has changed it
  std::size_t inserted = 0;              // before the first character
  const auto keep = [&](bool changed) {
    if (!changed) return;
    text = *spare;
    std::swap(spare, other);
  };
  for (const Step& step : steps_) {
    if (step.form != Form::none) keep(to_form(text, step.form, *spare, buffers.characters));
    if (step.change) keep(step.change->apply(text, *spare, moved));
    if (step.charsmap) keep(step.charsmap->apply(text, *spare));
    if (step.pattern) keep(replace_matches(text, *step.pattern, step.text, *spare, state, moved));
    if (!step.literal.empty()) {
      if (text.starts_with(step.literal)) *moved = *moved || moves(step.literal, step.text);
      keep(replace_literal(text, step.literal, step.text, *spare));
    }
    if (!step.prepend.empty() && !text.empty()) {
      inserted += step.prepend.size();
      spare->assign(step.prepend).append(text);
      keep(true);
    }
    if (step.strip_left || step.strip_right) {
      const std::string_view rest = stripped(text, step.strip_left, step.strip_right);
      const auto gone = static_cast<std::size_t>(rest.data() - text.data());
      if (gone > inserted) *moved = true;
      inserted -= std::min(gone, inserted);
      text = rest;
    }
  }
  return text;
}

}  // namespace text_data
