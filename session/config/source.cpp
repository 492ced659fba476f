// SPDX-License-Identifier: Apache-2.0
#include "session/config/source.hpp"

#include <algorithm>

#include "session/config/toml.hpp"
#include "session/file.hpp"

namespace eng {
namespace {

TextRange place_of(const toml::source_region& region) {
  const auto &begin = region.begin, &end = region.end;
  const bool wide = end.line == begin.line && end.column > begin.column;
  return {begin.line, begin.column, wide ? end.column - begin.column : 1u};
}

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

// True if a section's own key takes text: plugins, presets and paths are resolved before any plugin is known.
bool takes_text(const std::string& section, const std::string& key) {
  for (const SectionSchema& schema : section_schemas())
    if (const Option* option = schema.name == section ? find_option(schema.options, key) : nullptr)
      return option->type == Type::string;
  return false;
}

// Adds a table of sections; `at` and `text` belong to an override, or are empty.
void take(const toml::table& sections, const TextRange& at, const std::string& text, Document& document,
          Problems& problems) {
  const bool file = at.override_text.empty();
  const auto put = [&](const std::string& section, const std::string& name, const toml::key& key,
                       const toml::node& node) {
    Given given{{}, "", file ? place_of(key.source()) : at, file ? place_of(node.source()) : at, text};
    given.value = value_of(node, given.odd);
    // Users do not quote a preset 7 or a folder 2026 on a command line.
    if (!file && given.odd.empty() && given.value.index() < 4 && takes_text(section, name)) given.value = text;
    document.parts[section].keys[name] = std::move(given);
  };
  for (const auto& [key, node] : sections) {
    const std::string name(key.str()), shown = printable(name);
    TextRange header = file ? place_of(key.source()) : at;
    header.length = std::max(header.length, shown.size());
    if (entry_keys(name) && node.is_array()) {
      if (file) document.parts[name].header = header;
      put(name, "list", key, node);
    } else if (node.is_array_of_tables()) {
      problems.push_back({"E0102", fmt::format("`[[{}]]` is a list of sections", shown), header,
                          fmt::format("write [{}], with single brackets", shown)});
    } else if (const toml::table* section = node.as_table()) {
      if (file) document.parts[name].header = header;
      for (const auto& [inner, value] : *section) {
        // A table within a section is keys with a dot: describe = {latency = "5us"} is describe.latency.
        const toml::table* more = value.as_table();
        const std::string word(inner.str());
        if (!more || more->empty()) {
          put(name, word, inner, value);
        } else {
          for (const auto& [last, leaf] : *more) put(name, word + "." + std::string(last.str()), last, leaf);
        }
      }
    } else {
      put("", name, key, node);
    }
  }
}

// Help for the most frequent mistake: text and sizes without quotes.
std::string quotes_needed(const std::string& line) {
  const auto equals = line.find('=');
  const std::string value =
      equals == std::string::npos ? "" : trimmed(line.substr(equals + 1, line.find('#') - equals - 1));
  if (value.empty() || value.size() > 80 || value.find_first_of("\"'[]{},\t") != std::string::npos) return "";
  return "text and sizes need quotes: " + printable(line.substr(0, equals + 1)) + " " + toml_text(printable(value));
}

void take_override(const std::string& text, Document& document, Problems& problems) {
  const TextRange at{0, 0, 1, text};
  const auto equals = std::min(text.find('='), text.size());
  const std::string key = text.substr(0, equals), value = trimmed(text.substr(std::min(equals + 1, text.size())));
  if (value.empty() || key.find_first_of("\r\n#") != std::string::npos)
    return problems.push_back({"E0114", "an override is section.key=value", at, "for example train.steps=10"});
  try {
    const toml::table all = parse_toml(text);
    const toml::table* section = all.cbegin()->second.as_table();
    if (all.size() > 1 || (section && section->size() != 1))
      return problems.push_back({"E0114", "an override sets one key", at, "write an override for each key"});
    return take(all, at, value, document, problems);
  } catch (const BadToml& bad) {
    if (value.find_first_of("[{\"'") == 0)
      return problems.push_back({"E0114", fmt::format("not valid TOML: {}", printable(bad.what())), at,
                                 "the shell removes one pair of quotes: '" + printable(text) + "'"});
  }
  try {  // a value that is not TOML is text
    take(parse_toml(key + "=" + toml_text(value)), at, value, document, problems);
  } catch (const BadToml&) {
    problems.push_back({"E0114", "an override is section.key=value", at, "for example train.steps=10"});
  }
}

// "-zero.bucket" removes the file's value of zero.bucket; "-comm.describe" removes the whole table.
void take_away(const std::string& text, Document& document, Problems& problems) {
  const auto dot = std::min(text.find('.'), text.size());
  const std::string section = text.substr(1, dot - 1), key = text.substr(std::min(dot + 1, text.size()));
  const TextRange at{0, 0, 1, "--unset " + text.substr(1)};
  const auto& known = section_schemas();
  const bool there = std::any_of(known.begin(), known.end(), [&](const auto& one) { return one.name == section; });
  if (key.empty() || (!there && !document.parts.count(section)))
    return problems.push_back({"E0114", "--unset takes section.key", at, "for example --unset train.global_batch"});
  auto& keys = document.parts[section].keys;
  const auto gone =
      std::erase_if(keys, [&](const auto& entry) { return entry.first == key || entry.first.starts_with(key + "."); });
  if (gone > 0)
    document.removed.insert(section + "." + key);
  else
    document.notes.push_back(
        fmt::format("--unset {}: the file does not set it, so nothing changes", printable(text.substr(1), 80)));
  if (keys.empty() && !document.parts[section].header.line) document.parts.erase(section);
}

// Removes [resolved], which lists the keys with their default value. If it has other keys, it is an unknown section.
void take_defaults(Document& document) {
  const auto* list = document.value<std::vector<std::string>>("resolved", "defaults");
  if (!list) return;
  document.resolved = true;
  const std::set<std::string> held(list->begin(), list->end());
  if (document.parts["resolved"].keys.size() == 1) document.parts.erase("resolved");
  for (auto& [section, part] : document.parts)
    for (auto& [key, value] : part.keys) value.held = held.count(section + "." + key) > 0;
}

// "JSON" or "YAML" if the text is most likely that; `line` is the one that is no TOML.
std::string foreign_format(const std::string& text, const std::string& line) {
  const std::string begin = trimmed(text), wrong = trimmed(line);
  if (begin.starts_with('{') || wrong.starts_with('{') || wrong.starts_with("//") || wrong.starts_with("/*"))
    return "JSON";
  if (wrong == "---" || wrong.starts_with("- ") || wrong.starts_with("%YAML")) return "YAML";
  const auto colon = wrong.find(':');
  const bool name =
      colon != std::string::npos && colon > 0 && wrong.find('=') > colon &&
      wrong.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-\"'") >= colon;
  return name && (colon + 1 == wrong.size() || wrong[colon + 1] == ' ') ? "YAML" : "";
}

}  // namespace

const Document::Part* Document::find(const std::string& section) const {
  const auto part = parts.find(section);
  return part == parts.end() ? nullptr : &part->second;
}

const Given* Document::find(const std::string& section, const std::string& key) const {
  const Part* part = find(section);
  return part && part->keys.count(key) ? &part->keys.at(key) : nullptr;
}

void take_overrides(const std::vector<std::string>& overrides, Document& document, Problems& problems) {
  for (const std::string& text_given : overrides)
    if (text_given.starts_with('-')) take_away(text_given, document, problems);
  for (const std::string& text_given : overrides)
    if (!text_given.starts_with('-')) take_override(text_given, document, problems);
}

Document read_document(const std::string& text, const std::vector<std::string>& overrides, Problems& problems) {
  Document document;
  if (text.size() > max_config_bytes) {
    problems.push_back({"E0116", "too large for a configuration"});
    return document;
  }
  try {
    take(parse_toml(text), {}, "", document, problems);
  } catch (const BadToml& bad) {
    const std::string format = foreign_format(text, line_of(text, bad.line));
    problems.push_back(
        {"E0101",
         fmt::format("not valid TOML: {}", printable(bad.what())),
         {bad.line, bad.column},
         format.empty()
             ? quotes_needed(line_of(text, bad.line))
             : fmt::format("this looks like {}; a configuration is TOML: `engine config convert FILE` makes one "
                           "of a file of DeepSpeed or another trainer, `engine init PRESET` writes one to start "
                           "from",
                           format)});
    return document;
  }
  take_defaults(document);
  take_overrides(overrides, document, problems);
  return document;
}

Document read_document(const std::string& text, const std::string& name) {
  Problems problems;
  Document document = read_document(text, {}, problems);
  if (!problems.empty()) throw ConfigError(name, text, problems);
  return document;
}

Document read_document(const std::filesystem::path& file) {
  return read_document(read_text(file, max_config_bytes, Exit::usage), file.string());
}

Document read_resolved(const std::string& text, const std::filesystem::path& file) {
  Document out = read_document(text, file.string());
  if (out.resolved) return out;
  throw Error(Exit::usage, file.string() + " is cut off: [resolved], which a run writes last, is missing",
              "restore the file. Without it, config.toml of the run has the keys that were given: a new run of that "
              "configuration can start from the weights, [model] from = \"" +
                  file.parent_path().string() + "/checkpoints/STEP\"");
}

Document read_resolved(const std::filesystem::path& file) {
  return read_resolved(read_text(file, max_config_bytes, Exit::usage), file);
}

}  // namespace eng
