// SPDX-License-Identifier: Apache-2.0
// Conversations as the ids of their text, by a plugin of the kind eng.chat/1.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/registry/registry.hpp"
#include "engine/chat.h"

namespace eng {

class Chat {
 public:
  struct Files {
    std::string tokenizer;         // "bytes", or an absolute path
    std::filesystem::path folder;  // of the model; "": none
    std::filesystem::path file;    // the template; "": that of the folder
    std::string date;              // for templates that ask for the day
  };
  // Throws Error(Exit::usage) if there is no template, or one that cannot be used.
  Chat(Registry& registry, const Files& files);
  Chat(const Chat&) = delete;
  Chat& operator=(const Chat&) = delete;
  // The ids of a conversation, as JSON, up to where the next answer begins. Throws Error(Exit::usage).
  std::vector<int32_t> prompt(const std::string& conversation) const;
  // The ids that end an answer.
  std::vector<int32_t> ends() const;

 private:
  std::string who_;  // in messages
  eng_chat table_{};
  void* self_ = nullptr;
  std::shared_ptr<void> object_;  // what destroys it
};

}  // namespace eng
