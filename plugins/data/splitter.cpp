// SPDX-License-Identifier: Apache-2.0
#include "splitter.hpp"

#include <algorithm>

#include "byte_characters.hpp"
#include "unicode.hpp"
#include "utf8.hpp"

namespace text_data {
namespace {

using Piece = Splitter::Scratch::Piece;
using Behaviour = Splitter::Behaviour;

const ByteCharacters& byte_characters() {
  static const ByteCharacters all;
  return all;
}

// Joins neighbours as the behaviour says. From the end for merged_with_next.
template <class Join>
void merge_pieces(std::vector<Piece>& pieces, Join joins) {
  std::size_t kept = 0;
  bool before = false;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Piece piece = pieces[i];
    if (joins(piece.match, before) && kept > 0) {
      pieces[kept - 1].begin = std::min(pieces[kept - 1].begin, piece.begin);
      pieces[kept - 1].end = std::max(pieces[kept - 1].end, piece.end);
    } else {
      pieces[kept++] = piece;
    }
    before = piece.match;
  }
  pieces.resize(kept);
}

void apply_behaviour(Behaviour behaviour, std::vector<Piece>& pieces) {
  const auto follows = [](bool match, bool before) { return match && !before; };
  switch (behaviour) {
    case Behaviour::removed:
      pieces.erase(std::remove_if(pieces.begin(), pieces.end(), [](const Piece& p) { return p.match; }), pieces.end());
      break;
    case Behaviour::isolated:
      break;
    case Behaviour::contiguous:
      merge_pieces(pieces, [](bool match, bool before) { return match == before; });
      break;
    case Behaviour::merged_with_previous:
      merge_pieces(pieces, follows);
      break;
    case Behaviour::merged_with_next:
      std::reverse(pieces.begin(), pieces.end());
      merge_pieces(pieces, follows);
      std::reverse(pieces.begin(), pieces.end());
      break;
  }
}

constexpr std::size_t any_script = 255;

std::size_t script_named(std::string_view name) {
  std::size_t i = 0;
  while (i + 1 < unicode_script_count && name != unicode_script_names[i]) ++i;
  return i;
}

// The script as UnicodeScripts counts it: those of Unicode 9.0, with Japanese as one.
std::size_t counted_script(char32_t c) {
  static const std::size_t han = script_named("Han"), hiragana = script_named("Hiragana"),
                           katakana = script_named("Katakana"), common = script_named("Common"),
                           devanagari = script_named("Devanagari"), unknown = script_named("Unknown");
  if (c == ' ') return any_script;
  if (c == 0x30fc) return han;
  if (c == 0x589 || c == 0x61c) return common;  // of another script since
  if (c == 0x953 || c == 0x954) return devanagari;
  const std::size_t script = unicode_script(c);
  if (script == unknown || (c >= 0x500 && newer_than_normalisers(c))) return any_script;
  return script == hiragana || script == katakana ? han : script;
}

// A character of no script stays with what is before it; the library drops those at the beginning.
void script_pieces(std::string_view text, std::vector<Piece>& pieces) {
  pieces.clear();
  std::size_t before = any_script;
  for (std::size_t at = 0, length = 0; at < text.size(); at += length) {
    const std::size_t script = counted_script(utf8_decode(text.substr(at), &length));
    if (script == any_script || script == before) continue;
    if (!pieces.empty()) pieces.back().end = at;
    pieces.push_back({at, text.size(), true});
    before = script;
  }
}

}  // namespace

void Splitter::split(std::string_view text, bool first, Scratch& scratch, const MatchState& state,
                     const Take& take) const {
  scratch.levels.resize(steps_.size());
  scratch.exact = std::any_of(steps_.begin(), steps_.end(),
                              [&](const Step& step) { return step.pattern && step.pattern->needs_exact(text); });
  split_at(0, text, first, scratch, state, take);
}

void Splitter::pieces(const Step& step, std::string_view text, std::vector<Piece>& out, const Scratch& scratch,
                      const MatchState& state) const {
  out.clear();
  std::size_t done = 0;
  const auto found = [&](std::size_t begin, std::size_t end) {
    if (begin > done) out.push_back({done, begin, step.invert});
    out.push_back({begin, end, !step.invert});
    done = end;
  };
  if (step.pattern) {
    Pattern::Position position;
    std::size_t begin = 0, end = 0;
    while (step.pattern->next(text, position, scratch.exact, state, &begin, &end)) found(begin, end);
  } else {
    for (std::size_t at = 0, length = 0; at < text.size(); at += length)
      if (step.character(utf8_decode(text.substr(at), &length))) found(at, at + length);
  }
  if (done < text.size()) out.push_back({done, text.size(), step.invert});
}

void Splitter::split_at(std::size_t at, std::string_view text, bool first, Scratch& scratch, const MatchState& state,
                        const Take& take) const {
  if (text.empty()) return;
  if (at == steps_.size()) return take(text);
  const Step& step = steps_[at];
  Scratch::Level& level = scratch.levels[at];
  if (!step.space.empty()) {
    const bool begins = text[0] == ' ' || text.substr(0, step.space.size()) == step.space;
    level.changed.clear();
    if (!begins && (step.prefix == Prefix::always || (step.prefix == Prefix::first && first)))
      level.changed = step.space;
    for (const char c : text) {
      if (c == ' ')
        level.changed += step.space;
      else
        level.changed += c;
    }
    text = level.changed;
  } else if (step.prefix_space && text[0] != ' ') {
    level.changed.assign(1, ' ').append(text);
    text = level.changed;
  }
  const auto give = [&](std::size_t begin, std::size_t end) {
    std::string_view part = text.substr(begin, end - begin);
    if (step.byte_characters) {
      byte_characters().characters(part, level.characters);
      part = level.characters;
    }
    if (at + 1 == steps_.size())
      take(part);
    else
      split_at(at + 1, part, first && begin == 0, scratch, state, take);
  };
  if (!step.pattern && !step.character && !step.scripts) return give(0, text.size());
  if (step.pattern && step.behaviour == Behaviour::isolated) {  // the common case, without a list of pieces
    Pattern::Position position;
    std::size_t done = 0, begin = 0, end = 0;
    while (step.pattern->next(text, position, scratch.exact, state, &begin, &end)) {
      if (begin > done) give(done, begin);
      if (end > begin) give(begin, end);
      done = end;
    }
    if (done < text.size()) give(done, text.size());
    return;
  }
  if (step.scripts) {
    script_pieces(text, level.pieces);
  } else {
    pieces(step, text, level.pieces, scratch, state);
    apply_behaviour(step.behaviour, level.pieces);
  }
  for (const Piece& piece : level.pieces)
    if (piece.end > piece.begin) give(piece.begin, piece.end);
}

// Categories of Unicode 8.0, which the library has for this alone.
bool is_punctuation(char32_t c) {
  if (c < 0x80)
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
  if (c == 0x166d || c == 0x111c9) return true;  // no longer punctuation
  constexpr CharacterRange of_nine[] = {{0x2e43, 0x2e44},   {0x1144b, 0x1144f}, {0x1145b, 0x1145b}, {0x1145d, 0x1145d},
                                        {0x11660, 0x1166c}, {0x11c41, 0x11c45}, {0x11c70, 0x11c71}, {0x1e95e, 0x1e95f}};
  for (const CharacterRange& r : of_nine)
    if (c >= r.first && c <= r.last) return false;
  return unicode_category(c)[0] == 'P' && !newer_than_normalisers(c);
}

// The library's \w: alphabetic characters (also letters in circles), marks, digits, connectors and joiners.
bool is_word(char32_t c) {
  if (c == 0x200c || c == 0x200d || (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
      (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189))
    return true;
  const std::string_view category = unicode_category(c);
  return category[0] == 'L' || category[0] == 'M' || category == "Nd" || category == "Nl" || category == "Pc";
}

}  // namespace text_data
