// SPDX-License-Identifier: Apache-2.0
// Chat templates of arbitrary bytes: each is refused with a place, or renders a conversation in bounded steps. What it
// marks lies in its text, in order.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "plugins/data/jinja/template.hpp"

namespace {

using jinja::Value;

Value message(const char* role, const char* content) {
  auto dict = std::make_shared<jinja::Dict>();
  dict->put(Value("role"), Value(role));
  dict->put(Value("content"), Value(content));
  return dict;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  jinja::Limits limits;
  limits.steps = 20'000, limits.text_bytes = 1 << 16;
  try {
    const jinja::Template made(text);
    const Value messages =
        jinja::make_list({message("system", "Be brief."), message("user", " Grüße \xf0\x9f\x98\x80? "),
                          message("assistant", "<think>\na\n</think>\nYes.")});
    const jinja::Rendered got = made.render({{"messages", messages},
                                             {"tools", jinja::None()},
                                             {"bos_token", Value("<s>")},
                                             {"eos_token", Value("</s>")},
                                             {"add_generation_prompt", Value(true)}},
                                            jinja::read_date("2024-07-26"), limits);
    std::size_t at = 0;
    if (got.text.size() > limits.text_bytes) std::abort();
    for (const auto& [begin, end] : got.generated) {
      if (begin < at || end < begin || end > got.text.size()) std::abort();
      at = end;
    }
  } catch (const jinja::Error& error) {
    if (std::string(error.what()).compare(0, 5, "line ") != 0) std::abort();
  }
  return 0;
}
