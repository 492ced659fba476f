// SPDX-License-Identifier: Apache-2.0
// The entries of [[observers]]: their keys are the engine's and those of their plugin.
#include <fmt/format.h>

#include "session/config/source.hpp"

namespace eng {

Problems observer_problems(Tables& observers, const TextRange& place, const SchemaSource& plugins) {
  const std::string kind = "eng.observer/1";
  const std::vector<std::string> all = plugins.names(kind);
  const std::string choice =
      all.empty() ? "no observer plugin was found" : fmt::format("available: `{}`", fmt::join(all, "`, `"));
  Problems out;
  for (std::size_t k = 0; k < observers.size(); ++k) {
    auto& values = observers[k].values;
    const auto refuse = [&](const char* code, const std::string& text, const std::string& help,
                            const std::string& word = "", const std::vector<std::string>& words = {}) {
      out.push_back({code, fmt::format("[[observers]] {}: {}", k + 1, text), place, help, "", "", word, words});
    };
    const auto named = values.find("plugin");
    const auto* name = named == values.end() ? nullptr : std::get_if<std::string>(&named->second);
    const PluginSchema* plugin = name ? plugins.find(kind, *name) : nullptr;
    if (!name) refuse("E0108", "it needs `plugin`", choice);
    if (name && !plugin) {
      refuse("E0110", fmt::format("no observer plugin named `{}`", printable(*name)), choice, *name, all);
      out.back().note = plugins.explain(kind, *name);
    }
    if (!plugin) continue;
    Schema keys = observer_options();
    keys.insert(keys.end(), plugin->options.begin(), plugin->options.end());
    std::vector<std::string> known;
    for (const Option& key : keys) known.push_back(key.key);
    for (auto& [key, value] : values) {
      const Option* found = find_option(keys, key);
      const Misfit wrong = found ? fit(*found, value) : Misfit{"E0103", "is unknown"};
      if (wrong.code)
        refuse(wrong.code, fmt::format("`{}` {}", printable(key, 80), printable(wrong.text, 600)),
               found ? found->help : fmt::format("it has: {}", fmt::join(known, ", ")), found ? "" : key, known);
    }
    for (const Option& key : keys)
      if (key.required && !values.count(key.key)) refuse("E0108", fmt::format("it needs `{}`", key.key), key.help);
  }
  return out;
}

}  // namespace eng
