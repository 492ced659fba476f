// SPDX-License-Identifier: Apache-2.0
// Keys without a rule of their own, by what session/config/foreign says of them. Every note about such a key comes from
// there.
#include <algorithm>

#include "core/base/text.hpp"
#include "session/config/foreign.hpp"
#include "session/config/spelling.hpp"
#include "session/convert/job.hpp"

namespace eng::converter {
namespace {

// True if nothing was set.
bool is_empty(const Entry& entry) {
  if (!entry.odd.empty()) return false;
  const auto* list = std::get_if<std::vector<std::string>>(&entry.value);
  return entry.value.index() == 0 || entry.value == Value(std::string()) || (list && list->empty());
}

// A script's flag that has the name of a key of ours.
std::string own_key(const Job& job, const std::string& name) {
  if (name == "plugin" || name == "kind" || name == "compatible" || name == "groups") return "";
  for (const char* section : {"train", "optimizer", "schedule", "model"})
    for (const SectionSchema& schema : section_schemas())
      if (schema.name == section && find_option(merged(schema, job.out.plugin_of(section)), name))
        return schema.name + "." + name;
  return "";
}

// "gradient_acumulation_steps" is nearly one of DeepSpeed's.
std::string suggestion(const std::string& name) {
  static const std::vector<std::string> known = foreign_names();
  const std::string word = name.substr(name.rfind('.') + 1);
  const auto near = nearest(word, known);
  return word.size() < 3 || near.empty() || near.front() == word ? ""
                                                                 : fmt::format(" (did you mean {}?)", near.front());
}

std::string said(const Entry& entry) {
  return entry.value.index() == 0 && entry.odd.empty() ? fmt::format("`{}`", entry.origin)
                                                       : fmt::format("`{}` = {}", entry.origin, shown(entry));
}

void unknown(Job& job, const std::string& name, Entry& entry) {
  if (entry.trainer != "deepspeed" && entry.value.index())
    if (const std::string own = own_key(job, name); !own.empty())
      return static_cast<void>(job.out.set(own, entry.value, entry));
  if (is_empty(entry)) return job.empty.push_back(entry.origin);
  job.unknown.push_back(entry.origin + suggestion(name));
}

void ours(Job& job, const std::string& name, Entry& entry) {
  Value value = entry.value;
  if (const auto* words = std::get_if<std::vector<std::string>>(&value); words && name == "fsdp")
    value = fmt::format("{}", fmt::join(*words, " "));
  if (lower_case(as_text(value)) == "auto" && entry.trainer != "deepspeed")
    return job.out.note(fmt::format("{} is decided there when the run starts: not converted", said(entry)));
  const auto foreign = translation(entry.trainer, name, value);
  if (!foreign || foreign->here.starts_with('[')) return unknown(job, name, entry);
  const bool empty = is_empty(entry);
  if (empty && foreign->values.empty()) return job.nulls.push_back(entry.origin);
  const std::string section = foreign->here.substr(0, foreign->here.find('.'));
  if (!foreign->plugin.empty() && !job.out.exists(section, foreign->plugin))
    return refuse(job, entry, foreign->not_yet());
  if (foreign->here == "train.global_batch" && job.out.has("train.accumulate"))
    return job.out.note(fmt::format("`{}` is not used: micro-batch and accumulation are given", entry.origin));
  if (!foreign->values.empty()) {
    bool all = true;
    for (const auto& one : foreign->values) all &= job.out.set(one.first, one.second, entry);
    if (all && !foreign->why.empty()) job.out.note(fmt::format("`{}`: {}", entry.origin, foreign->why));
  } else if (foreign->same) {
    job.out.set(foreign->here, value, entry);
  } else if (!foreign->why.empty() && (value == Value(false) || value == Value(int64_t{0}))) {
    job.off.push_back(entry.origin);
  } else if (foreign->why.empty()) {
    refuse(job, entry, fmt::format("here it is `{}`, which has no such value", foreign->here));
  } else {
    job.out.note(fmt::format("{}: here it is `{}`, but {}; not converted", said(entry), foreign->here, foreign->why));
  }
}

// One note for all keys of which the same is true.
void tell(Job& job, const std::string& key, const std::string& text) {
  auto found = std::find_if(job.told.begin(), job.told.end(), [&](const auto& one) { return one.first == text; });
  if (found == job.told.end()) found = job.told.insert(found, {text, {}});
  if (std::find(found->second.begin(), found->second.end(), key) == found->second.end()) found->second.push_back(key);
}

}  // namespace

void refuse(Job& job, const Entry& entry, const std::string& why) {
  job.refused.emplace_back(entry.origin, fmt::format("{}: {}", said(entry), why));
}

void translate(Job& job, const std::string& name, Entry& entry) {
  entry.used = true;
  const auto account = account_of(entry.trainer, name, entry.value);
  if (!account) return unknown(job, name, entry);
  // A section that is known is reported once, by its own name.
  const std::string shown_name =
      entry.origin.substr(0, entry.origin.size() - std::min(entry.origin.size(), account->below));
  const std::string with_value = account->below ? fmt::format("`{}`", shown_name) : said(entry);
  switch (account->fate) {
    case Fate::ours:
      return ours(job, name, entry);
    case Fate::none:
      if (account->text.empty() || is_empty(entry) || entry.value == Value(false))
        return job.idle.push_back(shown_name);
      return tell(job, fmt::format("`{}`", shown_name), "no effect on the numbers: " + account->text);
    case Fate::same:
      return tell(job, with_value, "the same here: " + account->text);
    case Fate::told:
      return tell(job, with_value, account->text);
    case Fate::off:
      return job.off.push_back(shown_name);
    case Fate::job:
      return job.out.problem(
          fmt::format("{}: this is another kind of training ({}), which does not exist here yet; "
                      "`engine run` trains all weights, or LoRA, on text or preferences",
                      with_value, account->text));
    case Fate::refused: {
      if (const std::string own = entry.trainer == "deepspeed" || entry.value.index() == 0 ? "" : own_key(job, name);
          !own.empty())
        return static_cast<void>(job.out.set(own, entry.value, entry));
      if (account->below &&
          std::any_of(job.refused.begin(), job.refused.end(), [&](const auto& one) { return one.first == shown_name; }))
        return;
      job.refused.emplace_back(shown_name, fmt::format("{}: {}", with_value, account->text));
      return;
    }
    case Fate::rule:
      return job.idle.push_back(entry.origin);
    case Fate::alias:
      return unknown(job, name, entry);
  }
}

void rest(Job& job) {
  std::set<std::string> off;  // sections that are not enabled
  for (const auto& [name, entry] : job.deepspeed.all)
    if (name.ends_with(".enabled") && as_flag(entry.value) == std::optional(false) && account_of("deepspeed", name, {}))
      off.insert(name.substr(0, name.find('.')));
  for (auto& [name, entry] : job.deepspeed.all) {
    if (off.count(name.substr(0, name.find('.')))) entry.used = true;
    if (!entry.used) translate(job, name, entry);
  }
  for (const std::string& section : off) {
    const auto account = account_of("deepspeed", section, true);
    (account && account->fate == Fate::none ? job.idle : job.off).push_back(section);
  }
  for (auto& [name, entry] : job.flat.all)
    if (!entry.used) translate(job, name, entry);
  for (const auto& [text, keys] : job.told) job.out.note(fmt::format("{}: {}", fmt::join(keys, ", "), text));
  const auto list = [&](const char* text, std::vector<std::string>& names) {
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    if (!names.empty()) job.out.note(fmt::format("{}: {}", text, fmt::join(names, ", ")));
  };
  list("no effect on the numbers", job.idle);
  list("off there and here", job.off);
  list("empty there, and not written", job.nulls);
  list("not understood, and empty there", job.empty);
}

}  // namespace eng::converter
