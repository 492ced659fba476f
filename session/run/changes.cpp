// SPDX-License-Identifier: Apache-2.0
#include "session/run/changes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/error.hpp"
#include "session/config/mixture.hpp"
#include "session/config/schemas.hpp"
#include "session/planning/schedule.hpp"
#include "session/ranks/ranks.hpp"

namespace eng {
namespace {

// `now` with the values of `before` for its keys.
Config as_before(const Document& before, Config now) {
  for (const auto& [name, part] : before.parts) {
    const auto& all = now.sections();
    const auto found =
        std::find_if(all.begin(), all.end(), [&name = name](const Section& s) { return s.name() == name; });
    if (found == all.end()) continue;
    Section& section = now.section(name);
    for (const auto& [key, given] : part.keys) {
      const auto setting = section.settings().find(key);
      if (setting == section.settings().end() || given.value.index() == 0) continue;
      if (const auto old = setting->second.value.index(); old == 0 || old == given.value.index())
        section.set(key, given.value, given.held ? "default" : "the run");
    }
  }
  return now;
}

// "train.steps = 600 (300 before)".
std::string text_of(const Change& c) {
  return fmt::format("{} = {} ({} before)", c.key, c.now.empty() ? "none" : c.now,
                     c.before.empty() ? "none" : c.before);
}

// The changes that no note has reported yet.
using Untold = std::vector<Change>;

// The changes of keys with these prefixes, separated by commas; removes them from `untold`.
std::string tell(Untold& untold, const std::vector<std::string>& prefixes) {
  std::string out;
  std::erase_if(untold, [&](const Change& c) {
    const bool found = std::any_of(prefixes.begin(), prefixes.end(),
                                   [&](const std::string& prefix) { return c.key.starts_with(prefix); });
    if (found) out += (out.empty() ? "" : ", ") + text_of(c);
    return found;
  });
  return out;
}

std::string batch_note(const Resumption& r, const Config& before, Untold& untold) {
  const auto samples = [](const Config& config, uint32_t ranks) {
    const Section& train = config.section("train");
    return train.integer("micro_batch") * train.integer("accumulate") * int64_t{data_ranks(config, ranks)};
  };
  const Section& train = r.now.section("train");
  const uint32_t data = data_ranks(r.now, r.ranks);
  const int64_t was = samples(before, r.ranks_before), is = samples(r.now, r.ranks);
  const int64_t length_was = before.section("train").integer("sequence_length"),
                length = train.integer("sequence_length");
  if (!r.ranks_before) return "";
  const std::string keys =
      tell(untold, {"train.micro_batch", "train.accumulate", "train.global_batch", "train.sequence_length"});
  if (was == is && length_was == length) return "";
  std::string out =
      fmt::format("a step now takes {} sequences of {} tokens; before, it took {} of {}", is, length, was, length_was);
  if (r.ranks != r.ranks_before) out += fmt::format("; ranks = {} ({} before)", r.ranks, r.ranks_before);
  if (!keys.empty()) out += "; " + keys;
  if (was == is || was % data != 0) return out;
  const int64_t micro = train.integer("micro_batch"), fits = std::gcd(micro, was / data);
  return out + fmt::format("; to keep it: train.global_batch={}{}{}", was,
                           fits == micro ? "" : fmt::format(" train.micro_batch={}", fits),
                           train.given("accumulate") ? " --unset train.accumulate" : "");
}

// The schedule before; nullopt if it was one of a plugin that is not here any more, or that refuses its keys now.
std::optional<Schedule> schedule_before(const Resumption& r, Config before) {
  const auto* kind = r.before.value<std::string>("schedule", "kind");
  if (!kind) return std::nullopt;
  for (const SectionSchema& schema : section_schemas()) {
    if (schema.name != "schedule") continue;
    const Provided* plugin = schema.built_in(*kind) ? nullptr : r.registry.find(schema.kind, *kind);
    std::map<std::string, Setting> settings;
    for (const Option& option : merged(schema, plugin ? &plugin->schema : nullptr)) {
      const Given* given = r.before.find("schedule", option.key);
      Value value = given ? given->value : option.fallback;
      if (fit(option, value).code) value = option.fallback;
      settings[option.key] = {std::move(value), "the run", given && !given->held};
    }
    settings["kind"].value = *kind;
    before.section("schedule") = Section("schedule", std::move(settings));
  }
  try {
    return make_schedule(before, r.registry);
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string rate_note(const Resumption& r, const Config& before, Untold& untold) {
  const std::optional<Schedule> old = schedule_before(r, before);
  if (!old) return "";
  const Schedule &then = *old, now = make_schedule(r.now, r.registry);
  const double expected = then.at(r.step + 1), next = now.at(r.step + 1);
  if (r.step < 1 || std::abs(next - expected) <= 0.01 * std::max(next, expected)) return "";
  return fmt::format("the learning rate changes from {:.2e} at step {} to {:.2e} at step {}; {}", then.at(r.step),
                     r.step, next, r.step + 1, tell(untold, {"train.steps", "schedule.", "optimizer.learning_rate"}));
}

std::string other_note(const Resumption&, const Config&, Untold& untold) {
  std::erase_if(untold, [](const Change& c) { return c.rule == OnChange::free; });
  const std::string all = tell(untold, {""});
  return all.empty() ? "" : "from now on, " + all;
}

// Values that the run keeps of before it knew their keys.
std::string kept_note(const Resumption& r, const Config&, Untold&) {
  Document before = r.before;
  std::string out;
  for (const auto& [section, key, value] : keep_old_values(before, schemas_of(r.registry))) {
    const auto& settings = r.now.section(section).settings();
    if (const auto now = settings.find(key); now == settings.end() || now->second.value != value) continue;
    out += fmt::format("{}{}.{} = {}, since the run is older than this key, and another value changes its numbers",
                       out.empty() ? "" : "; ", section, key, toml_text(value));
  }
  return out;
}

// The schemas' rule for a change of a key.
OnChange rule_of(const std::string& section, const std::string& key, const Config& now, const SchemaSource& plugins) {
  static const std::map<std::string, OnChange> by_section = {
      {"model", OnChange::refuse},   {"data", OnChange::refuse},   {"train", OnChange::note},
      {"optimizer", OnChange::note}, {"schedule", OnChange::note}, {"precision", OnChange::note},
      {"loss", OnChange::note},      {"reference", OnChange::note}};
  const auto usual = by_section.find(section);
  for (const SectionSchema& schema : section_schemas()) {
    if (schema.name != section) continue;
    const Section& values = now.section(section);
    const bool named = !schema.kind.empty() && values.has(schema.names) && plugins.find;
    const std::string name = named ? values.string(schema.names) : "";
    const PluginSchema* plugin = named && !schema.built_in(name) ? plugins.find(schema.kind, name) : nullptr;
    const Tables sources = section == "data" && is_mixture(values) ? values.as<Tables>("sources") : Tables();
    Schema all = sources.empty() ? keys_of(schema, plugin, plugins) : data_keys(schema, plugin, sources, name, plugins);
    if (plugin && sources.empty())
      add_named(all, plugins, [&](const std::string& named_by) {
        const auto at = values.settings().find(named_by);
        const auto* text = at == values.settings().end() ? nullptr : std::get_if<std::string>(&at->second.value);
        return text ? *text : std::string();
      });
    const Option* option = find_option(all, key);
    if (!option) return OnChange::free;
    if (!option->resume.empty())
      return option->resume == "free" ? OnChange::free : option->resume == "note" ? OnChange::note : OnChange::refuse;
  }
  return usual == by_section.end() ? OnChange::free : usual->second;
}

}  // namespace

std::vector<Change> changes(const Document& written, const Config& now, const SchemaSource& plugins) {
  Document before = written;
  Problems none;
  move_old_keys(before, now.section("model").string("plugin"), plugins, none);
  keep_old_values(before, plugins);
  std::vector<Change> out;
  for (const Section& section : now.sections()) {
    std::map<std::string, Change> found;
    for (const auto& [key, setting] : section.settings())
      found[key] = {section.name() + "." + key, "", toml_text(setting.value)};
    if (const Document::Part* part = before.find(section.name()))
      for (const auto& [key, given] : part->keys) {
        // A default of a tier that holds no state now.
        if (section.name() == "offload" && given.held && !section.settings().count(key)) continue;
        found[key].key = section.name() + "." + key;
        found[key].before = toml_text(given.value);
      }
    for (auto& [key, change] : found) {
      if (change.before == change.now) continue;
      const auto setting = section.settings().find(key);
      const bool by_default = setting != section.settings().end() && !setting->second.given;
      if (!change.before.empty() || !by_default) change.rule = rule_of(section.name(), key, now, plugins);
      out.push_back(std::move(change));
    }
  }
  return out;
}

void refuse_changes(const std::vector<Change>& all, const std::vector<std::string>& allowed, const Config& now) {
  for (const std::string& key : allowed) {
    const std::size_t dot = key.find('.');
    const bool known = std::any_of(now.sections().begin(), now.sections().end(), [&](const Section& s) {
      return s.name() == key.substr(0, dot) && dot != key.npos && s.settings().count(key.substr(dot + 1));
    });
    if (!known) throw Error(Exit::usage, "--allow-change " + key + ": there is no such key", "write it as section.key");
  }
  std::string list, flags;
  for (const Change& c : all) {
    if (c.rule != OnChange::refuse || std::count(allowed.begin(), allowed.end(), c.key)) continue;
    list += "\n  " + text_of(c);
    flags += " --allow-change " + c.key;
  }
  if (list.empty()) return;
  throw Error(Exit::usage, "a resumed run keeps its model, its data and its random numbers, but these differ:" + list,
              "give the values of before, start a new run, or insist:" + flags);
}

std::vector<std::string> resume_notes(const Resumption& r) {
  const Config before = as_before(r.before, r.now);
  Untold untold = r.changes;
  std::vector<std::string> out;
  for (const auto& note : {batch_note, rate_note, other_note, kept_note})
    if (std::string text = note(r, before, untold); !text.empty()) out.push_back(std::move(text));
  return out;
}

}  // namespace eng
