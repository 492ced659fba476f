// SPDX-License-Identifier: Apache-2.0
#include "session/train/observers.hpp"

#include <algorithm>

#include "core/registry/registry.hpp"

namespace eng {
namespace {

// An entry with every key of its plugin.
Section section_of(const Table& given, const Schema& options) {
  std::map<std::string, Setting> settings;
  for (const Schema* schema : {&observer_options(), &options})
    for (const Option& option : *schema) {
      Value value = option.fallback;
      fit(option, value);
      settings[option.key] = {std::move(value), "default", false};
    }
  for (const auto& [key, value] : given.values) settings[key] = {value, "[[observers]]", true};
  return Section("observers", std::move(settings));
}

}  // namespace

Observers make_observers(const Config& config, Registry& registry) {
  Observers out;
  for (const Table& given : config.section("observers").as<Tables>("list")) {
    const std::string& plugin = std::get<std::string>(given.values.at("plugin"));
    const Provided* provided = registry.find(ENG_OBSERVER_KIND, plugin);
    const auto table = registry.table<eng_observer>(ENG_OBSERVER_KIND, plugin);
    const Section section = section_of(given, provided->schema.options);
    const std::string name = section.has("name") ? section.string("name") : plugin;
    for (const Observer& other : out.objects)
      if (other.name == name)
        throw Error(Exit::usage, "[[observers]]: two are called " + name, "give one of them a `name` of its own");
    out.objects.push_back(make_observer(name, table, section));
    out.shown.push_back({section.integer("every"), section.strings("progress")});
  }
  return out;
}

}  // namespace eng
