// SPDX-License-Identifier: Apache-2.0
#include "session/gguf/vocabulary.hpp"
#include "session/huggingface/export_tokenizer.hpp"

namespace eng {

GgufTokenizer gguf_tokenizer(Registry& registry, const Config& config, const std::filesystem::path& origin) {
  const Section& data = config.section("data");
  GgufTokenizer out;
  if (data.has("tokenizer")) {
    out.name = data.string("tokenizer");
    out.special = data.has("special_tokens") && data.boolean("special_tokens");
  } else if (!origin.empty() && has_tokenizer(origin)) {
    out.name = std::filesystem::absolute(origin).string();
    out.special = true;
  }
  if (!out.name.empty()) out.tokenizer = std::make_shared<Tokenizer>(registry, out.name, config.base_dir());
  if (!out.name.empty() && out.name != "bytes") {
    out.name = std::filesystem::absolute(config.base_dir() / out.name).lexically_normal().string();
    out.texts = out.name;
    if (!std::filesystem::is_directory(out.texts)) out.texts = out.texts.parent_path();
  }
  if (!origin.empty()) out.texts = origin;
  return out;
}

}  // namespace eng
