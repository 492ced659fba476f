// SPDX-License-Identifier: Apache-2.0
#include "tools/engine/tokenizer.hpp"

#include "core/base/error.hpp"
#include "core/config/config.hpp"

namespace eng {

Tokenizer::Tokenizer(Registry& registry, const std::string& what, const std::filesystem::path& base_dir) {
  const std::string path = what == "bytes" ? what : std::filesystem::absolute(base_dir / what).string();
  table_ = registry.table<eng_tokenizer>(ENG_TOKENIZER_KIND, "auto");
  const Section none("data", {});
  const Options options(none);
  Sink sink;
  sink.check(table_.create(options.get(), path.c_str(), &self_, sink.get()), Exit::data, "tokenizer");
  info_.struct_size = sizeof(info_);
  sink.check(table_.describe(self_, &info_, sink.get()), Exit::data, "tokenizer");
}

Tokenizer::~Tokenizer() {
  if (self_) table_.destroy(self_);
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool special) const {
  std::vector<int32_t> ids(text.size() + 8);
  uint64_t count = ids.size() + 1;
  while (count > ids.size()) {  // seldom twice: a byte is a token, at most
    if (count != ids.size() + 1) ids.resize(count);
    Sink sink;
    sink.check(table_.encode(self_, text.data(), text.size(), special ? ENG_ENCODE_SPECIAL : 0, ids.data(), ids.size(),
                             &count, sink.get()),
               Exit::data, "tokenizer");
  }
  ids.resize(count);
  return ids;
}

std::string Tokenizer::decode(int32_t id) const {
  std::string text(64, '\0');
  uint64_t size = text.size() + 1;
  while (size > text.size()) {
    if (size != text.size() + 1) text.resize(size);
    Sink sink;
    sink.check(table_.decode(self_, &id, 1, text.data(), text.size(), &size, sink.get()), Exit::data, "tokenizer");
  }
  text.resize(size);
  return text;
}

}  // namespace eng
