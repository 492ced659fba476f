// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cctype>
#include <cmath>

#include "session/config/source.hpp"

namespace eng {
namespace {

// The keys of [schedule] that a kind reads.
struct Reader {
  std::vector<std::string> kinds, keys;
};
const Reader schedule_readers[] = {
    {{"constant", "linear", "cosine"}, {"warmup_steps", "warmup", "min_learning_rate"}},
    {{"WarmupLR"}, {"warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type"}},
    {{"WarmupDecayLR"}, {"warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type", "total_num_steps"}},
    {{"WarmupCosineLR"}, {"warmup_min_ratio", "cos_min_ratio", "warmup_num_steps", "warmup_type", "total_num_steps"}},
};

bool has(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

bool in_names(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
}

constexpr std::size_t most_in_name = 255;  // bytes; more is no name of a directory

struct Rules {
  const Document& document;
  const std::set<std::string>& broken;
  Config& config;
  Problems& problems;
  std::vector<std::string>& notes;

  void refuse(const char* code, const char* section, const std::string& key, std::string message,
              std::string help) const {
    const Given* found = document.find(section, key);
    problems.push_back({code, std::move(message), found ? found->key : TextRange{}, std::move(help)});
  }

  // A run's name must be valid as a directory's name.
  void name(Section& run) const {
    const bool given = run.has("name");
    if (given && !is_run_name(run.string("name")))
      refuse("E0106", "run", "name",
             "`name` is not a valid directory name: " + printable(toml_text(run.string("name"))),
             "use any characters but '/' and control characters, at most 255 bytes, and not \".\" or \"..\"");
    if (given) return;
    std::string name;
    for (const std::string& one : characters(std::filesystem::path(config.name()).stem().string()))
      if (name.size() + one.size() <= most_in_name) name += one.size() > 1 || in_names(one[0]) ? one : "-";
    // A derived value must also be valid as a given one: a resumed run's configuration gives it.
    name.erase(0, name.find_first_not_of('-'));
    run.set("name", name.find_first_not_of(".-") == std::string::npos ? "run" : name, "derived");
  }

  void batch(Section& train) const {
    // Kernels number the tokens of a micro-batch with 32 bits.
    const int64_t tokens = train.integer("micro_batch") * train.integer("sequence_length"), most = INT32_MAX;
    if (tokens > most)
      refuse("E0106", "train", "micro_batch",
             fmt::format("`micro_batch` x `sequence_length` is {} tokens; the maximum is {}", tokens, most),
             "lower either");
    const char* key = train.given("global_batch") ? "global_batch" : "accumulate";
    const int64_t length = train.integer("sequence_length"),
                  rows = train.given("global_batch") ? train.integer(key)
                                                     : train.integer(key) * train.integer("micro_batch");
    if (tokens <= most && rows > (int64_t{1} << 48) / length)
      refuse("E0106", "train", key,
             fmt::format("{} sequences of {} tokens per step are more than 2^48 tokens", rows, length),
             fmt::format("lower `{}` or `sequence_length`", key));
    if (train.given("epochs") && train.given("steps"))
      refuse("E0113", "train", "epochs", "`epochs` and `steps` are both given",
             "steps is derived from epochs: remove one of the two (for a run: --unset train.epochs)");
    if (!train.given("global_batch")) return;
    const int64_t whole = train.integer("global_batch"), micro = train.integer("micro_batch");
    if (train.given("accumulate"))
      return refuse("E0113", "train", "global_batch", "`global_batch` and `accumulate` are both given",
                    fmt::format("accumulate is derived from global_batch: remove one of the two (for a run: --unset "
                                "train.accumulate), or set both with train.global_batch={}",
                                micro * train.integer("accumulate")));
    if (whole % micro == 0) return train.set("accumulate", whole / micro, "derived");
    int64_t divisor = 1;  // the largest that is at most a micro-batch
    for (int64_t n = 1; n * n <= whole; ++n)
      for (const int64_t d : {n, whole / n})
        if (whole % n == 0 && d <= micro) divisor = std::max(divisor, d);
    refuse("E0113", "train", "global_batch",
           fmt::format("`global_batch` = {} is not a multiple of `micro_batch` = {}", whole, micro),
           fmt::format("train.global_batch = {}, or train.micro_batch = {}", (whole / micro + 1) * micro, divisor));
  }

  // Keys that act on the results of evaluations need evaluations.
  void evaluations(const Section& train, const Section& checkpoint) const {
    const int64_t patience = train.integer("early_stop_patience");
    if (!patience && train.given("early_stop_min_delta"))
      notes.push_back("train.early_stop_min_delta has no effect with early_stop_patience = 0");
    if (train.integer("eval_every") > 0) return;
    if (checkpoint.boolean("best"))
      refuse("E0113", "checkpoint", "best", "`best` = true, but there are no evaluations",
             "set train.eval_every as well");
    if (patience)
      refuse("E0113", "train", "early_stop_patience", "`early_stop_patience` is given, but there are no evaluations",
             "set train.eval_every as well");
  }

  void zero(const Section& zero, const Section& comm) const {
    const auto fast = zero.settings().find("fast");
    if (fast != zero.settings().end() && fast->second.given)
      refuse("E0105", "zero", "fast", "`fast` is set in [comm]", "write comm.reduce = \"fast\"");
    if (comm.string("reduce") == "fast")
      notes.push_back(
          "comm.reduce = \"fast\" leaves the order of sums to the library: strategies, buckets and equal runs may "
          "differ "
          "in their last bits");
  }

  void offload(Section& offload) const {
    derive_offload(offload);
    const std::string& update = offload.string("update");
    if (offload.string("optimizer") == "none" && update != "device")
      refuse("E0113", "offload", "update",
             fmt::format("`update` = \"{}\", but the optimizer's states are on the device", update),
             "set offload.optimizer to a tier as well, or remove `update`");
    if (offload.given("host_share") && update != "both")
      refuse("E0113", "offload", "host_share", fmt::format("`host_share` is given with `update` = \"{}\"", update),
             "set offload.update = \"both\", or remove `host_share`");
    if (offload.boolean("update_late") && update == "device")
      refuse("E0113", "offload", "update_late", "`update_late` = true, but the device updates everything",
             "set offload.update = \"host\" or \"both\", or remove `update_late`");
    if (offload.boolean("update_early") && update == "device")
      refuse("E0113", "offload", "update_early", "`update_early` = true, but the device updates everything",
             "set offload.update = \"host\" or \"both\", or remove `update_early`");
    if (offload.given("early_share") && !offload.boolean("update_early"))
      refuse("E0113", "offload", "early_share", "`early_share` is given, but `update_early` is false",
             "set offload.update_early = true, or remove `early_share`");
    if (offload.string("optimizer") == "none" && offload.string("master") == "none" && offload.given("ratio"))
      refuse("E0113", "offload", "ratio", "`ratio` is given, but the optimizer's states and masters are on the device",
             "set offload.optimizer to a tier as well, or remove `ratio`");
  }

  void recompute(const Section& recompute) const {
    std::vector<std::string> given;
    for (const auto& [key, setting] : recompute.settings())
      if (setting.given) given.push_back(key);
    if (given.size() > 1)
      refuse("E0113", "recompute", given[1], fmt::format("`{}` and `{}` are both given", given[0], given[1]),
             "give one of policy, every, blocks and budget");
  }

  void schedule(Section& schedule) const {
    const std::string& kind = schedule.string("kind");
    if (!schedule.settings().count("compatible")) return;  // a plugin, which checks its own keys
    const bool deepspeed = schedule.string("compatible") == "deepspeed";
    if (deepspeed != kind.starts_with("Warmup"))
      return refuse("E0113", "schedule", deepspeed ? "compatible" : "kind",
                    fmt::format("compatible = {} has no kind = \"{}\"", toml_text(schedule.string("compatible")), kind),
                    "with compatible = \"deepspeed\" kind is \"WarmupLR\", \"WarmupDecayLR\" or \"WarmupCosineLR\"");
    const auto& keys =
        std::find_if(std::begin(schedule_readers), std::end(schedule_readers), [&](const Reader& reader) {
          return has(reader.kinds, kind);
        })->keys;
    std::vector<std::string> idle;
    for (const auto& [key, setting] : schedule.settings())
      if (setting.given && key != "kind" && key != "compatible" && !has(keys, key)) idle.push_back(key);
    const Given* chosen = document.find("schedule", "kind");
    const bool overridden = chosen && !chosen->place.override_text.empty();
    for (const std::string& key : idle)
      refuse(
          "E0105", "schedule", key, fmt::format("`{}` is not a key of kind = \"{}\"", key, kind),
          fmt::format("it reads {}{}", fmt::join(keys, ", "),
                      overridden ? fmt::format("\nto start without {}: --unset schedule.{}",
                                               idle.size() == 1 ? "it" : "them", fmt::join(idle, " --unset schedule."))
                                 : ""));
    if (deepspeed && kind != "WarmupLR" && !schedule.has("total_num_steps"))
      refuse("E0108", "schedule", "kind", kind + " needs `total_num_steps`", "usually the steps of the run");
    // DeepSpeed's own defaults: WarmupLR takes the optimizer's rate, WarmupDecayLR does not.
    const double rate = broken.count("optimizer") ? HUGE_VAL : config.section("optimizer").number("learning_rate");
    if (kind == "WarmupDecayLR" && !schedule.given("warmup_max_lr")) schedule.set("warmup_max_lr", 0.001, "default");
    if (kind == "WarmupLR" && !schedule.given("warmup_max_lr")) schedule.set("warmup_max_lr", rate, "derived");
    if (!deepspeed && schedule.number("min_learning_rate") > rate)
      refuse("E0106", "schedule", "min_learning_rate",
             fmt::format("`min_learning_rate` is above optimizer.learning_rate = {}", rate), "lower it, or raise that");
    // Notes, not errors, so that the kind can be changed by one line.
    const int64_t warm = schedule.integer("warmup_steps");
    if (kind == "constant" && schedule.given("min_learning_rate"))
      notes.push_back("schedule.min_learning_rate has no effect with kind = \"constant\"");
    if (warm == 0 && schedule.given("warmup")) notes.push_back("schedule.warmup has no effect with warmup_steps = 0");
    if (!broken.count("train") && !config.section("train").given("epochs") &&
        warm >= config.section("train").integer("steps"))
      notes.push_back(fmt::format("schedule.warmup_steps = {}: the run ends before the warm-up does", warm));
  }
};

}  // namespace

bool is_run_name(const std::string& name) {
  const bool text = printable(name, name.size()) == name;  // UTF-8 without control characters
  return text && !name.empty() && name.size() <= most_in_name && name.find('/') == name.npos && name != "." &&
         name != "..";
}

void derive_offload(Section& offload) {
  const std::string states = offload.string("optimizer");
  if (!offload.given("master")) offload.set("master", states, "derived");
  if (!offload.given("update")) offload.set("update", std::string(states == "none" ? "device" : "host"), "derived");
}

void move_old_keys(Document& document, const std::string& model, const SchemaSource& plugins, Problems& problems) {
  const char* const key = "z_loss";
  const auto from = document.parts.find("model");
  const PluginSchema* const plugin = plugins.find ? plugins.find("eng.model/1", model) : nullptr;
  if (from == document.parts.end() || !from->second.keys.count(key)) return;
  if (plugin && find_option(plugin->options, key)) return;
  const Given old = from->second.keys.at(key);
  from->second.keys.erase(key);
  auto& keys = document.parts["loss"].keys;
  const auto [now, moved] = keys.try_emplace(key, old);
  const bool is_override = !old.key.override_text.empty();
  if (moved || old.held) return;
  if (now->second.held || (is_override && now->second.key.override_text.empty()))
    now->second = old;
  else if (is_override || now->second.key.override_text.empty())
    problems.push_back(
        {"E0113", "`model.z_loss` and `loss.z_loss` are both given", old.key, "keep loss.z_loss, its new name"});
}

std::vector<Newer> keep_old_values(Document& document, const SchemaSource& plugins) {
  static const struct {
    std::string kind, plugin;
    Newer key;
  } all[] = {{"eng.optimizer/1", "muon", {"optimizer", "products", std::string("f32")}}};
  std::vector<Newer> out;
  if (!document.resolved || !plugins.find) return out;
  for (const auto& [kind, name, newer] : all) {
    const Given* named = document.find(newer.section, "plugin");
    if (!named || named->value != Value(name) || !named->place.override_text.empty()) continue;
    const PluginSchema* plugin = plugins.find(kind, name);
    if (!plugin || !find_option(plugin->options, newer.key)) continue;  // another plugin of this name
    if (document.find(newer.section, newer.key) || document.removed.count(newer.section + "." + newer.key)) continue;
    Given& given = document.parts[newer.section].keys[newer.key];
    given.value = newer.before, given.held = true;
    out.push_back(newer);
  }
  return out;
}

void apply_rules(const Document& document, const std::set<std::string>& broken, Config& config, Problems& problems,
                 std::vector<std::string>& notes) {
  const Rules rules{document, broken, config, problems, notes};
  if (!broken.count("run")) rules.name(config.section("run"));
  if (!broken.count("train")) rules.batch(config.section("train"));
  if (!broken.count("train") && !broken.count("checkpoint"))
    rules.evaluations(config.section("train"), config.section("checkpoint"));
  if (!broken.count("schedule")) rules.schedule(config.section("schedule"));
  if (!broken.count("recompute")) rules.recompute(config.section("recompute"));
  if (!broken.count("offload")) rules.offload(config.section("offload"));
  if (!broken.count("zero") && !broken.count("comm")) rules.zero(config.section("zero"), config.section("comm"));
}

}  // namespace eng
