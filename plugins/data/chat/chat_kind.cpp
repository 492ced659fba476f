// SPDX-License-Identifier: Apache-2.0
// The kind eng.chat/1: the ids of a conversation whose next message is to be generated.
#include <algorithm>
#include <cstring>
#include <memory>

#include "../failure.hpp"
#include "../tables.hpp"
#include "spans.hpp"

namespace text_data {
namespace {

std::string text_or_none(const char* text) {
  return text == nullptr ? "" : text;
}

struct ChatKind {
  explicit ChatKind(const eng_chat_request& given)
      : tokenizer(open_tokenizer(text_or_none(given.tokenizer), "")),
        chat(text_or_none(given.template_file), given.folder == nullptr ? "bytes" : given.folder, "",
             text_or_none(given.date), "") {
    chat.check_tokens(*tokenizer);
  }
  std::unique_ptr<Tokenizer> tokenizer;
  ChatTemplate chat;
};

void write_ids(const std::vector<int32_t>& found, int32_t* ids, uint64_t capacity, uint64_t* count) {
  std::copy_n(found.begin(), std::min<uint64_t>(capacity, found.size()), ids);
  *count = found.size();
}

eng_status create(const eng_chat_request* given, void** self, eng_error* error) {
  return guarded(error, "opening a chat template", [&] {
    eng_chat_request request{};
    std::memcpy(&request, given, std::min<std::size_t>(sizeof(request), given->struct_size));
    *self = std::make_unique<ChatKind>(request).release();
  });
}

void destroy(void* self) {
  delete static_cast<ChatKind*>(self);
}

eng_status render(void* self, const char* conversation, uint64_t size, uint32_t flags, int32_t* ids, uint64_t capacity,
                  uint64_t* count, eng_error* error) {
  return guarded(error, "writing a conversation", [&] {
    const auto* kind = static_cast<const ChatKind*>(self);
    const std::string where = "the conversation";
    const Conversation read = read_conversation(std::string(conversation, size), "messages", where);
    std::vector<int32_t> found;
    kind->tokenizer->encode(whole_text(kind->chat, read, (flags & ENG_CHAT_ANSWER) != 0, where), found);
    write_ids(found, ids, capacity, count);
  });
}

// The first token of what ends an answer, if it is one of the template's own, such as <|im_end|>.
eng_status ends(void* self, int32_t* ids, uint64_t capacity, uint64_t* count, eng_error* error) {
  return guarded(error, "finding the end of an answer", [&] {
    const auto* kind = static_cast<const ChatKind*>(self);
    std::vector<int32_t> found;
    std::string first;
    kind->tokenizer->encode(end_of_answer(kind->chat), found);
    if (!found.empty()) kind->tokenizer->decode(found[0], first);
    const bool own = first.size() > 2 &&
                     ((first.front() == '<' && first.back() == '>') || (first.front() == '[' && first.back() == ']'));
    found.resize(own ? 1 : 0);
    write_ids(found, ids, capacity, count);
  });
}

}  // namespace

const eng_chat chat_kind_table = {
    .struct_size = sizeof(eng_chat), .minor = 0, .create = create, .destroy = destroy, .render = render, .ends = ends};

}  // namespace text_data
