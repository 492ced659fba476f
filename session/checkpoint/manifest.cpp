// SPDX-License-Identifier: Apache-2.0
#include "session/checkpoint/manifest.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "core/tensor/dtype.hpp"
#include "session/checkpoint/safetensors.hpp"
#include "session/dtypes.hpp"
#include "session/json.hpp"

namespace eng {

namespace {

using Counters = std::map<std::string, uint64_t>;

Json to_json(const StoredRange& s) {
  Json out = Json::object(
      {{"file", s.file}, {"stored", s.stored}, {"first", s.first}, {"count", s.count}, {"xxh3_128", s.xxh3_128}});
  if (s.columns.cut()) out["columns"] = Json::array({s.columns.run, s.columns.part, s.columns.parts});
  return out;
}

Json to_json(const ManifestFile& f) {
  return Json::object({{"name", f.name}, {"bytes", f.bytes}, {"header_xxh3_128", f.header_xxh3_128}});
}

Json to_json(const RunPoint::Plugin& p) {
  return Json::object({{"id", p.id}, {"version", p.version}, {"sha256", p.sha256}});
}

template <class Item>
Json to_list(const std::vector<Item>& items) {
  Json out = Json::array();
  for (const Item& item : items) out.push_back(to_json(item));
  return out;
}

Json to_json(const RunPoint& p) {
  return Json::object({{"step", p.step},
                       {"updates", p.updates},
                       {"tokens", p.tokens},
                       {"loss_scale", p.loss_scale},
                       {"data", p.data},
                       {"data_hash", p.data_hash},
                       {"seeds", p.seeds},
                       {"rng", p.rng},
                       {"config_hash", p.config_hash},
                       {"plugins", to_list(p.plugins)},
                       {"extra", p.extra}});
}

Json to_json(const ManifestTensor& t) {
  Json out = Json::object({{"name", t.name},
                           {"role", t.role},
                           {"dtype", dtype_safetensors(t.dtype)},
                           {"shape", t.shape},
                           {"slices", to_list(t.ranges)}});
  if (!t.exported) out["export"] = "no";
  return out;
}

StoredRange read_range(const Json& json) {
  StoredRange out{{json.at("first").whole(), json.at("count").whole()},
                  json.at("file").text(),
                  json.at("stored").text(),
                  json.at("xxh3_128").text()};
  if (const Json& columns = json.get("columns"); !columns.is_null())
    out.columns = {columns[0].whole(), columns[1].whole(), columns[2].whole()};
  return out;
}

ManifestFile read_file(const Json& json) {
  return {json.at("name").text(), json.at("bytes").whole(), json.at("header_xxh3_128").text()};
}

Counters read_counters(const Json& json) {
  Counters out;
  for (const auto& [key, value] : json.members()) out[key] = value.whole();
  return out;
}

RunPoint read_point(const Json& json) {
  RunPoint out;
  out.step = json.at("step").integer();
  out.updates = json.at("updates").integer();
  out.tokens = json.at("tokens").whole();
  out.loss_scale = json.at("loss_scale").number();
  out.data = read_counters(json.at("data"));
  out.data_hash = json.at("data_hash").text();
  out.seeds = read_counters(json.at("seeds"));
  out.rng = read_counters(json.at("rng"));
  out.config_hash = json.at("config_hash").text();
  for (const Json& p : json.at("plugins").list())
    out.plugins.push_back({p.at("id").text(), p.at("version").text(), p.at("sha256").text()});
  for (const auto& [key, value] : json.at("extra").members()) out.extra[key] = value.text();
  return out;
}

ManifestTensor read_tensor(const Json& json) {
  const std::string& dtype = json.at("dtype").text();
  ManifestTensor t;
  t.name = json.at("name").text();
  t.role = json.at("role").text();
  t.exported = json.text_at("export") != "no";
  t.dtype = dtype_from_safetensors(dtype).value_or(0);
  if (!t.dtype) refuse("tensor `" + t.name + "`", "unknown element type `" + dtype + "`");
  for (const Json& n : json.at("shape").list()) t.shape.push_back(n.integer());
  for (const Json& range : json.at("slices").list()) t.ranges.push_back(read_range(range));
  return t;
}

constexpr uint64_t kMaxManifest = 1u << 30;
constexpr const char* kFormat = "engine-checkpoint";
// The text ends with this, the digits, and kEnd.
constexpr std::string_view kSeal = ",\n\"checksum\": \"", kEnd = "\"\n}\n";
constexpr size_t kDigits = 32;

// Throws unless the tensor is cut into equal parts of columns as all of its ranges say. Returns the number of parts.
uint64_t check_columns(const ManifestTensor& t, uint64_t all, const std::string& where) {
  const Columns like = t.ranges.empty() ? Columns() : t.ranges[0].columns;
  for (const StoredRange& s : t.ranges) {
    const Columns& c = s.columns;
    if (c.parts != like.parts || c.run != like.run) refuse(where, "its ranges cut it in two ways");
    if (c.parts < 1 || c.part >= c.parts) refuse(where, fmt::format("a range is of part {} of {}", c.part, c.parts));
  }
  const bool fits =
      like.run && like.run <= all / like.parts && all % like.parts == 0 && all / like.parts % like.run == 0;
  if (like.cut() && !fits)
    refuse(where, fmt::format("{} elements have no {} parts with {} columns", all, like.parts, like.run));
  return like.parts;
}

void check_slices(ManifestTensor& t, const std::set<std::string>& files, const std::string& where) {
  const uint64_t whole = element_count(t.shape, where), parts = check_columns(t, whole, where), all = whole / parts;
  std::sort(t.ranges.begin(), t.ranges.end(), [](const StoredRange& a, const StoredRange& b) {
    return std::tie(a.columns.part, a.first, a.count) < std::tie(b.columns.part, b.first, b.count);
  });
  uint64_t at = 0, part = 0;
  for (const auto& s : t.ranges) {
    if (!files.count(s.file)) refuse(where, fmt::format("a range lies in `{}`, which is not listed", s.file));
    if (s.columns.part > part && at == all) ++part, at = 0;
    if (s.columns.part > part) refuse(where, fmt::format("columns of part {} are in no range", part));
    if (s.first < at) refuse(where, fmt::format("element {} is in two ranges", s.first));
    if (s.first > at) refuse(where, fmt::format("elements {} to {} are in no range", at, s.first - 1));
    if (s.count > all - at) refuse(where, fmt::format("a range ends after the last of {} elements", all));
    at += s.count;
  }
  if (at != all) refuse(where, fmt::format("elements {} to {} are in no range", at, all - 1));
  if (part + 1 != parts) refuse(where, fmt::format("columns of part {} are in no range", part + 1));
}

// Hash of names, types and shapes only.
std::string tensors_hash(const Manifest& manifest) {
  std::string text;
  for (const TensorSpec& t : manifest.tensors) text += Json::array({t.name, t.role, t.dtype, t.shape}).dump();
  return Checksum::of(text);
}

}  // namespace

std::string manifest_text(const Manifest& manifest) {
  Json head = to_json(manifest.point);
  head["format"] = kFormat;
  head["version"] = Manifest::kVersion;
  std::string text = head.dump(1);
  text.resize(text.size() - 2);  // the closing "\n}"
  const auto list = [&](const char* key, const auto& items) {
    text += fmt::format(",\n \"{}\": [", key);
    for (size_t i = 0; i < items.size(); ++i) text += (i ? ",\n  " : "\n  ") + to_json(items[i]).dump();
    text += "\n ]";
  };
  list("files", manifest.files);
  list("tensors", manifest.tensors);
  const std::string sum = Checksum::of(text);
  return text.append(kSeal).append(sum).append(kEnd);
}

// A line for the part, then one for each tensor, so that no more than a line of it is a JSON value at a time.
std::string part_text(const Manifest& part) {
  std::string text = Json::object({{"tensors", tensors_hash(part)}, {"files", to_list(part.files)}}).dump() + "\n";
  for (const ManifestTensor& t : part.tensors) text += to_list(t.ranges).dump() + "\n";
  return text;
}

void add_part(Manifest& whole, const std::string& text) {
  size_t at = 0;
  const auto line = [&] {
    const size_t begin = std::exchange(at, text.find('\n', at) + 1);
    return Json::parse(std::string_view(text).substr(begin, at - begin));
  };
  const Json part = line();
  if (part.at("tensors") != tensors_hash(whole)) throw Error(Exit::bug, "not all ranks hold the same tensors");
  for (const Json& file : part.at("files").list()) whole.files.push_back(read_file(file));
  for (ManifestTensor& t : whole.tensors) {
    const Json ranges = line();
    for (const Json& range : ranges.list()) t.ranges.push_back(read_range(range));
  }
}

Manifest parse_manifest(const std::string& text, const std::string& where, bool part) {
  const size_t tail = kSeal.size() + kDigits + kEnd.size();
  const std::string body = text.substr(0, text.size() < tail ? 0 : text.size() - tail);
  if (text.substr(body.size()) != std::string(kSeal) + Checksum::of(body) + std::string(kEnd))
    refuse(where, "its checksum does not match: truncated or damaged");
  Manifest manifest;
  try {
    const Json json = parse_strictly(text, where, "loss_scale");
    if (json.at("format") != kFormat) refuse(where, "it has another format");
    if (json.at("version") != Manifest::kVersion)
      refuse(where, fmt::format("format version {}; this engine reads version {}", json.at("version").dump(),
                                Manifest::kVersion));
    manifest.point = read_point(json);
    for (const Json& file : json.at("files").list()) manifest.files.push_back(read_file(file));
    for (const Json& tensor : json.at("tensors").list()) manifest.tensors.push_back(read_tensor(tensor));
  } catch (const JsonError& e) {
    refuse(where, e.what());
  }
  if (!part) check_manifest(manifest, where);
  return manifest;
}

void check_manifest(Manifest& manifest, const std::string& where) {
  std::set<std::string> files;
  for (const auto& f : manifest.files) {
    if (!is_plain_name(f.name)) refuse(where, fmt::format("`{}` is not a plain file name", f.name));
    if (!files.insert(f.name).second) refuse(where, fmt::format("file `{}` is listed twice", f.name));
  }
  std::set<std::pair<std::string, std::string>> seen;
  for (auto& t : manifest.tensors) {
    const std::string name = fmt::format("tensor `{}` ({})", t.name, t.role);
    if (!seen.insert({t.name, t.role}).second) refuse(where, name + " is listed twice");
    check_slices(t, files, where + ": " + name);
  }
}

Manifest read_manifest(const std::filesystem::path& directory) {
  const auto path = directory / "manifest.json";
  if (!std::filesystem::exists(path)) refuse(directory.string(), "has no manifest.json: it was never completed");
  return parse_manifest(read_text(path, kMaxManifest, Exit::checkpoint), path.string());
}

}  // namespace eng
