// SPDX-License-Identifier: Apache-2.0
#include "session/run/open.hpp"
#include "session/config/schemas.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/base/error.hpp"
#include "core/registry/threads.hpp"
#include "session/config/foreign.hpp"
#include "session/data/tokenizer.hpp"
#include "session/file.hpp"
#include "session/huggingface/recognise.hpp"
#include "session/plugins/listing.hpp"
#include "session/plugins/search.hpp"
#include "session/ranks/groups.hpp"
#include "session/run/record.hpp"
#include "session/run/run_dir.hpp"
#include "session/run/waiting.hpp"
#include "session/run/weights.hpp"

namespace eng {
namespace {

namespace fs = std::filesystem;

// The tokenizer of a model's weights: `name` as in [data] tokenizer, "bytes" or an absolute path. "" if `directory` (a
// Hugging Face directory, a run, or one of its checkpoints) does not say it.
struct ModelTokenizer {
  std::string name;
  bool special;
};

ModelTokenizer tokenizer_of(const Document& run, const std::filesystem::path& base) {
  const auto* name = run.value<std::string>("data", "tokenizer");
  if (!name || name->empty()) return {};
  const bool* special = run.value<bool>("data", "special_tokens");
  return {*name == "bytes" ? *name : (base / *name).lexically_normal().string(), special && *special};
}

ModelTokenizer tokenizer_of(const std::filesystem::path& directory) {
  const WeightsKind kind = weights_kind(directory);
  const auto there = [&](const char* file) { return std::filesystem::exists(directory / file); };
  if (kind == WeightsKind::hugging_face)  // as in transformers: with the ids before and after a text
    return {there("tokenizer.json") || there("tokenizer.model") || (there("vocab.json") && there("merges.txt"))
                ? directory.string()
                : "",
            true};
  if (kind == WeightsKind::none) return {};
  const std::filesystem::path run = kind == WeightsKind::run ? directory : directory.parent_path().parent_path();
  if (!std::filesystem::exists(run / "config.resolved.toml")) return {};
  return tokenizer_of(read_resolved(run / "config.resolved.toml"), read_record(run).base_dir);
}

// Existing weights need the tokenizer with which they were trained: [data] gets it, and must not name another one.
// `directory`, where the weights are, is for messages.
void match_tokenizer(const ModelTokenizer& model, const std::filesystem::path& directory, Config& config,
                     Registry& registry) {
  Section& data = config.section("data");
  if (model.name.empty() || !data.settings().count("tokenizer")) return;
  if (!data.given("tokenizer")) {
    data.set("tokenizer", model.name, directory.string());
    if (data.settings().count("special_tokens") && !data.given("special_tokens"))
      data.set("special_tokens", model.special, directory.string());
    return;
  }
  const std::string& name = data.string("tokenizer");
  const auto path = [&](const std::string& n) {
    return n == "bytes" ? n : (config.base_dir() / n / "").lexically_normal().string();
  };
  if (path(name) == path(model.name)) return;
  if (std::strcmp(Tokenizer(registry, name, config.base_dir()).info().content_hash,
                  Tokenizer(registry, model.name, {}).info().content_hash) != 0)
    throw Error(Exit::data,
                fmt::format("[data] tokenizer = {} gives other ids than the tokenizer of the weights, {}",
                            toml_text(name), model.name),
                "remove [data] tokenizer: the tokenizer of the weights is used");
}

// That the files of [data] tokenizer are what their names say.
void check_tokenizer(const Config& config) {
  const Section& data = config.section("data");
  const auto found = data.settings().find("tokenizer");
  const auto* name = found == data.settings().end() ? nullptr : std::get_if<std::string>(&found->second.value);
  if (name && !name->empty() && *name != "bytes") refuse_mistaken_tokenizer(config.base_dir() / *name);
}

// "its runs are, newest last:" and a line for each; "" if there are none.
std::string runs_below(const fs::path& folder) {
  std::string out;
  for (const auto& run : runs_in(folder, 10)) out += "\n  " + run.string();
  return out.empty() ? "" : "its runs are, newest last:" + out + "\n";
}

// Refuses a directory that is not a run, or whose run never started.
void check_run(const fs::path& target, WeightsKind kind) {
  if (!RunDir::is_run(target) && kind == WeightsKind::checkpoint)
    throw Error(Exit::usage, target.string() + " is one checkpoint; a run is needed here",
                "name the run; to start from this checkpoint, set model.from, or export it: engine ckpt export " +
                    target.string() + " --to DIR");
  if (!RunDir::is_run(target)) {
    const std::string runs = runs_below(target);
    const auto found = runs.empty() ? recognise_folder(target) : std::nullopt;
    if (found) throw Error(Exit::usage, target.string() + " " + found->what, found->help);
    throw Error(Exit::usage, target.string() + " is a directory, but neither a run nor a Hugging Face directory",
                runs + "give a configuration file, a run directory, or a directory with config.json and weights");
  }
  if (!fs::exists(target / "config.resolved.toml"))
    throw Error(Exit::usage, target.string() + " has no config.resolved.toml: the run ended while it was being made",
                "start it with its configuration: engine run CONFIG --out " + target.string());
}

// Without repetitions, in order.
std::vector<fs::path> absolute_folders(const std::vector<fs::path>& first, const std::vector<fs::path>& then) {
  std::vector<fs::path> out;
  for (const auto* list : {&first, &then})
    for (const fs::path& folder : *list) {
      const fs::path place = (fs::absolute(folder) / "").lexically_normal().parent_path();
      if (std::find(out.begin(), out.end(), place) == out.end()) out.push_back(place);
    }
  return out;
}

}  // namespace

std::unique_ptr<Registry> scan_plugins(const std::vector<std::filesystem::path>& first,
                                       const std::vector<std::filesystem::path>& more) {
  // Both before any plugin is loaded.
  most_host_threads = static_cast<uint32_t>(std::min<int64_t>(1024, cpu_quota().threads()));
  waiting();
  PluginSearch search;
  search.extra = first;
  search.extra.insert(search.extra.end(), more.begin(), more.end());
  return find_plugins(search);
}

Opened open_config(const OpenRequest& request) {
  const fs::path& target = request.target;
  const WeightsKind kind = request.text ? WeightsKind::none : weights_kind(target);
  const bool weights = kind == WeightsKind::hugging_face;
  const bool run = !request.text && std::filesystem::is_directory(target) && !weights;
  if (run) check_run(target, kind);
  const RunRecord record = run ? read_record(target) : RunRecord();
  Opened out;
  out.plugin_folders = absolute_folders(request.plugin_paths, record.plugin_folders);
  SchemaSource plugins;
  plugins.look_in = [&](const std::vector<fs::path>& folders) {
    std::vector<fs::path> all = record.plugin_folders;
    all.insert(all.end(), folders.begin(), folders.end());
    out.registry = scan_plugins(request.plugin_paths, all);
    pin_recorded(*out.registry, record);
    SchemaSource found = schemas_of(*out.registry);
    plugins.find = found.find;
    plugins.names = found.names;
    all.insert(all.begin(), request.plugin_paths.begin(), request.plugin_paths.end());
    plugins.explain = [&, all](const auto& kind, const auto& name) {
      return explain_missing(*out.registry, kind, name, all);
    };
  };
  plugins.foreign = foreign_name;
  plugins.foreign_value = foreign_value;
  plugins.model_of = [&](const auto& directory, const auto& plugin) {
    return read_model_source(directory, plugin, plugins);
  };
  if (run) {  // its text is read once, for the values before the overrides and for the configuration
    const fs::path file = target / "config.resolved.toml";
    const std::string text = read_text(file, max_config_bytes, Exit::usage);
    out.before = read_resolved(text, file);
    const fs::path base = record.base_dir.empty() ? fs::absolute(target) : record.base_dir;
    out.config = Config::resolve(*out.before, text, file.string(), base, request.overrides, plugins);
    // Its text has every key already, so only an override can contradict it.
    if (const Section& data = out.config.section("data"); data.settings().count("tokenizer") && data.given("tokenizer"))
      match_tokenizer(tokenizer_of(*out.before, base), target, out.config, *out.registry);
    check_tokenizer(out.config);
    return out;
  }
  const fs::path place = request.place.empty() ? fs::current_path() : fs::absolute(request.place);
  if (request.text)
    out.config = Config::parse(*request.text, target.string(), place, request.overrides, plugins);
  else if (weights)
    out.config = Config::parse("[model]\nfrom = " + toml_text(fs::absolute(target).string()) + "\n", target.string(),
                               place, request.overrides, plugins);
  else
    out.config = Config::load(target, request.overrides, plugins);
  if (const fs::path source = weights_source(out.config); !source.empty())
    match_tokenizer(tokenizer_of(fs::absolute(source).lexically_normal()), source, out.config, *out.registry);
  check_tokenizer(out.config);
  return out;
}

}  // namespace eng
