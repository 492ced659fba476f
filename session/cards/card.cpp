// SPDX-License-Identifier: Apache-2.0
#include "session/cards/card.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>

#include "core/base/error.hpp"
#include "session/cards/cards_text.hpp"
#include "session/config/spelling.hpp"
#include "session/config/toml.hpp"
#include "session/file.hpp"

namespace eng {
namespace {

// The keys of a card's file, as in a plugin's description.
constexpr const char* keys_toml = R"toml(
plugin = { type = "string", required = true }
arch = { type = "int", min = 0, max = 65535 }
memory = { type = "bytes", min = 1, max = 281474976710656, required = true }
reserve = { type = "bytes", min = 0, required = true }
communicator = { type = "bytes", min = 0, default = 0 }
workspace = { type = "bytes", min = 1, required = true }
peak_f32 = { type = "float", above = 0 }
peak_tf32 = { type = "float", above = 0 }
peak_bf16 = { type = "float", above = 0 }
peak_f16 = { type = "float", above = 0 }
peak_fp8 = { type = "float", above = 0 }
reach = { type = "float", above = 0, max = 1 }
memory_bandwidth = { type = "bytes", min = 1 }
pcie = { type = "bytes", min = 1 }
link = { type = "bytes", min = 1 }
link_latency = { type = "duration", min = 0 }
node = { type = "int", min = 1, max = 65536 }
network = { type = "bytes", min = 1 }
network_latency = { type = "duration", min = 0 }
assumed = { type = "strings", default = [] }
)toml";

const Schema& keys() {
  static const Schema all = [] {
    const toml::table table = parse_toml(keys_toml);
    return read_options(&table, "a card");
  }();
  return all;
}

double number_in(const Preset& card, const std::string& key) {
  const auto found = card.find(key);
  if (found == card.end()) return 0;
  const auto* whole = std::get_if<int64_t>(&found->second);
  return whole ? static_cast<double>(*whole) : std::get<double>(found->second);
}

uint64_t bytes_in(const Preset& card, const std::string& key) {
  const auto found = card.find(key);
  return found == card.end() ? 0 : static_cast<uint64_t>(std::get<int64_t>(found->second));
}

// The letters and digits of a name, without those of its maker: "NVIDIA A100 80GB" is a10080g, as a100-80g is.
std::string plain(const std::string& text) {
  std::string out;
  for (const char c : lower_case(text))
    if (std::isalnum(static_cast<unsigned char>(c))) out += c;
  for (const char* maker : {"nvidia", "geforce", "tesla"})
    if (out.starts_with(maker)) out.erase(0, std::strlen(maker));
  if (out.ends_with("gb")) out.pop_back();
  return out;
}

// The cards that a text may mean: by their whole name, by what stands before the memory, or by its digits alone.
std::vector<std::string> meant(const std::string& text) {
  const std::string word = plain(text);
  std::vector<std::string> out;
  for (const std::string& name : card_names()) {
    const std::string model = plain(name.substr(0, name.find('-')));
    if (word == plain(name) || word == model || word == model.substr(model.find_first_of("0123456789")))
      out.push_back(name);
  }
  return out;
}

constexpr int64_t least_bare = int64_t{1} << 20;  // fewer bytes need a unit

}  // namespace

std::string card_meant(const std::string& text) {
  const std::vector<std::string> all = meant(text);
  return all.size() == 1 ? all[0] : text;
}

bool lacks_unit(const std::string& text) {
  const auto bytes = parse_bytes(text);
  return bytes && *bytes > 0 && *bytes < least_bare && text.find_first_not_of("0123456789") == std::string::npos;
}

std::vector<std::string> card_names() {
  std::vector<std::string> out;
  for (const CardText& card : card_texts) out.emplace_back(card.name);
  return out;
}

Card read_card(const std::string& text, const std::string& where) {
  const char* help = "docs/plan.md has the keys of a card";
  try {
    const toml::table table = parse_toml(text);
    const Preset said = read_table(&table, keys(), where);
    Card card;
    card.name = where;
    card.plugin = text_in(said, "plugin");
    card.arch = static_cast<uint32_t>(bytes_in(said, "arch"));
    card.memory = bytes_in(said, "memory"), card.reserve = bytes_in(said, "reserve");
    card.communicator = bytes_in(said, "communicator"), card.workspace = bytes_in(said, "workspace");
    card.peak_f32 = number_in(said, "peak_f32"), card.peak_tf32 = number_in(said, "peak_tf32");
    card.peak_bf16 = number_in(said, "peak_bf16"), card.peak_f16 = number_in(said, "peak_f16");
    card.peak_fp8 = number_in(said, "peak_fp8"), card.reach = number_in(said, "reach");
    card.memory_bandwidth = number_in(said, "memory_bandwidth");
    card.pcie = number_in(said, "pcie"), card.link = number_in(said, "link");
    card.node = static_cast<uint32_t>(bytes_in(said, "node")), card.network = number_in(said, "network");
    card.link_latency = number_in(said, "link_latency"), card.network_latency = number_in(said, "network_latency");
    if (const auto found = said.find("assumed"); found != said.end())
      card.assumed = std::get<std::vector<std::string>>(found->second);
    for (const std::string& name : card.assumed)
      need(name != "assumed" && said.count(name), "{}: 'assumed' names '{}', which the card does not state", where,
           name);
    uint64_t taken = 0;
    for (const uint64_t part : {card.reserve, card.communicator, card.workspace}) taken += std::min(part, card.memory);
    need(taken < card.memory, "{}: 'reserve', 'communicator' and 'workspace' together are all of 'memory'", where);
    return card;
  } catch (const BadToml& e) {
    throw Error(Exit::usage, fmt::format("{}:{}:{}: {}", where, e.line, e.column, e.what()), help);
  } catch (const Error&) {
    throw;
  } catch (const std::runtime_error& e) {
    throw Error(Exit::usage, e.what(), help);
  }
}

Card find_card(const std::string& text, const std::filesystem::path& base_dir, const std::string& whose) {
  for (const CardText& card : card_texts)
    if (lower_case(text) == card.name) return read_card(card.toml, card.name);
  if (text.find('/') != std::string::npos || text.ends_with(".toml")) {
    constexpr uint64_t most = uint64_t{1} << 16;
    const std::filesystem::path file = (base_dir / text).lexically_normal();
    return read_card(read_text(file, most, Exit::usage), file.string());
  }
  const std::vector<std::string> names = card_names(), known = meant(text);
  if (known.size() > 1)
    throw Error(Exit::usage, fmt::format("{} = {}: there are several such cards", whose, toml_text(text)),
                fmt::format("say which: {}", fmt::join(known, " or ")));
  if (lacks_unit(text) && known.empty())
    throw Error(Exit::usage,
                fmt::format("{} = {}: there is no such card, and fewer than 1 MiB need a unit", whose, text),
                fmt::format("a card: {}; or bytes with their unit, such as 24GiB", fmt::join(names, ", ")));
  if (const auto bytes = known.empty() ? parse_bytes(text) : std::nullopt) {
    Card card;
    card.name = text, card.memory = static_cast<uint64_t>(*bytes);
    if (card.memory) return card;
    throw Error(Exit::usage, fmt::format("{} = {}: nothing fits into a device without memory", whose, text),
                fmt::format("give bytes, such as 24GiB, or a card: {}", fmt::join(names, ", ")));
  }
  const std::vector<std::string> near = known.empty() ? nearest(lower_case(text), names) : known;
  throw Error(Exit::usage, fmt::format("{} = {}: there is no such card", whose, toml_text(text)),
              fmt::format("{}the cards are {}; or give bytes, such as 24GiB, or the path of a card's file",
                          near.empty() ? "" : fmt::format("did you mean `{}`? ", fmt::join(near, "` or `")),
                          fmt::join(names, ", ")));
}

}  // namespace eng
