// SPDX-License-Identifier: Apache-2.0
#include "session/checkpoint/manifest.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "core/tensor/dtype.hpp"
#include "session/checkpoint/safetensors.hpp"
#include "session/json.hpp"

namespace eng {

using Json = nlohmann::json;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Slice, file, stored, first, count, xxh3_128)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ManifestFile, name, bytes, header_xxh3_128)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RunPoint::Plugin, id, version, sha256)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RunPoint, step, updates, tokens, loss_scale, data, data_hash, seeds, rng,
                                   config_hash, plugins, extra)

static void to_json(Json& json, const ManifestTensor& t) {
  json = {{"name", t.name},
          {"role", t.role},
          {"dtype", dtype_safetensors(t.dtype)},
          {"shape", t.shape},
          {"slices", t.slices}};
}

static void from_json(const Json& json, ManifestTensor& t) {
  const std::string dtype = json.at("dtype");
  t.name = json.at("name");
  t.role = json.at("role");
  t.dtype = dtype_from_safetensors(dtype).value_or(0);
  if (!t.dtype) refuse("tensor `" + t.name + "`", "unknown element type `" + dtype + "`");
  json.at("shape").get_to(t.shape);
  json.at("slices").get_to(t.slices);
}

namespace {

constexpr uint64_t kMaxManifest = 1u << 30;
constexpr const char* kFormat = "engine-checkpoint";
// The text ends with this, the digits, and kEnd.
constexpr std::string_view kSeal = ",\n\"checksum\": \"", kEnd = "\"\n}\n";
constexpr size_t kDigits = 32;

void check_slices(ManifestTensor& t, const std::set<std::string>& files, const std::string& where) {
  const uint64_t all = element_count(t.shape, where);
  std::sort(t.slices.begin(), t.slices.end(),
            [](const Slice& a, const Slice& b) { return std::tie(a.first, a.count) < std::tie(b.first, b.count); });
  uint64_t at = 0;
  for (const auto& s : t.slices) {
    if (!files.count(s.file)) refuse(where, fmt::format("a slice lies in `{}`, which is not listed", s.file));
    if (s.first < at) refuse(where, fmt::format("element {} is in two slices", s.first));
    if (s.first > at) refuse(where, fmt::format("elements {} to {} are in no slice", at, s.first - 1));
    if (s.count > all - at) refuse(where, fmt::format("a slice ends after the last of {} elements", all));
    at += s.count;
  }
  if (at != all) refuse(where, fmt::format("elements {} to {} are in no slice", at, all - 1));
}

// Of names, types and shapes only.
std::string tensors_hash(const Manifest& manifest) {
  std::string text;
  for (const TensorSpec& t : manifest.tensors) text += Json{t.name, t.role, t.dtype, t.shape}.dump();
  return Checksum::of(text);
}

}  // namespace

std::string Checksum::hex() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string Checksum::of(const std::string& bytes) {
  Checksum sum;
  sum.add(bytes.data(), bytes.size());
  return sum.hex();
}

std::string manifest_text(const Manifest& manifest) {
  Json head = manifest.point;
  head["format"] = kFormat;
  head["version"] = Manifest::kVersion;
  std::string text = head.dump(1);
  text.resize(text.size() - 2);  // the closing "\n}"
  const auto list = [&](const char* key, const auto& items) {
    text += fmt::format(",\n \"{}\": [", key);
    for (size_t i = 0; i < items.size(); ++i) text += (i ? ",\n  " : "\n  ") + Json(items[i]).dump();
    text += "\n ]";
  };
  list("files", manifest.files);
  list("tensors", manifest.tensors);
  const std::string sum = Checksum::of(text);
  return text.append(kSeal).append(sum).append(kEnd);
}

std::string part_text(const Manifest& part) {
  Json slices = Json::array();
  for (const ManifestTensor& t : part.tensors) slices.push_back(t.slices);
  return Json{{"tensors", tensors_hash(part)}, {"files", part.files}, {"slices", slices}}.dump();
}

void add_part(Manifest& whole, const std::string& text) {
  const Json part = Json::parse(text);
  if (part["tensors"] != tensors_hash(whole)) throw Error(Exit::bug, "not all ranks hold the same tensors");
  for (const Json& file : part["files"]) whole.files.push_back(file);
  for (size_t i = 0; i < whole.tensors.size(); ++i)
    for (const Json& slice : part["slices"][i]) whole.tensors[i].slices.push_back(slice);
}

Manifest parse_manifest(const std::string& text, const std::string& where) {
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
    json.get_to(manifest.point);
    json.at("files").get_to(manifest.files);
    json.at("tensors").get_to(manifest.tensors);
  } catch (const Json::exception& e) {
    refuse(where, e.what());
  }
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
  return manifest;
}

Manifest read_manifest(const std::filesystem::path& directory) {
  const auto path = directory / "manifest.json";
  if (!std::filesystem::exists(path)) refuse(directory.string(), "has no manifest.json: it was never completed");
  return parse_manifest(read_text(path, kMaxManifest, Exit::checkpoint), path.string());
}

}  // namespace eng
