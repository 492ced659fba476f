// SPDX-License-Identifier: Apache-2.0
#include "graphemes.hpp"

#include <algorithm>

#include "unicode.hpp"
#include "utf8.hpp"

namespace text_data {
namespace {

// In the order of GRAPHEMES in tools/unicode-tables; the table has LV for LVT.
enum class Grapheme {
  other,
  cr,
  lf,
  control,
  extend,
  zwj,
  region,
  prepend,
  spacing,
  l,
  v,
  t,
  lv,
  pictograph,
  consonant,
  linker,
  lvt
};

Grapheme grapheme_of(char32_t c) {
  if (c >= 0x20 && c < 0x7f) return Grapheme::other;
  const uint32_t* const end = unicode_graphemes + unicode_grapheme_runs;
  const uint32_t row =
      *(std::upper_bound(unicode_graphemes, end, c, [](char32_t x, uint32_t entry) { return x < entry >> 4; }) - 1);
  const auto found = static_cast<Grapheme>(row & 15);
  return found == Grapheme::lv && (c - 0xac00) % 28 != 0 ? Grapheme::lvt : found;
}

// The rules that ask for more than two characters.
struct ClusterState {
  bool pictograph = false;                 // GB11: a pictograph, marks
  bool pictograph_joined = false;          // and a joiner
  bool consonant = false, linked = false;  // GB9c: a consonant and marks; one of them is a linker
  bool odd_regions = false;                // GB12, GB13

  void take(Grapheme g) {
    const bool mark = g == Grapheme::extend || g == Grapheme::linker;
    pictograph_joined = pictograph && g == Grapheme::zwj;
    pictograph = g == Grapheme::pictograph || (pictograph && mark);
    const bool kept = consonant && (mark || g == Grapheme::zwj);
    linked = kept && (linked || g == Grapheme::linker);
    consonant = g == Grapheme::consonant || kept;
    odd_regions = g == Grapheme::region && !odd_regions;
  }
};

bool joins(Grapheme a, Grapheme b, const ClusterState& state) {
  using G = Grapheme;
  if (a == G::cr) return b == G::lf;
  if (a == G::lf || a == G::control || b == G::control || b == G::cr || b == G::lf) return false;
  if (a == G::l && (b == G::l || b == G::v || b == G::lv || b == G::lvt)) return true;
  if ((a == G::lv || a == G::v) && (b == G::v || b == G::t)) return true;
  if ((a == G::lvt || a == G::t) && b == G::t) return true;
  if (b == G::extend || b == G::linker || b == G::zwj || b == G::spacing || a == G::prepend) return true;
  if (state.linked && b == G::consonant) return true;
  if (state.pictograph_joined && b == G::pictograph) return true;
  return state.odd_regions && b == G::region;
}

}  // namespace

std::size_t grapheme_length(std::string_view text) {
  const auto plain = [&](std::size_t i) { return text[i] >= 0x20 && text[i] < 0x7f; };
  if (plain(0) && (text.size() == 1 || plain(1))) return 1;
  std::size_t at = 0, length = 0;
  Grapheme before = grapheme_of(utf8_decode(text, &length));
  ClusterState state;
  state.take(before);
  for (at = length; at < text.size(); at += length) {
    const Grapheme next = grapheme_of(utf8_decode(text.substr(at), &length));
    if (!joins(before, next, state)) break;
    state.take(next);
    before = next;
  }
  return at;
}

}  // namespace text_data
