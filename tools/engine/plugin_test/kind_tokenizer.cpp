// SPDX-License-Identifier: Apache-2.0
// eng.tokenizer/1: text to ids and back, whatever the bytes are.
#include <cstring>

#include "engine/tokenizer.h"
#include "tools/engine/plugin_test/kinds.hpp"

namespace eng::plugin_test {
namespace {

using Ids = std::vector<int32_t>;

class Opened {
 public:
  Opened(const eng_tokenizer& table, const std::string& path) : table_(table) {
    const Section none("data", {});
    const Options options(none);
    Sink sink;
    check_made(table.create(options.get(), path.c_str(), &self_, sink.get()), sink);
    made_ = true;
    info.struct_size = sizeof info;
    sink.check(table.describe(self_, &info, sink.get()), Exit::data, "describe");
  }
  ~Opened() {
    if (made_) table_.destroy(self_);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  Ids encode(const std::string& text, uint32_t flags, uint64_t capacity) const {
    Ids out(capacity + 16, -7777);
    uint64_t count = 0;
    Sink sink;
    sink.check(table_.encode(self_, text.data(), text.size(), flags, out.data(), capacity, &count, sink.get()),
               Exit::data, "encode");
    for (uint64_t k = std::min(count, capacity); k < out.size(); ++k)
      if (out[k] != -7777)
        throw Broken(fmt::format("encode of {} bytes wrote id {} beyond its {}", text.size(), k, count));
    if (count > text.size() * 64 + 64)
      throw Broken(fmt::format("encode says that {} bytes have {} ids", text.size(), count));
    if (count > capacity) {
      const Ids all = encode(text, flags, count);
      if (all.size() != count)
        throw Broken(fmt::format("encode asks for room for {} ids, and then gives {}", count, all.size()));
      if (!std::equal(out.begin(), out.begin() + static_cast<ptrdiff_t>(capacity), all.begin()))
        throw Broken("with little room encode gives other ids");
      return all;
    }
    out.resize(count);
    for (int32_t id : out)
      if (id < 0 || id >= info.vocabulary)
        throw Broken(fmt::format("encode gives id {}, the vocabulary is {}", id, info.vocabulary));
    return out;
  }
  std::string decode(const Ids& ids, uint64_t capacity) const {
    std::string out(capacity + 16, '\x7f');
    uint64_t size = 0;
    Sink sink;
    sink.check(table_.decode(self_, ids.data(), ids.size(), out.data(), capacity, &size, sink.get()), Exit::data,
               "decode");
    for (uint64_t k = std::max(std::min(size, capacity), capacity); k < out.size(); ++k)
      if (out[k] != '\x7f') throw Broken(fmt::format("decode wrote behind its room of {} bytes", capacity));
    if (size > ids.size() * 4096 + 4096)
      throw Broken(fmt::format("decode says that {} ids have {} bytes", ids.size(), size));
    if (size > capacity) {
      const std::string all = decode(ids, size);
      if (all.size() != size)
        throw Broken(fmt::format("decode asks for room for {}, and then gives {}", size, all.size()));
      return all;
    }
    return out.substr(0, size);
  }
  eng_status refuses(int32_t id) const {
    char out[64];
    uint64_t size = 0;
    Sink sink;
    return table_.decode(self_, &id, 1, out, sizeof out, &size, sink.get());
  }
  eng_tokenizer_info info{};

 private:
  const eng_tokenizer& table_;
  void* self_ = nullptr;
  bool made_ = false;
};

std::vector<std::string> texts(Random& random, int rounds, bool any_bytes) {
  std::vector<std::string> out = {"",
                                  "a",
                                  " two  spaces\n\ttab",
                                  "don't 123 4567",
                                  "\xC3\xA4\xE4\xB8\xAD\xE6\x96\x87\xF0\x9F\x99\x82",
                                  "the cat sat on the mat. "};
  for (int k = 0; k < 20 * rounds; ++k) {
    std::string text;
    for (int64_t n = pick(random, 0, 300); n > 0; --n)
      text += static_cast<char>(any_bytes && k % 2 ? pick(random, 0, 255) : pick(random, 32, 126));
    out.push_back(text);
  }
  return out;
}

}  // namespace

void test_tokenizer(const Subject& s, Sheet& sheet) {
  eng_tokenizer table{};
  std::unique_ptr<Opened> t;
  std::string path = "bytes";
  for (const std::string& given : s.given)
    if (given.starts_with("tokenizer=")) path = given.substr(10);
  if (path != "bytes") path = std::filesystem::absolute(path).string();
  const bool made = sheet.check("create, describe", [&] {
    table = s.table<eng_tokenizer>();
    t = std::make_unique<Opened>(table, path);
    if (t->info.vocabulary < 1 || t->info.vocabulary > INT32_MAX)
      throw Broken(fmt::format("its vocabulary is {}", t->info.vocabulary));
    if (!std::memchr(t->info.content_hash, 0, sizeof t->info.content_hash))
      throw Broken("content_hash does not end in NUL");
    for (int32_t id : {t->info.bos, t->info.eos, t->info.eot})
      if (id < -1 || id >= t->info.vocabulary) throw Broken(fmt::format("bos, eos or eot is {}", id));
    return fmt::format("{}, {} ids; tokenizer=PATH opens another", path, t->info.vocabulary);
  });
  if (!made) return;
  sheet.check("round trip", [&] {
    Random random = s.random("round trip");
    size_t tried = 0, exact = 0;
    for (const std::string& text : texts(random, s.rounds, true)) {
      const Ids ids = t->encode(text, 0, text.size() + 8);
      const std::string back = t->decode(ids, 4 * text.size() + 16);
      ++tried, exact += back == text;
      if (!text.empty() && ids.empty()) throw Broken(fmt::format("a text of {} bytes has no ids", text.size()));
      if (path == "bytes" && back != text)
        throw Broken(fmt::format("a text of {} bytes comes back as another one", text.size()));
      // Normalising tokenizers change a text once, and then no more.
      const std::string again = t->decode(t->encode(back, 0, back.size() + 8), 4 * back.size() + 16);
      if (again.size() > 2 * back.size() + 16) throw Broken("each round trip makes a text longer");
    }
    return fmt::format("{} of {} texts come back as they were", exact, tried);
  });
  sheet.check("ids one by one, little room, no memory of earlier calls", [&] {
    Random random = s.random("room");
    for (const std::string& text : texts(random, s.rounds, true)) {
      const Ids ids = t->encode(text, ENG_ENCODE_SPECIAL, text.size() + 8);
      if (ids != t->encode(text, ENG_ENCODE_SPECIAL, ids.size() / 2))
        throw Broken("with little room encode gives other ids");
      const std::string all = t->decode(ids, 4 * text.size() + 64);
      if (all != t->decode(ids, all.size() / 2)) throw Broken("with little room decode gives another text");
      std::string parts;
      for (int32_t id : ids) parts += t->decode({id}, 64);
      if (parts != all)
        throw Broken(fmt::format("{} ids decoded one by one give another text than together", ids.size()));
      const Opened other(table, path);
      if (other.encode(text, ENG_ENCODE_SPECIAL, text.size() + 8) != ids)
        throw Broken("another object gives other ids");
    }
    return "";
  });
  sheet.check("ids outside of the vocabulary are refused", [&] {
    for (int32_t id : {static_cast<int32_t>(t->info.vocabulary), INT32_MAX, -1})
      if (const eng_status status = t->refuses(id); status == ENG_OK)
        throw Broken(fmt::format("decode accepts id {}, the vocabulary is {}", id, t->info.vocabulary));
    return "";
  });
}

}  // namespace eng::plugin_test
