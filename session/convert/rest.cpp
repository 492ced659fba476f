// SPDX-License-Identifier: Apache-2.0
// Keys without a rule of their own: session/foreign.toml says what they are here.
#include <algorithm>

#include "core/base/text.hpp"
#include "core/config/names.hpp"
#include "session/convert/job.hpp"
#include "session/foreign.hpp"

namespace eng::converter {
namespace {

// Turned off, or empty: as here, where it does not exist.
bool is_off(const Entry& entry) {
  if (!entry.odd.empty()) return false;
  if (const auto number = as_number(entry.value)) return *number == 0;
  if (const auto* list = std::get_if<std::vector<std::string>>(&entry.value)) return list->empty();
  const std::string word = lower_case(as_text(entry.value));
  const bool text = std::holds_alternative<std::string>(entry.value);
  return entry.value.index() == 0 || as_flag(entry.value) == std::optional(false) || (text && word.empty()) ||
         word == "none";
}

// A script's flag that has the name of a key of ours.
std::string own_key(const Job& job, const std::string& name) {
  for (const char* section : {"train", "optimizer", "schedule", "model"}) {
    if (name == "plugin" || name == "kind" || name == "compatible" || name == "groups") continue;
    for (const SectionSchema& schema : section_schemas())
      if (schema.name == section && find_option(merged(schema, job.out.plugin_of(section)), name))
        return schema.name + "." + name;
  }
  return "";
}

std::string quoted(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

// "gradient_acumulation_steps" is nearly one of DeepSpeed's.
std::string suggestion(const std::string& name) {
  static const std::vector<std::string> known = foreign_names();
  const std::string word = name.substr(name.rfind('.') + 1);
  const auto near = nearest(word, known);
  return near.empty() || near.front() == word ? "" : fmt::format(" (did you mean {}?)", near.front());
}

// A whole section of DeepSpeed's that has no equivalent.
bool whole_section(Job& job, const std::string& section) {
  if (section.empty()) return false;
  const auto foreign = foreign_name("", section, {});
  if (!foreign || !foreign->here.empty()) return false;
  job.out.note(fmt::format("`{}`: no equivalent: {}", section, advice(foreign->why)));
  return true;
}

}  // namespace

std::string advice(const std::string& why) {
  const std::string begin = "remove it: ";
  return why.starts_with(begin) ? why.substr(begin.size()) : why;
}

void translate(Job& job, const std::string& section, const std::string& name, Entry& entry) {
  entry.used = true;
  Value value = entry.value;
  if (const auto* words = std::get_if<std::vector<std::string>>(&value); words && name == "fsdp")
    value = fmt::format("{}", fmt::join(*words, " "));
  // LLaMA-Factory's `stage` is a kind of training.
  const bool other = section.empty() && name == "stage" && value.index() == 4;
  const bool empty = value == Value(std::string()) || value == Value(std::vector<std::string>());
  if (empty) return job.off.push_back(entry.origin);
  const auto foreign = other ? std::nullopt : foreign_name(section, name, value);
  if (!foreign || foreign->here.starts_with('[')) {
    if (const std::string own = section.empty() && entry.value.index() ? own_key(job, name) : ""; !own.empty())
      return static_cast<void>(job.out.set(own, entry.value, entry));
    if (is_off(entry)) return job.off.push_back(entry.origin);
    if (whole_section(job, section)) return;
    return job.unknown.push_back(entry.origin + suggestion(name));
  }
  if (foreign->here.empty()) {
    if (is_off(entry)) return job.off.push_back(entry.origin);
    return job.out.note(fmt::format("`{}`: no equivalent: {}", entry.origin, advice(foreign->why)));
  }
  const std::string ours = foreign->here.substr(0, foreign->here.find('.'));
  if (!foreign->plugin.empty() && !job.out.exists(ours, foreign->plugin))
    return job.out.note(fmt::format("`{}`: {}", entry.origin, foreign->not_yet()));
  if (foreign->here == "train.global_batch" && job.out.has("train.accumulate"))
    return job.out.note(fmt::format("`{}` is not used: micro-batch and accumulation are given", entry.origin));
  if (!foreign->values.empty()) {
    bool all = true;
    for (const auto& one : foreign->values) all &= job.out.set(one.first, one.second, entry);
    if (all && !foreign->why.empty()) job.out.note(fmt::format("`{}`: {}", entry.origin, foreign->why));
  } else if (foreign->same) {
    if (entry.value.index() == 0 && entry.odd.empty()) return job.off.push_back(entry.origin);
    job.out.set(foreign->here, value, entry);
  } else if (is_off(entry)) {
    job.off.push_back(entry.origin);
  } else {
    job.out.note(fmt::format("`{}` = {}: here it is `{}`{}; not converted", entry.origin, shown(entry), foreign->here,
                             foreign->why.empty() ? ", which has no such value" : ", but " + foreign->why));
  }
}

void rest(Job& job) {
  std::set<std::string> off;  // sections that are not enabled
  for (const auto& [name, entry] : job.deepspeed.all)
    if (name.ends_with(".enabled") && as_flag(entry.value) == std::optional(false))
      off.insert(name.substr(0, name.find('.')));
  for (auto& [name, entry] : job.deepspeed.all) {
    const auto dot = name.find('.');
    const std::string section = dot == std::string::npos ? "" : name.substr(0, dot);
    if (off.count(section)) entry.used = true;
    if (!entry.used) translate(job, section, dot == std::string::npos ? name : name.substr(dot + 1), entry);
  }
  job.off.insert(job.off.end(), off.begin(), off.end());
  for (auto& [name, entry] : job.flat.all)
    if (!entry.used) translate(job, "", name, entry);
  if (!job.unknown.empty())
    job.out.note("not converted, since nothing here is known by this name: " + quoted(job.unknown));
  if (!job.off.empty()) job.out.note("off there, and not there here: " + quoted(job.off));
}

}  // namespace eng::converter
