// SPDX-License-Identifier: Apache-2.0
#include "session/data/tokenizer.hpp"

#include <cstring>

#include "core/base/error.hpp"
#include "session/config/config.hpp"
#include "session/data/with_room.hpp"
#include "session/huggingface/recognise.hpp"

namespace eng {

Tokenizer::Tokenizer(Registry& registry, const std::string& what, const std::filesystem::path& base_dir) {
  const std::string path = what == "bytes" ? what : std::filesystem::absolute(base_dir / what).string();
  if (what != "bytes") refuse_mistaken_tokenizer(path);
  table_ = registry.table<eng_tokenizer>(ENG_TOKENIZER_KIND, "auto");
  who_ = "tokenizer of plugin " + registry.providers(ENG_TOKENIZER_KIND, "auto")[0]->description.id;
  const Section none("data", {});
  const Options options(none);
  Sink sink;
  sink.check(table_.create(options.get(), path.c_str(), &self_, sink.get()), Exit::data, who_);
  info_.struct_size = sizeof(info_);
  object_ = std::shared_ptr<void>(self_, table_.destroy);
  sink.check(table_.describe(self_, &info_, sink.get()), Exit::data, who_);
  if (info_.vocabulary < 1 || info_.vocabulary > INT32_MAX)
    throw Error(Exit::data, fmt::format("{} describes itself with vocabulary {}", who_, info_.vocabulary));
  if (!std::memchr(info_.content_hash, 0, sizeof(info_.content_hash)))
    throw Error(Exit::data, who_ + ": its content_hash does not end in NUL");
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool special) const {
  std::vector<int32_t> ids(text.size() + 8);  // usually enough: at most one token per byte
  with_room(who_, Exit::data, ids, [&](int32_t* data, uint64_t capacity) {
    Sink sink;
    uint64_t count = 0;
    sink.check(table_.encode(self_, text.data(), text.size(), special ? ENG_ENCODE_SPECIAL : 0, data, capacity, &count,
                             sink.get()),
               Exit::data, who_);
    return count;
  });
  for (const int32_t id : ids)
    if (id < 0 || id >= info_.vocabulary)
      throw Error(Exit::data, fmt::format("{} gives id {}, but its vocabulary is {}", who_, id, info_.vocabulary));
  return ids;
}

std::string Tokenizer::decode(int32_t id) const {
  std::string text(64, '\0');
  with_room(who_, Exit::data, text, [&](char* data, uint64_t capacity) {
    Sink sink;
    uint64_t size = 0;
    sink.check(table_.decode(self_, &id, 1, data, capacity, &size, sink.get()), Exit::data, who_);
    return size;
  });
  return text;
}

}  // namespace eng
