// SPDX-License-Identifier: Apache-2.0
#include "session/model/transforms.hpp"

#include <algorithm>

#include "core/registry/registry.hpp"
#include "session/cards/target.hpp"

namespace eng {

std::vector<Transform> make_transforms(const Config& config, Registry& registry, const std::string& described) {
  std::vector<Transform> out;
  for (const Table& given : config.section("transforms").as<Tables>("list")) {
    const std::string& plugin = std::get<std::string>(given.values.at("plugin"));
    if (!described.empty()) need_kernels(registry, ENG_TRANSFORM_KIND, plugin, described);
    const auto table = registry.table<eng_transform>(ENG_TRANSFORM_KIND, plugin);
    const Section section = entry_section("transforms", given, registry.find(ENG_TRANSFORM_KIND, plugin)->schema);
    const std::string name = section.has("name") ? section.string("name") : plugin;
    if (std::any_of(out.begin(), out.end(), [&](const Transform& other) { return other.name == name; }))
      throw Error(Exit::usage, "[[transforms]]: two are called " + name, "give one of them a `name` of its own");
    out.push_back(make_transform(name, table, section));
  }
  return out;
}

std::vector<std::string> transform_lines(const Model& model) {
  std::vector<std::string> out;
  for (const Transformed& t : model.transformed) {
    std::string& line = out.emplace_back(fmt::format("{} replaces {} calls in {} of {} blocks", t.name, t.calls,
                                                     t.blocks, model.blocks.size() - model.reference_blocks));
    if (t.parameters) line += fmt::format(", adds {} tensors", t.parameters);
    if (t.frozen) line += fmt::format(", freezes {}", t.frozen);
    if (t.flags > t.frozen) line += fmt::format(", changes how {} are trained or exported", t.flags - t.frozen);
  }
  return out;
}

}  // namespace eng
