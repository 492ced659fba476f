// SPDX-License-Identifier: Apache-2.0
// The `engine` command.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <fstream>
#include <new>

#include "core/base/error.hpp"
#include "tools/engine/command.hpp"
#include "tools/engine/print.hpp"
#include "tools/engine/problems.hpp"
#include "tools/engine/run_dir.hpp"

namespace eng {

std::unique_ptr<Registry> scan_plugins(const Common& common, const std::vector<std::filesystem::path>& more) {
  Registry::Search search;
  for (const auto& p : common.plugin_paths) search.extra.push_back(p);
  for (const auto& p : more) search.extra.push_back(p);
  return Registry::scan(search);
}

// That of the directory, as transformers uses it: with the ids around a text.
static void take_tokenizer(const std::filesystem::path& directory, Section& data) {
  const bool there =
      std::filesystem::exists(directory / "tokenizer.json") || std::filesystem::exists(directory / "tokenizer.model");
  for (const auto& [key, value] : {std::pair<const char*, Value>{"tokenizer", directory.string()},
                                   std::pair<const char*, Value>{"special_tokens", true}})
    if (there && data.settings().count(key) && !data.given(key)) data.set(key, value, directory.string());
}

Loaded load_config(const Common& common, const std::filesystem::path& target,
                   const std::vector<std::string>& overrides) {
  std::filesystem::path file = target, base;
  const bool weights = weights_kind(target) == WeightsKind::hugging_face;
  if (std::filesystem::is_directory(target) && !weights) {
    if (!RunDir::is_run(target))
      throw Error(Exit::usage, target.string() + " is a directory, but neither of a run nor of Hugging Face's",
                  "give a configuration file, a run directory, or a directory with config.json and safetensors files");
    file = target / "config.resolved.toml";
    if (!std::filesystem::exists(file))
      throw Error(Exit::usage, target.string() + " has no config.resolved.toml: it ended while it was being made",
                  "start it with its configuration: engine run CONFIG --out " + target.string());
    std::ifstream in(target / "run.json");
    nlohmann::json identity = nlohmann::json::parse(in, nullptr, false);
    if (identity.is_object() && identity.contains("extra")) base = identity["extra"].value("base_dir", "");
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
  if (weights)
    out.config = Config::parse("[model]\nfrom = " + toml_text(std::filesystem::absolute(target).string()) + "\n",
                               target.string(), std::filesystem::current_path(), overrides, plugins);
  else
    out.config = Config::load(file, overrides, plugins, base);
  if (weights) take_tokenizer(std::filesystem::absolute(target), out.config.section("data"));
  for (const auto& note : out.config.notes()) fmt::print(stderr, "note: {}\n", note);
  return out;
}

ReportContext report_context(const Setup& setup, const Config& config) {
  const Section &train = config.section("train"), &model = config.section("model");
  ReportContext c;
  c.title = fmt::format("{}{}  micro-batch {} x {}, sequence {}, {}, {}", setup.model.plugin,
                        model.has("preset") ? " " + model.string("preset") : "", train.integer("micro_batch"),
                        train.integer("accumulate"), train.integer("sequence_length"), setup.precision.name,
                        setup.optimizer.name);
  const eng_device_info& info = setup.kernels->info();
  c.overhead = info.overhead_bytes;
  c.staging = staging_bytes(setup.plan);
  c.snapshot = setup.snapshot;
  c.device_total = info.total_bytes;
  c.host_arenas = info.dl_device_type == kDLCPU;
  c.peak_flops = info.peak_f32;
  return c;
}

}  // namespace eng

namespace {

void print(const eng::Error& e) {
  std::fflush(stdout);
  const auto* config = dynamic_cast<const eng::ConfigError*>(&e);
  std::string text = config ? eng::tell(*config) : e.what();
  fmt::print(stderr, "{}{}\n", text.rfind("error", 0) == 0 ? "" : "error: ", text);
  if (!e.help().empty()) fmt::print(stderr, "help: {}\n", e.help());
}

int command(int argc, char** argv) {
  CLI::App app("Trains language models from one TOML file.", "engine");
  app.set_version_flag("--version", std::string("engine ") + eng::version);
  app.require_subcommand(1);
  eng::Common common;
  common.command = fmt::format("{}", fmt::join(argv, argv + argc, " "));
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
    int code = app.exit(e);
    return code == 0 ? 0 : static_cast<int>(eng::Exit::usage);
  } catch (const eng::Error& e) {
    print(e);
    return static_cast<int>(e.exit());
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "error: out of host memory\n");
    return static_cast<int>(eng::Exit::host_memory);
  } catch (const std::exception& e) {
    fmt::print(
        stderr,
        "error: {}\nhelp: this is a bug in engine: please report it with the command line and the configuration\n",
        e.what());
    return static_cast<int>(eng::Exit::bug);
  }
}

}  // namespace

int main(int argc, char** argv) {
  eng::set_plugin_log(
      [](const std::string& id, int32_t, const std::string& text) { fmt::print(stderr, "[{}] {}\n", id, text); });
  const int code = command(argc, argv);
  eng::set_plugin_log(nullptr);
  return code;
}
