// SPDX-License-Identifier: Apache-2.0
// engine data build, inspect, verify, reference.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>

#include "core/base/error.hpp"
#include "session/data/formats.hpp"
#include "session/data/tokenizer.hpp"
#include "session/ranks/signals.hpp"
#include "session/report/progress.hpp"
#include "tools/engine/command.hpp"
#include "tools/engine/data_masks.hpp"
#include "tools/engine/data_reference.hpp"

namespace eng {
namespace {

using Clock = std::chrono::steady_clock;

// A progress line that is redrawn on a terminal, and written occasionally into a pipe.
struct BuildLine {
  Clock::time_point begin = Clock::now(), last = begin;
  bool terminal = isatty(STDERR_FILENO) != 0, drawn = false;

  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin).count(); }
  void draw(uint64_t done, uint64_t total, uint64_t tokens) {
    const double part = total ? static_cast<double>(done) / static_cast<double>(total) : 1, past = seconds();
    if (!terminal && Clock::now() - last < std::chrono::seconds(10)) return;
    last = Clock::now();
    const std::string text =
        fmt::format("data  {:.0f}%  {} of {} read  {} tokens  {:.0f} tokens/s  left: {}", part * 100, size_text(done),
                    size_text(total), tokens, static_cast<double>(tokens) / past,
                    duration_text(part > 0 ? past * (1 - part) / part : -1));
    fmt::print(stderr, "{}{}{}", terminal ? "\r\x1b[K" : "", text, terminal ? "" : "\n");
    std::fflush(stderr);
    drawn = terminal;
  }
  void clear() {
    if (drawn) fmt::print(stderr, "\r\x1b[K");
    drawn = false;
  }
};

int32_t report(const eng_data_watch* watch, uint64_t done, uint64_t total, uint64_t tokens) {
  static_cast<BuildLine*>(watch->data)->draw(done, total, tokens);
  return Signals::pending() == 0;
}

eng_data_built build(const DataSource& source, const Config& config, Registry& registry, int64_t vocabulary,
                     uint32_t threads) {
  const Section& train = config.section("train");
  const std::string base = config.base_dir().string();
  eng_data_built built{};
  built.struct_size = sizeof(built);
  if (!source.table.build) return built;
  const eng_data_request request{sizeof(request),
                                 0,
                                 static_cast<uint64_t>(train.integer("seed")),
                                 train.integer("sequence_length"),
                                 vocabulary,
                                 base.c_str(),
                                 nullptr};
  BuildLine line;
  const eng_data_watch watch{sizeof(watch), threads, &line, report};
  const Options options(source.section);
  const FormatsInUse formats(registry, source.section);
  Sink sink;
  const eng_status status = source.table.build(options.get(), &request, &watch, &built, sink.get());
  line.clear();
  if (status != ENG_OK && Signals::pending())
    throw Error(static_cast<Exit>(128 + Signals::pending()), sink.text(status));
  sink.check(status, Exit::data, source.where());
  if (!std::memchr(built.path, 0, sizeof(built.path)))
    throw Error(Exit::data, fmt::format("{}: the path of the file that it built does not end in NUL", source.where()));
  if (!built.path[0]) return built;
  const double seconds = std::max(line.seconds(), 1e-9);
  print_err("data  {}: {} tokens in {} documents, {}\n", built.path, built.tokens, built.documents,
            built.reused ? std::string("already built")
                         : fmt::format("built in {} ({:.0f} tokens/s)", duration_text(seconds),
                                       static_cast<double>(built.tokens) / seconds));
  return built;
}

// The paths of the files that were built, or built before.
std::vector<std::string> build(const Config& config, Registry& registry, int64_t vocabulary, uint32_t threads) {
  std::vector<std::string> out;
  for (const DataSource& source : data_sources(config, registry))
    if (const eng_data_built built = build(source, config, registry, vocabulary, threads); built.path[0])
      out.emplace_back(built.path);
  return out;
}

// The first samples with their masks, or the start of the first one, as text by the tokenizer of [data].
void print_sample(const Config& config, Registry& registry, const Data& data) {
  std::optional<Tokenizer> tokenizer;
  const Section& section = config.section("data");
  if (section.has("tokenizer")) tokenizer.emplace(registry, section.string("tokenizer"), config.base_dir());
  if (print_masks(data, tokenizer ? &*tokenizer : nullptr)) return;
  Batch batch;
  data.read(ENG_SPLIT_TRAIN, 0, 1, batch);
  std::string ids, text;
  const size_t shown = std::min<size_t>(batch.tokens.size(), 64);
  for (size_t i = 0; i < shown; ++i) ids += fmt::format(" {}", batch.tokens[i]);
  for (size_t i = 0; tokenizer && i < shown; ++i) text += tokenizer->decode(batch.tokens[i]);
  print_out("first sample:{}\n", ids);
  if (!text.empty()) print_out("as text: {}\n", printable(text, 400));
}

bool is_config(const std::string& target) {
  return std::filesystem::is_directory(target) || std::filesystem::path(target).extension() == ".toml";
}

// Asks every data plugin that has its own file format. If none knows the file, reports the first one's reason.
int inspect(const Common& common, const std::string& file, uint32_t flags) {
  auto registry = scan_plugins(common);
  const std::string path = std::filesystem::absolute(file).string();
  if (!std::filesystem::exists(path)) throw Error(Exit::usage, "there is no " + path);
  std::optional<Error> first;
  for (const std::string& name : registry->names(ENG_DATA_KIND)) {
    const auto table = registry->table<eng_data>(ENG_DATA_KIND, name);
    if (!table.inspect) continue;
    std::string text(65536, '\0');
    uint64_t size = 0;
    Sink sink;
    const eng_status status = table.inspect(path.c_str(), flags, text.data(), text.size(), &size, sink.get());
    if (status == ENG_OK) {
      if (size > text.size())
        throw Error(Exit::data, fmt::format("data plugin {} returned {} bytes about the file; at most {} are allowed",
                                            name, size, text.size()));
      put_out(text.substr(0, size));
      if (flags & ENG_INSPECT_VERIFY) print_out("{}: ok\n", file);
      return 0;
    }
    if (!first) first.emplace(Exit::data, fmt::format("data plugin {}: {}", name, sink.text(status)));
  }
  throw first ? *first : Error(Exit::environment, "no data plugin can inspect files");
}

int inspect_config(const Common& common, const std::string& target, const std::vector<std::string>& overrides) {
  auto [registry, config] = load_config(common, target, overrides);
  config.require("data");
  const int64_t vocabulary = model_vocabulary(config, *registry);
  build_data(config, *registry, vocabulary, true);
  std::vector<Field> fields = Model().fields;  // with all that the source provides
  for (const Field& field : offered_fields(config, *registry, false).fields) fields.push_back(field);
  const Data data(*registry, config, vocabulary, fields);
  const eng_data_info& i = data.info();
  print_out("files: {}\ntokens: {}\nids below: {} (model: {})\ntraining samples: {}\nheld out: {}\ncontent: {}\n",
            i.files, i.tokens, i.vocabulary, vocabulary, i.train_samples, i.validation_samples, i.content_hash);
  if (fields.size() > 2) {
    std::string names = "tokens, labels";
    for (size_t f = 2; f < fields.size(); ++f) names += ", " + fields[f].name;
    print_out("fields: {}\n", names);
  }
  for (const std::string& line : data.mixture_lines()) print_out("{}\n", line);
  if (data.packed())
    print_out("packed: {} documents, {:.1f} % of the positions are padding\n", i.documents, 100 * data.padding());
  print_sample(config, *registry, data);
  return 0;
}

struct BuildFlags {
  std::string target, out;
  std::vector<std::string> overrides;
  uint32_t threads = 0;
};

int build_command(const Common& common, BuildFlags flags) {
  const Signals signals;
  if (!flags.out.empty()) flags.overrides.push_back("data.cache=" + std::filesystem::absolute(flags.out).string());
  auto [registry, config] = load_config(common, flags.target, flags.overrides);
  config.require("data");
  const auto built = build(config, *registry, model_vocabulary(config, *registry), flags.threads);
  if (built.empty()) print_err("nothing to build: this data is read directly ([data] plugin, tokenizer)\n");
  for (const std::string& path : built) print_out("{}\n", path);
  return 0;
}

}  // namespace

void build_data(const Config& config, Registry& registry, int64_t vocabulary, bool take_signals) {
  std::optional<Signals> signals;
  if (take_signals) signals.emplace();
  build(config, registry, vocabulary, 0);
}

void add_data(CLI::App& app, Common& common) {
  auto* command = app.add_subcommand("data", "download data sets; build, inspect and verify token files");
  command->require_subcommand(1);
  add_get(*command, hub::Kind::data);
  auto flags = std::make_shared<BuildFlags>();
  auto* build = command->add_subcommand("build", "tokenise the data of a configuration into a file that runs reuse");
  build->add_option("config", flags->target, "a configuration file")->required();
  add_overrides(*build, flags->overrides);
  build->add_option("--out", flags->out, "the folder for the file, instead of [data] cache");
  build->add_option("--threads", flags->threads, "0: one per processor; the file does not depend on it");
  build->callback([&common, flags] { common.exit = build_command(common, *flags); });
  auto* look = command->add_subcommand("inspect", "describe a token file, or the data of a configuration");
  look->add_option("target", flags->target, "a token file, a configuration file (*.toml), or a run")->required();
  add_overrides(*look, flags->overrides, "section.key=value ..., for a configuration");
  look->callback([&common, flags] {
    common.exit = is_config(flags->target) ? inspect_config(common, flags->target, flags->overrides)
                                           : inspect(common, flags->target, 0);
  });
  auto* verify = command->add_subcommand("verify", "read and check every byte of a token file");
  verify->add_option("file", flags->target, "a token file")->required();
  auto* reference = command->add_subcommand(
      "reference", "compute the log-probabilities that [reference] gives to the answers, into reference.store");
  reference->add_option("config", flags->target, "a configuration file")->required();
  add_overrides(*reference, flags->overrides);
  reference->callback([&common, flags] { common.exit = reference_command(common, flags->target, flags->overrides); });
  verify->callback([&common, flags] { common.exit = inspect(common, flags->target, ENG_INSPECT_VERIFY); });
}

}  // namespace eng
