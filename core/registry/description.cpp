// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <toml++/toml.h>
#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>

#include "core/config/source.hpp"
#include "core/registry/plugin_file.hpp"
#include "engine/data.h"
#include "engine/kernel.h"
#include "engine/model.h"
#include "engine/optimizer.h"
#include "engine/policy.h"

namespace eng {
namespace {

const std::set<std::string> known_kinds = {ENG_DATA_KIND,  ENG_DEVICE_KIND,    ENG_KERNELS_KIND,
                                           ENG_MODEL_KIND, ENG_OPTIMIZER_KIND, ENG_PRECISION_KIND};

const std::map<std::string, Type> types = {{"bool", Type::boolean},  {"int", Type::integer}, {"float", Type::number},
                                           {"string", Type::string}, {"bytes", Type::bytes}, {"strings", Type::strings},
                                           {"floats", Type::numbers}};

// Throws std::runtime_error unless `right`: caught in parse_description.
template <class... Args>
void need(bool right, fmt::format_string<Args...> text, Args&&... args) {
  if (!right) throw std::runtime_error(fmt::format(text, std::forward<Args>(args)...));
}

// Made of a-z, 0-9, _ and `more`.
bool is_word(const std::string& text, const std::string& more) {
  return !text.empty() && text.size() <= 100 &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_" + more) == std::string::npos;
}

// A node as it is written; nothing for a table, a date or a mixed list.
Value written(const toml::node& node) {
  if (const auto flag = node.value_exact<bool>()) return *flag;
  if (const auto whole = node.value_exact<int64_t>()) return *whole;
  if (const auto number = node.value_exact<double>()) return *number;
  if (const auto text = node.value_exact<std::string>()) return *text;
  if (!node.is_array()) return {};
  std::vector<std::string> texts;
  std::vector<double> numbers;
  for (const toml::node& item : *node.as_array()) {
    if (const auto text = item.value_exact<std::string>()) texts.push_back(*text);
    if (item.is_number()) numbers.push_back(item.value<double>().value_or(0));
  }
  if (texts.size() == node.as_array()->size()) return texts;
  if (numbers.size() == node.as_array()->size()) return numbers;
  return {};
}

// `node` as the option takes it, within the option's own limits.
Value fitted(const toml::node& node, const Option& option, const std::string& what) {
  Value value = written(node);
  need(value.index() != 0, "{} must be of type {}", what, type_name(option.type));
  const std::string wrong = fit(option, value);
  need(wrong.empty(), "{} {}", what, wrong);
  return value;
}

const toml::table& table_at(const toml::node* node, const std::string& where) {
  need(node, "{} is missing", where);
  need(node->is_table(), "{} must be a table", where);
  return *node->as_table();
}

void only(const toml::table& table, const std::set<std::string_view>& keys, const std::string& where) {
  for (const auto& [key, node] : table) need(keys.count(key.str()), "{}: unknown key '{}'", where, key.str());
}

// Nothing if the key is absent.
Value value_at(const toml::table& table, const char* key, Type type, const std::string& where) {
  Option as;
  as.type = type;
  return table.contains(key) ? fitted(*table.get(key), as, fmt::format("{}: '{}'", where, key)) : Value();
}

std::string text_at(const toml::table& table, const char* key, const std::string& where, bool required = true) {
  Value value = value_at(table, key, Type::string, where);
  need(!required || value.index(), "{}: '{}' is missing", where, key);
  if (!value.index()) return "";
  need(!required || !std::get<std::string>(value).empty(), "{}: '{}' is empty", where, key);
  return std::get<std::string>(value);
}

Option parse_option(const std::string& key, const toml::node& node, const std::string& owner) {
  const std::string where = owner + " option '" + key + "'";
  need(is_word(key, ""), "{}: a key is made of a-z, 0-9 and _", where);
  const toml::table& table = table_at(&node, where);
  only(table, {"type", "default", "min", "max", "choices", "help", "required"}, where);
  Option option;
  option.key = key;
  const std::string type = text_at(table, "type", where);
  need(types.count(type), "{}: unknown type '{}' (bool, int, float, string, bytes, strings, floats)", where, type);
  option.type = types.at(type);
  const bool bytes = option.type == Type::bytes;
  const bool numeric =
      bytes || option.type == Type::integer || option.type == Type::number || option.type == Type::numbers;
  for (const auto& [name, limit] : {std::pair("min", &option.min), std::pair("max", &option.max)}) {
    const Value bound = value_at(table, name, bytes ? Type::bytes : Type::number, where);
    need(numeric || !bound.index(), "{}: '{}' goes with numbers only", where, name);
    if (const auto* whole = std::get_if<int64_t>(&bound)) *limit = static_cast<double>(*whole);
    if (const auto* number = std::get_if<double>(&bound)) *limit = *number;
  }
  need(!option.min || !option.max || *option.min <= *option.max, "{}: min is above max", where);
  if (const Value choices = value_at(table, "choices", Type::strings, where); choices.index()) {
    need(option.type == Type::string, "{}: 'choices' goes with type string only", where);
    option.choices = std::get<std::vector<std::string>>(choices);
  }
  option.help = text_at(table, "help", where, false);
  option.required = value_at(table, "required", Type::boolean, where) == Value(true);
  if (const toml::node* fallback = table.get("default")) {
    need(!option.required, "{}: a required option has no default", where);
    option.fallback = fitted(*fallback, option, where + ": 'default'");
  }
  return option;
}

Preset parse_preset(const toml::node& node, const Schema& schema, const std::string& where) {
  Preset preset;
  for (const auto& [key, value] : table_at(&node, where)) {
    const auto option = std::find_if(schema.begin(), schema.end(), [&](const auto& o) { return o.key == key.str(); });
    need(option != schema.end(), "{}: there is no option '{}'", where, key.str());
    preset.emplace(option->key, fitted(value, *option, fmt::format("{}: '{}'", where, option->key)));
  }
  return preset;
}

// "eng.NAME/REVISION" of this engine, or "org.example.NAME/REVISION" of anybody.
void check_kind(const std::string& kind, const std::string& where) {
  const size_t slash = std::min(kind.find('/'), kind.size());
  const std::string name = kind.substr(0, slash), revision = kind.substr(std::min(slash + 1, kind.size()));
  const bool formed = is_word(name, ".-") && name.find('.') != std::string::npos && !revision.empty() &&
                      revision.find_first_not_of("0123456789") == std::string::npos;
  need(formed, "{}: kind '{}' is not of the form eng.optimizer/1 or org.example.thing/1", where, kind);
  need(!kind.starts_with("eng.") || known_kinds.count(kind), "{}: unknown kind '{}'; this engine knows {}", where, kind,
       fmt::join(known_kinds, ", "));
}

Provided parse_provided(const toml::node& node, size_t number) {
  std::string where = fmt::format("description, [[provides]] number {}", number);
  const toml::table& table = table_at(&node, where);
  only(table, {"kind", "name", "summary", "options", "presets"}, where);
  Provided out;
  out.kind = text_at(table, "kind", where);
  out.name = text_at(table, "name", where);
  check_kind(out.kind, where);
  need(is_word(out.name, "-."), "{}: '{}' is no name (a-z, 0-9, _ - .)", where, out.name);
  out.summary = text_at(table, "summary", where, false);
  where = fmt::format("description of {} '{}',", out.kind, out.name);
  if (const toml::node* options = table.get("options"))
    for (const auto& [key, option] : table_at(options, where + " 'options'"))
      out.schema.options.push_back(parse_option(std::string(key.str()), option, where));
  if (const toml::node* presets = table.get("presets"))
    for (const auto& [key, preset] : table_at(presets, where + " 'presets'")) {
      const std::string name(key.str());
      out.schema.presets[name] = parse_preset(preset, out.schema.options, where + " preset '" + name + "'");
    }
  return out;
}

void parse(const toml::table& root, Description& out) {
  // The draft comes first: a description of another draft may hold keys that this engine does not know.
  const std::string draft = text_at(root, "draft", "description");
  need(draft == ENG_ABI_DRAFT_ID, "built from ABI draft '{}', this engine speaks draft '{}': build the plugin again",
       draft, ENG_ABI_DRAFT_ID);
  only(root, {"draft", "plugin", "provides"}, "description");
  const std::string where = "description, [plugin]";
  const toml::table& plugin = table_at(root.get("plugin"), where);
  only(plugin, {"id", "name", "version", "license", "summary"}, where);
  out.id = text_at(plugin, "id", where);
  need(is_word(out.id, ".-") && out.id.find('.') != std::string::npos,
       "{}: id '{}' is not of the form org.example.name", where, out.id);
  out.name = text_at(plugin, "name", where);
  out.version = text_at(plugin, "version", where);
  out.license = text_at(plugin, "license", where);
  out.summary = text_at(plugin, "summary", where, false);
  const toml::array* provides = root["provides"].as_array();
  need(provides && !provides->empty(), "description: [[provides]] is missing: the plugin offers nothing");
  std::set<std::pair<std::string, std::string>> seen;
  for (const toml::node& node : *provides) {
    Provided one = parse_provided(node, out.provides.size() + 1);
    need(seen.emplace(one.kind, one.name).second, "description: {} '{}' is provided twice", one.kind, one.name);
    out.provides.push_back(std::move(one));
  }
}

}  // namespace

std::string parse_description(const std::string& text, Description& out) {
  out = Description();
  out.text = text;
  try {
    const auto bad = forbidden_toml(text);
    need(!bad, "description is not TOML: {}", bad ? bad->message : "");
    parse(toml::parse(text), out);
    return "";
  } catch (const toml::parse_error& error) {
    const auto& at = error.source().begin;
    return fmt::format("description is not TOML: line {}, column {}: {}", at.line, at.column, error.description());
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace eng
