// SPDX-License-Identifier: Apache-2.0
// A tokenizer plugin in use.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/registry/registry.hpp"
#include "engine/tokenizer.h"

namespace eng {

class Tokenizer {
 public:
  // `what` as in [data] tokenizer: "bytes", or a file or folder, relative to base_dir. Throws Error(Exit::data).
  Tokenizer(Registry& registry, const std::string& what, const std::filesystem::path& base_dir);
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;
  const eng_tokenizer_info& info() const { return info_; }
  // With `special`, includes the ids before and after a text.
  std::vector<int32_t> encode(std::string_view text, bool special) const;
  // The bytes of one id; they may be part of a character.
  std::string decode(int32_t id) const;

 private:
  std::string who_;  // in messages
  eng_tokenizer table_{};
  void* self_ = nullptr;
  std::shared_ptr<void> object_;  // what destroys it
  eng_tokenizer_info info_{};
};

}  // namespace eng
