// SPDX-License-Identifier: Apache-2.0
// What there is, and what people call it.
#include <algorithm>

#include "core/config/schema_text.hpp"
#include "core/config/source.hpp"
#include "core/config/toml.hpp"

namespace eng {
namespace {

// Names longer than this are no spelling of a key, and the distance is quadratic.
constexpr std::size_t longest = 64;

std::vector<SectionSchema> read_sections() {
  std::vector<SectionSchema> out;
  const toml::table all = parse_toml(schema_toml);
  for (const auto& [name, section] : entries(&all, "schema.toml")) {
    Schema options = read_options(section, "[" + name + "]");
    out.push_back({name, find_option(options, "plugin") ? "eng." + name + "/1" : "", std::move(options)});
  }
  return out;
}

}  // namespace

const std::vector<SectionSchema>& section_schemas() {
  static const std::vector<SectionSchema> all = read_sections();
  return all;
}

Schema merged(const SectionSchema& section, const PluginSchema* plugin) {
  Schema all = section.options;
  for (const Option& option : plugin ? plugin->options : Schema{}) {
    auto* own = const_cast<Option*>(find_option(all, option.key));
    if (!own)
      all.push_back(option);
    else if (own->type == option.type && own->key != "plugin" && option.fallback.index() != 0)
      own->fallback = option.fallback;
  }
  return all;
}

std::optional<Foreign> foreign_key(const std::string& name) {
  static const toml::table all = parse_toml(foreign_toml);
  const toml::array* found = all[name].as_array();
  if (!found) return std::nullopt;
  return Foreign{found->get(0)->value_or(std::string()), found->get(1)->value_or(std::string())};
}

std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      d[i][j] = i + j;
      if (i == 0 || j == 0) continue;
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d.back().back();
}

std::vector<std::string> nearest(const std::string& name, const std::vector<std::string>& candidates) {
  std::vector<std::string> found;
  std::size_t best = name.size() <= 4 ? 1 : 2;
  for (const std::string& candidate : candidates) {
    if (name.empty() || name.size() > longest || candidate.size() > longest) continue;
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < best) found.clear();
    if (distance <= best) found.push_back(candidate);
    best = std::min(best, distance);
  }
  return found;
}

}  // namespace eng
