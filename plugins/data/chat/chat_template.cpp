// SPDX-License-Identifier: Apache-2.0
#include "chat_template.hpp"

#include <algorithm>
#include <filesystem>
#include <set>

#include "../failure.hpp"
#include "../hash.hpp"
#include "../json_text.hpp"
#include "../notes.hpp"
#include "../tokenizer_folder.hpp"

namespace text_data {
namespace {

namespace fs = std::filesystem;

std::string resolved(const std::string& path, const std::string& base) {
  return (fs::path(base) / path).lexically_normal().string();
}

}  // namespace

ChatTemplate::ChatTemplate(const std::string& file, const std::string& tokenizer, const std::string& base,
                           const std::string& date, const std::string& section)
    : section_(section), date_text_(date) {
  if (!date.empty() && !(date_ = jinja::read_date(date)))
    throw Failure(ENG_INVALID,
                  section_ + "date = \"" + printable(date, 40) + "\" is no day: write it as \"2024-07-26\"");
  std::error_code ignored;
  std::string folder = tokenizer == "bytes" ? "" : resolved(tokenizer, base);
  if (!folder.empty() && !fs::is_directory(folder, ignored)) folder = fs::path(folder).parent_path().string();
  if (!file.empty()) {
    const std::string path = resolved(file, base);
    if (fs::is_directory(path, ignored))
      throw Failure(ENG_INVALID,
                    section_ + "chat_template = \"" + file + "\" is a folder; name the file of the template");
    if (!fs::exists(path, ignored)) throw Failure(ENG_NOT_FOUND, section_ + "chat_template: there is no file " + path);
    if (fs::path(path).extension() != ".json")
      take(read_whole(path), path);
    else if (!take_json(path))
      throw Failure(ENG_INVALID, section_ + "chat_template: " + path + " has no key chat_template");
  } else if (folder.empty()) {
    throw Failure(ENG_INVALID, section_ + "chat_template must name a file: the tokenizer bytes has no template");
  } else if (const std::string own = folder + "/chat_template.jinja"; fs::exists(own, ignored)) {
    take(read_whole(own), own);
  } else if (!take_json(folder + "/chat_template.json") && !take_json(folder + "/tokenizer_config.json")) {
    throw Failure(ENG_NOT_FOUND, section_ + folder +
                                     " has no chat template (chat_template.jinja, or chat_template in "
                                     "tokenizer_config.json): a base model has none. Set " +
                                     section_ + "chat_template to a file; the template must fit the tokenizer");
  }
  if (!folder.empty()) take_named_tokens(folder);
}

void ChatTemplate::take(const std::string& text, const std::string& place, bool for_tools) {
  try {
    (for_tools ? with_tools_ : template_).emplace(text);
  } catch (const jinja::Error& error) {
    throw Failure(ENG_UNSUPPORTED, section_ + "chat template " + place + ": " + printable(error.what(), 300));
  }
  if (!for_tools) place_ = place;
  texts_.push_back(text);
}

// One template, or several with names: "default", and "tool_use" for rows with tools.
bool ChatTemplate::take_json(const std::string& file) {
  const std::string text = read_if_there(file);
  if (text.empty()) return false;
  const nlohmann::json json = parse_json(text, file);
  const auto found = json.is_object() ? json.find("chat_template") : json.end();
  if (found == json.end() || found->is_null()) return false;
  if (found->is_string()) return take(found->get<std::string>(), file + ": chat_template"), true;
  std::vector<std::pair<std::string, std::string>> named;
  if (found->is_array())
    for (const auto& one : *found)
      if (one.is_object() && one.value("name", nlohmann::json()).is_string() &&
          one.value("template", nlohmann::json()).is_string())
        named.emplace_back(one["name"], one["template"]);
  if (found->is_object())
    for (const auto& [name, one] : found->items())
      if (one.is_string()) named.emplace_back(name, one);
  for (const auto& [name, one] : named)
    if (name == "default" || name == "tool_use") take(one, file + ": chat_template " + name, name == "tool_use");
  if (!template_) throw Failure(ENG_INVALID, section_ + file + ": chat_template has no template \"default\"");
  return true;
}

void ChatTemplate::take_named_tokens(const std::string& folder) {
  for (const char* name : {"special_tokens_map.json", "tokenizer_config.json"}) {
    const std::string file = folder + "/" + name, text = read_if_there(file);
    if (text.empty()) continue;
    const nlohmann::json json = parse_json(text, file);
    for (const char* token : token_names) {
      const auto found = json.is_object() ? json.find(token) : json.end();
      if (found == json.end()) continue;
      const nlohmann::json content = found->is_object() ? found->value("content", nlohmann::json()) : *found;
      std::erase_if(tokens_, [&](const auto& known) { return known.first == token; });
      if (content.is_string()) tokens_.emplace_back(token, content.get<std::string>());
    }
  }
}

jinja::Rendered ChatTemplate::render(const std::vector<Message>& messages, const Conversation& of, bool prompt) const {
  std::vector<jinja::Value> list;
  for (const Message& message : messages) list.push_back(message.value);
  std::vector<std::pair<std::string, jinja::Value>> variables = {{"messages", jinja::make_list(std::move(list))},
                                                                 {"tools", of.tools},
                                                                 {"documents", jinja::None()},
                                                                 {"add_generation_prompt", prompt}};
  for (const auto& [name, text] : tokens_) variables.emplace_back(name, jinja::Value(text));
  return use(of).render(variables, date_);
}

std::string ChatTemplate::key() const {
  Hash hash;
  for (const std::string& text : texts_) hash.add_field(text);
  for (const auto& [name, text] : tokens_) hash.add_field(name), hash.add_field(text);
  hash.add_field(date_text_);
  return hash.text();
}

void ChatTemplate::check_tokens(const Tokenizer& tokenizer) const {
  std::set<std::string> seen;
  for (const std::string& text : texts_)
    for (std::size_t at = text.find("<|"); at != std::string::npos; at = text.find("<|", at + 2)) {
      const std::size_t end = text.find("|>", at + 2);
      if (end == std::string::npos || end - at > 40) continue;
      const std::string token = text.substr(at, end + 2 - at);
      if (token.find_first_of(" \n'\"+{}") != std::string::npos || !seen.insert(token).second) continue;
      std::vector<int32_t> ids;
      tokenizer.encode(token, ids);
      if (ids.size() > 1)
        note(section_ + "the tokenizer splits " + printable(token, 60) + " of the chat template into " +
             std::to_string(ids.size()) + " tokens; the template may be of another model");
    }
}

}  // namespace text_data
