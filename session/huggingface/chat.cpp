// SPDX-License-Identifier: Apache-2.0
#include "session/huggingface/chat.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string_view>
#include <utility>

#include "core/base/error.hpp"
#include "session/json.hpp"

namespace eng {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t most_template_bytes = uint64_t{16} << 20;

std::string template_text(const fs::path& file) {
  std::error_code none;
  if (!fs::is_regular_file(file, none)) return "";
  if (fs::file_size(file, none) > most_template_bytes)
    throw Error(Exit::usage, file.string() + " is larger than 16 MiB");
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// An empty object if there is no such file.
Json object_of(const fs::path& file) {
  const std::string text = template_text(file);
  if (text.empty()) return Json::object();
  Json out = Json::parse_or_null(text);
  if (!out.is_object()) throw Error(Exit::usage, file.string() + " is not a JSON object");
  return out;
}

// The output of a known template, and its text as normalised by `same_spelling`, where * stands for a default system
// message.
struct KnownTemplate {
  const char *with_system, *without;  // as in ChatPieces
};

constexpr std::string_view chatml_message =
    "{{'<|im_start|>'+message['role']+'\\n'+message['content']+'<|im_end|>'+'\\n'}}{%endfor%}"
    "{%if add_generation_prompt%}{{'<|im_start|>assistant\\n'}}{%endif%}";
constexpr const char* chatml_system =
    "<|im_start|>system\n$s<|im_end|>\n<|im_start|>user\n$u<|im_end|>\n<|im_start|>assistant\n";
constexpr const char* chatml_user = "<|im_start|>user\n$u<|im_end|>\n<|im_start|>assistant\n";
constexpr const char* chatml_default =
    "<|im_start|>system\n$d<|im_end|>\n<|im_start|>user\n$u<|im_end|>\n<|im_start|>assistant\n";
constexpr std::string_view llama3_messages =
    "{%set loop_messages=messages%}{%for message in loop_messages%}{%set content='<|start_header_id|>'+message['role']+"
    "'<|end_header_id|>\\n\\n'+message['content']|trim+'<|eot_id|>'%}{%if loop.index0==0%}{%set "
    "content=bos_token+content"
    "%}{%endif%}{{content}}{%endfor%}";
constexpr const char* llama3_system =
    "$b<|start_header_id|>system<|end_header_id|>\n\n$S<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n$U<|eot_"
    "id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n";
constexpr const char* llama3_user =
    "$b<|start_header_id|>user<|end_header_id|>\n\n$U<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n";

const std::vector<std::pair<std::string, KnownTemplate>>& known_templates() {
  static const std::vector<std::pair<std::string, KnownTemplate>> all = [] {
    std::vector<std::pair<std::string, KnownTemplate>> out;
    const auto add = [&](const std::string& shape, const char* with_system, const char* without) {
      out.emplace_back(shape, KnownTemplate{with_system, without});
    };
    const std::string each = "{%for message in messages%}", message(chatml_message), llama3(llama3_messages);
    const std::string unset = "{%if not add_generation_prompt is defined%}{%set add_generation_prompt=false%}{%endif%}";
    const std::string own =
        "{%if loop.first and messages[0]['role']!='system'%}"
        "{{'<|im_start|>system\\n*<|im_end|>\\n'}}{%endif%}";
    const std::string last = "{{'<|start_header_id|>assistant<|end_header_id|>\\n\\n'}}";
    add(each + message, chatml_system, chatml_user);
    add(unset + each + message, chatml_system, chatml_user);
    add(each + own + message, chatml_system, chatml_default);
    add(llama3 + "{%if add_generation_prompt%}" + last + "{%endif%}", llama3_system, llama3_user);
    add(llama3 + last, llama3_system, llama3_user);
    add("{%for message in messages%}\n{%if message['role']=='user'%}\n{{'<|user|>\\n'+message['content']+eos_token}}\n"
        "{%elif message['role']=='system'%}\n{{'<|system|>\\n'+message['content']+eos_token}}\n"
        "{%elif message['role']=='assistant'%}\n{{'<|assistant|>\\n'+message['content']+eos_token}}\n{%endif%}\n"
        "{%if loop.last and add_generation_prompt%}\n{{'<|assistant|>'}}\n{%endif%}\n{%endfor%}",
        "<|system|>\n$s$e\n<|user|>\n$u$e\n<|assistant|>\n", "<|user|>\n$u$e\n<|assistant|>\n");
    const std::string alternate =
        "{%if(message['role']=='user')!=(loop.index0%2==0)%}"
        "{{raise_exception('Conversation roles must alternate user/assistant/user/assistant/...')}}{%endif%}";
    add("{{bos_token}}{%for message in messages%}" + alternate +
            "{%if message['role']=='user'%}{{'[INST] '+message['content']+' [/INST]'}}{%elif "
            "message['role']=='assistant'%}"
            "{{message['content']+eos_token}}{%else%}{{raise_exception('Only user and assistant roles are "
            "supported!')}}"
            "{%endif%}{%endfor%}",
        nullptr, "$b[INST] $u [/INST]");
    add("{%if messages[0]['role']=='system'%}{%set loop_messages=messages[1:]%}"
        "{%set system_message=messages[0]['content']%}{%else%}{%set loop_messages=messages%}{%set "
        "system_message=false%}"
        "{%endif%}{%for message in loop_messages%}" +
            alternate +
            "{%if loop.index0==0 and system_message!=false%}"
            "{%set content='<<SYS>>\\n'+system_message+'\\n<</SYS>>\\n\\n'+message['content']%}{%else%}"
            "{%set content=message['content']%}{%endif%}{%if message['role']=='user'%}"
            "{{bos_token+'[INST] '+content.strip()+' [/INST]'}}{%elif message['role']=='assistant'%}"
            "{{' '+content.strip()+' '+eos_token}}{%endif%}{%endfor%}",
        "$b[INST] <<SYS>>\n$s\n<</SYS>>\n\n$R [/INST]", "$b[INST] $U [/INST]");
    return out;
  }();
  return all;
}

bool word_character(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}
bool blank_character(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

// A template without differences that have no effect: white space inside {{ }} and {% %} is removed except one between
// two words, and quotes are unified. A line end in a literal is written \n. Outside of {{ }} and {% %} every byte
// counts.
std::string same_spelling(std::string_view text) {
  std::string out;
  bool inside = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view two = text.substr(i, 2);
    if (!inside || two == "}}" || two == "%}") {
      if (two == "{{" || two == "{%" || two == "}}" || two == "%}") {
        inside = two[0] == '{';
        out += two;
        ++i;
      } else {
        out += text[i];
      }
    } else if (blank_character(text[i])) {
      size_t next = i;
      while (next < text.size() && blank_character(text[next])) ++next;
      if (!out.empty() && next < text.size() && word_character(out.back()) && word_character(text[next])) out += ' ';
      i = next - 1;
    } else if (text[i] == '\'' || text[i] == '"') {
      const char quote = text[i];
      out += '\'';
      for (++i; i < text.size() && text[i] != quote; ++i) {
        if (text[i] == '\n')
          out += "\\n";
        else if (text[i] == '\\' && i + 1 < text.size())
          out += text.substr(i++, 2);
        else
          out += text[i] == '\'' ? std::string("\\'") : std::string(1, text[i]);
      }
      out += '\'';
    } else {
      out += text[i];
    }
  }
  return out;
}

// True if `text` matches `shape`. A * in `shape`, at most one, stands for a literal without quotes, returned in *own.
bool has_shape(std::string_view text, std::string_view shape, std::string* own) {
  const size_t star = shape.find('*');
  if (star == std::string_view::npos) return text == shape;
  const std::string_view before = shape.substr(0, star), after = shape.substr(star + 1);
  if (text.size() < before.size() + after.size() || !text.starts_with(before) || !text.ends_with(after)) return false;
  const std::string_view middle = text.substr(before.size(), text.size() - before.size() - after.size());
  if (middle.find_first_of("'{}") != std::string_view::npos) return false;
  own->clear();
  for (size_t i = 0; i < middle.size(); ++i) {
    if (middle[i] != '\\') {
      *own += middle[i];
    } else if (++i < middle.size() && (middle[i] == 'n' || middle[i] == '\\' || middle[i] == '"')) {
      *own += middle[i] == 'n' ? '\n' : middle[i];
    } else {
      return false;
    }
  }
  return true;
}

// Trimmed at the end, and at both ends.
std::string without_blanks(std::string_view text, bool both) {
  const auto blank = [](char c) { return blank_character(c) || c == '\f' || c == '\v'; };
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  while (both && !text.empty() && blank(text.front())) text.remove_prefix(1);
  return std::string(text);
}

std::string token_text(const Json& config, const char* key) {
  const Json& found = config.get(key);
  const Json& text = found.is_string() ? found : found.get("content");
  return text.is_string() ? text.text() : "";
}

// "" if there is none.
std::string chat_template_of(const fs::path& directory, const Json& config) {
  if (std::string text = template_text(directory / "chat_template.jinja"); !text.empty()) return text;
  const Json& found = config.get("chat_template");
  if (found.is_string()) return found.text();
  if (found.is_array())
    for (const Json& one : found.list())
      if (one.get("name") == "default" && one.get("template").is_string()) return one.get("template").text();
  return "";
}

}  // namespace

std::vector<int32_t> end_ids(const fs::path& directory) {
  std::vector<int32_t> out;
  const auto take = [&](const Json& id) {
    if (id.is_unsigned() && id.whole() <= INT32_MAX) out.push_back(static_cast<int32_t>(id.whole()));
  };
  for (const char* file : {"config.json", "generation_config.json"}) {
    const Json config = object_of(directory / file);
    const Json& ids = config.get("eos_token_id");
    if (ids.is_array())
      for (const Json& id : ids.list()) take(id);
    else
      take(ids);
  }
  return out;
}

std::string chat_template(const fs::path& directory) {
  return chat_template_of(directory, object_of(directory / "tokenizer_config.json"));
}

std::optional<ChatPieces> known_chat(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  const std::string shape = same_spelling(text);
  ChatPieces out;
  for (const auto& [known, pieces] : known_templates()) {
    if (!has_shape(shape, known, &out.own_system)) continue;
    out.with_system = pieces.with_system;
    out.without = pieces.without;
    return out;
  }
  return std::nullopt;
}

std::optional<std::string> chat_prompt(const fs::path& directory, const std::optional<std::string>& system,
                                       const std::string& user) {
  Json config = object_of(directory / "special_tokens_map.json");
  const Json more = object_of(directory / "tokenizer_config.json");
  for (const auto& [key, value] : more.members()) config[key] = value;
  const std::string text = chat_template_of(directory, config);
  if (text.empty()) return std::nullopt;
  const auto known = known_chat(text);
  if (!known)
    throw Error(Exit::usage,
                fmt::format("the chat template of {} is not supported; supported are ChatML, Zephyr, Llama 2, Llama 3 "
                            "and Mistral as they are commonly shipped",
                            directory.string()),
                "write the prompt as the template would, including special tokens, and remove --chat");
  if (system && !known->with_system)
    throw Error(Exit::usage, "the chat template of " + directory.string() + " has no place for a system message",
                "remove --system, or put its text before the prompt");
  std::string out;
  for (const char* c = system ? known->with_system : known->without; *c; ++c) {
    if (*c != '$') {
      out += *c;
      continue;
    }
    const char what = *++c;
    if (what == 'b' || what == 'e') out += token_text(config, what == 'b' ? "bos_token" : "eos_token");
    if (what == 's' || what == 'S') out += what == 's' ? *system : without_blanks(*system, true);
    if (what == 'd') out += known->own_system;
    if (what == 'u') out += user;
    if (what == 'U' || what == 'R') out += without_blanks(user, what == 'U');
  }
  return out;
}

}  // namespace eng
