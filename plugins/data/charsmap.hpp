// SPDX-License-Identifier: Apache-2.0
// The normalizer Precompiled: sentencepiece's rules, as a double array (a trie of bytes) and the texts it leads to.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace text_data {

class Charsmap {
 public:
  // `bytes` is the content of precompiled_charsmap, `where` the beginning of error texts. Throws Failure.
  Charsmap(const std::string& bytes, std::string where);
  // The normal form, in `kept`; false if nothing changes. The text must be valid UTF-8. Clusters below six bytes are
  // looked up as a whole first, and the shortest rule that one of them begins with replaces all of it: so the
  // `tokenizers` library does it. Throws Failure where the rules are damaged.
  bool apply(std::string_view text, std::string& kept) const;

 private:
  std::optional<std::string_view> find(std::string_view part) const;
  [[noreturn]] void damaged() const;
  std::vector<uint32_t> units_;
  std::string texts_;  // each ends in a zero
  std::string where_;
};

}  // namespace text_data
