// SPDX-License-Identifier: Apache-2.0
#include "session/huggingface/config_json.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "engine/model.h"
#include "session/config/problems.hpp"
#include "session/file.hpp"
#include "session/huggingface/config_keys.hpp"
#include "session/huggingface/recognise.hpp"
#include "session/plugins/pretrained.hpp"

namespace eng {
namespace fs = std::filesystem;
namespace {

using Texts = std::vector<std::string>;

constexpr uint64_t most_bytes = 16u << 20;
constexpr size_t deepest = 16;

// Python writes an infinite number as no JSON has it: with an object in its place, as transformers writes since 5.0.
std::string without_infinity(const std::string& text) {
  static constexpr std::string_view word = "Infinity";
  std::string out;
  bool quoted = false;
  for (size_t k = 0; k < text.size(); ++k) {
    if (quoted && text[k] == '\\') {
      out += text.substr(k++, 2);
    } else if (!quoted && text.compare(k, word.size(), word) == 0 && (k == 0 || text[k - 1] != '-')) {
      out += infinite_json().dump();
      k += word.size() - 1;
    } else {
      quoted = (text[k] == '"') != quoted;
      out += text[k];
    }
  }
  return out;
}

// The value at a path; nullptr if there is none, or null.
const Json* at(const Json& document, const std::string& path) {
  const Json* node = &document;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    node = node->find(path.substr(begin, end - begin));
    if (!node) return nullptr;
    begin = end + 1;
  }
  return node->is_null() ? nullptr : node;
}

std::string shown(const Json& value) {
  return printable(value.dump(-1, true));
}

// A whole number, also one that is written as 64.0, as Python reads it.
std::optional<int64_t> whole(const Json& json) {
  if (json.is_unsigned() ? json.whole() <= INT64_MAX : json.is_integer()) return json.integer();
  constexpr double exact = int64_t{1} << 53;
  if (!json.is_number() || json.number() != std::floor(json.number()) || std::abs(json.number()) > exact) return {};
  return static_cast<int64_t>(json.number());
}

// As a value of [model]; empty if no option can have such a value.
Value to_value(const Json& json, Type type) {
  if (type == Type::integer)
    if (const auto number = whole(json)) return *number;
  if (json.is_boolean()) return json.boolean();
  if (json.is_unsigned() && json.whole() > INT64_MAX) return json.number();
  if (json.is_integer()) return json.integer();
  if (json.is_number()) return json.number();
  if (json.is_string()) return json.text();
  if (!json.is_array()) return {};
  std::vector<double> numbers;
  Texts texts;
  for (const Json& item : json.list()) {
    if (item.is_number()) numbers.push_back(item.number());
    if (item == infinite_json()) numbers.push_back(std::numeric_limits<double>::max());
    if (item.is_string()) texts.push_back(item.text());
  }
  if (numbers.size() == json.size()) return numbers;
  if (texts.size() == json.size()) return texts;
  return {};
}

// True if `path` is that of an object with known keys.
bool holds_known(const std::string& path, const std::set<std::string>& known) {
  const auto next = known.lower_bound(path + ".");
  return next != known.end() && next->starts_with(path + ".");
}

// Collects what is wrong with keys: each value that is no object, unless its path or one of its parents is in `known`.
void find_strangers(const Json& node, const std::string& path, const std::set<std::string>& known, Texts& out) {
  if (node.is_null() || known.count(path)) return;
  if (!node.is_object())
    return out.push_back(holds_known(path, known)
                             ? fmt::format("`{}` is {}, not an object", printable(path, 80), shown(node))
                             : fmt::format("`{}` is not known here, and may change the model", printable(path, 80)));
  for (const auto& [key, value] : node.members()) {
    const std::string inner = path.empty() ? key : path + "." + key;
    if (path.empty() && is_harmless(key)) continue;
    if (key.find('.') == std::string::npos)
      find_strangers(value, inner, known, out);
    else if (!value.is_null())  // would look like a key inside of another
      out.push_back(fmt::format("`{}` is not known here, and may change the model", printable(inner, 80)));
  }
}

const Twin* twin_of(const Json& json) {
  const Json* type = at(json, "model_type");
  const auto found = std::find_if(twins().begin(), twins().end(),
                                  [&](const Twin& twin) { return type && type->text() == twin.model_type; });
  return found == twins().end() ? nullptr : &*found;
}

// The file with the defaults of its family where it says nothing.
Json with_defaults(const Json& json) {
  Json out = json;
  const Json* type = at(json, "model_type");
  const char* text = type ? family_defaults(type->text()) : nullptr;
  const Json defaults = text ? Json::parse(text) : Json::object();
  for (const auto& [key, value] : defaults.members())
    if (!out.contains(key)) out[key] = value;
  return out;
}

// True if a window of attention leaves out a token of a sequence that the model is made for.
bool window_bites(const Json& json, const Twin& twin) {
  const Json *given = at(json, "sliding_window"), *layers = at(json, "layer_types");
  const auto full = [](const Json& layer) { return layer == Json("full_attention"); };
  if (twin.windows_by_layer && layers && layers->is_array() &&
      std::all_of(layers->list().begin(), layers->list().end(), full))
    return false;
  const Json* positions = at(json, "max_position_embeddings");
  return given && positions && whole(*given).value_or(0) < whole(*positions).value_or(0);
}

// True if a plugin reads the twin's own family, and the user named it, or no other one computes what the file says.
bool has_own_plugin(const Json& json, const Twin& twin, const std::string& given, const SchemaSource& plugins) {
  for (const std::string& name : plugins.names(ENG_MODEL_KIND)) {
    const auto& types = pretrained_of(*plugins.find(ENG_MODEL_KIND, name)).model_types;
    if (std::count(types.begin(), types.end(), twin.model_type))
      return given == name || (given.empty() && window_bites(json, twin));
  }
  return false;
}

// The file as one of the family that computes the same.
Json as_twin(const Json& json, const Twin& twin) {
  Json out = json;
  out["model_type"] = twin.as;
  const std::string mine = twin.architecture;
  const Json* named = at(json, "architectures");
  if (!named || !named->is_array()) return out;
  Json architectures = Json::array();
  for (const Json& name : named->list())
    architectures.push_back(name.is_string() && name.text().starts_with(mine)
                                ? Json(twin.as_architecture + name.text().substr(mine.size()))
                                : name);
  out["architectures"] = architectures;
  return out;
}

struct ConfigReader {
  const Json& json;
  const PluginSchema& plugin;
  const Twin* twin;  // of another family, read as the plugin's
  ModelSource& out;
  Texts problems = {};
  bool unknown = false;  // keys are among them that nobody knows

  void option(const Option& option) {
    const Json* found = nullptr;
    std::string where;
    for (const std::string& path : option.json) {
      const Json* node = at(json, path);
      if (!node || (!option.json_none.empty() && *node == option.json_none)) continue;
      if (found && *found != *node)
        problems.push_back(fmt::format("`{}` is {}, but `{}` is {}", where, shown(*found), path, shown(*node)));
      if (found) continue;
      found = node;
      where = path;
    }
    if (!found) return;
    Value value = to_value(*found, option.type);
    const Misfit wrong = value.index() ? fit(option, value) : Misfit{"E0104", "must be " + describe(option)};
    const Texts& choices = option.choices;
    const std::string there = choices.empty() ? "" : fmt::format("; available: `{}`", fmt::join(choices, "`, `"));
    if (wrong.code) return problems.push_back(fmt::format("`{}` {}{}", where, printable(wrong.text), there));
    // A file with a model_type is one of transformers, which reads the number of rows as it stands.
    const bool padded = !option.json_multiple.empty() && !at(json, "model_type");
    const Json* multiple = padded ? at(json, option.json_multiple) : nullptr;
    if (auto* count = std::get_if<int64_t>(&value); count && multiple) {
      const int64_t n = whole(*multiple).value_or(0);
      if (n < 1 || n > 1'000'000)
        return problems.push_back(fmt::format("`{}` is not an integer from 1 to 1000000", option.json_multiple));
      *count += (n - *count % n) % n;
    }
    out.settings[option.key] = {std::move(value), out.file.string(), true};
  }

  void fixed(const std::string& path, const Texts& supported) {
    const Json* found = at(json, path);
    const auto same = [&](const std::string& text) { return Json::parse(text) == *found; };
    if (!found || std::any_of(supported.begin(), supported.end(), same)) return;
    problems.push_back(
        fmt::format("`{}` is {}; this plugin supports {}", path, shown(*found), fmt::join(supported, " or ")));
  }

  // Keys that change other models, with values that change this one, too.
  void neutral(const NeutralKey& key, const std::set<std::string>& known) {
    const Json* found = known.count(key.path) ? nullptr : at(json, key.path);
    const auto same = [&](const char* text) { return Json::parse(text) == *found; };
    if (!found || std::any_of(key.values.begin(), key.values.end(), same)) return;
    problems.push_back(
        fmt::format("`{}` is {}: {}", key.path, shown(*found),
                    key.values.empty() ? key.what : fmt::format("{}, which this model does not have", key.what)));
  }

  bool reads(const char* path) const {
    return std::any_of(plugin.options.begin(), plugin.options.end(), [&](const Option& option) {
      return std::count(option.json.begin(), option.json.end(), path) > 0;
    });
  }

  // A plugin without windows reads one that never bites: no query sees a key that is as many positions back. A plugin
  // that ignores sliding_window has it switched on by another key.
  void window(int64_t positions) {
    const auto& ignore = pretrained_of(plugin).ignore;
    const bool never = std::count(ignore.begin(), ignore.end(), "sliding_window") > 0;
    const Json* given = at(json, "sliding_window");
    const Json* layers = reads("layer_types") ? nullptr : at(json, "layer_types");
    const auto is = [](const Json& layer, const char* type) { return layer == Json(type); };
    const auto full = [&](const Json& layer) { return is(layer, "full_attention"); };
    const auto known = [&](const Json& layer) { return full(layer) || (!never && is(layer, "sliding_attention")); };
    if (layers && !(layers->is_array() && std::all_of(layers->list().begin(), layers->list().end(), known)))
      problems.push_back(fmt::format("`layer_types` is {}; full_attention alone is supported", shown(*layers)));
    const bool ignored = twin && twin->windows_by_layer && layers && layers->is_array() &&
                         std::all_of(layers->list().begin(), layers->list().end(), full);
    if (!given || never || ignored) return;
    const int64_t width = whole(*given).value_or(0);
    if (width < 1) return problems.push_back(fmt::format("`sliding_window` is {}, no length", shown(*given)));
    if (width < positions)
      return problems.push_back(
          fmt::format("`sliding_window` is {}, below max_position_embeddings, {}: a token sees the last {} alone, "
                      "which this model does not. Up to {} tokens it makes no difference: set max_position_embeddings "
                      "to {} in config.json",
                      width, positions, width, width, width));
    out.notes.push_back(
        fmt::format("{}: sliding_window = {} has no effect on sequences of up to {} tokens, and is not "
                    "part of the model here",
                    out.file.string(), width, width));
  }

  std::set<std::string> known_keys() const {
    const Pretrained& p = pretrained_of(plugin);
    std::set<std::string> known(p.ignore.begin(), p.ignore.end());
    for (const auto& entry : p.fixed) known.insert(entry.first);
    for (const Option& option : plugin.options) {
      known.insert(option.json.begin(), option.json.end());
      known.insert(option.json_multiple);
    }
    known.erase("");  // of an option without json_multiple
    return known;
  }

  void keys() {
    std::set<std::string> known = known_keys();
    for (const auto& [path, text] : pretrained_of(plugin).write) {  // by an export
      if (known.count(path)) continue;
      if (!Json::parse(text).contains("product")) fixed(path, {text});
      known.insert(path);
    }
    for (const NeutralKey& key : neutral_keys()) neutral(key, known);
    if (const Option* positions = find_option(plugin.options, "max_position_embeddings")) {
      const auto set = out.settings.find(positions->key);
      const Value& value = set == out.settings.end() ? positions->fallback : set->second.value;
      const auto* most = std::get_if<int64_t>(&value);
      if (most && !reads("sliding_window")) window(*most);
      known.insert({"sliding_window", "layer_types"});
    }
    for (const NeutralKey& key : neutral_keys()) known.insert(key.path);
    Texts strange;
    find_strangers(json, "", known, strange);
    if (strange.size() > 20) strange.resize(20);
    problems.insert(problems.end(), strange.begin(), strange.end());
    unknown = !strange.empty();
  }
};

// The plugin that reads a config.json.
std::string find_plugin(const Json& json, const fs::path& file, const std::string& given, const SchemaSource& plugins) {
  const Json* named = at(json, "model_type");
  const std::string type = named ? named->text() : "";
  Texts known;
  for (const std::string& name : plugins.names(ENG_MODEL_KIND)) {
    const Pretrained& p = pretrained_of(*plugins.find(ENG_MODEL_KIND, name));
    const bool recognised = type.empty() && !p.recognise.empty() &&
                            std::all_of(p.recognise.begin(), p.recognise.end(),
                                        [&](const std::string& path) { return at(json, path) != nullptr; });
    const bool reads = recognised || std::count(p.model_types.begin(), p.model_types.end(), type) > 0;
    if (reads && (given.empty() || given == name)) return name;
    if (given == name && p.model_types.empty())
      throw Error(Exit::usage, fmt::format("plugin `{}` does not say how it reads a config.json", name),
                  "give its keys in [model] and take the weights of a run, or use another plugin");
    if (given == name && type.empty()) return name;
    for (const std::string& one : p.model_types) known.push_back(fmt::format("`{}` (plugin {})", one, name));
  }
  std::string missing = plugins.explain(ENG_MODEL_KIND, type);
  missing.erase(std::min(missing.rfind('\n') + 1, missing.size()));  // its last line says what is said below
  const char* differs = difference_of(type);
  throw Error(
      Exit::usage,
      fmt::format("{}: {}{}", file.string(),
                  type.empty() ? "model_type is missing, and the file is not recognised by any model plugin"
                               : "model_type `" + printable(type) + "` is not read by any model plugin",
                  given.empty() ? "" : " named `" + printable(given) + "`"),
      (differs ? fmt::format("{}, which no model here is\n", differs) : "") + missing +
          (known.empty() ? "no model plugin reads a config.json" : fmt::format("known: {}", fmt::join(known, ", "))));
}

}  // namespace

Json infinite_json() {
  return Json::object({{"__float__", "Infinity"}});
}

Json parse_config_json(const std::string& text, const fs::path& file) {
  Json json;
  try {
    json = parse_json(without_infinity(text), file.string(), deepest);
  } catch (const Error& e) {
    throw Error(Exit::usage, e.what());
  }
  if (!json.is_object()) throw Error(Exit::usage, file.string() + " is not a JSON object");
  if (const Json* type = at(json, "model_type"); type && !type->is_string())
    throw Error(Exit::usage, file.string() + ": `model_type` is not a string");
  return json;
}

Json read_config_json(const fs::path& file) {
  refuse_mistaken(file, ModelFile::json, Exit::usage);
  return parse_config_json(read_text(file, most_bytes, Exit::usage), file);
}

ModelSource model_of_config_json(const Json& document, const fs::path& file, const std::string& given,
                                 const SchemaSource& plugins) {
  ModelSource out;
  out.file = file;
  const Twin* twin = twin_of(document);
  Json json = with_defaults(document);
  if (twin && has_own_plugin(json, *twin, given, plugins)) twin = nullptr;
  if (twin) json = as_twin(json, *twin);
  const std::string name = find_plugin(json, file, given, plugins);
  const PluginSchema& plugin = *plugins.find(ENG_MODEL_KIND, name);
  out.settings["plugin"] = {name, file.string(), true};
  ConfigReader reader{json, plugin, twin, out};
  const auto& known = pretrained_of(plugin).architectures;
  if (const Json* list = at(json, "architectures"); list && list->is_array() && !known.empty() && list->size() > 0)
    if (std::none_of(known.begin(), known.end(), [&](const std::string& a) { return (*list)[0] == a; }))
      reader.problems.push_back(
          fmt::format("`architectures` is {}; this plugin supports {}", shown(*list), fmt::join(known, ", ")));
  if (twin) {
    out.notes.push_back(fmt::format("{}: model_type `{}` is read as `{}`, which computes the same", file.string(),
                                    twin->model_type, twin->as));
    for (const char* key : twin->always_off) reader.fixed(key, {"false"});
  }
  for (const Option& option : plugin.options) reader.option(option);
  for (const auto& [path, supported] : pretrained_of(plugin).fixed) reader.fixed(path, supported);
  reader.keys();
  if (!reader.problems.empty())
    throw Error(Exit::usage,
                fmt::format("{} is not supported by plugin `{}`:\n  {}", file.string(), name,
                            fmt::join(reader.problems, "\n  ")),
                reader.unknown ? "if an unknown key changes nothing in this model, remove it from config.json" : "");
  return out;
}

}  // namespace eng
