// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/manifest.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/checkpoint/file.hpp"
#include "core/checkpoint/safetensors.hpp"
#include "core/tensor/dtype.hpp"

namespace eng {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxManifest = 1u << 30;
constexpr int kMaxDepth = 16;
// The text ends in this, the digits, and "\"\n}\n".
constexpr std::string_view kSeal = ",\n\"checksum\": \"";
constexpr std::string_view kEnd = "\"\n}\n";
constexpr size_t kDigits = 32;

[[noreturn]] void refuse(const std::string& where, const std::string& why) {
  throw Error(Exit::checkpoint, where + ": " + why);
}

Json to_json(const ManifestTensor& t) {
  Json slices = Json::array();
  for (const auto& s : t.slices) {
    slices.push_back(
        {{"file", s.file}, {"stored", s.stored}, {"first", s.first}, {"count", s.count}, {"xxh3_128", s.xxh3_128}});
  }
  return {{"name", t.name},
          {"role", t.role},
          {"dtype", dtype_safetensors(t.dtype)},
          {"shape", t.shape},
          {"slices", std::move(slices)}};
}

Json to_json(const RunPoint& p) {
  Json plugins = Json::array();
  for (const auto& q : p.plugins) plugins.push_back({{"id", q.id}, {"version", q.version}, {"sha256", q.sha256}});
  return {{"format", "engine-checkpoint"},
          {"version", Manifest::kVersion},
          {"step", p.step},
          {"updates", p.updates},
          {"tokens", p.tokens},
          {"loss_scale", p.loss_scale},
          {"data", p.data},
          {"data_hash", p.data_hash},
          {"seeds", p.seeds},
          {"rng", p.rng},
          {"config_hash", p.config_hash},
          {"plugins", std::move(plugins)},
          {"extra", p.extra}};
}

// Numbers of the document are taken by these, so that 1.5, -1 and "1" are not silently made to fit.
uint64_t whole(const Json& json, const char* key) {
  const Json& value = json.at(key);
  if (!value.is_number_unsigned()) throw std::runtime_error(fmt::format("`{}` is not a whole number >= 0", key));
  return value.get<uint64_t>();
}

int64_t whole_signed(const Json& json, const char* key) {
  const uint64_t value = whole(json, key);
  if (value > uint64_t(INT64_MAX)) throw std::runtime_error(fmt::format("`{}` is too large", key));
  return int64_t(value);
}

std::map<std::string, uint64_t> numbers(const Json& json, const char* key) {
  std::map<std::string, uint64_t> out;
  if (!json.at(key).is_object()) throw std::runtime_error(fmt::format("`{}` is not an object", key));
  for (const auto& item : json.at(key).items()) out[item.key()] = whole(json.at(key), item.key().c_str());
  return out;
}

RunPoint point_from(const Json& json) {
  RunPoint p;
  p.step = whole_signed(json, "step");
  p.updates = whole_signed(json, "updates");
  p.tokens = whole(json, "tokens");
  p.loss_scale = json.at("loss_scale").get<double>();
  p.data = numbers(json, "data");
  p.data_hash = json.at("data_hash").get<std::string>();
  p.seeds = numbers(json, "seeds");
  p.rng = numbers(json, "rng");
  p.config_hash = json.at("config_hash").get<std::string>();
  for (const auto& q : json.at("plugins")) {
    p.plugins.push_back(
        {q.at("id").get<std::string>(), q.at("version").get<std::string>(), q.at("sha256").get<std::string>()});
  }
  p.extra = json.at("extra").get<std::map<std::string, std::string>>();
  return p;
}

ManifestTensor tensor_from(const Json& json) {
  ManifestTensor t;
  t.name = json.at("name").get<std::string>();
  t.role = json.at("role").get<std::string>();
  t.dtype = dtype_from_safetensors(json.at("dtype").get<std::string>()).value_or(0);
  if (!t.dtype) throw std::runtime_error(fmt::format("tensor `{}` has an unknown element type", t.name));
  for (const auto& d : json.at("shape")) {
    if (!d.is_number_unsigned() || d.get<uint64_t>() > uint64_t(INT64_MAX)) {
      throw std::runtime_error(fmt::format("tensor `{}` has a malformed shape", t.name));
    }
    t.shape.push_back(d.get<int64_t>());
  }
  for (const auto& s : json.at("slices")) {
    t.slices.push_back({s.at("file").get<std::string>(), s.at("stored").get<std::string>(), whole(s, "first"),
                        whole(s, "count"), s.at("xxh3_128").get<std::string>()});
  }
  return t;
}

// A file name comes from outside: it must name a file in the checkpoint's own directory.
bool plain_name(const std::string& name) {
  return !name.empty() && name[0] != '.' && name.size() < 200 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  });
}

void check_slices(ManifestTensor& t, const std::set<std::string>& files, const std::string& where) {
  const std::string name = fmt::format("{}: tensor `{}` ({})", where, t.name, t.role);
  const uint64_t all = element_count(t.shape, name);
  std::sort(t.slices.begin(), t.slices.end(),
            [](const Slice& a, const Slice& b) { return a.first != b.first ? a.first < b.first : a.count < b.count; });
  uint64_t at = 0;
  for (const auto& s : t.slices) {
    if (!files.count(s.file))
      refuse(name, fmt::format("a slice lies in `{}`, which the manifest does not list", s.file));
    if (s.first < at) refuse(name, fmt::format("element {} is in two slices", s.first));
    if (s.first > at) refuse(name, fmt::format("elements {} to {} are in no slice", at, s.first - 1));
    if (s.count > all - at) refuse(name, fmt::format("a slice ends behind the last of {} elements", all));
    at += s.count;
  }
  if (at != all) refuse(name, fmt::format("elements {} to {} are in no slice", at, all - 1));
}

}  // namespace

Checksum::Checksum() : state_(XXH3_createState()) {
  XXH3_128bits_reset(state_);
}

Checksum::~Checksum() {
  XXH3_freeState(state_);
}

void Checksum::add(const void* data, uint64_t bytes) {
  XXH3_128bits_update(state_, data, size_t(bytes));
}

std::string Checksum::hex() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string Checksum::of(const std::string& bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string manifest_text(const Manifest& manifest) {
  std::string text = to_json(manifest.point).dump(1);
  text.resize(text.size() - 2);  // the closing "\n}"
  const auto list = [&](const char* key, const auto& items, const auto& format) {
    text += fmt::format(",\n \"{}\": [", key);
    const char* separator = "\n  ";
    for (const auto& item : items) {
      text += separator + format(item).dump();
      separator = ",\n  ";
    }
    text += "\n ]";
  };
  list("files", manifest.files, [](const ManifestFile& f) {
    return Json{{"name", f.name}, {"bytes", f.bytes}, {"header_xxh3_128", f.header_xxh3_128}};
  });
  list("tensors", manifest.tensors, [](const ManifestTensor& t) { return to_json(t); });
  const std::string sum = Checksum::of(text);
  return text.append(kSeal).append(sum).append(kEnd);
}

Manifest parse_manifest(const std::string& text, const std::string& where) {
  const size_t tail = kSeal.size() + kDigits + kEnd.size();
  if (text.size() < tail) refuse(where, fmt::format("{} bytes are no manifest: truncated", text.size()));
  const std::string body = text.substr(0, text.size() - tail);
  if (text.substr(body.size()) != std::string(kSeal) + Checksum::of(body) + std::string(kEnd)) {
    refuse(where, "its checksum does not match: truncated or damaged");
  }
  Manifest manifest;
  try {
    const auto depth = [](int level, Json::parse_event_t, Json&) {
      if (level > kMaxDepth) throw std::runtime_error("nested too deeply");
      return true;
    };
    const Json json = Json::parse(text, depth);
    if (json.at("format").get<std::string>() != "engine-checkpoint") throw std::runtime_error("another format");
    const int64_t version = whole_signed(json, "version");
    if (version != Manifest::kVersion) {
      throw std::runtime_error(
          fmt::format("format version {}; this engine reads version {}", version, Manifest::kVersion));
    }
    manifest.point = point_from(json);
    for (const auto& f : json.at("files")) {
      manifest.files.push_back(
          {f.at("name").get<std::string>(), whole(f, "bytes"), f.at("header_xxh3_128").get<std::string>()});
    }
    for (const auto& t : json.at("tensors")) manifest.tensors.push_back(tensor_from(t));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    refuse(where, e.what());
  }
  std::set<std::string> files;
  for (const auto& f : manifest.files) {
    if (!plain_name(f.name)) refuse(where, fmt::format("`{}` is no plain file name", f.name));
    if (!files.insert(f.name).second) refuse(where, fmt::format("file `{}` is listed twice", f.name));
  }
  std::set<std::pair<std::string, std::string>> seen;
  for (auto& t : manifest.tensors) {
    if (!seen.insert({t.name, t.role}).second) {
      refuse(where, fmt::format("tensor `{}` ({}) is listed twice", t.name, t.role));
    }
    check_slices(t, files, where);
  }
  return manifest;
}

Manifest read_manifest(const std::filesystem::path& directory) {
  const auto path = directory / "manifest.json";
  if (!std::filesystem::exists(path)) refuse(directory.string(), "has no manifest.json: it was never completed");
  return parse_manifest(read_text(path, kMaxManifest, Exit::checkpoint), path.string());
}

}  // namespace eng
