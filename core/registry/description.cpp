// SPDX-License-Identifier: Apache-2.0
#include "core/registry/description.hpp"

#include <fmt/core.h>

#include <toml++/toml.h>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <stdexcept>
#include <utility>

#include "core/config/source.hpp"
#include "engine/data.h"
#include "engine/kernel.h"
#include "engine/model.h"
#include "engine/optimizer.h"
#include "engine/policy.h"

namespace eng {
namespace {

// Thrown and caught in this file only.
struct Refusal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

constexpr const char* known_kinds[] = {ENG_DATA_KIND,  ENG_DEVICE_KIND,    ENG_KERNELS_KIND,
                                       ENG_MODEL_KIND, ENG_OPTIMIZER_KIND, ENG_PRECISION_KIND};

constexpr std::pair<const char*, Type> type_names[] = {
    {"bool", Type::boolean}, {"int", Type::integer},     {"float", Type::number},  {"string", Type::string},
    {"bytes", Type::bytes},  {"strings", Type::strings}, {"floats", Type::numbers}};

bool is_word(const std::string& text, const char* also) {
  if (text.empty() || text.size() > 100) return false;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    if (!plain && !std::strchr(also, c)) return false;
  }
  return true;
}

void only(const toml::table& table, std::initializer_list<const char*> keys, const std::string& where) {
  for (const auto& [key, node] : table) {
    bool known = false;
    for (const char* k : keys) known = known || key.str() == k;
    if (!known) throw Refusal(fmt::format("{}: unknown key '{}'", where, key.str()));
  }
}

std::string text_at(const toml::table& table, const char* key, const std::string& where, bool required = true) {
  const toml::node* node = table.get(key);
  if (!node) {
    if (required) throw Refusal(fmt::format("{}: '{}' is missing", where, key));
    return "";
  }
  const auto value = node->value_exact<std::string>();
  if (!value) throw Refusal(fmt::format("{}: '{}' must be a string", where, key));
  if (required && value->empty()) throw Refusal(fmt::format("{}: '{}' is empty", where, key));
  return *value;
}

double number_of(const toml::node& node, const std::string& where) {
  if (const auto f = node.value_exact<double>()) return *f;
  if (const auto i = node.value_exact<int64_t>()) return static_cast<double>(*i);
  throw Refusal(fmt::format("{} must be a number", where));
}

int64_t bytes_of(const toml::node& node, const std::string& where) {
  if (const auto i = node.value_exact<int64_t>()) return *i;
  if (const auto s = node.value_exact<std::string>())
    if (const auto bytes = parse_bytes(*s)) return *bytes;
  throw Refusal(fmt::format("{} must be a size such as \"64MiB\"", where));
}

// `node` as a value of `type`.
Value value_of(const toml::node& node, Type type, const std::string& where) {
  const auto wrong = [&]() { return Refusal(fmt::format("{} must be of type {}", where, schema_type(type))); };
  switch (type) {
    case Type::boolean:
      if (const auto b = node.value_exact<bool>()) return *b;
      throw wrong();
    case Type::integer:
      if (const auto i = node.value_exact<int64_t>()) return *i;
      throw wrong();
    case Type::number:
      return number_of(node, where);
    case Type::string:
      if (const auto s = node.value_exact<std::string>()) return *s;
      throw wrong();
    case Type::bytes:
      return bytes_of(node, where);
    case Type::strings: {
      const toml::array* array = node.as_array();
      if (!array) throw wrong();
      std::vector<std::string> out;
      for (const toml::node& item : *array) {
        const auto s = item.value_exact<std::string>();
        if (!s) throw wrong();
        out.push_back(*s);
      }
      return out;
    }
    case Type::numbers: {
      const toml::array* array = node.as_array();
      if (!array) throw wrong();
      std::vector<double> out;
      for (const toml::node& item : *array) out.push_back(number_of(item, where));
      return out;
    }
  }
  throw wrong();
}

// A default or a preset's value obeys the option's own limits.
void check_limits(const Option& option, const Value& value, const std::string& where) {
  const auto in_range = [&](double x) {
    if (std::isnan(x) || (option.min && x < *option.min) || (option.max && x > *option.max))
      throw Refusal(fmt::format("{} is {}, outside of the option's own min and max", where, x));
  };
  if (const auto* i = std::get_if<int64_t>(&value)) in_range(static_cast<double>(*i));
  if (const auto* f = std::get_if<double>(&value)) in_range(*f);
  if (const auto* list = std::get_if<std::vector<double>>(&value))
    for (const double f : *list) in_range(f);
  if (const auto* s = std::get_if<std::string>(&value); s && !option.choices.empty())
    if (std::find(option.choices.begin(), option.choices.end(), *s) == option.choices.end())
      throw Refusal(fmt::format("{} is '{}', which is none of the option's choices", where, *s));
}

Option parse_option(const std::string& key, const toml::node& node, const std::string& owner) {
  const std::string where = owner + " option '" + key + "'";
  if (!is_word(key, "")) throw Refusal(where + ": a key is made of a-z, 0-9 and _");
  const toml::table* table = node.as_table();
  if (!table) throw Refusal(where + " must be a table");
  only(*table, {"type", "default", "min", "max", "choices", "help", "required"}, where);
  Option option;
  option.key = key;
  const std::string type = text_at(*table, "type", where);
  const auto* found =
      std::find_if(std::begin(type_names), std::end(type_names), [&](const auto& row) { return type == row.first; });
  if (found == std::end(type_names))
    throw Refusal(fmt::format("{}: unknown type '{}' (bool, int, float, string, bytes, strings, floats)", where, type));
  option.type = found->second;
  const bool numeric = option.type == Type::integer || option.type == Type::number || option.type == Type::bytes ||
                       option.type == Type::numbers;
  for (const auto& [name, limit] : {std::pair("min", &option.min), std::pair("max", &option.max)}) {
    const toml::node* bound = table->get(name);
    if (!bound) continue;
    if (!numeric) throw Refusal(fmt::format("{}: '{}' goes with numbers only", where, name));
    *limit = option.type == Type::bytes ? static_cast<double>(bytes_of(*bound, where + ": '" + name + "'"))
                                        : number_of(*bound, where + ": '" + name + "'");
  }
  if (option.min && option.max && !(*option.min <= *option.max)) throw Refusal(where + ": min is above max");
  if (const toml::node* choices = table->get("choices")) {
    if (option.type != Type::string) throw Refusal(where + ": 'choices' goes with type string only");
    option.choices = std::get<std::vector<std::string>>(value_of(*choices, Type::strings, where + ": 'choices'"));
    if (option.choices.empty()) throw Refusal(where + ": 'choices' is empty");
  }
  option.help = text_at(*table, "help", where, false);
  if (const toml::node* required = table->get("required"))
    option.required = std::get<bool>(value_of(*required, Type::boolean, where + ": 'required'"));
  if (const toml::node* fallback = table->get("default")) {
    if (option.required) throw Refusal(where + ": a required option has no default");
    option.fallback = value_of(*fallback, option.type, where + ": 'default'");
    check_limits(option, option.fallback, where + ": 'default'");
  }
  return option;
}

Preset parse_preset(const std::string& name, const toml::node& node, const Schema& schema, const std::string& owner) {
  const std::string where = owner + " preset '" + name + "'";
  const toml::table* table = node.as_table();
  if (!table) throw Refusal(where + " must be a table");
  Preset preset;
  for (const auto& [name_of_key, value] : *table) {
    const std::string key(name_of_key.str());
    const auto option = std::find_if(schema.begin(), schema.end(), [&](const Option& o) { return o.key == key; });
    if (option == schema.end()) throw Refusal(fmt::format("{}: there is no option '{}'", where, key));
    const std::string what = fmt::format("{}: '{}'", where, key);
    Value v = value_of(value, option->type, what);
    check_limits(*option, v, what);
    preset.emplace(option->key, std::move(v));
  }
  return preset;
}

// "eng.NAME/REVISION" of this engine, or "org.example.NAME/REVISION" of anybody.
void check_kind(const std::string& kind, const std::string& where) {
  const size_t slash = kind.find('/'), dot = kind.find('.');
  const bool formed = dot != std::string::npos && slash != std::string::npos && dot < slash &&
                      is_word(kind.substr(0, slash), ".-") && slash + 1 < kind.size() &&
                      kind.find_first_not_of("0123456789", slash + 1) == std::string::npos;
  if (!formed)
    throw Refusal(fmt::format("{}: kind '{}' is not of the form eng.optimizer/1 or org.example.thing/1", where, kind));
  if (!kind.starts_with("eng.")) return;
  std::string all;
  for (const char* known : known_kinds) {
    if (kind == known) return;
    all += (all.empty() ? "" : ", ") + std::string(known);
  }
  throw Refusal(fmt::format("{}: unknown kind '{}'; this engine knows {}", where, kind, all));
}

Provided parse_provided(const toml::node& node, size_t index) {
  std::string where = fmt::format("description, [[provides]] number {}", index + 1);
  const toml::table* table = node.as_table();
  if (!table) throw Refusal(where + " must be a table");
  only(*table, {"kind", "name", "summary", "options", "presets"}, where);
  Provided out;
  out.kind = text_at(*table, "kind", where);
  out.name = text_at(*table, "name", where);
  check_kind(out.kind, where);
  if (!is_word(out.name, "-.")) throw Refusal(fmt::format("{}: '{}' is no name (a-z, 0-9, _ - .)", where, out.name));
  out.summary = text_at(*table, "summary", where, false);
  where = fmt::format("description of {} '{}',", out.kind, out.name);
  if (const toml::node* options = table->get("options")) {
    if (!options->is_table()) throw Refusal(where + " 'options' must be a table");
    for (const auto& [key, option] : *options->as_table())
      out.schema.options.push_back(parse_option(std::string(key.str()), option, where));
  }
  if (const toml::node* presets = table->get("presets")) {
    if (!presets->is_table()) throw Refusal(where + " 'presets' must be a table");
    for (const auto& [name, preset] : *presets->as_table())
      out.schema.presets.emplace(std::string(name.str()),
                                 parse_preset(std::string(name.str()), preset, out.schema.options, where));
  }
  return out;
}

void parse(const toml::table& root, Description& out) {
  // The draft comes first: a description of another draft may hold keys that this engine does not know.
  out.draft = text_at(root, "draft", "description");
  const toml::table* plugin = root["plugin"].as_table();
  if (plugin) out.id = plugin->get("id") ? text_at(*plugin, "id", "description, [plugin]") : "";
  if (out.draft != ENG_ABI_DRAFT_ID)
    throw Refusal(fmt::format("built from ABI draft '{}', this engine speaks draft '{}': build the plugin again",
                              out.draft, ENG_ABI_DRAFT_ID));
  only(root, {"draft", "plugin", "provides"}, "description");
  if (!plugin) throw Refusal("description: [plugin] is missing");
  const std::string where = "description, [plugin]";
  only(*plugin, {"id", "name", "version", "license", "summary"}, where);
  out.id = text_at(*plugin, "id", where);
  if (!is_word(out.id, ".-") || out.id.find('.') == std::string::npos)
    throw Refusal(fmt::format("{}: id '{}' is not of the form org.example.name", where, out.id));
  out.name = text_at(*plugin, "name", where);
  out.version = text_at(*plugin, "version", where);
  out.license = text_at(*plugin, "license", where);
  out.summary = text_at(*plugin, "summary", where, false);
  const toml::array* provides = root["provides"].as_array();
  if (!provides || provides->empty()) throw Refusal("description: [[provides]] is missing: the plugin offers nothing");
  std::set<std::pair<std::string, std::string>> seen;
  for (size_t k = 0; k < provides->size(); ++k) {
    Provided one = parse_provided(*provides->get(k), k);
    if (!seen.emplace(one.kind, one.name).second)
      throw Refusal(fmt::format("description: {} '{}' is provided twice", one.kind, one.name));
    out.provides.push_back(std::move(one));
  }
}

}  // namespace

const char* schema_type(Type type) {
  for (const auto& [name, t] : type_names)
    if (t == type) return name;
  return "?";
}

std::string parse_description(const std::string& text, Description& out) {
  out = Description();
  out.text = text;
  try {
    if (auto bad = forbidden_toml(text)) throw Refusal(fmt::format("description is not TOML: {}", bad->message));
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
