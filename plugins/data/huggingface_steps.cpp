// SPDX-License-Identifier: Apache-2.0
#include "huggingface_steps.hpp"

#include <algorithm>

#include "base64.hpp"
#include "utf8.hpp"

namespace text_data {

const char* const byte_level_pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

using Behaviour = Splitter::Behaviour;
constexpr std::size_t most_steps = 16;
// The library's Digits knows those of Unicode 17 too.
constexpr const char* digits = R"([\p{N}\x{11de0}-\x{11de9}\x{16ff4}-\x{16ff6}])";

// Behaviours, by their names in the file.
struct BehaviourName {
  const char* name;
  Behaviour behaviour;
};
constexpr BehaviourName behaviours[] = {{"Removed", Behaviour::removed},
                                        {"Isolated", Behaviour::isolated},
                                        {"MergedWithPrevious", Behaviour::merged_with_previous},
                                        {"MergedWithNext", Behaviour::merged_with_next},
                                        {"Contiguous", Behaviour::contiguous}};

struct FormName {
  const char* name;
  Normaliser::Form form;
};
constexpr FormName forms[] = {{"NFC", Normaliser::Form::nfc},
                              {"NFD", Normaliser::Form::nfd},
                              {"NFKC", Normaliser::Form::nfkc},
                              {"NFKD", Normaliser::Form::nfkd}};

struct ChangeName {
  const char* name;
  const CharacterChange& (*change)();
};
constexpr ChangeName changes[] = {{"Lowercase", lowercase_change},
                                  {"StripAccents", strip_accents_change},
                                  {"Nmt", nmt_change},
                                  {"ByteLevel", byte_level_change}};

// Steps that split at kinds of characters alone.
struct CharacterStep {
  const char* type;
  bool (*character)(char32_t);
  Behaviour behaviour;
};
constexpr CharacterStep character_steps[] = {{"WhitespaceSplit", is_space, Behaviour::removed},
                                             {"Whitespace", is_space, Behaviour::removed},
                                             {"Whitespace", is_word, Behaviour::contiguous},
                                             {"BertPreTokenizer", is_space, Behaviour::removed},
                                             {"BertPreTokenizer", is_punctuation, Behaviour::isolated}};

std::string item(const std::string& place, const char* list, std::size_t i) {
  return place + "." + list + "[" + std::to_string(i) + "]";
}

// {"Regex": ...} or {"String": ...}. Returns the text; sets `regex`.
std::string pattern_text(const JsonReader& reader, const json& value, const std::string& place, bool& regex,
                         std::string& inside) {
  const json& pattern = reader.at(value, "pattern", place + ".pattern", json::value_t::object);
  regex = pattern.contains("Regex");
  const char* const key = regex ? "Regex" : "String";
  inside = place + ".pattern." + key;
  return reader.text(pattern, key, place + ".pattern");
}

Behaviour behaviour_of(const JsonReader& reader, const json& value, const std::string& place, const char* fallback) {
  const json given = value.value("behavior", json(fallback));
  for (const BehaviourName& b : behaviours)
    if (given == b.name) return b.behaviour;
  reader.unsupported(place + ".behavior", given,
                     "use Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

void add_split(const JsonReader& reader, const json& value, const std::string& place, Splitter::Step& step) {
  bool regex = false;
  std::string inside;
  const std::string text = pattern_text(reader, value, place, regex, inside);
  if (text.empty()) reader.refuse(inside, "is empty");
  step.pattern = std::make_shared<Pattern>(regex ? text : Pattern::literal(text), reader.file() + ": " + inside);
  step.invert = reader.flag(value, "invert", place, false);
  step.behaviour = behaviour_of(reader, value, place, "Isolated");
}

Splitter::Step metaspace_step(const JsonReader& reader, const json& value, const std::string& place) {
  Splitter::Step step;
  step.space = value.contains("replacement") ? reader.text(value, "replacement", place) : "\xe2\x96\x81";
  std::size_t length = 0;
  if (step.space.empty() || (utf8_decode(step.space, &length), length != step.space.size()) || step.space == " ")
    reader.refuse(place + ".replacement", "is not one character");
  struct Scheme {
    const char* name;
    Splitter::Prefix prefix;
  };
  constexpr Scheme schemes[] = {
      {"always", Splitter::Prefix::always}, {"first", Splitter::Prefix::first}, {"never", Splitter::Prefix::never}};
  const json given = value.value("prepend_scheme", json("always"));
  const auto found =
      std::find_if(std::begin(schemes), std::end(schemes), [&](const Scheme& s) { return given == s.name; });
  if (found == std::end(schemes)) reader.unsupported(place + ".prepend_scheme", given, "use always, first or never");
  step.prefix = found->prefix;
  if (!reader.flag(value, "add_prefix_space", place, true) && step.prefix != Splitter::Prefix::never)
    reader.refuse(place + ".add_prefix_space", "is false, but prepend_scheme is not \"never\"");
  if (reader.flag(value, "split", place, true)) {
    step.pattern = std::make_shared<Pattern>(Pattern::literal(step.space), reader.file() + ": " + place);
    step.behaviour = Behaviour::merged_with_next;
  }
  return step;
}

void add_step(const JsonReader& reader, Splitter::Step step, const std::string& place, SplitterFile& out) {
  out.splitter.add(std::move(step));
  if (out.splitter.size() > most_steps)
    reader.refuse(place, "is one pre-tokenizer more than the " + std::to_string(most_steps) + " that are supported");
}

void add_bert(const JsonReader& reader, const json& value, const std::string& place, Normaliser& out) {
  const auto add = [&](const CharacterChange& change) {
    Normaliser::Step step;
    step.change = &change;
    out.add(std::move(step));
  };
  const bool lowercase = reader.flag(value, "lowercase", place, true);
  if (reader.flag(value, "clean_text", place, true)) add(clean_text_change());
  if (reader.flag(value, "handle_chinese_chars", place, true)) add(space_ideographs_change());
  if (reader.flag(value, "strip_accents", place, lowercase)) {
    Normaliser::Step form;
    form.form = Normaliser::Form::nfd;
    out.add(std::move(form));
    add(strip_nonspacing_change());
  }
  if (lowercase) add(lowercase_change());
}

}  // namespace

void read_normalizer(const JsonReader& reader, const json& value, const std::string& place, Normaliser& out) {
  if (value.is_null()) return;
  const std::string type = reader.type_of(value, place);
  if (type == "Sequence") {
    const json& list = reader.at(value, "normalizers", place + ".normalizers", json::value_t::array);
    for (std::size_t i = 0; i < list.size(); ++i) read_normalizer(reader, list[i], item(place, "normalizers", i), out);
    return;
  }
  if (type == "BertNormalizer") return add_bert(reader, value, place, out);
  Normaliser::Step step;
  for (const FormName& f : forms)
    if (type == f.name) step.form = f.form;
  for (const ChangeName& c : changes)
    if (type == c.name) step.change = &c.change();
  if (type == "Prepend") {
    step.prepend = reader.text(value, "prepend", place);
  } else if (type == "Replace") {
    bool regex = false;
    std::string inside;
    const std::string text = pattern_text(reader, value, place, regex, inside);
    if (text.empty()) reader.refuse(inside, "is empty");
    step.text = reader.text(value, "content", place);
    if (regex)
      step.pattern = std::make_shared<Pattern>(text, reader.file() + ": " + inside);
    else
      step.literal = text;
    if (regex && step.pattern->empty())  // the library replaces something else then
      reader.unsupported(inside, text, "the pattern of Replace must not match nothing");
  } else if (type == "Strip") {
    step.strip_left = reader.flag(value, "strip_left", place, false);
    step.strip_right = reader.flag(value, "strip_right", place, false);
  } else if (type == "Precompiled") {
    const std::string inside = place + ".precompiled_charsmap";
    std::string bytes;
    if (!base64_decode(reader.text(value, "precompiled_charsmap", place), bytes))
      reader.refuse(inside, "is not base64");
    step.charsmap = std::make_shared<Charsmap>(bytes, reader.file() + ": " + inside);
  } else if (step.form == Normaliser::Form::none && !step.change) {
    reader.unsupported(
        place + ".type", type,
        "use NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, BertNormalizer, Nmt, Precompiled, ByteLevel, "
        "Prepend, Replace, Strip or Sequence");
  }
  out.add(std::move(step));
}

void read_pre_tokenizer(const JsonReader& reader, const json& value, const std::string& place, SplitterFile& out) {
  if (value.is_null()) return;
  const std::string type = reader.type_of(value, place);
  if (type == "Sequence") {
    const json& list = reader.at(value, "pretokenizers", place + ".pretokenizers", json::value_t::array);
    for (std::size_t i = 0; i < list.size(); ++i)
      read_pre_tokenizer(reader, list[i], item(place, "pretokenizers", i), out);
    return;
  }
  if (out.bytes) {  // ByteLevel is not the last step: what follows sees its characters
    out.splitter.last().byte_characters = true;
    out.bytes = false;
    out.byte_characters = true;
  }
  Splitter::Step step;
  if (type == "ByteLevel") {
    if (out.byte_characters) reader.unsupported(place + ".type", type, "there is a ByteLevel before it");
    out.bytes = true;
    step.prefix_space = reader.flag(value, "add_prefix_space", place, true);
    if (reader.flag(value, "use_regex", place, true)) {
      step.pattern = std::make_shared<Pattern>(byte_level_pattern, reader.file() + ": " + place);
      out.by_word = true;
    }
  } else if (type == "Split") {
    add_split(reader, value, place, step);
  } else if (type == "CharDelimiterSplit") {
    step.pattern = std::make_shared<Pattern>(Pattern::literal(reader.text(value, "delimiter", place)),
                                             reader.file() + ": " + place);
    step.behaviour = Behaviour::removed;
  } else if (type == "Digits") {
    const bool one = reader.flag(value, "individual_digits", place, false);
    step.pattern = std::make_shared<Pattern>(digits + std::string(one ? "" : "+"), reader.file() + ": " + place);
  } else if (type == "Punctuation") {
    step.character = is_punctuation;
    step.behaviour = behaviour_of(reader, value, place, "Isolated");
  } else if (type == "UnicodeScripts") {
    step.scripts = out.drops = true;
  } else if (type == "Metaspace") {
    step = metaspace_step(reader, value, place);
    out.space = step.space;
    out.by_word = out.by_word || step.pattern != nullptr;
  } else {
    bool known = false;
    for (const CharacterStep& c : character_steps) {
      if (type != c.type) continue;
      known = out.by_word = true;
      step.character = c.character;
      step.behaviour = c.behaviour;
      add_step(reader, step, place, out);
    }
    if (known) return;
    reader.unsupported(place + ".type", type,
                       "use ByteLevel, Metaspace, Split, CharDelimiterSplit, Digits, Punctuation, Whitespace, "
                       "WhitespaceSplit, BertPreTokenizer, UnicodeScripts or Sequence");
  }
  add_step(reader, std::move(step), place, out);
}

}  // namespace text_data
