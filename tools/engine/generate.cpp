// SPDX-License-Identifier: Apache-2.0
// engine generate.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/base/error.hpp"
#include "session/huggingface/download.hpp"
#include "session/planning/bookkeeping.hpp"
#include "session/report/progress.hpp"
#include "session/run/run_dir.hpp"
#include "session/run/waiting.hpp"
#include "session/run/weights.hpp"
#include "tools/engine/command.hpp"
#include "tools/engine/generate_chat.hpp"

namespace eng {
namespace {

using Flags = GenerateFlags;

// The model's own description. With `check`, also refuses weights of [model] from that do not fit it.
eng_model_info model_info(const Config& config, Registry& registry, bool check) {
  Readable readable;
  if (check) readable.traced = weights_check(config, registry);
  return make_setup(config, registry, 1, {}, nullptr, readable).model.info;
}

std::string read_prompt() {
  constexpr size_t most = 16 << 20;
  std::string out, part(65536, '\0');
  while (const size_t n = std::fread(part.data(), 1, part.size(), stdin)) {
    out.append(part, 0, n);
    if (out.size() > most) throw Error(Exit::usage, fmt::format("the prompt has more than {} MiB", most >> 20));
  }
  return out;
}

// The tokenizer given by --tokenizer, that of the run's data, or that of the Hugging Face directory: "bytes", or an
// absolute path.
std::string tokenizer_path(const Flags& flags, const Config& config) {
  const auto absolute = [](const std::string& name, const std::filesystem::path& base) {
    return name == "bytes" ? name : std::filesystem::absolute(base / name).string();
  };
  if (!flags.tokenizer.empty()) return absolute(flags.tokenizer, std::filesystem::current_path());
  const bool run = RunDir::is_run(flags.target);
  const Section& data = config.section("data");
  // The tokenizer of a directory, if any, is already in [data].
  if (run ? !data.has("tokenizer") : !data.given("tokenizer"))
    throw Error(Exit::usage,
                fmt::format("{} has no tokenizer for the prompt",
                            run ? fmt::format("[data] {}", data_plugins(config)) : flags.target),
                "give one: --tokenizer bytes, a file, or a folder");
  return absolute(data.string("tokenizer"), config.base_dir());
}

// True if texts get the ids before and after them (such as bos) that the tokenizer's file defines: for a run, as in its
// training; for a Hugging Face directory, always.
bool special_tokens(const Flags& flags, const Config& config) {
  if (!RunDir::is_run(flags.target)) return true;
  const Section& data = config.section("data");
  return data.has("special_tokens") && data.boolean("special_tokens");
}

// The Hugging Face directories that say how texts end and how a chat is formatted.
std::vector<std::filesystem::path> text_directories(const Flags& flags, const Config& config) {
  if (!RunDir::is_run(flags.target)) return {flags.target};
  return text_directories(config);
}

// The number of positions of the sequence: the prompt and the new tokens.
int64_t choose_length(const Flags& flags, int64_t prompt, int64_t model_limit) {
  if (flags.max_length && model_limit && flags.max_length > model_limit)
    throw Error(
        Exit::usage,
        fmt::format("--max-length {} is more than the {} positions of the model", flags.max_length, model_limit),
        fmt::format("--max-length {} or less", model_limit));
  const int64_t limit = flags.max_length ? flags.max_length : model_limit ? model_limit : prompt + flags.tokens;
  if (prompt >= limit)
    throw Error(Exit::usage,
                fmt::format("the prompt has {} tokens, which leaves no room for new ones within {}", prompt,
                            flags.max_length ? fmt::format("--max-length {}", limit)
                                             : fmt::format("the {} positions of the model", limit)),
                model_limit > prompt ? "raise --max-length, or shorten the prompt" : "shorten the prompt");
  return std::min(limit, prompt + flags.tokens);
}

// A conversation on the terminal.
bool interactive(const Flags& flags) {
  return flags.chat && !flags.prompt_given && flags.prompts.empty() && isatty(STDIN_FILENO);
}

// The positions of a conversation whose messages are not known yet.
int64_t conversation_length(const Flags& flags, int64_t model_limit) {
  constexpr int64_t usual = 4096;
  if (!flags.max_length) return model_limit ? std::min(usual, model_limit) : usual;
  return choose_length(flags, 1, model_limit), flags.max_length;
}

void check_flags(const Flags& flags) {
  const auto refuse = [](const std::string& text, const char* help) { throw Error(Exit::usage, text, help); };
  const Sampling& s = flags.sampling;
  if (!(s.temperature >= 0))
    refuse(fmt::format("--temperature {} is below 0", s.temperature), "0 takes the most likely token");
  if (!(s.top_p > 0 && s.top_p <= 1))
    refuse(fmt::format("--top-p {} must be above 0 and at most 1", s.top_p), "1 takes all tokens");
  if (s.top_k < 0) refuse(fmt::format("--top-k {} is below 0", s.top_k), "0 takes all tokens");
  if (!flags.prompt_given && flags.prompts.empty() && !interactive(flags))
    refuse("prompt is required", flags.chat ? "give a message, or a file: --prompts FILE; without one, --chat needs a "
                                              "terminal to read messages from"
                                            : "give the text to continue, or a file of prompts: --prompts FILE");
  if (flags.prompt_given && !flags.prompts.empty()) refuse("there is a prompt, and --prompts", "give one of them");
  if (flags.batch < 1)
    refuse(fmt::format("--batch {} is below 1", flags.batch), "give the number of prompts at a time");
  if (flags.tokens < 1) refuse(fmt::format("--tokens {} is below 1", flags.tokens), "give the number of new tokens");
  if (flags.max_length < 0) refuse(fmt::format("--max-length {} is below 1", flags.max_length), "remove it");
  if (!flags.chat_template.empty() && !flags.chat)
    refuse("--chat-template is the template of a chat", "give --chat too");
  if (flags.system && !flags.chat) refuse("--system is the system message of a chat", "give --chat too");
  if (std::count(flags.stop.begin(), flags.stop.end(), "")) refuse("--stop is empty", "give the text to stop at");
}

// One text, shown as it is made.
void print_one(const Texts& texts, Decoder& decoder, const Flags& flags) {
  const std::vector<int32_t>& prompt = texts.prompts[0];
  if (flags.ids) print_err("prompt ids: {}\n", fmt::join(prompt, " "));
  const WrittenText shown = show_text(texts, decoder, flags);
  write_out("\n");
  flush_out();  // before the speeds, where both go to one file
  print_err("prompt {} tokens, {:.1f} tokens/s; generated {} tokens, {:.1f} tokens/s; {}\n", prompt.size(),
            static_cast<double>(prompt.size()) / shown.reading, shown.ids.size(),
            static_cast<double>(shown.ids.size()) / shown.writing,
            format_bytes(static_cast<double>(planned_peak(decoder.setup()))));
}

int generate(const Common& common, const Flags& flags) {
  check_flags(flags);
  if (!std::filesystem::is_directory(flags.target))
    throw Error(Exit::usage, flags.target + " is not a directory",
                !download_line(flags.target).empty()
                    ? download_line(flags.target)
                    : "engine generate takes a run, such as runs/NAME/ID, or a Hugging Face directory");
  auto [registry, config] = load_config(common, flags.target, flags.overrides);
  std::filesystem::path weights = flags.target;
  const bool run = RunDir::is_run(weights);
  uint64_t stored = 0;
  if (run) {
    const Found found = newest_checkpoint(own_folder(weights, checkpoints_folder));
    if (!found.path) throw Error(Exit::checkpoint, flags.target + " has no usable checkpoint");
    weights = *found.path;
    stored = found.tensors;
  }

  const std::string tokenizer_name = tokenizer_path(flags, config);
  const Tokenizer tokenizer(*registry, tokenizer_name, {});
  const auto directories = text_directories(flags, config);
  std::optional<Chat> chat;
  if (flags.chat) chat.emplace(*registry, chat_files(flags, config, tokenizer_name, directories));
  const bool talk = interactive(flags);
  std::vector<Prompt> prompts;
  if (!flags.prompts.empty())
    prompts = read_prompts(flags.prompts, flags.chat);
  else if (!talk)
    prompts.push_back({flags.prompt == "-" ? read_prompt() : flags.prompt});
  const eng_model_info info = model_info(config, *registry, !run);
  Texts texts{tokenizer, {}, {}};
  int64_t length = talk ? conversation_length(flags, info.max_length) : 0;
  for (size_t k = 0; k < prompts.size(); ++k) try {
      // A chat template already contains the special tokens.
      texts.prompts.push_back(chat ? chat->prompt(conversation_of(prompts[k], flags.system))
                                   : tokenizer.encode(prompts[k].text, special_tokens(flags, config)));
      const std::vector<int32_t>& ids = texts.prompts.back();
      if (ids.empty()) throw Error(Exit::usage, "the prompt is empty", "give at least one character");
      for (const int32_t id : ids)
        if (id >= info.vocabulary)
          throw Error(Exit::usage,
                      fmt::format("the tokenizer gives id {} for a part of the prompt, the model has {} ids", id,
                                  info.vocabulary));
      length = std::max(length, choose_length(flags, static_cast<int64_t>(ids.size()), info.max_length));
    } catch (const Error& e) {
      if (flags.prompts.empty()) throw;
      throw Error(e.exit(), fmt::format("prompt {} of {}: {}", k + 1, flags.prompts, e.what()), e.help());
    }

  Readable readable;
  readable.sequences = talk ? 1 : std::min(flags.batch, static_cast<int64_t>(prompts.size()));
  Setup setup = make_setup(config, *registry, length, {}, nullptr, readable);
  setup.stored = stored ? stored : setup.plan.tensors.size();
  if (setup.kernels->host_memory()) check_threads(setup.kernels->info().parallel);
  Decoder decoder(config, *registry, std::make_shared<const Setup>(std::move(setup)), length,
                  flags.prompts.empty() ? "lower --max-length or --tokens" : "lower --batch, --max-length or --tokens");
  load_weights(weights, pretrained_table(config, *registry), parameters(decoder.setup().plan), decoder.fill(),
               run ? WeightsProgress() : weights_progress(flags.target));
  decoder.ready();
  release_freed_memory();  // of reading a checkpoint
  // A model may have more ids than its tokenizer, because its vocabulary is padded.
  texts.how = {flags.tokens, std::min(info.vocabulary, tokenizer.info().vocabulary),
               ends_of_text(tokenizer, directories), flags.sampling};
  if (chat)
    for (const int32_t id : chat->ends()) texts.how.ends.insert(id);
  if (talk)
    converse(texts, decoder, flags, *chat);
  else if (flags.prompts.empty())
    print_one(texts, decoder, flags);
  else
    print_all(texts, decoder, flags, prompts);
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, Common& common) {
  auto* command = app.add_subcommand("generate", "continue a text");
  auto flags = std::make_shared<Flags>();
  command->add_option("target", flags->target, "a run directory, or one with config.json and weights")->required();
  command->add_option_function<std::string>(
      "prompt", [flags](const std::string& text) { flags->prompt = text, flags->prompt_given = true; },
      "the text to continue; - reads it from the standard input");
  command->add_option("--prompts", flags->prompts,
                      "instead of one prompt: a file with one a line, or .jsonl with texts or objects with `prompt`; "
                      "prints an object for each");
  command->add_option("--batch", flags->batch, "with --prompts: how many are continued at a time")
      ->capture_default_str();
  command->add_option("--tokens", flags->tokens, "maximum number of new tokens")->capture_default_str();
  command->add_option("--temperature", flags->sampling.temperature, "0: always take the most likely token")
      ->capture_default_str();
  command->add_option("--top-k", flags->sampling.top_k, "sample from this many of the most likely tokens; 0: from all")
      ->capture_default_str();
  command
      ->add_option("--top-p", flags->sampling.top_p, "sample from the most likely tokens with this total probability")
      ->capture_default_str();
  command->add_option("--seed", flags->sampling.seed, "the same seed gives the same text")->capture_default_str();
  command->add_option("--tokenizer", flags->tokenizer,
                      "bytes, a file, or a folder; by default the tokenizer of the run or directory");
  command->add_option("--max-length", flags->max_length,
                      "positions for prompt and new tokens; by default as many as needed, up to the model's maximum");
  command->add_flag("--ids", flags->ids, "print the ids of the new tokens instead of their text");
  command->add_option("--stop", flags->stop, "stop at this text, which is not printed; may be given several times")
      ->allow_extra_args(false);
  command->add_flag(
      "--chat", flags->chat,
      "the prompt is a user's message, or a line of --prompts a conversation, written by the model's chat "
      "template; without a prompt, a conversation on the terminal");
  command->add_option("--chat-template", flags->chat_template, "with --chat: a file with another template");
  command->add_option("--system", flags->system, "with --chat: the system message");
  add_overrides(*command, flags->overrides, "section.key=value ..., for example precision.plugin=bf16");
  command->callback([&common, flags] { common.exit = generate(common, *flags); });
}

}  // namespace eng
