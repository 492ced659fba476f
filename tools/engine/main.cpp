// SPDX-License-Identifier: Apache-2.0
// The `engine` command.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <new>

#include "core/base/error.hpp"
#include "core/config/source.hpp"
#include "tools/engine/command.hpp"
#include "tools/engine/print.hpp"
#include "tools/engine/problems.hpp"
#include "tools/engine/run_dir.hpp"
#include "tools/engine/tokenizer.hpp"

namespace eng {

std::unique_ptr<Registry> scan_plugins(const Common& common, const std::vector<std::filesystem::path>& more) {
  Registry::Search search;
  for (const auto& p : common.plugin_paths) search.extra.push_back(p);
  for (const auto& p : more) search.extra.push_back(p);
  return Registry::scan(search);
}

// What the ids of a model's weights mean: `name` as in [data] tokenizer, "bytes" or an absolute path; "" if
// `directory`, that of Hugging Face's, or of a run or one of its checkpoints, does not say it.
struct ModelTokenizer {
  std::string name;
  bool special;
};

static std::filesystem::path run_base(const std::filesystem::path& run) {
  std::ifstream in(run / "run.json");
  const nlohmann::json identity = nlohmann::json::parse(in, nullptr, false);
  return identity.is_object() && identity.contains("extra") ? identity["extra"].value("base_dir", "") : "";
}

static ModelTokenizer tokenizer_of(const std::filesystem::path& directory) {
  const WeightsKind kind = weights_kind(directory);
  const auto there = [&](const char* file) { return std::filesystem::exists(directory / file); };
  if (kind == WeightsKind::hugging_face)  // as transformers uses it: with the ids around a text
    return {there("tokenizer.json") || there("tokenizer.model") || (there("vocab.json") && there("merges.txt"))
                ? directory.string()
                : "",
            true};
  if (kind == WeightsKind::none) return {};
  const std::filesystem::path run = kind == WeightsKind::run ? directory : directory.parent_path().parent_path();
  if (!std::filesystem::exists(run / "config.resolved.toml")) return {};
  const Document document = read_document(run / "config.resolved.toml");
  const auto* name = document.value<std::string>("data", "tokenizer");
  if (!name || name->empty()) return {};
  const bool* special = document.value<bool>("data", "special_tokens");
  return {*name == "bytes" ? *name : (run_base(run) / *name).lexically_normal().string(), special && *special};
}

// Weights that exist read texts as they were trained to: their tokenizer comes along, and [data] may not name another.
// A `run` has said everything already.
static void match_tokenizer(const std::filesystem::path& directory, bool run, Config& config, Registry& registry) {
  Section& data = config.section("data");
  if (directory.empty() || !data.settings().count("tokenizer")) return;
  const ModelTokenizer model = tokenizer_of(std::filesystem::absolute(directory).lexically_normal());
  if (model.name.empty()) return;
  if (!data.given("tokenizer")) {
    if (run) return;
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
                fmt::format("[data] tokenizer = {} gives texts other ids than the tokenizer of the weights, {}",
                            toml_text(name), model.name),
                "leave [data] tokenizer away: that of the weights is taken");
}

Loaded load_config(const Common& common, const std::filesystem::path& target, const std::vector<std::string>& overrides,
                   const std::filesystem::path& place) {
  std::filesystem::path file = target, base;
  const bool weights = weights_kind(target) == WeightsKind::hugging_face;
  if (std::filesystem::is_directory(target) && !weights) {
    if (!RunDir::is_run(target) && weights_kind(target) == WeightsKind::checkpoint)
      throw Error(Exit::usage, target.string() + " is one checkpoint, and here a run is needed",
                  "name the run; to start from this checkpoint, set model.from, or export it: engine ckpt export " +
                      target.string() + " --to DIR");
    if (!RunDir::is_run(target))
      throw Error(Exit::usage, target.string() + " is a directory, but neither of a run nor of Hugging Face's",
                  "give a configuration file, a run directory, or a directory with config.json and safetensors files");
    file = target / "config.resolved.toml";
    if (!std::filesystem::exists(file))
      throw Error(Exit::usage, target.string() + " has no config.resolved.toml: it ended while it was being made",
                  "start it with its configuration: engine run CONFIG --out " + target.string());
    base = run_base(target);
  }
  Loaded out;
  SchemaSource plugins;
  plugins.look_in = [&](const std::vector<std::filesystem::path>& folders) {
    out.registry = scan_plugins(common, folders);
    SchemaSource found = out.registry->schemas();
    plugins.find = found.find;
    plugins.names = found.names;
    plugins.explain = [&](const auto& kind, const auto& name) { return explain_missing(*out.registry, kind, name); };
  };
  plugins.model_of = [&](const auto& directory, const auto& plugin) {
    return read_model_source(directory, plugin, plugins);
  };
  if (weights)
    out.config =
        Config::parse("[model]\nfrom = " + toml_text(std::filesystem::absolute(target).string()) + "\n",
                      target.string(), place.empty() ? std::filesystem::current_path() : place, overrides, plugins);
  else
    out.config = Config::load(file, overrides, plugins, base);
  const bool run = file != target;
  match_tokenizer(run ? target : weights_source(out.config), run, out.config, *out.registry);
  if (!common.quiet)
    for (const auto& note : out.config.notes()) fmt::print(stderr, "note: {}\n", note);
  return out;
}

void print_notes(const Setup& setup) {
  for (const std::string& note : setup.notes) fmt::print(stderr, "note: {}\n", note);
}

void print_notes(const Config& config, const Data& data) {
  if (config.section("train").integer("eval_every") > 0 && !data.info().validation_samples)
    fmt::print(stderr, "note: train.eval_every has no effect: data.validation holds nothing out\n");
}

ReportContext report_context(const Setup& setup, const Config& config) {
  const Section &train = config.section("train"), &model = config.section("model");
  ReportContext c;
  c.title = fmt::format("{}{}  micro-batch {} x {}, sequence {}, {}, {}", setup.model.plugin,
                        model.has("preset") ? " " + model.string("preset") : "", train.integer("micro_batch"),
                        train.integer("accumulate"), train.integer("sequence_length"), setup.precision.name,
                        setup.optimizer.name);
  if (setup.sharding) c.title += fmt::format(", {} on {} ranks", setup.sharding->name, setup.plan.ranks.world.size);
  const eng_device_info& info = setup.kernels->info();
  c.overhead = info.overhead_bytes + setup.comm_overhead;
  c.staging = staging_bytes(setup.plan);
  c.snapshot = setup.snapshot;
  c.device_total = info.total_bytes;
  c.host_arenas = info.dl_device_type == kDLCPU;
  c.machine = described(config.section("comm"), info.peak_f32);
  c.kept = kept(setup.model);
  for (const Tensor& t : setup.plan.tensors)
    if (t.role != "gradient") c.checkpoint += bytes(t.desc);
  c.checkpoints = config.section("checkpoint").integer("keep");
  c.local_ranks = setup.plan.ranks.world.local_size;
  return c;
}

Failure failure(std::exception_ptr reason) try { std::rethrow_exception(reason); } catch (const ConfigError& e) {
  return {static_cast<int>(e.exit()), tell(e), e.help()};
} catch (const Error& e) {  // a plugin's words may be in it, which may be any bytes
  return {static_cast<int>(e.exit()), printable_lines(e.what()), printable_lines(e.help())};
} catch (const std::bad_alloc&) {
  return {static_cast<int>(Exit::host_memory), "out of host memory", ""};
} catch (const std::exception& e) {
  return {static_cast<int>(Exit::bug), e.what(),
          "this is a bug in engine: please report it with the command line and the configuration"};
}

void print(const Failure& failure) {
  std::fflush(stdout);
  fmt::print(stderr, "{}{}\n", failure.text.rfind("error", 0) == 0 ? "" : "error: ", failure.text);
  const std::string help = failure.help.substr(0, failure.help.find_last_not_of('\n') + 1);
  if (!help.empty()) fmt::print(stderr, "help: {}\n", help);
}

}  // namespace eng

namespace {

// What CLI11 does not say of a command line that it refuses; "" if it has said it.
std::string usage_help(const CLI::App& app) {
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().back();
  const std::vector<std::string> words = at->remaining();
  const auto word = std::find_if(words.begin(), words.end(), [](const auto& w) { return !w.starts_with('-'); });
  if (at->get_require_subcommand_min() > 0 && word != words.end()) {
    std::vector<std::string> names;
    for (const CLI::App* one : at->get_subcommands([](const CLI::App*) { return true; }))
      names.push_back(one->get_name());
    const auto near = eng::nearest(*word, names);
    return fmt::format("`{}` is no subcommand; {}there is {}", eng::printable(*word, 80),
                       near.empty() ? "" : fmt::format("did you mean `{}`? ", fmt::join(near, "` or `")),
                       fmt::join(names, ", "));
  }
  for (const std::string& extra : words) {
    if (extra.starts_with("--plugin-path"))
      return "--plugin-path stands before the subcommand: engine --plugin-path DIR ...";
    if (extra.starts_with("--") && extra.find('.') < extra.find('='))
      return "an override has no dashes: section.key=value, for example train.steps=10";
  }
  return "";
}

int command(int argc, char** argv) {
  CLI::App app("Trains language models from one TOML file.", "engine");
  app.set_version_flag("--version", std::string("engine ") + eng::version);
  app.require_subcommand(1);
  eng::Common common;
  common.command = fmt::format("{}", fmt::join(argv, argv + argc, " "));
  common.arguments.assign(argv + std::min(argc, 1), argv + argc);
  app.add_option("--plugin-path", common.plugin_paths, "folders to look for plugins in, before all others");
  eng::add_run(app, common);
  eng::add_check(app, common);
  eng::add_plan(app, common);
  eng::add_eval(app, common);
  eng::add_generate(app, common);
  eng::add_data(app, common);
  eng::add_ckpt(app, common);
  eng::add_config(app, common);
  eng::add_plugins(app, common);
  eng::add_doctor(app, common);
  try {
    app.parse(argc, argv);
    return common.exit;
  } catch (const CLI::ParseError& e) {
    if (app.exit(e) == 0) return 0;
    if (const std::string help = usage_help(app); !help.empty()) fmt::print(stderr, "help: {}\n", help);
    return static_cast<int>(eng::Exit::usage);
  } catch (...) {
    const eng::Failure failure = eng::failure(std::current_exception());
    eng::print(failure);
    return failure.exit;
  }
}

}  // namespace

int main(int argc, char** argv) {
  eng::set_plugin_log([](const std::string& id, int32_t, const std::string& text) {
    fmt::print(stderr, "[{}] {}\n", id, eng::printable_lines(text));
  });
  const int code = command(argc, argv);
  eng::set_plugin_log(nullptr);
  return code;
}
