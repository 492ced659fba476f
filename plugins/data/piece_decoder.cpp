// SPDX-License-Identifier: Apache-2.0
#include "piece_decoder.hpp"

#include <cstdio>
#include <string_view>

namespace text_data {
namespace {

void replace_all(std::string& text, std::string_view what, std::string_view by) {
  for (std::size_t at = 0; !what.empty() && (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
}

// The spaces that the library's WordPiece takes away, in its order.
void clean_up(std::string& text) {
  constexpr const char* pairs[][2] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                                      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                                      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& pair : pairs) replace_all(text, pair[0], pair[1]);
}

std::size_t count_of(const JsonReader& reader, const json& value, const char* key, const std::string& place) {
  const auto found = value.find(key);
  return found == value.end() ? 0 : static_cast<std::size_t>(reader.id_of(*found, place + "." + key));
}

}  // namespace

void PieceDecoder::read(const JsonReader& reader, const json& value, const std::string& place) {
  if (value.is_null()) return;
  const std::string type = reader.type_of(value, place);
  const auto text = [&](const char* key, const char* otherwise) {
    return value.contains(key) ? reader.text(value, key, place) : std::string(otherwise);
  };
  if (type == "Sequence") {
    const json& list = reader.at(value, "decoders", place + ".decoders", json::value_t::array);
    for (std::size_t i = 0; i < list.size(); ++i) read(reader, list[i], place + ".decoders[" + std::to_string(i) + "]");
  } else if (type == "ByteLevel") {
    byte_level = true;
  } else if (type == "ByteFallback") {
    byte_fallback = true;
  } else if (type == "Fuse") {
    fused = true;
  } else if (type == "Metaspace") {
    replaced.emplace_back(text("replacement", "\xe2\x96\x81"), " ");
  } else if (type == "Replace") {
    const json& pattern = reader.at(value, "pattern", place + ".pattern", json::value_t::object);
    if (pattern.contains("Regex"))
      reader.unsupported(place + ".pattern.Regex", pattern["Regex"], "a decoder may replace a String only");
    replaced.emplace_back(reader.text(pattern, "String", place + ".pattern"), reader.text(value, "content", place));
  } else if (type == "Strip") {
    if (!fused)
      strips_.push_back({reader.text(value, "content", place), count_of(reader, value, "start", place),
                         count_of(reader, value, "stop", place)});
  } else if (type == "WordPiece") {
    spaced = true;
    continuing = text("prefix", "##");
    cleanup = reader.flag(value, "cleanup", place, true);
  } else if (type == "BPEDecoder") {
    word_end = text("suffix", "</w>");
  } else {
    reader.unsupported(
        place + ".type", type,
        "use ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip, WordPiece, BPEDecoder or Sequence");
  }
}

std::string PieceDecoder::show(const std::string& piece, bool literal) const {
  std::string out = piece, bytes;
  if (!literal) {
    replace_all(out, word_end, " ");
    unsigned byte = 0;
    if (byte_level) {
      // A piece with other characters is no text of bytes. A space is there where the end of a word was.
      const bool end = !word_end.empty() && out.ends_with(' ');
      if (characters_.bytes(end ? out.substr(0, out.size() - 1) : out, bytes)) out = end ? bytes + " " : bytes;
      return out;
    }
    if (byte_fallback && out.size() == 6 && std::sscanf(out.c_str(), "<0x%2X>", &byte) == 1)
      return std::string(1, static_cast<char>(byte));
    for (const auto& [from, to] : replaced) replace_all(out, from, to);
    for (const Strip& strip : strips_) {
      if (strip.content.empty()) continue;
      for (std::size_t i = 0; i < strip.start && out.starts_with(strip.content); ++i)
        out.erase(0, strip.content.size());
      for (std::size_t i = 0; i < strip.stop && out.ends_with(strip.content); ++i)
        out.resize(out.size() - strip.content.size());
    }
  }
  if (!spaced) return out;
  if (!continuing.empty() && out.starts_with(continuing))
    out.erase(0, continuing.size());
  else
    out.insert(0, 1, ' ');
  if (cleanup) clean_up(out);
  return out;
}

}  // namespace text_data
