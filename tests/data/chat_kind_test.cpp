// SPDX-License-Identifier: Apache-2.0
// The kind eng.chat/1: ids of conversations that end before an answer, beside transformers', and what is refused. The
// golden is made by tools/goldens/chat_templates.py.
#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "engine/chat.h"
#include "harness.hpp"

using namespace data_test;
using Catch::Contains;

namespace chat_kind_test {
namespace {

using Json = nlohmann::ordered_json;

std::string golden_file(const std::string& name) {
  return std::string(ENGINE_SOURCE_DIR) + "/tests/data/golden/chat/" + name;
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Said {
  Said() {
    sink.struct_size = sizeof(sink);
    sink.data = this;
    sink.set = [](eng_error* self, eng_status, const char* said, uint64_t length) {
      static_cast<Said*>(self->data)->text.assign(said, length);
    };
  }
  std::string text;
  eng_error sink{};
};

const eng_chat& chats() {
  const auto* found = static_cast<const eng_chat*>(plugin().get_interface(ENG_CHAT_KIND, "jinja"));
  REQUIRE(found != nullptr);
  return *found;
}

// An open template, or the error that opening it gave.
class Opened {
 public:
  Opened(const std::string& tokenizer, const std::string& folder, const std::string& file, const char* date = nullptr) {
    const eng_chat_request request = {sizeof(request),
                                      0,
                                      tokenizer.c_str(),
                                      folder.empty() ? nullptr : folder.c_str(),
                                      file.empty() ? nullptr : file.c_str(),
                                      date};
    Said said;
    if (chats().create(&request, &self_, &said.sink) != ENG_OK) self_ = nullptr;
    error = said.text;
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  ~Opened() {
    if (self_) chats().destroy(self_);
  }
  // The ids; nothing, and `error`, if it is refused.
  std::vector<int32_t> render(const std::string& row, uint32_t flags = ENG_CHAT_ANSWER, uint64_t room = 4096) {
    REQUIRE(self_ != nullptr);
    std::vector<int32_t> ids(room + 1, -7);
    uint64_t count = 0;
    Said said;
    const eng_status status =
        chats().render(self_, row.data(), row.size(), flags, ids.data(), room, &count, &said.sink);
    CHECK(ids[room] == -7);
    CHECK((status == ENG_OK) == said.text.empty());
    error = said.text;
    if (status == ENG_OK && count > room) return render(row, flags, count);
    ids.resize(status == ENG_OK ? count : 0);
    return ids;
  }
  std::string text(const std::string& row, uint32_t flags = ENG_CHAT_ANSWER) {  // of bytes
    std::string out;
    for (const int32_t id : render(row, flags)) out += static_cast<char>(id);
    return error.empty() ? out : error;
  }
  std::vector<int32_t> ends() {
    std::vector<int32_t> ids(8);
    uint64_t count = 0;
    REQUIRE(chats().ends(self_, ids.data(), ids.size(), &count, nullptr) == ENG_OK);
    ids.resize(count);
    return ids;
  }
  std::string error;

 private:
  void* self_ = nullptr;
};

std::string fnv(const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) text += (text.empty() ? "" : " ") + std::to_string(id);
  uint64_t value = 0xcbf29ce484222325;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  char out[16];
  std::snprintf(out, sizeof(out), "%08x", static_cast<unsigned>(value >> 32));
  return out;
}

const std::string chatml =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>\n{% endfor %}{% if add_generation_prompt %}<assistant>{% "
    "endif %}";
const std::string question = R"({"messages": [{"role": "user", "content": "Hi"}]})";

}  // namespace

TEST_CASE("a conversation before its answer has the ids of transformers") {
  const Json golden = Json::parse(read_text(golden_file("prompts.json")));
  const std::set<std::string> know_tools = {"llama3_tools", "mistral_tools", "qwen2_5", "qwen3"};
  std::vector<std::string> rows;
  std::ifstream file(golden_file("conversations.jsonl"));
  for (std::string line; std::getline(file, line);) {
    Json row = Json::parse(line);
    row["messages"].erase(row["messages"].size() - 1);
    rows.push_back(row.dump());
  }
  REQUIRE(golden.size() >= 20);
  std::size_t compared = 0, refused = 0;
  for (const auto& [name, hashes] : golden.items()) {
    INFO(name);
    Opened chat(golden_file(""), golden_file(""), golden_file(name + ".jinja"));
    REQUIRE(chat.error == "");
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::vector<int32_t> ids = chat.render(rows[i]);
      // Templates that do not know tools drop them, their calls or their answers.
      const bool tools = rows[i].find("\"tools\"") != std::string::npos && !know_tools.count(name);
      if (hashes[i] == "-" || (tools && ids.empty())) {
        CHECK(ids.empty());
        CHECK_THAT(chat.error, Contains(hashes[i] == "-" ? "fails, in its" : "the chat template "));
        ++refused;
        continue;
      }
      // It writes a system message only if the user has the last word.
      if (name == "mistral_tools" && rows[i].find("\"system\"") != std::string::npos &&
          Json::parse(rows[i]).at("messages").back().at("role") == "tool") {
        CHECK_THAT(chat.error, Contains("drops message 1, of the role \"system\""));
        ++refused;
        continue;
      }
      if (fnv(ids) != hashes[i] && ++wrong == 1) CHECK((rows[i] + ": " + chat.error) == "");
      ++compared;
    }
    CHECK(wrong == 0);
  }
  CHECK(compared > 3000);
  CHECK(refused > 100);
}

TEST_CASE("the ids that end an answer are those of the template's own token") {
  const auto ends = [](const std::string& name) {
    std::vector<int32_t> out;
    out = Opened(golden_file(""), golden_file(""), golden_file(name + ".jinja")).ends();
    return out;
  };
  const Json added = Json::parse(read_text(golden_file("tokenizer.json"))).at("added_tokens");
  const auto id = [&](const std::string& token) {
    for (const Json& one : added)
      if (one.at("content") == token) return std::vector<int32_t>{one.at("id").get<int32_t>()};
    return std::vector<int32_t>();
  };
  CHECK(ends("chatml") == id("<|im_end|>"));
  CHECK(ends("llama3") == id("<|eot_id|>"));
  CHECK(ends("gemma") == id("<end_of_turn>"));
  CHECK(ends("phi3") == id("<|end|>"));
  CHECK(ends("zephyr") == id("</s>"));
  CHECK(ends("llama2") == id("</s>"));
  CHECK(ends("qwen3") == id("<|im_end|>"));
  Folder folder;
  const std::string plain =
      folder.write("t.jinja", "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}");
  CHECK(Opened(golden_file(""), "", plain).ends().empty());  // no token, only a line's end
  CHECK(Opened("bytes", "", folder.write("c.jinja", chatml)).ends().empty());
}

TEST_CASE("a conversation that cannot be answered as it is written is refused") {
  Folder folder;
  Opened chat("bytes", "", folder.write("t.jinja", chatml));
  CHECK(chat.text(question) == "<user>Hi</>\n<assistant>");
  CHECK(chat.text(question, 0) == "<user>Hi</>\n");
  CHECK(chat.render(question, ENG_CHAT_ANSWER, 3) == chat.render(question));
  CHECK(chat.text(R"({"conversations": [{"from": "human", "value": "Hi"}], "system": "S"})") ==
        "<system>S</>\n<user>Hi</>\n<assistant>");
  const auto refuses = [&](Opened& by, const std::string& row, const std::string& why) {
    CHECK(by.render(row).empty());
    CHECK_THAT(by.error, Contains(why));
  };
  refuses(chat, "Hi", "the conversation: not valid JSON");
  refuses(chat, "{}", "the conversation: no messages");
  refuses(chat, R"({"messages": []})", "the row has no messages");
  refuses(chat, R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})",
          "the conversation ends with an answer");
  refuses(chat, R"({"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function"}]})",
          "has no place for them");
  const std::string dropping =
      "{% for m in messages %}{% if m.role != 'system' %}<{{ m.content }}>{% endif %}{% endfor %}";
  Opened drops("bytes", "", folder.write("drops.jinja", dropping));
  CHECK(drops.text(question) == "<Hi>");
  refuses(drops, R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]})",
          "drops message 1, of the role \"system\"");
  Opened fails("bytes", "", folder.write("fails.jinja", "{{ raise_exception('Never.') }}"));
  refuses(fails, question, "fails, in its");
  Opened day("bytes", "", folder.write("day.jinja", "{{ strftime_now('%Y') }}" + chatml), "2024-07-26");
  CHECK(day.text(question) == "2024<user>Hi</>\n<assistant>");
}

TEST_CASE("a template that is not there, or not known, is refused") {
  Folder folder;
  const std::string place = folder.path().string();
  CHECK_THAT(Opened("bytes", "", place + "/none.jinja").error, Contains("chat_template: there is no file"));
  CHECK_THAT(Opened("bytes", place, "").error, Contains("has no chat template"));
  CHECK_THAT(Opened("bytes", "", folder.write("t.jinja", "{% import 'x' as y %}")).error, Contains("t.jinja"));
  CHECK_THAT(Opened(place + "/none", "", folder.write("c.jinja", chatml)).error, Contains("none"));
  folder.write("chat_template.jinja", "{{ bos_token }}" + chatml);
  folder.write("tokenizer_config.json", R"({"bos_token": "<s>"})");
  Opened of_folder("bytes", place, "");
  CHECK(of_folder.text(question) == "<s><user>Hi</>\n<assistant>");
}

}  // namespace chat_kind_test
