// SPDX-License-Identifier: Apache-2.0
#include "session/model/transforms.hpp"

#include <algorithm>
#include <map>

#include "core/registry/registry.hpp"
#include "session/cards/target.hpp"
#include "session/model/fp8.hpp"

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
    if (out.back().targets == std::vector<std::string>{"all-linear"}) out.back().targets = {"*"};  // the plugin selects
  }
  return out;
}

// "; maps: down_proj 2, q_proj 2; trained: 9216 of 60000 parameters (15.36 %)", for a transform that adds paths beside
// maps of the model; "" for others.
static std::string coverage(const Transformed& transform, const Model& model) {
  const std::string ending = ".lora_A.weight";
  std::map<std::string, size_t> maps;
  uint64_t trained = 0, all = 0;
  for (const Parameter& p : model.params) {
    if (p.flags & of_reference) continue;
    const auto n = static_cast<uint64_t>(count(p.whole()));
    all += n, trained += p.frozen ? 0 : n;
    if (p.added_by != transform.name || !p.name.ends_with(ending)) continue;
    const std::string map = p.name.substr(0, p.name.size() - ending.size());
    ++maps[map.substr(map.rfind('.') + 1)];
  }
  std::string out;
  for (const auto& [map, count] : maps) out += fmt::format("{}{} {}", out.empty() ? "; maps: " : ", ", map, count);
  if (out.empty()) return out;
  const double share = 100.0 * static_cast<double>(trained) / static_cast<double>(all);
  return out + fmt::format("; trained: {} of {} parameters ({:.2f} %)", trained, all, share);
}

std::vector<std::string> transform_lines(const Model& model) {
  std::vector<std::string> out;
  for (const Transformed& t : model.transformed) {
    std::string& line = out.emplace_back(fmt::format("{} replaces {} calls in {} of {} blocks", t.name, t.calls,
                                                     t.blocks, model.blocks.size() - model.reference_blocks));
    if (t.parameters) line += fmt::format(", adds {} tensors", t.parameters);
    if (t.frozen) line += fmt::format(", freezes {}", t.frozen);
    if (t.flags > t.frozen) line += fmt::format(", changes how {} are trained or exported", t.flags - t.frozen);
    line += coverage(t, model);
  }
  if (const std::string line = fp8_line(model); !line.empty()) out.push_back(line);
  return out;
}

}  // namespace eng
