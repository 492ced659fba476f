// SPDX-License-Identifier: Apache-2.0
#include "session/ranks/agree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <sstream>

#include "core/base/error.hpp"
#include "core/tensor/dtype.hpp"
#include "session/checksum.hpp"
#include "session/json.hpp"
#include "session/ranks/common_error.hpp"

namespace eng {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

std::string ranks_text(const std::vector<uint32_t>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

// The first line that is not the same for all: "rank 1 has optimizer.learning_rate = 2e-4, rank 0 has 3e-4".
std::string difference(const std::map<uint32_t, std::string>& texts) {
  std::map<uint32_t, std::vector<std::string>> lines;
  for (const auto& [rank, text] : texts) lines[rank] = lines_of(text);
  const uint32_t reference = lines.begin()->first;
  size_t k = 0;
  const auto at = [&](uint32_t rank) { return k < lines[rank].size() ? lines[rank][k] : std::string(); };
  size_t most = 0;
  for (const auto& entry : lines) most = std::max(most, entry.second.size());
  const auto differs = [&](const auto& entry) { return at(entry.first) != at(reference); };
  while (k < most && std::none_of(lines.begin(), lines.end(), differs)) ++k;
  // If the keys differ, a rank has an additional key. The first such key is named.
  const auto key = [](const std::string& line) { return line.substr(0, line.find(" = ")); };
  std::string first;
  for (const auto& entry : lines)
    if (const std::string it = key(at(entry.first)); !it.empty() && (first.empty() || it < first)) first = it;
  const bool keyed = at(reference).find(" = ") != std::string::npos;
  std::map<std::string, std::vector<uint32_t>> who;
  for (const auto& entry : lines) {
    const std::string line = at(entry.first);
    const bool without = line.empty() || (keyed && key(line) != first);
    who[without ? "no " + (keyed ? first : "line " + std::to_string(k + 1)) : line].push_back(entry.first);
  }
  std::vector<std::pair<uint32_t, std::string>> parts;
  for (const auto& [line, ranks] : who)
    parts.emplace_back(ranks[0] == reference ? ~0U : ranks[0],
                       fmt::format("{} {} {}", ranks_text(ranks), ranks.size() == 1 ? "has" : "have", line));
  std::sort(parts.begin(), parts.end());  // deviating ranks first, rank 0's group last
  std::string out;
  for (const auto& [rank, part] : parts) out += (out.empty() ? "" : ", ") + part;
  return out;
}

}  // namespace

static Json parsed(const std::string& said, uint32_t rank) {
  Json out = Json::parse_or_null(said);
  bool right = out.is_array();
  for (size_t k = 0; right && k < out.size(); ++k)
    right = out[k].is_array() && out[k].size() == 5 && out[k][0].is_string() && out[k][1].is_array() &&
            out[k][2].is_string() && out[k][3].is_integer() && out[k][4].is_boolean();
  if (!right)
    throw Error(Exit::communication, fmt::format("the message from rank {} is not valid", rank),
                "its bytes were changed in transit, or it runs another engine");
  return out;
}

void agree(const Exchange& exchange, const std::vector<Item>& items) {
  if (!exchange) return;
  Json mine = Json::array();
  for (const Item& item : items)
    mine.push_back(
        Json::array({item.name, item.ranks, Checksum::of(item.text), static_cast<int>(item.exit), item.optional}));
  const std::vector<std::string> all = exchange(mine.dump());
  // By name and ranks: each rank's hash.
  struct Found {
    std::map<uint32_t, std::string> hashes;
    Exit exit;
    bool optional;
  };
  std::vector<std::pair<std::string, std::vector<uint32_t>>> order;
  std::map<std::pair<std::string, std::vector<uint32_t>>, Found> found;
  for (uint32_t r = 0; r < all.size(); ++r) {
    const Json theirs = parsed(all[r], r);
    for (const Json& item : theirs.list()) {
      std::vector<uint32_t> members;
      for (const Json& m : item[1].list()) members.push_back(static_cast<uint32_t>(m.whole()));
      const auto id = std::pair(item[0].text(), std::move(members));
      if (!found.count(id)) order.push_back(id);
      found[id].hashes[r] = item[2].text();
      found[id].exit = static_cast<Exit>(item[3].integer());
      found[id].optional = item[4].boolean();
    }
  }
  for (const auto& id : order) {
    const auto& [name, members] = id;
    auto& [hashes, exit, optional] = found[id];
    bool same = true;
    for (uint32_t r = 0; r < all.size(); ++r)
      if (optional ? hashes.count(r) : members.empty() || std::count(members.begin(), members.end(), r))
        same = same && hashes[r] == hashes.begin()->second;
    if (same) continue;
    // Every rank gets here with the same item, and sends its text.
    std::string text;
    for (const Item& item : items)
      if (item.name == name && item.ranks == members) text = item.text;
    const std::vector<std::string> told = exchange(text);
    std::map<uint32_t, std::string> texts;
    for (const auto& [r, hash] : hashes) texts[r] = told[r];
    throw CommonError(exit, fmt::format("the ranks do not have the same {}: {}", name, difference(texts)),
                      "start all ranks with the same command, configuration, data and plugins");
  }
}

Item config_item(const Config& config) {
  std::string text;
  const auto own = [](const std::string& key) {
    return key == "device.threads" || key == "host.threads" || key == "run.out" || key == "plugins.path";
  };
  for (const Section& section : config.sections())
    for (const auto& [key, setting] : section.settings())
      if (const std::string name = section.name() + "." + key; setting.value.index() != 0 && !own(name))
        text += fmt::format("{} = {}\n", name, toml_text(setting.value));
  return {"configuration", Exit::usage, text, {}};
}

std::vector<Item> plugins_items(const Registry& registry, const Ranks& ranks) {
  const auto of_kernels = [&](const std::string& path) {
    for (const Candidate& file : registry.candidates())
      if (file.path == path)
        return std::all_of(file.description.provides.begin(), file.description.provides.end(),
                           [](const Provided& one) { return one.kind == ENG_KERNELS_KIND; });
    return false;
  };
  std::vector<std::string> all, kernels;
  std::vector<Item> out;
  for (const auto& p : registry.loaded()) {
    const bool of_stage = ranks.pipeline > 1 && of_kernels(p.path);
    std::string line = fmt::format("{} = version {}, sha256 {}\n", p.id, p.version, p.sha256);
    if (of_stage) out.push_back({"kernels of " + p.id, Exit::environment, line, {}, true});
    (of_stage ? kernels : all).push_back(std::move(line));
  }
  const auto add = [&](const char* name, std::vector<std::string>& lines, std::vector<uint32_t> members) {
    std::sort(lines.begin(), lines.end());
    out.push_back({name, Exit::environment, fmt::format("{}", fmt::join(lines, "")), std::move(members)});
  };
  add("plugins", all, {});
  if (ranks.pipeline == 1) return out;
  std::vector<uint32_t> stage(ranks.stage_size());
  std::iota(stage.begin(), stage.end(), ranks.stage() * ranks.stage_size());
  add("kernels", kernels, std::move(stage));
  return out;
}

std::vector<Item> collective_items(const Plan& plan) {
  std::map<std::vector<uint32_t>, std::string> texts;
  for (const Program& program : plan.programs)
    for (const Segment& segment : program.segments)
      for (const Action& action : segment.actions) {
        const Call& call = plan.calls[action.call];
        if (!call.op->collective) continue;
        std::string& text = texts[plan.ranks.group(static_cast<Id>(call.attrs.i("group", 1)))];
        text += fmt::format("{} {} x{}: {}", program.name, segment.name, segment.repeat, call.op->id);
        for (const auto* side : {&call.in, &call.out})
          for (const eng_desc& d : *side) text += (side == &call.in ? " " : " -> ") + describe(d);
        text += fmt::format(" {}\n", plan.labels[action.label].text());
      }
  std::vector<Item> out;
  for (auto& [members, text] : texts) {
    const bool everyone = members == plan.ranks.groups[0];
    out.push_back({"collectives", Exit::environment, std::move(text), everyone ? std::vector<uint32_t>{} : members});
  }
  return out;
}

std::string collective_hash(const Plan& plan) {
  std::string text;
  for (const Item& item : collective_items(plan)) text += fmt::format("{}\n{}", fmt::join(item.ranks, " "), item.text);
  return Checksum::of(text);
}

}  // namespace eng
