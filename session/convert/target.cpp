// SPDX-License-Identifier: Apache-2.0
#include "session/convert/target.hpp"

#include <algorithm>

#include "core/base/text.hpp"

namespace eng::converter {
namespace {

// [adapter], the short form of one [[transforms]].
const SectionSchema& adapter_section() {
  static const SectionSchema out = {"adapter", entry_kind("transforms"), *entry_keys("transforms")};
  return out;
}

const SectionSchema* section_of(const std::string& name) {
  if (name == "adapter") return &adapter_section();
  for (const SectionSchema& schema : section_schemas())
    if (schema.name == name) return &schema;
  return nullptr;
}

}  // namespace

bool Target::set(const std::string& key, Value value, const Entry& from) {
  if (!from.odd.empty()) {
    problem(fmt::format("`{}` is {}; {} cannot be that", from.origin, from.odd, key));
    return false;
  }
  // The comment gives their value where ours is another.
  const bool same = from.value.index() == 0 || toml_text(from.value) == toml_text(value);
  return place(key, std::move(value), from.origin, from.origin + (same ? "" : " = " + shown(from)));
}

bool Target::set(const std::string& key, Value value, const std::string& why) {
  return place(key, std::move(value), why, why);
}

bool Target::place(const std::string& key, Value value, const std::string& origin, std::string why) {
  const auto dot = key.find('.');
  const std::string section = key.substr(0, dot), name = key.substr(dot + 1);
  const SectionSchema* schema = section_of(section);
  const Schema options = schema ? keys_of(*schema, plugin_of(section), plugins_) : Schema{};
  const Option* option = find_option(options, name);
  if (!option && section == "model" && !plugin_of(section)) {  // of a model that is not known yet
    leave(key, toml_text(value), why);
    return false;
  }
  if (!option) {
    const Value* plugin = get(section + "." + (schema ? schema->names : "plugin"));
    problem(fmt::format("`{}`: [{}]{} has no key `{}` here; --ignore leaves it out", origin, section,
                        plugin ? " of `" + as_text(*plugin) + "`" : "", name));
    return false;
  }
  if (option->type == Type::integer || option->type == Type::bytes)
    if (const auto whole = as_whole(value)) value = *whole;
  if (option->type == Type::strings && value.index() == 4) value = std::vector<std::string>{as_text(value)};
  const std::string written = toml_text(value);
  const bool plugin = name == schema->names && exists(section, as_text(value));
  const Misfit wrong = plugin ? Misfit{} : fit(*option, value);
  if (wrong.code) {
    problem(fmt::format("`{}`: {} {}", origin, key, wrong.text));
    return false;
  }
  for (const Line& line : lines_) {
    if (line.key != key || line.value.index() == 0) continue;
    if (line.value == value) return true;
    note(fmt::format("`{}` = {} is not used: {} = {} comes from {}", origin, written, key, line.text, line.why));
    return false;
  }
  const std::string text = toml_text(value);
  lines_.push_back({key, std::move(value), text, std::move(why)});
  return true;
}

void Target::change(const std::string& key, const Value& value, const std::string& why) {
  for (Line& line : lines_)
    if (line.key == key && line.value.index()) {
      const std::string before = line.text == toml_text(value) ? "" : " (" + line.text + ")";
      line.value = value, line.text = toml_text(value), line.why += before + ": " + why;
    }
}

void Target::comment_out(const std::string& section) {
  for (Line& line : lines_)
    if (line.key.starts_with(section + ".")) line.value = {};
}

void Target::leave(const std::string& key, const std::string& text, const std::string& why) {
  lines_.push_back({key, {}, text, why});
}

const Value* Target::get(const std::string& key) const {
  for (const Line& line : lines_)
    if (line.key == key && line.value.index()) return &line.value;
  return nullptr;
}

bool Target::exists(const std::string& section, const std::string& plugin) const {
  const SectionSchema* schema = section_of(section);
  if (!schema || schema->kind.empty()) return false;
  const auto names = plugins_.names(schema->kind);
  return std::find(names.begin(), names.end(), plugin) != names.end();
}

const PluginSchema* Target::plugin_of(const std::string& section) const {
  const SectionSchema* schema = section_of(section);
  if (!schema || schema->kind.empty()) return nullptr;
  const Option* option = find_option(schema->options, schema->names);
  const Value* given = get(section + "." + schema->names);
  const std::string name = as_text(given ? *given : option->fallback);
  return name.empty() || schema->built_in(name) ? nullptr : plugins_.find(schema->kind, name);
}

std::optional<int64_t> Target::of_model(const std::string& key) const {
  if (const Value* given = get("model." + key)) return as_whole(*given);
  const PluginSchema* plugin = plugin_of("model");
  const Value* name = get("model.preset");
  if (!plugin || !name) return std::nullopt;
  const auto preset = plugin->presets.find(as_text(*name));
  if (preset == plugin->presets.end() || !preset->second.count(key)) return std::nullopt;
  return as_whole(preset->second.at(key));
}

void Target::note(const std::string& text) {
  const std::string clean = printable(text, 2000);
  if (std::find(notes_.begin(), notes_.end(), clean) == notes_.end()) notes_.push_back(clean);
}

void Target::problem(const std::string& text) {
  const std::string clean = printable(text, 600);
  if (std::find(problems_.begin(), problems_.end(), clean) == problems_.end()) problems_.push_back(clean);
}

std::string Target::text() const {
  std::string out;
  std::vector<std::string> sections;
  for (const SectionSchema& schema : section_schemas())
    sections.push_back(schema.name == "transforms" ? "adapter" : schema.name);
  for (const std::string& section : sections) {
    std::vector<const Line*> mine;
    for (const Line& line : lines_)
      if (line.key.starts_with(section + ".")) mine.push_back(&line);
    if (mine.empty()) continue;
    const auto rank = [](const Line* line) { return line->key.ends_with(".plugin") ? 0 : 1; };
    std::stable_sort(mine.begin(), mine.end(), [&](const auto* a, const auto* b) { return rank(a) < rank(b); });
    out += fmt::format("\n[{}]\n", section);
    for (const Line* line : mine) {
      const std::string written =
          fmt::format("{}{} = {}", line->value.index() ? "" : "# ", line->key.substr(section.size() + 1), line->text);
      out += fmt::format("{:<38} # {}{}\n", written, line->value.index() ? "from: " : "", printable(line->why, 300));
    }
  }
  return out;
}

}  // namespace eng::converter
