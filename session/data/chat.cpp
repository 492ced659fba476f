// SPDX-License-Identifier: Apache-2.0
#include "session/data/chat.hpp"

#include "session/data/with_room.hpp"

namespace eng {

Chat::Chat(Registry& registry, const Files& files) : table_(registry.table<eng_chat>(ENG_CHAT_KIND, "jinja")) {
  who_ = "chat of plugin " + registry.providers(ENG_CHAT_KIND, "jinja")[0]->description.id;
  const auto given = [](const auto& text) { return text.empty() ? nullptr : text.c_str(); };
  const eng_chat_request request = {
      sizeof(request), 0, files.tokenizer.c_str(), given(files.folder), given(files.file), given(files.date)};
  Sink sink;
  sink.check(table_.create(&request, &self_, sink.get()), Exit::usage, who_);
  object_ = std::shared_ptr<void>(self_, table_.destroy);
}

std::vector<int32_t> Chat::prompt(const std::string& conversation) const {
  std::vector<int32_t> ids(conversation.size() + 64);  // usually enough
  with_room(who_, Exit::usage, ids, [&](int32_t* data, uint64_t capacity) {
    Sink sink;
    uint64_t count = 0;
    sink.check(table_.render(self_, conversation.data(), conversation.size(), ENG_CHAT_ANSWER, data, capacity, &count,
                             sink.get()),
               Exit::usage, who_);
    return count;
  });
  return ids;
}

std::vector<int32_t> Chat::ends() const {
  std::vector<int32_t> ids(8);
  with_room(who_, Exit::usage, ids, [&](int32_t* data, uint64_t capacity) {
    Sink sink;
    uint64_t count = 0;
    sink.check(table_.ends(self_, data, capacity, &count, sink.get()), Exit::usage, who_);
    return count;
  });
  return ids;
}

}  // namespace eng
