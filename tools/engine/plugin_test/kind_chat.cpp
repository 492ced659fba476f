// SPDX-License-Identifier: Apache-2.0
// eng.chat/1: a conversation has the same ids whenever it is written, and what is none is refused with a text.
#include <fstream>
#include <thread>

#include "engine/chat.h"
#include "tools/engine/plugin_test/kinds.hpp"

namespace eng::plugin_test {
namespace {

using Ids = std::vector<int32_t>;

constexpr const char* plain_template =
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}";

struct Answer {
  eng_status status = ENG_OK;
  Ids ids = {};
  std::string text = {};
};

class Opened {
 public:
  Opened(const eng_chat& table, const eng_chat_request& request) : table_(table) {
    Sink sink;
    check_made(table.create(&request, &self_, sink.get()), sink);
    made_ = true;
  }
  ~Opened() {
    if (made_) table_.destroy(self_);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  template <class Call>
  Ids written(const char* what, uint64_t capacity, Call call) const {
    Ids out(capacity + 16, -7777);
    uint64_t count = 0;
    call(out.data(), capacity, &count);
    for (uint64_t k = std::min(count, capacity); k < out.size(); ++k)
      if (out[k] != -7777) throw Broken(fmt::format("{} wrote id {} beyond its {}", what, k, count));
    if (count > (uint64_t{1} << 24)) throw Broken(fmt::format("{} says that there are {} ids", what, count));
    if (count > capacity) {
      const Ids all = written(what, count, call);
      if (all.size() != count || !std::equal(out.begin(), out.begin() + static_cast<ptrdiff_t>(capacity), all.begin()))
        throw Broken(fmt::format("with little room {} gives other ids", what));
      return all;
    }
    out.resize(count);
    for (const int32_t id : out)
      if (id < 0) throw Broken(fmt::format("{} gives id {}", what, id));
    return out;
  }
  Answer render(const std::string& row, uint32_t flags, uint64_t capacity = 1 << 16) const {
    Answer out;
    out.ids = written("render", capacity, [&](int32_t* ids, uint64_t room, uint64_t* count) {
      Sink sink;
      out.status = table_.render(self_, row.data(), row.size(), flags, ids, room, count, sink.get());
      if (out.status == ENG_OK) return;
      out.text = sink.text();
      if (out.text.empty()) throw Broken(fmt::format("render fails with status {} and no text", out.status));
      if (*count) throw Broken("render fails and writes *count");
    });
    return out;
  }
  Ids ends(uint64_t capacity) const {
    return written("ends", capacity, [&](int32_t* ids, uint64_t room, uint64_t* count) {
      Sink sink;
      sink.check(table_.ends(self_, ids, room, count, sink.get()), Exit::data, "ends");
    });
  }

 private:
  const eng_chat& table_;
  void* self_ = nullptr;
  bool made_ = false;
};

std::string question(Random& random, int64_t turns) {
  std::string out = R"({"messages": [)";
  for (int64_t k = 0; k < 2 * turns + 1; ++k) {
    std::string text;
    for (int64_t n = pick(random, 1, 60); n > 0; --n) text += static_cast<char>('a' + pick(random, 0, 25));
    out += fmt::format(R"({}{{"role": "{}", "content": "{}"}})", k ? ", " : "", k % 2 ? "assistant" : "user", text);
  }
  return out + "]}";
}

}  // namespace

void test_chat(const Subject& s, Sheet& sheet) {
  eng_chat table{};
  std::string tokenizer = "bytes", folder, file;
  for (const std::string& given : s.given)
    for (const auto& [key, to] : {std::pair("tokenizer=", &tokenizer), {"folder=", &folder}, {"template=", &file}})
      if (given.starts_with(key)) *to = given.substr(std::string_view(key).size());
  const auto absolute = [](std::string& path) {
    if (!path.empty() && path != "bytes") path = std::filesystem::absolute(path).string();
  };
  absolute(tokenizer), absolute(folder), absolute(file);
  if (folder.empty() && file.empty()) std::ofstream(file = (s.scratch / "plain.jinja").string()) << plain_template;
  const eng_chat_request request = {sizeof(request),
                                    0,
                                    tokenizer.c_str(),
                                    folder.empty() ? nullptr : folder.c_str(),
                                    file.empty() ? nullptr : file.c_str(),
                                    "2024-07-26"};
  std::unique_ptr<Opened> chat;
  std::vector<std::string> rows;
  std::vector<Ids> wanted;
  const bool made = sheet.check("create, render", [&] {
    table = s.table<eng_chat>();
    chat = std::make_unique<Opened>(table, request);
    Random random = s.random("conversations");
    for (int k = 0; k < 10 * s.rounds; ++k) {
      rows.push_back(question(random, k % 4));
      const Answer got = chat->render(rows.back(), ENG_CHAT_ANSWER);
      if (got.status != ENG_OK)
        throw Untested(fmt::format("it refuses {}: {}; give template=FILE or folder=PATH", rows.back(), got.text));
      if (got.ids.empty()) throw Broken("a conversation has no ids");
      wanted.push_back(got.ids);
    }
    return fmt::format("{} conversations by {}; tokenizer=PATH, folder=PATH, template=FILE open others", rows.size(),
                       file.empty() ? folder : file);
  });
  if (!made) return;
  const auto same = [&](const Opened& other, const char* when, uint64_t room = 1 << 16) {
    for (size_t k = 0; k < rows.size(); ++k)
      if (other.render(rows[k], ENG_CHAT_ANSWER, room).ids != wanted[k])
        throw Broken(fmt::format("{}, a conversation has other ids", when));
  };
  sheet.check("the same ids again, with little room, of another object", [&] {
    same(*chat, "when it is written again");
    same(*chat, "with little room", 3);
    same(Opened(table, request), "written by another object");
    same(*chat, "after another object was destroyed");
    return "";
  });
  sheet.check("other conversations have other ids", [&] {
    for (size_t k = 1; k < rows.size(); ++k)
      if (wanted[k] == wanted[k - 1]) throw Broken("two conversations have the same ids");
    return "";
  });
  sheet.check("the ids that end an answer", [&] {
    const Ids all = chat->ends(64);
    if (chat->ends(0) != all) throw Broken("with little room ends gives other ids");
    return fmt::format("{}", fmt::join(all, " "));
  });
  sheet.check("what is no conversation is refused", [&] {
    for (const std::string& row :
         std::vector<std::string>{"", "Hi", "[]", "{}", R"({"messages": []})", R"({"messages": ["Hi"]})",
                                  R"({"messages": [{}]})", rows[0].substr(0, rows[0].size() / 2), "{\xff}"})
      if (chat->render(row, ENG_CHAT_ANSWER).status == ENG_OK) throw Broken("it takes " + one_line(row, 60));
    same(*chat, "after these");
    return "";
  });
  sheet.check("several conversations at a time", [&] {
    std::vector<std::string> wrong(3);
    std::vector<std::thread> threads;
    for (std::string& text : wrong)
      threads.emplace_back([&] {
        try {
          same(*chat, "on several threads");
        } catch (const std::exception& e) {
          text = e.what();
        }
      });
    for (std::thread& t : threads) t.join();
    for (const std::string& text : wrong)
      if (!text.empty()) throw Broken(text);
    return "3 threads, one object";
  });
}

}  // namespace eng::plugin_test
