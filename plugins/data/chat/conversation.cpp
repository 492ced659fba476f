// SPDX-License-Identifier: Apache-2.0
#include "conversation.hpp"

#include <algorithm>

#include "../failure.hpp"
#include "../jinja/text.hpp"
#include "../json_text.hpp"

namespace text_data {
namespace {

using Row = nlohmann::ordered_json;

jinja::Value value_of(const Row& json) {
  if (json.is_null()) return jinja::None();
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_unsigned() && json.get<uint64_t>() > uint64_t{INT64_MAX}) return json.get<double>();
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get_ref<const std::string&>();
  if (json.is_array()) {
    std::vector<jinja::Value> items;
    for (const Row& item : json) items.push_back(value_of(item));
    return jinja::make_list(std::move(items));
  }
  auto dict = std::make_shared<jinja::Dict>();
  for (const auto& [key, item] : json.items()) dict->items.emplace_back(jinja::Value(key), value_of(item));
  for (const auto& item : dict->items)
    if (const auto* list = item.second.object<jinja::Sequence>(), *none = list;
        none || item.second.object<jinja::Dict>())
      dict->depth = std::max(dict->depth, 1 + (list ? list->depth : item.second.object<jinja::Dict>()->depth));
  return dict;
}

class RowReader {
 public:
  RowReader(const std::string& field, const std::string& where, bool weights)
      : field_(field), where_(where), weights_(weights) {}

  Conversation read(const std::string& text) {
    check_json_depth(text, where_, deepest);
    Row row;
    try {
      row = Row::parse(text);
    } catch (const nlohmann::json::exception& error) {
      fail("not valid JSON: " + json_reason(error.what()));
    }
    if (!row.is_object()) fail(std::string("the row is a ") + row.type_name() + ", not an object");
    Row messages = messages_of(row);
    if (messages.empty()) fail("the row has no messages");
    const bool begins = messages[0].is_object() && messages[0].contains("role") && messages[0]["role"] == "system";
    const Row* const system = filled(row, "system");
    if (system && system->is_string() && !system->get_ref<const std::string&>().empty() && !begins)
      messages.insert(messages.begin(), Row{{"role", "system"}, {"content", *system}});
    if (const auto tools = row.find("tools"); tools != row.end()) take_tools(*tools);
    take_weight(row);
    for (std::size_t i = 0; i < messages.size(); ++i) add(std::move(messages[i]), i);
    return std::move(out_);
  }

 private:
  static constexpr int deepest = 64;

  [[noreturn]] void fail(const std::string& what, eng_status status = ENG_INVALID) const {
    throw Failure(status, where_ + ": " + what);
  }
  [[noreturn]] void fail(std::size_t i, const std::string& what) const {
    fail("message " + std::to_string(i + 1) + " " + what);
  }

  const Row* filled(const Row& row, const std::string& name) const {
    const auto found = row.find(name);
    return found == row.end() || found->is_null() ? nullptr : &*found;
  }
  // The field of [data] field: one of the row, or with dots one inside of others, "data.messages".
  const Row* chosen(const Row& row) const {
    if (const Row* const whole = filled(row, field_)) return whole;
    const Row* at = &row;
    for (std::size_t from = 0, dot = 0; dot != std::string::npos; from = dot + 1) {
      dot = field_.find('.', from);
      if (!at->is_object()) return nullptr;
      at = filled(*at, field_.substr(from, dot == std::string::npos ? dot : dot - from));
      if (at == nullptr) return nullptr;
    }
    return at;
  }
  // JSON in a text; discarded if it is none.
  Row inner_json(const Row& text) const {
    check_json_depth(text.get_ref<const std::string&>(), where_, deepest);
    return Row::parse(text.get_ref<const std::string&>(), nullptr, false);
  }
  const Row& list_in(const Row& row, const std::string& name) const {
    if (!row.is_array())
      fail("field \"" + printable(name, 60) + "\" is a " + row.type_name() + ", not a list of messages");
    return row;
  }
  std::string text_in(const Row& row, const char* name) const {
    if (!row.is_string()) fail(std::string("field \"") + name + "\" is a " + row.type_name() + ", not a string");
    return row.get<std::string>();
  }

  // A list of messages as OpenAI writes them, whatever the form of the row.
  Row messages_of(const Row& row) {
    for (const std::string& name : {field_, std::string("messages"), std::string("conversations")})
      if (const Row* const found = name == field_ ? chosen(row) : filled(row, name)) {
        if (!found->is_string()) return list_in(*found, name);
        // A column of a table may hold the list as a text.
        const Row inner = inner_json(*found);
        return list_in(inner.is_discarded() ? *found : inner, name);
      }
    if (const Row* const instruction = filled(row, "instruction")) return from_instruction(row, *instruction);
    if (const Row* const prompt = filled(row, "prompt")) {
      const Row* completion = filled(row, "completion");
      if (!completion) completion = filled(row, "response");
      if (!completion) fail("the row has a prompt, and neither a completion nor a response", ENG_NOT_FOUND);
      return from_prompt(*prompt, *completion);
    }
    std::string names;
    for (const auto& [key, value] : row.items()) names += (names.empty() ? "" : ", ") + printable(key, 40);
    fail("no messages: a row has the field \"" + printable(field_, 60) +
             "\", or conversations, or instruction and output, or prompt and completion; this one has " +
             (names.empty() ? "no fields" : printable(names, 300)) + ". [data] field names another field",
         ENG_NOT_FOUND);
  }

  static Row message(const char* role, const std::string& content, bool trains = true) {
    Row out{{"role", role}, {"content", content}};
    if (!trains) out["train"] = false;
    return out;
  }

  Row from_instruction(const Row& row, const Row& instruction) const {
    const Row* const output = filled(row, "output");
    if (!output) fail("the row has an instruction and no output", ENG_NOT_FOUND);
    Row out = Row::array();
    if (const Row* const history = filled(row, "history"))
      for (const Row& turn : list_in(*history, "history")) {
        if (!turn.is_array() || turn.size() != 2 || !turn[0].is_string() || !turn[1].is_string())
          fail("history is not a list of pairs, each of a question and an answer");
        out.push_back(message("user", turn[0].get<std::string>()));
        out.push_back(message("assistant", turn[1].get<std::string>()));
      }
    const Row* const input = filled(row, "input");
    const std::string more = input ? text_in(*input, "input") : "";
    out.push_back(message("user", text_in(instruction, "instruction") + (more.empty() ? "" : "\n" + more)));
    out.push_back(message("assistant", text_in(*output, "output")));
    return out;
  }

  // Texts, or lists of messages. Only the completion trains.
  Row from_prompt(const Row& prompt, const Row& completion) const {
    Row out = Row::array();
    if (prompt.is_array())
      for (Row one : prompt) {
        if (one.is_object()) one["train"] = false;
        out.push_back(std::move(one));
      }
    else
      out.push_back(message("user", text_in(prompt, "prompt")));
    if (completion.is_array())
      for (const Row& one : completion) out.push_back(one);
    else
      out.push_back(message("assistant", text_in(completion, "completion")));
    return out;
  }

  void take_tools(const Row& tools) {
    Row list = tools;
    if (tools.is_string()) {  // a column of a table holds the list as a text
      const std::string& text = tools.get_ref<const std::string&>();
      if (text.find_first_not_of(" \t\r\n") == std::string::npos) return;
      list = inner_json(tools);
      if (list.is_discarded()) fail("field \"tools\" is a text that is not JSON");
    }
    if (list.is_null() || (list.is_array() && list.empty())) return;
    if (!list.is_array()) fail(std::string("field \"tools\" is a ") + list.type_name() + ", not a list");
    out_.tools = value_of(list);
    out_.has_tools = true;
  }

  // ShareGPT's from and value.
  void rename(Row& row, std::size_t i) const {
    if (row.contains("role") || !row.contains("from")) return;
    static constexpr std::pair<const char*, const char*> roles[] = {
        {"human", "user"},        {"user", "user"},      {"gpt", "assistant"},    {"assistant", "assistant"},
        {"chatgpt", "assistant"}, {"bing", "assistant"}, {"bard", "assistant"},   {"model", "assistant"},
        {"system", "system"},     {"tool", "tool"},      {"observation", "tool"}, {"function_response", "tool"}};
    const std::string from = row["from"].is_string() ? row["from"].get<std::string>() : "";
    const auto* const found =
        std::find_if(std::begin(roles), std::end(roles), [&](const auto& one) { return from == one.first; });
    if (found == std::end(roles))
      fail(i, "is from \"" + printable(from, 40) +
                  "\"; known are human, gpt, system, tool and their common other names" +
                  (from == "function_call" ? ". Write a call of a tool as a message with tool_calls" : ""));
    Row out{{"role", found->second}};
    for (auto& [key, value] : row.items())
      if (key != "from") out[key == "value" ? "content" : key] = std::move(value);
    row = std::move(out);
  }

  static std::string shown(const Row& value) {
    return printable(value.dump(-1, ' ', true, Row::error_handler_t::replace), 40);
  }

  float weight_of(const Row& value, const std::string& of) const {
    const double weight = value.is_number() ? value.get<double>() : -1;
    if (weight == 0 || (weight >= 1e-9 && weight <= 1e9)) return static_cast<float>(weight);
    fail(of + " = " + shown(value) + "; a weight is 0, or a number from 1e-9 to 1e9");
  }

  // The weight of the whole row.
  void take_weight(const Row& row) {
    bool given = false;
    for (const char* name : {"weight", "loss_weight"}) {
      const Row* const found = filled(row, name);
      if (!found) continue;
      if (weights_) {
        if (given) fail("the row has weight and loss_weight: leave one of them out");
        given = true;
        out_.weight = weight_of(*found, std::string("the row has ") + name);
      }
      out_.unread = out_.unread || (!weights_ && found->is_number() && found->get<double>() != 1);
    }
  }

  // Flags about training are not for the template: 0 or 1, as OpenAI's weight; or any weight, if weights are read.
  bool flag(Row& row, std::size_t i, const char* name, Message& made) {
    const auto found = row.find(name);
    if (found == row.end()) return false;
    const Row value = *found;
    row.erase(name);
    if (value.is_null()) return false;
    const bool weight = std::string_view(name) == "weight";
    if (weights_ && weight && !value.is_boolean()) {
      made.weight = weight_of(value, "message " + std::to_string(i + 1) + " has weight");
      return true;
    }
    const bool number = value.is_number() && (value.get<double>() == 0 || value.get<double>() == 1);
    if (!value.is_boolean() && !number)
      fail(i, std::string("has ") + name + " = " + shown(value) +
                  "; it must be 0 or 1: an answer trains, or it does not" +
                  (weight && value.is_number() ? ". Other weights are read with [data] weights = true" : ""));
    made.trains = value.is_boolean() ? value.get<bool>() : value.get<double>() != 0;
    return true;
  }

  void add(Row row, std::size_t i) {
    if (!row.is_object()) fail(i, std::string("is a ") + row.type_name() + ", not an object with role and content");
    rename(row, i);
    Message made;
    for (const char* name : {"weight", "train"}) out_.flagged = flag(row, i, name, made) || out_.flagged;
    if (!row.contains("role") || !row["role"].is_string()) fail(i, "has no role, such as user or assistant");
    made.role = row["role"].get<std::string>();
    // As transformers: what is null is not there, and a reasoning has the names that templates read.
    Row kept = Row::object();
    for (auto& [key, value] : row.items())
      if (!value.is_null()) kept[key] = std::move(value);
    for (const char* name : {"reasoning_content", "thinking", "reasoning"})
      if (const auto found = kept.find(name); found != kept.end()) {
        const Row reasoning = *found;
        Row both = Row::object();
        both["thinking"] = reasoning;
        for (auto& [key, value] : kept.items()) both[key] = std::move(value);
        both["reasoning_content"] = reasoning;
        kept = std::move(both);
        break;
      }
    if (const auto calls = kept.find("tool_calls"); calls != kept.end()) made.calls = take_calls(*calls, i);
    const auto content = kept.find("content");
    if (content != kept.end() && !content->is_string() && !content->is_array())
      fail(i, std::string("has a content that is a ") + content->type_name() + ", not a text or a list of parts");
    if (content == kept.end() && !made.calls) fail(i, "has no content");
    made.empty_content = content == kept.end() || content->empty() ||
                         (content->is_string() &&
                          content->get_ref<const std::string&>().find_first_not_of(" \t\r\n") == std::string::npos);
    made.value = value_of(kept);
    out_.messages.push_back(std::move(made));
  }

  // OpenAI writes the arguments of a call as a text of JSON. Templates want the object, and would quote the text again.
  bool take_calls(Row& calls, std::size_t i) const {
    if (!calls.is_array()) fail(i, "has tool_calls that are no list");
    for (Row& call : calls) {
      if (!call.is_object()) fail(i, "has a tool call that is no object");
      Row& function = call.contains("function") && call["function"].is_object() ? call["function"] : call;
      const auto arguments = function.find("arguments");
      if (arguments == function.end() || !arguments->is_string()) continue;
      Row parsed = inner_json(*arguments);
      if (parsed.is_object()) *arguments = std::move(parsed);
    }
    return !calls.empty();
  }

  const std::string& field_;
  const std::string& where_;
  const bool weights_;
  Conversation out_;
};

}  // namespace

Conversation read_conversation(const std::string& text, const std::string& field, const std::string& where,
                               bool weights) {
  return RowReader(field, where, weights).read(text);
}

Message with_content(const Message& message, const std::string& content) {
  Message out = message;
  auto dict = std::make_shared<jinja::Dict>(*message.value.object<jinja::Dict>());
  const jinja::Value* const old = dict->find(std::string_view("content"));
  jinja::Value value(content);
  if (old && old->object<jinja::Sequence>()) {
    auto part = std::make_shared<jinja::Dict>();
    part->put("type", "text");
    part->put("text", content);
    value = jinja::make_list({part});
  }
  dict->put("content", std::move(value));
  out.value = std::move(dict);
  return out;
}

Message without_entry(const Message& message, std::string_view key) {
  Message out = message;
  auto dict = std::make_shared<jinja::Dict>(*message.value.object<jinja::Dict>());
  std::erase_if(dict->items, [&](const auto& item) { return item.first.text() && *item.first.text() == key; });
  out.value = std::move(dict);
  return out;
}

}  // namespace text_data
