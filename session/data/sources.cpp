// SPDX-License-Identifier: Apache-2.0
#include "session/data/sources.hpp"

#include <fmt/ranges.h>

#include "session/config/mixture.hpp"

namespace eng {
namespace {

// [data] as the plugin of a source reads it: the defaults of its options, what [data] gives, what the entry gives.
Section options_of(const DataSource& source, const Section& data, const Table& entry, const Schema& options) {
  std::map<std::string, Setting> settings;
  for (const Option& option : options) {
    Value value = option.fallback;
    fit(option, value);
    Setting& setting = settings[option.key] = {std::move(value), "default", false};
    const auto shared = data.settings().find(option.key);
    if (shared == data.settings().end() || !shared->second.given || entry.values.count(option.key)) continue;
    setting = shared->second;
    if (const Misfit wrong = fit(option, setting.value); wrong.code)
      throw Error(Exit::usage, fmt::format("{}: `{}` of [data] {}", source.where(), option.key, wrong.text),
                  "give the key to each of [[data.sources]] that it is meant for, and not to [data]");
  }
  // Keys of the engine, and options of the format that the entry names.
  for (const auto& [key, value] : entry.values) settings[key] = {value, "[[data.sources]]", true};
  return Section("data", std::move(settings));
}

uint32_t group_of(const Provided& provided) {
  const auto found = provided.facts.find("group");
  const auto* group = found == provided.facts.end() ? nullptr : std::get_if<int64_t>(&found->second);
  return group ? static_cast<uint32_t>(*group) : 1;
}

}  // namespace

std::vector<DataSource> data_sources(const Config& config, Registry& registry) {
  const Section& data = config.section("data");
  std::vector<DataSource> out;
  const auto add = [&](const std::string& name, const std::string& plugin, const std::string& label) -> DataSource& {
    out.push_back({name, plugin, data, registry.table<eng_data>(ENG_DATA_KIND, plugin), label});
    const Provided& provided = *registry.find(ENG_DATA_KIND, plugin);
    out.back().group = group_of(provided);
    const auto weighted = provided.facts.find("weighted_mean");
    out.back().weighted_mean = weighted != provided.facts.end() && std::get<bool>(weighted->second);
    return out.back();
  };
  if (!is_mixture(data)) {
    add("", data.string("plugin"), data.string("plugin"));
    return out;
  }
  const Tables& entries = data.as<Tables>("sources");
  for (std::size_t k = 0; k < entries.size(); ++k) {
    const std::string name = source_name(entries[k], k, data), plugin = source_plugin(entries[k], data);
    DataSource& one = add(name, plugin, fmt::format("{}, source `{}`", plugin, name));
    one.section = options_of(one, data, entries[k], registry.find(ENG_DATA_KIND, plugin)->schema.options);
    const auto number = [&](const char* key) -> std::optional<double> {
      const auto found = entries[k].values.find(key);
      return found == entries[k].values.end() ? std::nullopt : std::optional(std::get<double>(found->second));
    };
    one.weight = number("weight"), one.epochs = number("epochs");
  }
  return out;
}

std::string data_plugins(const Config& config) {
  const Section& data = config.section("data");
  if (!is_mixture(data)) return data.string("plugin");
  std::vector<std::string> names;
  for (const Table& entry : data.as<Tables>("sources")) names.push_back(source_plugin(entry, data));
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace eng
