// SPDX-License-Identifier: Apache-2.0
#include "session/model/observers.hpp"

#include <algorithm>

#include "core/registry/registry.hpp"

namespace eng {

Observers make_observers(const Config& config, Registry& registry) {
  Observers out;
  for (const Table& given : config.section("observers").as<Tables>("list")) {
    const std::string& plugin = std::get<std::string>(given.values.at("plugin"));
    const Provided* provided = registry.find(ENG_OBSERVER_KIND, plugin);
    const auto table = registry.table<eng_observer>(ENG_OBSERVER_KIND, plugin);
    const Section section = entry_section("observers", given, provided->schema);
    const std::string name = section.has("name") ? section.string("name") : plugin;
    const int64_t sample_length = section.integer("sample_length");
    if (sample_length && !table.after_step)
      throw Error(Exit::usage,
                  fmt::format("[[observers]] {}: sample_length = {}, but observer {} does nothing between steps", name,
                              sample_length, plugin),
                  "remove sample_length");
    for (const Observer& other : out.objects)
      if (other.name == name)
        throw Error(Exit::usage, "[[observers]]: two are called " + name, "give one of them a `name` of its own");
    out.objects.push_back(make_observer(name, table, section));
    out.shown.push_back({section.integer("every"), section.strings("progress"), sample_length});
  }
  return out;
}

}  // namespace eng
