// SPDX-License-Identifier: Apache-2.0
#include "core/config/rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace eng {
namespace {

bool given(const Section& section, const char* key) {
  return section.settings().at(key).given;
}

Place place(const Rules& rules, const char* section, const char* key) {
  const Given* found = rules.document.find(section, key);
  return found ? found->key : Place{};
}

bool plain(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
}

// A run's name is a directory's name.
void check_name(const Rules& rules) {
  Section& run = rules.section("run");
  if (!run.has("name")) {
    std::string name = rules.problems.name();
    if (const auto slash = name.rfind('/'); slash != std::string::npos) name.erase(0, slash + 1);
    if (const auto dot = name.rfind('.'); dot != std::string::npos && dot > 0) name.erase(dot);
    for (char& c : name)
      if (!plain(c)) c = '-';
    name = name.substr(0, 100);
    run.set("name", name.find_first_not_of(".-") == std::string::npos ? "run" : name, "derived");
    return;
  }
  const std::string& name = run.string("name");
  const bool good = !name.empty() && name.size() <= 100 && std::all_of(name.begin(), name.end(), plain) &&
                    name.find_first_not_of('.') != std::string::npos && name[0] != '-';
  if (!good)
    rules.problems.add({"E0106", fmt::format("`name` is no name of a directory: {}", printable(toml_text(name))),
                        place(rules, "run", "name"), "", "use letters, digits, '.', '_' and '-', at most 100", ""});
}

void check_batch(const Rules& rules) {
  Section& train = rules.section("train");
  if (!given(train, "global_batch")) return;
  const Place at = place(rules, "train", "global_batch");
  if (given(train, "accumulate")) {
    rules.problems.add({"E0113", "`global_batch` and `accumulate` are both given", at, "accumulate is derived from it",
                        "remove one of the two", ""});
    return;
  }
  const int64_t whole = train.integer("global_batch"), micro = train.integer("micro_batch");
  if (whole % micro == 0) {
    train.set("accumulate", whole / micro, "derived");
    return;
  }
  const int64_t below = whole / micro * micro;
  std::string help = fmt::format("train.global_batch = {}", below + micro);
  if (below > 0) help = fmt::format("train.global_batch = {} or {}", below, below + micro);
  int64_t divisor = std::min(micro, whole);
  while (whole % divisor != 0) --divisor;
  rules.problems.add({"E0113", fmt::format("`global_batch` = {} is no multiple of `micro_batch` = {}", whole, micro),
                      at, "", help + fmt::format(", or train.micro_batch = {}", divisor), ""});
}

void check_model(const Rules& rules) {
  const Section& model = rules.section("model");
  if (given(model, "preset") && given(model, "from"))
    rules.problems.add({"E0113", "`preset` and `from` are both given", place(rules, "model", "from"), "",
                        "a model starts from one of them: remove the other", ""});
}

void check_pins(const Rules& rules) {
  for (const std::string& pin : rules.section("plugins").strings("sha256")) {
    const auto equals = pin.find('=');
    const std::string hash = equals == std::string::npos ? "" : pin.substr(equals + 1);
    const bool good =
        equals > 0 && hash.size() == 64 && hash.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
    if (!good)
      rules.problems.add(
          {"E0106", fmt::format("{} pins no plugin", printable(toml_text(pin))), place(rules, "plugins", "sha256"), "",
           "write \"ID=HASH\", the hash in 64 hexadecimal digits, as `engine plugins ls` prints them", ""});
  }
}

using Keys = std::vector<const char*>;

bool holds(const Keys& keys, const std::string& key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

// The keys that each of DeepSpeed's schedules reads.
Keys deepspeed_keys(const std::string& kind) {
  if (kind == "WarmupLR") return {"warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type"};
  if (kind == "WarmupDecayLR")
    return {"warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type", "total_num_steps"};
  return {"warmup_min_ratio", "cos_min_ratio", "warmup_num_steps", "warmup_type", "total_num_steps"};
}

void check_deepspeed(const Rules& rules, Section& schedule, bool optimizer_known) {
  static const Keys native = {"warmup_steps", "warmup", "min_learning_rate"};
  static const Keys all = {"warmup_min_lr",   "warmup_max_lr",    "warmup_num_steps", "warmup_type",
                           "total_num_steps", "warmup_min_ratio", "cos_min_ratio"};
  const std::string& kind = schedule.string("kind");
  if (kind.compare(0, 6, "Warmup") != 0) {
    const bool set = given(schedule, "kind");
    rules.problems.add({set ? "E0107" : "E0108",
                        set ? fmt::format("compatible = \"deepspeed\" has no schedule named \"{}\"", kind)
                            : std::string("compatible = \"deepspeed\" needs `kind`"),
                        place(rules, "schedule", set ? "kind" : "compatible"), "",
                        "kind = \"WarmupLR\", \"WarmupDecayLR\" or \"WarmupCosineLR\"", ""});
    return;
  }
  const Keys used = deepspeed_keys(kind);
  for (const char* key : native)
    if (given(schedule, key))
      rules.problems.add({"E0105", fmt::format("`{}` is not a key of DeepSpeed's {}", key, kind),
                          place(rules, "schedule", key), "", fmt::format("{} reads: {}", kind, fmt::join(used, ", ")),
                          ""});
  for (const char* key : all)
    if (given(schedule, key) && !holds(used, key))
      rules.problems.add({"E0105", fmt::format("`{}` is not a key of DeepSpeed's {}", key, kind),
                          place(rules, "schedule", key), "", fmt::format("{} reads: {}", kind, fmt::join(used, ", ")),
                          ""});
  if (holds(used, "total_num_steps") && !schedule.has("total_num_steps"))
    rules.problems.add({"E0108", fmt::format("{} needs `total_num_steps`", kind), place(rules, "schedule", "kind"), "",
                        "usually the steps of the run: total_num_steps = " +
                            toml_text(rules.section("train").settings().at("steps").value),
                        ""});
  else if (holds(used, "total_num_steps") && schedule.integer("total_num_steps") < schedule.integer("warmup_num_steps"))
    rules.notes.push_back(fmt::format("schedule.total_num_steps = {} is less than warmup_num_steps = {}",
                                      schedule.integer("total_num_steps"), schedule.integer("warmup_num_steps")));
  // DeepSpeed's own defaults: WarmupLR takes the optimizer's rate, WarmupDecayLR does not.
  if (kind == "WarmupDecayLR" && !given(schedule, "warmup_max_lr")) schedule.set("warmup_max_lr", 0.001, "default");
  if (kind == "WarmupLR" && !given(schedule, "warmup_max_lr") && optimizer_known)
    schedule.set("warmup_max_lr", rules.section("optimizer").number("learning_rate"), "derived");
}

void check_native(const Rules& rules, const Section& schedule, bool optimizer_known) {
  const std::string& kind = schedule.string("kind");
  if (kind.compare(0, 6, "Warmup") == 0)
    rules.problems.add({"E0113", fmt::format("kind = \"{}\" is DeepSpeed's", kind), place(rules, "schedule", "kind"),
                        "", "add compatible = \"deepspeed\", or use \"constant\", \"linear\" or \"cosine\"", ""});
  for (const char* key : {"warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type", "total_num_steps",
                          "warmup_min_ratio", "cos_min_ratio"}) {
    if (!given(schedule, key) || kind.compare(0, 6, "Warmup") == 0) continue;
    std::string help = "add compatible = \"deepspeed\" and one of its kinds";
    if (std::string(key) == "warmup_num_steps") help = "here it is warmup_steps; or " + help;
    if (std::string(key) == "warmup_type") help = "here it is warmup; or " + help;
    if (std::string(key) == "total_num_steps") help = "here a schedule ends with train.steps; or " + help;
    if (std::string(key) == "warmup_max_lr") help = "here it is optimizer.learning_rate; or " + help;
    rules.problems.add({"E0105", fmt::format("`{}` needs compatible = \"deepspeed\"", key),
                        place(rules, "schedule", key), "", help, ""});
  }
  if (optimizer_known && schedule.number("min_learning_rate") > rules.section("optimizer").number("learning_rate"))
    rules.problems.add({"E0106",
                        fmt::format("`min_learning_rate` = {} is above optimizer.learning_rate = {}",
                                    toml_text(schedule.settings().at("min_learning_rate").value),
                                    toml_text(rules.section("optimizer").settings().at("learning_rate").value)),
                        place(rules, "schedule", "min_learning_rate"), "", "lower it, or raise optimizer.learning_rate",
                        ""});
  // Notes, not errors: the kind can be swapped by one line.
  if (kind == "constant" && given(schedule, "min_learning_rate"))
    rules.notes.push_back("schedule.min_learning_rate has no effect with kind = \"constant\"");
  if (schedule.integer("warmup_steps") == 0 && given(schedule, "warmup"))
    rules.notes.push_back("schedule.warmup has no effect with warmup_steps = 0");
}

void check_schedule(const Rules& rules) {
  Section& schedule = rules.section("schedule");
  const bool optimizer_known = !rules.broken.count("optimizer");
  if (schedule.string("compatible") == "deepspeed") return check_deepspeed(rules, schedule, optimizer_known);
  check_native(rules, schedule, optimizer_known);
  const int64_t steps = rules.section("train").integer("steps"), warm = schedule.integer("warmup_steps");
  if (!rules.broken.count("train") && warm >= steps)
    rules.notes.push_back(
        fmt::format("schedule.warmup_steps = {}: the run ends ({} steps) before the warm-up does", warm, steps));
}

}  // namespace

void apply_rules(const Rules& rules) {
  const auto sound = [&](const char* section) { return rules.broken.count(section) == 0; };
  if (sound("run")) check_name(rules);
  if (sound("model")) check_model(rules);
  if (sound("train")) check_batch(rules);
  if (sound("schedule")) check_schedule(rules);
  if (sound("plugins")) check_pins(rules);
}

}  // namespace eng
