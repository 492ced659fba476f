// SPDX-License-Identifier: Apache-2.0
// Chat templates of arbitrary bytes: each is one of those that are known, or none. What a template says of itself is no
// longer than its text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "session/huggingface/chat.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto known = eng::known_chat(text);
  if (known && (!known->without || known->own_system.size() > size)) std::abort();
  return 0;
}
