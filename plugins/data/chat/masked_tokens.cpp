// SPDX-License-Identifier: Apache-2.0
#include "masked_tokens.hpp"

#include <algorithm>
#include <string_view>

#include "../failure.hpp"

namespace text_data {
namespace {

// The places of the spans in `decoded`, the bytes of the ids. These are the text itself, or the text after what the
// tokenizer puts before it. Where it changes more (composed characters, white space beside an added token), the text up
// to a place is encoded by itself: its bytes must be the beginning of all of them.
std::vector<Span> places_in(const Tokenizer& tokenizer, const MaskedText& of, std::string_view decoded,
                            const std::string& where) {
  std::vector<Span> out = of.spans;
  if (decoded.ends_with(of.text)) {
    const std::size_t more = decoded.size() - of.text.size();
    for (auto& [begin, end] : out) begin += more, end += more;
    return out;
  }
  const auto moved = [&](std::size_t at) {
    if (at == of.text.size()) return decoded.size();
    std::vector<int32_t> ids;
    std::string bytes;
    tokenizer.encode(std::string_view(of.text).substr(0, at), ids);
    for (const int32_t id : ids) tokenizer.decode(id, bytes);
    if (!decoded.starts_with(bytes))
      throw Failure(ENG_UNSUPPORTED,
                    where +
                        ": the tokenizer changes the text at the edge of an answer, so it is not known "
                        "which tokens are the answer's");
    return bytes.size();
  };
  for (auto& [begin, end] : out) begin = moved(begin), end = moved(end);
  return out;
}

}  // namespace

MaskedTokens masked_tokens(const Tokenizer& tokenizer, const MaskedText& of, const std::string& where) {
  MaskedTokens out;
  std::vector<int32_t>& ids = out.values;
  tokenizer.encode(of.text, ids);
  std::string decoded;
  std::vector<std::size_t> ends;
  for (const int32_t id : ids) {
    tokenizer.decode(id, decoded);
    ends.push_back(decoded.size());
  }
  const std::vector<Span> spans = places_in(tokenizer, of, decoded, where);
  out.weights.resize(ids.size(), 1);
  std::size_t begin = 0, span = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    while (span < spans.size() && begin >= spans[span].second) ++span;
    const bool trained = span < spans.size() && ends[i] > spans[span].first && ends[i] > begin;
    begin = ends[i];
    ids[i] = 2 * ids[i] + (trained ? 1 : 0);
    if (trained) out.weights[i] = of.weights[span];
  }
  return out;
}

}  // namespace text_data
