// SPDX-License-Identifier: Apache-2.0
#include "session/convert/convert.hpp"

#include <algorithm>
#include <filesystem>

#include "core/base/text.hpp"
#include "session/convert/job.hpp"

namespace eng {
namespace converter {
namespace {

std::string header(const ForeignRun& run, const Job& job) {
  std::string from = run.name.empty() ? "a launch line" : printable(run.name);
  if (!run.name.empty() && !run.arguments.empty()) from += " and a launch line";
  return fmt::format(
      "# Converted from {1}. Each line says where its value comes from.\n"
      "# engine check FILE{0}; engine run FILE{0}\n",
      job.ranks > 1 ? fmt::format(" --ranks {}", job.ranks) : "", from);
}

// Values for what is commented out, so that the rest can be checked.
std::vector<std::string> filled_in(const Job& job, const SchemaSource& plugins) {
  std::vector<std::string> out;
  const auto models = plugins.names("eng.model/1");
  const Value* given = job.out.get("model.plugin");
  if (!job.out.has("model.from") && !job.out.has("model.preset") && (given || !models.empty())) {
    const std::string plugin = given ? as_text(*given) : models.front();
    if (!given) out.push_back("model.plugin=" + plugin);
    // Its sizes have no defaults in every plugin.
    if (const auto* model = plugins.find("eng.model/1", plugin); model && !model->presets.empty())
      out.push_back("model.preset=" + toml_text(model->presets.begin()->first));
  }
  const Value* kind = job.out.get("schedule.kind");
  if (kind && as_text(*kind).starts_with("Warmup") && *kind != Value(std::string("WarmupLR")) &&
      !job.out.has("schedule.total_num_steps"))
    out.push_back("schedule.total_num_steps=1000");
  return out;
}

// The text must be a configuration, but for what is commented out.
void check(const std::string& text, const Job& job, const SchemaSource& plugins) {
  Config::parse(text, "the converted configuration", std::filesystem::current_path(), filled_in(job, plugins), plugins);
}

// Many keys of one section are reported as the section, in the order of its first one.
std::vector<std::string> by_section(const std::vector<std::string>& keys) {
  std::map<std::string, int> of;
  std::set<std::string> seen;
  for (const std::string& key : keys) ++of[key.substr(0, key.find('.'))];
  std::vector<std::string> out;
  for (const std::string& key : keys) {
    const std::string section = key.substr(0, key.find('.'));
    const std::string& told = of[section] > 3 && section != "zero_optimization" ? section : key;
    if (seen.insert(told).second) out.push_back(told);
  }
  return out;
}

// Everything that stands against the conversion, at once.
void stop(const Job& job) {
  std::vector<std::string> lines = job.out.problems(), keys;
  for (const auto& [origin, why] : job.refused) {
    lines.push_back(why);
    keys.push_back(origin);
  }
  const std::vector<std::string> unknown = by_section(job.unknown);
  if (!unknown.empty()) lines.push_back(fmt::format("not understood: {}", fmt::join(unknown, ", ")));
  for (const std::string& one : unknown) keys.push_back(one.substr(0, one.find(" (")));
  if (lines.empty()) return;
  std::string help;
  if (!keys.empty()) {
    for (const std::string& key : keys)
      help += (help.empty() ? "" : " ") +
              ("--ignore " + printable(key.substr(std::min(key.find_first_not_of('-'), key.size())), 200));
    help = "to convert as if they were not there: " + help;
  }
  throw Error(Exit::usage, fmt::format("{}", fmt::join(lines, "\nerror: ")), help);
}

Converted convert(const ForeignRun& from, const SchemaSource& plugins) {
  Job job{plugins, Target(plugins)};
  intake(from, job);
  model(job);
  resolve_auto(job);
  batch(job);
  optimizer(job);
  schedule(job);
  precision(job);
  adapter(job);
  preference(job);
  conversations(job);
  zero(job);
  recompute(job);
  run(job);
  rest(job);
  open_ends(job);
  stop(job);
  Converted out{header(from, job) + job.out.text(), job.out.notes(), job.ranks};
  check(out.text, job, plugins);
  return out;
}

}  // namespace
}  // namespace converter

Converted convert_run(const ForeignRun& run, const SchemaSource& plugins) {
  return converter::convert(run, plugins);
}

}  // namespace eng
