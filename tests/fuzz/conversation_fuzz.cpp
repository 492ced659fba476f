// SPDX-License-Identifier: Apache-2.0
// Rows of chat data of arbitrary bytes: each is refused with a short text that names the row, or has messages with
// roles.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "plugins/data/chat/conversation.hpp"
#include "plugins/data/failure.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const bool weights : {false, true}) try {
      const text_data::Conversation got = text_data::read_conversation(text, "messages", "row", weights);
      if (got.messages.empty() || !(got.weight >= 0)) std::abort();
      for (const text_data::Message& message : got.messages) {
        if (!(message.weight >= 0)) std::abort();
        const auto* const dict = message.value.object<jinja::Dict>();
        if (!dict || !dict->find(std::string_view("role")) || dict->find(std::string_view("weight"))) std::abort();
      }
    } catch (const text_data::Failure& failure) {
      if (failure.text.rfind("row: ", 0) != 0 || failure.text.size() > 2000) std::abort();
    }
  return 0;
}
