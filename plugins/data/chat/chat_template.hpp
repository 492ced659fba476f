// SPDX-License-Identifier: Apache-2.0
// The chat template of a run: a file, or that of the tokenizer's folder.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../jinja/template.hpp"
#include "../tokenizer.hpp"
#include "conversation.hpp"

namespace text_data {

class ChatTemplate {
 public:
  // `file`: a template, or a JSON file with `chat_template`; empty: chat_template.jinja, chat_template.json or
  // tokenizer_config.json of the tokenizer's folder, in this order. `date` is empty, or a day that strftime_now()
  // writes. `section` stands before the names of options in messages. Throws Failure.
  ChatTemplate(const std::string& file, const std::string& tokenizer, const std::string& base, const std::string& date,
               const std::string& section = "[data] ");

  // Throws jinja::Error.
  jinja::Rendered render(const std::vector<Message>& messages, const Conversation& of, bool prompt) const;
  bool marks_generation(const Conversation& of) const { return use(of).marks_generation(); }
  // False: the template begins no answer, so that the head of an answer is part of the answer's own text.
  bool writes_prompts(const Conversation& of) const { return use(of).uses("add_generation_prompt"); }
  const std::string& place() const { return place_; }  // for messages
  std::string key() const;                             // everything on which a rendering depends, but for the messages
  // A note for the user where the tokenizer splits what looks like a token of the template.
  void check_tokens(const Tokenizer& tokenizer) const;

 private:
  void take(const std::string& text, const std::string& place, bool for_tools = false);
  bool take_json(const std::string& file);
  void take_named_tokens(const std::string& folder);
  const jinja::Template& use(const Conversation& of) const {
    return of.has_tools && with_tools_ ? *with_tools_ : *template_;
  }

  std::string section_, place_;
  std::vector<std::string> texts_;
  std::optional<jinja::Template> template_, with_tools_;
  std::vector<std::pair<std::string, std::string>> tokens_;  // bos_token and others
  std::string date_text_;
  std::optional<jinja::Date> date_;
};

}  // namespace text_data
