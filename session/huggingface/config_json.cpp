// SPDX-License-Identifier: Apache-2.0
#include "session/huggingface/config_json.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <sstream>

#include "core/base/file.hpp"
#include "engine/model.h"
#include "session/config/problems.hpp"

namespace eng {
namespace fs = std::filesystem;
namespace {

using Texts = std::vector<std::string>;

constexpr uint64_t most_bytes = 16u << 20;
constexpr size_t deepest = 16;

std::set<std::string> words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

const std::set<std::string> harmless = words(
    "architectures auto_map bos_token_id chunk_size_feed_forward decoder_start_token_id dtype eos_token_id "
    "id2label is_decoder is_encoder_decoder label2id mask_token_id model_type output_attentions "
    "output_hidden_states pad_token_id prefix problem_type return_dict sep_token_id task_specific_params "
    "tokenizer_class torch_dtype transformers_version unk_token_id use_cache _attn_implementation _commit_hash "
    "_model_name_or_path _name_or_path");

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

// As a value of [model]; empty if no option can have such a value.
Value to_value(const Json& json) {
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
    if (item.is_string()) texts.push_back(item.text());
  }
  if (numbers.size() == json.size()) return numbers;
  if (texts.size() == json.size()) return texts;
  return {};
}

// Collects the paths of values that are not objects, unless the path or one of its parents is in `known`.
void find_strangers(const Json& node, const std::string& path, const std::set<std::string>& known, Texts& out) {
  if (node.is_null() || known.count(path)) return;
  if (!node.is_object()) return out.push_back("`" + printable(path, 80) + "`");
  for (const auto& [key, value] : node.members())
    find_strangers(value, path.empty() ? key : path + "." + key, known, out);
}

struct ConfigReader {
  const Json& json;
  const PluginSchema& plugin;
  ModelSource& out;
  Texts problems;

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
    Value value = to_value(*found);
    const Misfit wrong = value.index() ? fit(option, value) : Misfit{"E0104", "must be " + describe(option)};
    const Texts& choices = option.choices;
    const std::string there = choices.empty() ? "" : fmt::format("; available: `{}`", fmt::join(choices, "`, `"));
    if (wrong.code) return problems.push_back(fmt::format("`{}` {}{}", where, printable(wrong.text), there));
    const Json* multiple = option.json_multiple.empty() ? nullptr : at(json, option.json_multiple);
    if (auto* whole = std::get_if<int64_t>(&value); whole && multiple) {
      const int64_t n = multiple->is_integer() ? multiple->integer() : 0;
      if (n < 1 || n > 1'000'000)
        return problems.push_back(fmt::format("`{}` is not an integer from 1 to 1000000", option.json_multiple));
      *whole += (n - *whole % n) % n;
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

  void strangers() {
    std::set<std::string> known(harmless);
    const Pretrained& p = plugin.pretrained;
    known.insert(p.ignore.begin(), p.ignore.end());
    for (const auto& entry : p.fixed) known.insert(entry.first);
    for (const Option& option : plugin.options) {
      known.insert(option.json.begin(), option.json.end());
      known.insert(option.json_multiple);
    }
    known.erase("");  // of an option without json_multiple
    Texts strange;
    find_strangers(json, "", known, strange);
    if (strange.size() > 20) strange.resize(20);
    if (!strange.empty())
      out.notes.push_back(
          fmt::format("{}: unknown keys have no effect: {}", out.file.string(), fmt::join(strange, ", ")));
  }
};

// The plugin that reads a config.json.
std::string find_plugin(const Json& json, const fs::path& file, const std::string& given, const SchemaSource& plugins) {
  const Json* named = at(json, "model_type");
  const std::string type = named ? named->text() : "";
  Texts known;
  for (const std::string& name : plugins.names(ENG_MODEL_KIND)) {
    const Pretrained& p = plugins.find(ENG_MODEL_KIND, name)->pretrained;
    const bool recognised = type.empty() && !p.recognise.empty() &&
                            std::all_of(p.recognise.begin(), p.recognise.end(),
                                        [&](const std::string& path) { return at(json, path) != nullptr; });
    const bool reads = !p.model_type.empty() && (type == p.model_type || recognised);
    if (reads && (given.empty() || given == name)) return name;
    if (given == name && p.model_type.empty())
      throw Error(Exit::usage, fmt::format("plugin `{}` does not say how it reads a config.json", name),
                  "give its keys in [model] and take the weights of a run, or use another plugin");
    if (given == name && type.empty()) return name;
    if (!p.model_type.empty()) known.push_back(fmt::format("`{}` (plugin {})", p.model_type, name));
  }
  throw Error(Exit::usage,
              fmt::format("{}: {}{}", file.string(),
                          type.empty() ? "model_type is missing, and the file is not recognised by any model plugin"
                                       : "model_type `" + printable(type) + "` is not read by any model plugin",
                          given.empty() ? "" : " named `" + printable(given) + "`"),
              known.empty() ? "no model plugin reads a config.json" : fmt::format("known: {}", fmt::join(known, ", ")));
}

}  // namespace

bool is_harmless(const std::string& key) {
  return harmless.count(key) > 0;
}

Json parse_config_json(const std::string& text, const fs::path& file) {
  Json json;
  try {
    json = parse_json(text, file.string(), deepest);
  } catch (const Error& e) {
    throw Error(Exit::usage, e.what());
  }
  if (!json.is_object()) throw Error(Exit::usage, file.string() + " is not a JSON object");
  if (const Json* type = at(json, "model_type"); type && !type->is_string())
    throw Error(Exit::usage, file.string() + ": `model_type` is not a string");
  return json;
}

Json read_config_json(const fs::path& file) {
  return parse_config_json(read_text(file, most_bytes, Exit::usage), file);
}

ModelSource model_of_config_json(const Json& json, const fs::path& file, const std::string& given,
                                 const SchemaSource& plugins) {
  ModelSource out;
  out.file = file;
  const std::string name = find_plugin(json, file, given, plugins);
  const PluginSchema& plugin = *plugins.find(ENG_MODEL_KIND, name);
  out.settings["plugin"] = {name, file.string(), true};
  ConfigReader reader{json, plugin, out, {}};
  const auto& known = plugin.pretrained.architectures;
  if (const Json* list = at(json, "architectures"); list && list->is_array() && !known.empty() && list->size() > 0)
    if (std::none_of(known.begin(), known.end(), [&](const std::string& a) { return (*list)[0] == a; }))
      reader.problems.push_back(
          fmt::format("`architectures` is {}; this plugin supports {}", shown(*list), fmt::join(known, ", ")));
  if (at(json, "quantization_config")) reader.problems.push_back("`quantization_config`: quantised weights");
  for (const Option& option : plugin.options) reader.option(option);
  for (const auto& [path, supported] : plugin.pretrained.fixed) reader.fixed(path, supported);
  if (!reader.problems.empty())
    throw Error(Exit::usage, fmt::format("{} is not supported by plugin `{}`:\n  {}", file.string(), name,
                                         fmt::join(reader.problems, "\n  ")));
  reader.strangers();
  return out;
}

}  // namespace eng
