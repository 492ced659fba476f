// SPDX-License-Identifier: Apache-2.0
// What a plugin says of itself (engine/plugin.h), from TOML.
#include <sstream>

#include "core/config/toml.hpp"
#include "core/registry/plugin_file.hpp"

namespace eng {
namespace {

Option text(const char* key, bool required = true) {
  Option option{key};
  option.required = required;
  return option;
}

bool is_dotted(const std::string& text) {  // "org.example.name"
  return is_word(text, ".-") && text.find('.') != std::string::npos;
}

bool is_kind(const std::string& kind) {  // "org.example.name/1"
  const size_t slash = std::min(kind.find('/'), kind.size());
  return is_dotted(kind.substr(0, slash)) && slash + 1 < kind.size() &&
         kind.find_first_not_of("0123456789", slash + 1) == std::string::npos;
}

std::string json_text(const toml::node& node) {
  std::ostringstream out;
  out << toml::json_formatter(node);
  return out.str();
}

// [["from", "to"], ...]
Pretrained::Pairs read_pairs(const toml::node* list, const std::string& where) {
  Pretrained::Pairs out;
  need(!list || list->is_array(), "{} must be a list of pairs of texts", where);
  for (size_t k = 0; list && k < list->as_array()->size(); ++k) {
    std::string odd;
    const Value pair = value_of(*list->as_array()->get(k), odd);
    const auto* texts = std::get_if<std::vector<std::string>>(&pair);
    need(texts && texts->size() == 2, "{} must be a list of pairs of texts", where);
    out.emplace_back(texts->front(), texts->back());
  }
  return out;
}

Pretrained read_pretrained(const toml::node& node, const std::string& where) {
  Schema keys = {text("model_type")};
  for (const char* key : {"architectures", "recognise", "ignore", "ignore_tensors"})
    keys.push_back({key, Type::strings});
  const Preset given = read_table(&node, keys, where, {"fixed", "write", "rename", "tied"});
  const toml::table& table = *node.as_table();
  Pretrained out{text_in(given, "model_type"),
                 texts_in(given, "architectures"),
                 texts_in(given, "recognise"),
                 {},
                 {},
                 texts_in(given, "ignore"),
                 read_pairs(table.get("rename"), where + " 'rename'"),
                 read_pairs(table.get("tied"), where + " 'tied'"),
                 texts_in(given, "ignore_tensors")};
  if (const toml::node* fixed = table.get("fixed"))
    for (const auto& [path, value] : entries(fixed, where + " 'fixed'")) {
      auto& supported = out.fixed[path];
      if (!value->is_array()) supported.push_back(json_text(*value));
      for (size_t k = 0; value->is_array() && k < value->as_array()->size(); ++k)
        supported.push_back(json_text(*value->as_array()->get(k)));
    }
  if (const toml::node* write = table.get("write"))
    for (const auto& [path, value] : entries(write, where + " 'write'")) out.write[path] = json_text(*value);
  return out;
}

Provided read_provided(const toml::node& node, size_t number) {
  std::string where = fmt::format("description, [[provides]] number {}", number);
  const Preset given = read_table(&node, {text("kind"), text("name"), text("summary", false)}, where,
                                  {"options", "presets", "pretrained"});
  Provided out{text_in(given, "kind"), text_in(given, "name"), text_in(given, "summary"), {}};
  need(is_kind(out.kind), "{}: kind '{}' is not of the form eng.optimizer/1 or org.example.thing/1", where, out.kind);
  need(is_word(out.name, "-."), "{}: '{}' is no name (a-z, 0-9, _ - .)", where, out.name);
  where = fmt::format("description of {} '{}',", out.kind, out.name);
  const toml::table& table = *node.as_table();
  if (const toml::node* options = table.get("options")) out.schema.options = read_options(options, where);
  if (const toml::node* pretrained = table.get("pretrained"))
    out.schema.pretrained = read_pretrained(*pretrained, where + " 'pretrained'");
  Schema keys = out.schema.options;
  for (Option& option : keys) option.required = false;  // a preset need not say everything
  if (!find_option(keys, "called")) keys.push_back({"called"});
  if (const toml::node* presets = table.get("presets"))
    for (const auto& [name, preset] : entries(presets, where + " 'presets'"))
      out.schema.presets[name] = read_table(preset, keys, fmt::format("{} preset '{}'", where, name));
  return out;
}

void read_description(const toml::table& root, Description& out) {
  // The draft comes first: a description of another draft may hold keys that this engine does not know.
  const std::string draft = root["draft"].value_or(std::string());
  need(draft.empty() || draft == ENG_ABI_DRAFT_ID,
       "built from ABI draft '{}', this engine speaks draft '{}': build the plugin again", draft, ENG_ABI_DRAFT_ID);
  read_table(&root, {text("draft")}, "description", {"plugin", "provides"});
  const std::string where = "description, [plugin]";
  const Preset plugin = read_table(
      root.get("plugin"), {text("id"), text("name"), text("version"), text("license"), text("summary", false)}, where);
  out.id = text_in(plugin, "id");
  need(is_dotted(out.id), "{}: id '{}' is not of the form org.example.name", where, out.id);
  out.name = text_in(plugin, "name");
  out.version = text_in(plugin, "version");
  out.license = text_in(plugin, "license");
  out.summary = text_in(plugin, "summary");
  const toml::array* provides = root["provides"].as_array();
  need(provides && !provides->empty(), "description: [[provides]] is missing: the plugin offers nothing");
  std::set<std::pair<std::string, std::string>> seen;
  for (const toml::node& node : *provides) {
    const Provided& one = out.provides.emplace_back(read_provided(node, out.provides.size() + 1));
    need(seen.emplace(one.kind, one.name).second, "description: {} '{}' is provided twice", one.kind, one.name);
  }
}

}  // namespace

std::string parse_description(const std::string& text, Description& out) {
  out = Description();
  out.text = text;
  try {
    read_description(parse_toml(text), out);
    return "";
  } catch (const BadToml& bad) {
    return fmt::format("description is not TOML: line {}, column {}: {}", bad.line, bad.column, bad.what());
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace eng
