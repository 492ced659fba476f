// SPDX-License-Identifier: Apache-2.0
// engine init.
#include <fmt/format.h>

#include <fstream>
#include <optional>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "engine/model.h"
#include "session/config/init.hpp"
#include "session/config/schemas.hpp"
#include "session/file.hpp"
#include "session/huggingface/chat.hpp"
#include "session/huggingface/config_json.hpp"
#include "session/huggingface/recognise.hpp"
#include "session/planning/fit/search.hpp"
#include "session/planning/fit/text.hpp"
#include "session/plugins/listing.hpp"
#include "tools/engine/command.hpp"

namespace eng {
namespace {

namespace fs = std::filesystem;

struct InitFlags {
  std::vector<std::string> words;
  std::string out, chat_template;
};

// The text to `out`, which is told what it needs: "[data] paths and tokenizer".
int write_start(const std::string& text, const std::string& needs, const std::string& out) {
  if (put_text(text, out)) print_err("wrote {0}; set {1}, then:  engine check {0}\n", out, needs);
  return 0;
}

bool there(const fs::path& file) {
  std::error_code none;
  return fs::exists(file, none);
}

// Refuses a folder that cannot be trained on conversations.
void check_chat_folder(const fs::path& folder, const std::string& chat_template_file) {
  const std::string name = folder.string();
  std::error_code none;
  if (!fs::is_directory(folder, none))
    throw Error(
        Exit::usage, fmt::format("`{}` is no folder", name),
        "engine init chat DIR FILE...: DIR is a model's folder, as `engine model get ORG/NAME --to DIR` makes it");
  if (const auto wrong = recognise_folder(folder))
    throw Error(Exit::usage, fmt::format("{} {}", name, wrong->what), wrong->help);
  if (weights_kind(folder) != WeightsKind::hugging_face)
    throw Error(Exit::usage, fmt::format("{} has no config.json with weights beside it", name),
                "DIR is a model's folder from Hugging Face; of a run, `engine ckpt export RUN --to DIR` makes one");
  const bool pair = there(folder / "vocab.json") && there(folder / "merges.txt");
  if (!there(folder / "tokenizer.json") && !there(folder / "tokenizer.model") && !pair)
    throw Error(Exit::usage, fmt::format("{} has no tokenizer", name),
                "copy tokenizer.json and tokenizer_config.json of the model into it");
  if (!chat_template_file.empty()) {
    if (!fs::is_regular_file(chat_template_file, none))
      throw Error(Exit::usage, fmt::format("--chat-template: there is no file {}", chat_template_file));
  } else if (chat_template(folder).empty() && !there(folder / "chat_template.json")) {
    throw Error(Exit::usage,
                fmt::format("{} has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json): "
                            "it is the folder of a base model",
                            name),
                "start from the instruct model of the same family, or copy chat_template.jinja from its folder: both "
                "must have one tokenizer; or name a template: --chat-template FILE");
  }
}

// The dtype of the weights, as config.json says it.
std::string weights_dtype(const fs::path& folder) {
  const Json json = read_config_json(folder / "config.json");
  for (const char* key : {"dtype", "torch_dtype"})
    if (const Json& found = json.get(key); found.is_string()) return found.text();
  return "";
}

// The bytes of all rows, and of the longest one; that is not known of compressed files.
void measure_rows(const std::vector<std::string>& files, ChatStart& start) {
  bool known = true;
  for (const std::string& name : files) {
    std::error_code none;
    if (!fs::is_regular_file(name, none))
      throw Error(Exit::usage, fmt::format("there is no file {}", name),
                  "engine init chat DIR FILE...: FILE has a conversation on each line (docs/data.md#conversations)");
    std::ifstream in(name, std::ios::binary);
    const bool plain = in.peek() != 0x1f && in.peek() != 0x28;  // the first bytes of gzip and zstd
    start.bytes += fs::file_size(name, none) * (plain ? 1 : 4);
    known = known && plain;
    uint64_t line = 0;
    std::vector<char> part(size_t{1} << 16);
    while (plain && (in.read(part.data(), static_cast<std::streamsize>(part.size())), in.gcount() > 0))
      for (std::streamsize k = 0; k < in.gcount(); ++k) {
        line = part[static_cast<size_t>(k)] == '\n' ? 0 : line + 1;
        start.longest = std::max(start.longest, line);
      }
  }
  if (!known) start.longest = 0;
}

int64_t size_of_model(const Config& config, const char* key) {
  const Section& model = config.section("model");
  return model.settings().count(key) && model.has(key) ? model.integer(key) : 0;
}

// Says what a step of the written configuration takes, or what would fit.
void tell_plan(const Config& config, Registry& registry) {
  Config planned = config;
  const World world = planned_world(planned, 1);
  const Setup setup = make_plan_only(planned, registry, world);
  print_notes(setup);
  const uint64_t here = available(setup).device, takes = planned_peak(setup);
  const std::string of = here ? " of " + format_bytes(static_cast<double>(here)) : "";
  if (fits(setup))
    return print_err("planned: {} parameters, {}{}: fits\n", setup.plan.parameters,
                     format_bytes(static_cast<double>(takes)), of);
  print_err("warning: {} parameters take {}{}: DOES NOT FIT\n", setup.plan.parameters,
            format_bytes(static_cast<double>(takes)), of);
  const Fit found = find_fit(planned, registry, world, seconds_for_proposals);
  for (const std::string& edit : proposals(found)) print_err("  would fit: {}\n", edit);
  if (found.cut) print_err("  would fit: {}\n", cut_text(found));
}

// `engine init chat DIR FILE...`, also with `lora`: a configuration for this folder and these files.
int init_chat(const Common& common, const InitFlags& flags) {
  const bool adapter = flags.words[0] == "lora";
  if (flags.words.size() < 3)
    throw Error(Exit::usage,
                fmt::format("init {} needs a model's folder and the files of conversations", flags.words[0]),
                fmt::format("engine init {} DIR FILE... -o run.toml", flags.words[0]));
  const fs::path folder = flags.words[1];
  const std::vector<std::string> files(flags.words.begin() + 2, flags.words.end());
  check_chat_folder(folder, flags.chat_template);
  ChatStart start;
  start.adapter = adapter;
  measure_rows(files, start);
  start.dtype = weights_dtype(folder);
  // Paths of a configuration are relative to its file.
  const fs::path place = flags.out.empty() ? fs::current_path() : fs::absolute(flags.out).parent_path();
  const auto seen_from_there = [&](const std::string& path) {
    return fs::path(path).is_absolute()
               ? path
               : fs::absolute(path).lexically_normal().lexically_relative(place.lexically_normal()).string();
  };
  start.from = seen_from_there(folder.string());
  for (const std::string& file : files) start.paths.push_back(seen_from_there(file));
  if (!flags.chat_template.empty()) start.chat_template = seen_from_there(flags.chat_template);
  const auto opened = [&](const std::string& text) {
    return open_config({place / (flags.out.empty() ? "chat.toml" : fs::path(flags.out).filename()),
                        {},
                        common.plugin_paths,
                        place,
                        text});
  };
  {
    const Opened first = opened(start_chat(start));
    start.positions = size_of_model(first.config, "max_position_embeddings");
    start.width = size_of_model(first.config, "hidden_size");
  }
  const std::string text = start_chat(start);
  const Opened last = opened(text);
  tell_plan(last.config, *last.registry);
  if (put_text(text, flags.out))
    print_err("wrote {0}; what of it trains:  engine data inspect {0}; then:  engine check {0}\n", flags.out);
  return 0;
}

int init(const Common& common, const InitFlags& flags) {
  const std::vector<std::string>& words = flags.words;
  const bool chat = words[0] == "chat" || (words[0] == "lora" && words.size() > 1);
  if (!flags.chat_template.empty() && !chat)
    throw Error(Exit::usage, "--chat-template is for `engine init chat` and `engine init lora DIR FILE...`");
  if (chat) return init_chat(common, flags);
  if (words[0] == "lora") {
    const auto [text, needs] = start_adapter();
    return write_start(text, fmt::format("{}", fmt::join(needs, " and ")), flags.out);
  }
  if (words.size() > 2)
    throw Error(Exit::usage, "init takes a model, or a plugin and its preset", "engine init llama tiny");
  auto registry = scan_plugins(common);
  SchemaSource plugins = schemas_of(*registry);
  plugins.explain = [&](const auto&, const auto&) { return not_built_yet(*registry); };
  const ModelChoice choice = choose_model(plugins, words);
  if (!choice.others.empty())
    print_err("note: `{}` is also a preset of {}; this one is {}'s: [model] plugin selects it\n", choice.preset,
              fmt::join(choice.others, " and "), choice.plugin);
  const auto [text, needs] = start_config(*plugins.find(ENG_MODEL_KIND, choice.plugin), choice);
  return write_start(text, fmt::format("[data] {}", fmt::join(needs, " and ")), flags.out);
}

}  // namespace

void add_init(CLI::App& app, Common& common) {
  auto* command = app.add_subcommand("init", "write a configuration to start from");
  auto flags = std::make_shared<InitFlags>();
  command
      ->add_option("model", flags->words,
                   "a preset, a model plugin or both, for example 7b, mamba, opt/125m, llama tiny; or "
                   "chat DIR FILE..., to train a model's folder on conversations; or lora, for an adapter, also lora "
                   "DIR FILE...")
      ->required()
      ->expected(1, 1000);
  command->add_option("-o", flags->out, "file to write; stdout by default");
  command->add_option("--chat-template", flags->chat_template, "with chat: the template, where the folder has none");
  command->callback([&common, flags] { common.exit = init(common, *flags); });
}

}  // namespace eng
