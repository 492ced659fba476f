// SPDX-License-Identifier: Apache-2.0
#include "session/changes.hpp"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "core/base/error.hpp"
#include "session/record.hpp"
#include "session/train/schedule.hpp"

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

// "train.steps = 600 (300 before)", for the keys with these prefixes.
std::string told(const std::vector<Change>& all, const std::vector<std::string>& prefixes) {
  std::string out;
  for (const Change& c : all)
    for (const std::string& prefix : prefixes)
      if (c.key.starts_with(prefix))
        out += fmt::format("{}{} = {} ({} before)", out.empty() ? "" : ", ", c.key, c.now.empty() ? "none" : c.now,
                           c.before.empty() ? "none" : c.before);
  return out;
}

std::string batch_note(const Resumption& r, const Config& before, const std::vector<Change>& all) {
  const auto samples = [](const Config& config, uint32_t ranks) {
    const Section& train = config.section("train");
    return train.integer("micro_batch") * train.integer("accumulate") * int64_t{ranks};
  };
  const Section& train = r.now.section("train");
  const int64_t was = samples(before, r.ranks_before), is = samples(r.now, r.ranks);
  const int64_t length_was = before.section("train").integer("sequence_length"),
                length = train.integer("sequence_length");
  if (!r.ranks_before || (was == is && length_was == length)) return "";
  std::string out =
      fmt::format("a step now takes {} sequences of {} tokens; before, it took {} of {}", is, length, was, length_was);
  if (r.ranks != r.ranks_before) out += fmt::format("; ranks = {} ({} before)", r.ranks, r.ranks_before);
  if (const std::string keys =
          told(all, {"train.micro_batch", "train.accumulate", "train.global_batch", "train.sequence_length"});
      !keys.empty())
    out += "; " + keys;
  if (was == is || was % r.ranks != 0) return out;
  const int64_t micro = train.integer("micro_batch"), fits = std::gcd(micro, was / r.ranks);
  return out + fmt::format("; to keep it: train.global_batch={}{}{}", was,
                           fits == micro ? "" : fmt::format(" train.micro_batch={}", fits),
                           train.given("accumulate") ? " --unset train.accumulate" : "");
}

std::string rate_note(const Resumption& r, const Config& before, const std::vector<Change>& all) {
  const Schedule then = make_schedule(before), now = make_schedule(r.now);
  const double expected = then.at(r.step + 1), next = now.at(r.step + 1);
  if (r.step < 1 || std::abs(next - expected) <= 0.01 * std::max(next, expected)) return "";
  return fmt::format("the learning rate changes from {:.2e} at step {} to {:.2e} at step {}; {}", then.at(r.step),
                     r.step, next, r.step + 1, told(all, {"train.steps", "schedule.", "optimizer.learning_rate"}));
}

}  // namespace

std::vector<Change> changes(const Document& before, const Config& now) {
  std::vector<Change> out;
  for (const Section& section : now.sections()) {
    std::map<std::string, Change> found;
    for (const auto& [key, setting] : section.settings())
      found[key] = {section.name() + "." + key, "", toml_text(setting.value)};
    if (const Document::Part* part = before.find(section.name()))
      for (const auto& [key, given] : part->keys) {
        found[key].key = section.name() + "." + key;
        found[key].before = toml_text(given.value);
      }
    for (auto& [key, change] : found)
      if (change.before != change.now) out.push_back(std::move(change));
  }
  return out;
}

std::vector<std::string> resume_notes(const Resumption& r) {
  const Config before = as_before(r.before, r.now);
  const std::vector<Change> all = changes(r.before, r.now);
  std::vector<std::string> out;
  for (const auto& note : {batch_note, rate_note})
    if (std::string text = note(r, before, all); !text.empty()) out.push_back(std::move(text));
  return out;
}

std::vector<std::string> resume_notes(const std::filesystem::path& run, const Document* before, const Config& now,
                                      uint32_t ranks, int64_t step) {
  try {
    const Document read = before ? Document() : read_document(run / "config.resolved.toml");
    return resume_notes({before ? *before : read, now, read_record(run).ranks, ranks, step});
  } catch (const Error&) {
    return {};
  }
}

}  // namespace eng
