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

// Without the slices, whose key follows these.
Json to_json(const TensorSpec& t) {
  Json out =
      Json::object({{"name", t.name}, {"role", t.role}, {"dtype", dtype_safetensors(t.dtype)}, {"shape", t.shape}});
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

constexpr const char* kFormat = "engine-checkpoint";
constexpr const char* kDamaged = "its checksum does not match: truncated or damaged";
// The text ends with this, the digits, and kEnd.
constexpr std::string_view kSeal = ",\n\"checksum\": \"", kEnd = "\"\n}\n";
constexpr size_t kDigits = 32;
constexpr std::string_view kTensors = ",\n \"tensors\": [";  // the last list begins so
constexpr size_t kPiece = 64 << 10;                          // bytes of text

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

}  // namespace

void check_ranges(ManifestTensor& t, const std::set<std::string>& files, const std::string& directory) {
  const std::string where = fmt::format("{}: tensor `{}` ({})", directory, t.name, t.role);
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

ManifestWriter::ManifestWriter(const RunPoint& point, const std::vector<ManifestFile>& files, Take take)
    : take_(std::move(take)) {
  Json head = to_json(point);
  head["format"] = kFormat;
  head["version"] = Manifest::kVersion;
  text_ = head.dump(1);
  text_.resize(text_.size() - 2);  // the closing "\n}"
  text_ += ",\n \"files\": [";
  for (size_t i = 0; i < files.size(); ++i) text_ += (i ? ",\n  " : "\n  ") + to_json(files[i]).dump();
  text_.append("\n ]").append(kTensors);
  give();
}

// The slices, the last member, are written one by one: they may be many.
void ManifestWriter::add(const ManifestTensor& t) {
  text_ += first_ ? "\n  " : ",\n  ";
  first_ = false;
  text_ += to_json(static_cast<const TensorSpec&>(t)).dump();
  text_.pop_back();
  text_ += ",\"slices\":[";
  for (size_t i = 0; i < t.ranges.size(); ++i) {
    if (i) text_ += ',';
    text_ += to_json(t.ranges[i]).dump();
    if (text_.size() >= kPiece) give();
  }
  text_ += "]}";
  if (text_.size() >= kPiece) give();
}

uint64_t ManifestWriter::finish() {
  text_ += "\n ]";
  give();
  const std::string end = fmt::format("{}{}{}", kSeal, sum_.hex(), kEnd);
  take_(end);
  return bytes_ + end.size();
}

void ManifestWriter::give() {
  sum_.add(text_.data(), text_.size());
  take_(text_);
  bytes_ += text_.size();
  text_.clear();
}

std::string manifest_text(const Manifest& manifest) {
  std::string text;
  ManifestWriter writer(manifest.point, manifest.files, [&](std::string_view piece) { text += piece; });
  for (const ManifestTensor& t : manifest.tensors) writer.add(t);
  writer.finish();
  return text;
}

Manifest parse_manifest(const std::string& text, const std::string& where, bool part) {
  const size_t tail = kSeal.size() + kDigits + kEnd.size();
  const std::string body = text.substr(0, text.size() < tail ? 0 : text.size() - tail);
  if (text.substr(body.size()) != std::string(kSeal) + Checksum::of(body) + std::string(kEnd)) refuse(where, kDamaged);
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

std::set<std::string> check_files(const std::vector<ManifestFile>& list, const std::string& where) {
  std::set<std::string> files;
  for (const auto& f : list) {
    if (!is_plain_name(f.name)) refuse(where, fmt::format("`{}` is not a plain file name", f.name));
    if (!files.insert(f.name).second) refuse(where, fmt::format("file `{}` is listed twice", f.name));
  }
  return files;
}

void check_manifest(Manifest& manifest, const std::string& where) {
  const std::set<std::string> files = check_files(manifest.files, where);
  std::set<std::pair<std::string, std::string>> seen;
  for (auto& t : manifest.tensors) {
    if (!seen.insert({t.name, t.role}).second)
      refuse(where, fmt::format("tensor `{}` ({}) is listed twice", t.name, t.role));
    check_ranges(t, files, where);
  }
}

static std::filesystem::path manifest_in(const std::filesystem::path& directory) {
  auto path = directory / "manifest.json";
  if (!std::filesystem::exists(path)) refuse(directory.string(), "has no manifest.json: it was never completed");
  return path;
}

Manifest read_manifest(const std::filesystem::path& directory) {
  const auto path = manifest_in(directory);
  return parse_manifest(read_text(path, most_manifest, Exit::checkpoint), path.string());
}

Manifest read_head(const std::filesystem::path& directory) {
  const auto path = manifest_in(directory);
  const FileReader file(path, Exit::checkpoint);
  const uint64_t tail = kSeal.size() + kDigits + kEnd.size();
  if (file.size() < tail || file.size() > most_manifest) return read_manifest(directory);  // says what is wrong
  const uint64_t body = file.size() - tail;
  std::string head, piece(std::min<uint64_t>(kPiece, body), '\0');
  Checksum sum;
  bool found = false;
  for (uint64_t at = 0; at < body; at += piece.size()) {
    piece.resize(std::min<uint64_t>(piece.size(), body - at));
    file.read(piece.data(), at, piece.size());
    sum.add(piece.data(), piece.size());
    if (found) continue;
    const size_t from = head.size() - std::min(head.size(), kTensors.size());
    head += piece;
    const size_t end = head.find(kTensors, from);
    found = end != head.npos;
    if (found) head.resize(end);
  }
  if (!found) return read_manifest(directory);
  std::string end(tail, '\0');
  file.read(end.data(), body, tail);
  if (end != fmt::format("{}{}{}", kSeal, sum.hex(), kEnd)) refuse(path.string(), kDamaged);
  // Its own text without tensors needs a seal of its own.
  head.append(kTensors).append("\n ]");
  head += fmt::format("{}{}{}", kSeal, Checksum::of(head), kEnd);
  return parse_manifest(head, path.string());
}

}  // namespace eng
