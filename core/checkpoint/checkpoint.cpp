// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <set>

#include "core/checkpoint/file.hpp"
#include "core/checkpoint/safetensors.hpp"
#include "core/tensor/dtype.hpp"

namespace eng {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kTile = 8u << 20;  // bytes hashed, then written while still in the cache
constexpr const char* kTemporary = ".tmp-";

// The staging memory of one call.
struct Tile {
  explicit Tile(const Staging& s)
      : bytes(std::min(s.bytes, kTile)),
        own(s.data ? nullptr : std::make_unique_for_overwrite<char[]>(size_t(bytes))),
        data(s.data ? static_cast<char*>(s.data) : own.get()) {}
  uint64_t bytes;
  std::unique_ptr<char[]> own;
  char* data;
};

// One file being saved: which tensors, in which order.
struct Part {
  std::string name;
  std::vector<size_t> tensors;
  std::vector<StoredTensor> stored;
  std::string header;
  uint64_t bytes = 0;
};

template <class Tensor>
std::vector<Part> lay_out(const std::vector<Tensor>& tensors) {
  std::vector<Part> parts(2);
  parts[0].name = "model-00000.safetensors";
  parts[1].name = "optim-00000.safetensors";
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorSpec& t = tensors[i];
    const bool state = t.role != kParameterRole;
    parts[state].tensors.push_back(i);
    parts[state].stored.push_back({state ? t.name + "." + t.role : t.name, t.dtype, t.shape, 0, 0});
  }
  if (parts[1].tensors.empty()) parts.pop_back();
  for (Part& p : parts) {
    p.header = safetensors_header(p.stored, {{"format", "pt"}});
    p.bytes = p.header.size() + (p.stored.empty() ? 0 : p.stored.back().end);
  }
  return parts;
}

std::string write_tensor(FileWriter& file, const TensorRef& t, const Tile& tile) {
  const uint64_t all = element_count(t.shape, t.name), size = dtype_size(t.dtype), most = tile.bytes / size;
  Checksum sum;
  for (uint64_t first = 0; first < all; first += most) {
    const uint64_t count = std::min(most, all - first);
    if (!t.host) t.read(tile.data, first, count);
    const char* from = t.host ? static_cast<const char*>(t.host) + first * size : tile.data;
    sum.add(from, count * size);
    file.write(from, count * size);
  }
  return sum.hex();
}

// The files of a checkpoint, opened, with everything checked that needs no data to be read.
struct Opened {
  Manifest manifest;
  std::map<std::string, std::unique_ptr<SafetensorsFile>> files;
};

Opened open_checkpoint(const fs::path& directory) {
  Opened out;
  out.manifest = read_manifest(directory);
  const auto named = checkpoint_step(fs::absolute(directory).filename().string());
  if (named && *named != out.manifest.point.step)
    refuse(directory.string(), fmt::format("its manifest is of step {}", out.manifest.point.step));
  std::set<std::pair<std::string, std::string>> unclaimed;
  for (const auto& f : out.manifest.files) {
    auto file = std::make_unique<SafetensorsFile>(directory / f.name);
    if (file->size() != f.bytes || Checksum::of(file->header_text()) != f.header_xxh3_128)
      refuse(file->path().string(),
             fmt::format("its {} bytes or its header are not what was written: damaged", file->size()));
    for (const auto& t : file->header().tensors) unclaimed.insert({f.name, t.name});
    out.files[f.name] = std::move(file);
  }
  for (const auto& t : out.manifest.tensors) {
    for (const auto& s : t.slices) {
      const auto& file = *out.files.at(s.file);
      const std::string where = fmt::format("{}: tensor `{}`", file.path().string(), s.stored);
      const StoredTensor* stored = file.find(s.stored);
      if (!stored) refuse(where, "is missing");
      if (!unclaimed.erase({s.file, s.stored})) refuse(where, "is claimed by two slices");
      if (stored->dtype != t.dtype || stored->count() != s.count)
        refuse(where, "its type or size is not the manifest's");
    }
  }
  if (!unclaimed.empty())
    refuse((directory / unclaimed.begin()->first).string(),
           fmt::format("tensor `{}` is in no slice", unclaimed.begin()->second));
  return out;
}

// Reads and checks every byte of a tensor, and hands it on if somebody wants it.
void stream(const Opened& in, const ManifestTensor& t, const TensorSpec* spec, const Fill& fill, const Tile& tile) {
  const uint64_t size = dtype_size(t.dtype), most = tile.bytes / size;
  for (const auto& s : t.slices) {
    const auto& file = *in.files.at(s.file);
    const StoredTensor& stored = *file.find(s.stored);
    Checksum sum;
    for (uint64_t at = 0; at < s.count; at += most) {
      const uint64_t count = std::min(most, s.count - at);
      file.read(stored, at, count, tile.data);
      sum.add(tile.data, count * size);
      if (spec) fill(*spec, s.first + at, count, tile.data);
    }
    if (sum.hex() != s.xxh3_128)
      refuse(file.path().string(), fmt::format("the checksum of tensor `{}` does not match: damaged", s.stored));
  }
}

std::string describe(const TensorSpec& t) {
  return fmt::format("{} [{}]", dtype_safetensors(t.dtype), fmt::join(t.shape, ", "));
}

CheckpointRow look(const fs::path& path, bool every_byte) {
  CheckpointRow row{path, checkpoint_step(path.filename().string()).value_or(0), 0, 0, ""};
  try {
    const Opened in = open_checkpoint(path);
    row.tensors = in.manifest.tensors.size();
    row.bytes = fs::file_size(path / "manifest.json");
    for (const auto& f : in.manifest.files) row.bytes += f.bytes;
    const Tile tile{Staging{}};
    if (every_byte)
      for (const auto& t : in.manifest.tensors) stream(in, t, nullptr, {}, tile);
  } catch (const std::exception& e) {
    row.problem = e.what();
  }
  return row;
}

std::vector<fs::path> entries(const fs::path& directory) {
  std::error_code error;
  std::vector<fs::path> out;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error))
    out.push_back(it->path());
  return out;
}

}  // namespace

Saved save_checkpoint(const fs::path& checkpoints, const RunPoint& point, const std::vector<TensorRef>& tensors,
                      Staging staging) {
  const auto started = std::chrono::steady_clock::now();
  const auto parts = lay_out(tensors);
  const Tile tile(staging);
  make_directories(checkpoints);
  remove_leftovers(checkpoints);
  const fs::path path = checkpoints / checkpoint_name(point.step),
                 temporary = checkpoints / (kTemporary + checkpoint_name(point.step));
  Saved saved{path, 0, 0};
  try {
    make_directories(temporary);
    Manifest manifest;
    manifest.point = point;
    // All are created, and their space reserved, before the first byte: a full disk is known at once.
    std::vector<std::unique_ptr<FileWriter>> files;
    for (const auto& p : parts) files.push_back(std::make_unique<FileWriter>(temporary / p.name, p.bytes));
    for (size_t i = 0; i < parts.size(); ++i) {
      const Part& p = parts[i];
      files[i]->write(p.header.data(), p.header.size());
      manifest.files.push_back({p.name, p.bytes, Checksum::of(p.header)});
      for (size_t k = 0; k < p.tensors.size(); ++k) {
        const TensorRef& t = tensors[p.tensors[k]];
        const std::string sum = write_tensor(*files[i], t, tile);
        manifest.tensors.push_back({t, {{p.name, p.stored[k].name, 0, p.stored[k].count(), sum}}});
      }
      files[i]->finish();
      saved.bytes += p.bytes;
    }
    const std::string text = manifest_text(manifest);
    FileWriter file(temporary / "manifest.json", text.size());
    file.write(text.data(), text.size());
    file.finish();
    sync_directory(temporary);
    rename_durably(temporary, path);
    saved.bytes += text.size();
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    throw;
  }
  saved.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return saved;
}

uint64_t checkpoint_bytes(const std::vector<TensorSpec>& tensors) {
  uint64_t bytes = 0;
  for (const auto& p : lay_out(tensors)) bytes += p.bytes;
  return bytes;
}

RunPoint load_checkpoint(const fs::path& directory, const std::vector<TensorSpec>& expected, const Fill& fill,
                         Staging staging) {
  const Opened in = open_checkpoint(directory);
  std::map<std::pair<std::string, std::string>, const TensorSpec*> wanted;
  for (const auto& t : expected) wanted[{t.name, t.role}] = &t;
  std::vector<const TensorSpec*> specs;
  for (const auto& t : in.manifest.tensors) {
    const std::string where = fmt::format("{}: tensor `{}` ({})", directory.string(), t.name, t.role);
    const auto it = wanted.find({t.name, t.role});
    if (it == wanted.end()) refuse(where, "this run has no such tensor: another model or optimizer");
    const TensorSpec& spec = *it->second;
    if (spec.dtype != t.dtype || spec.shape != t.shape)
      refuse(where, fmt::format("holds {}, this run needs {}", describe(t), describe(spec)));
    specs.push_back(&spec);
    wanted.erase(it);
  }
  if (!wanted.empty()) {
    const auto& [name, role] = wanted.begin()->first;
    refuse(directory.string(), fmt::format("tensor `{}` ({}) is missing{}", name, role,
                                           wanted.size() > 1 ? fmt::format(", and {} more", wanted.size() - 1) : ""));
  }
  const Tile tile(staging);
  for (size_t i = 0; i < specs.size(); ++i) stream(in, in.manifest.tensors[i], specs[i], fill, tile);
  return in.manifest.point;
}

std::string checkpoint_name(int64_t step) {
  return fmt::format("step-{:08d}", step);
}

std::optional<int64_t> checkpoint_step(const std::string& name) {
  if (name.size() < 13 || name.rfind("step-", 0) != 0) return std::nullopt;
  const int64_t step = std::strtoll(name.c_str() + 5, nullptr, 10);
  return step >= 0 && checkpoint_name(step) == name ? std::optional(step) : std::nullopt;
}

std::vector<CheckpointRow> list_checkpoints(const fs::path& checkpoints, bool every_byte) {
  std::vector<CheckpointRow> rows;
  for (const auto& path : entries(checkpoints))
    if (checkpoint_step(path.filename().string())) rows.push_back(look(path, every_byte));
  std::sort(rows.begin(), rows.end(), [](const CheckpointRow& a, const CheckpointRow& b) { return a.step < b.step; });
  return rows;
}

std::vector<CheckpointRow> verify_checkpoints(const fs::path& directory) {
  std::vector<CheckpointRow> rows;
  if (fs::exists(directory / "manifest.json") || checkpoint_step(fs::absolute(directory).filename().string()))
    rows.push_back(look(directory, true));
  else
    rows = list_checkpoints(fs::is_directory(directory / "checkpoints") ? directory / "checkpoints" : directory, true);
  if (rows.empty()) refuse(directory.string(), "there is no checkpoint here");
  return rows;
}

Found find_latest(const fs::path& checkpoints) {
  Found found;
  auto rows = list_checkpoints(checkpoints);
  for (auto row = rows.rbegin(); row != rows.rend() && !found.path; ++row) {
    *row = look(row->path, true);
    if (row->problem.empty())
      found.path = row->path;
    else
      found.refused.push_back(*row);
  }
  return found;
}

void collect_checkpoints(const fs::path& checkpoints, int64_t keep) {
  auto rows = list_checkpoints(checkpoints);
  std::erase_if(rows, [](const CheckpointRow& r) { return !r.problem.empty(); });
  for (size_t i = 0; keep > 0 && i + size_t(keep) < rows.size(); ++i) {
    // Hidden first, so that no half-removed checkpoint is ever seen under its name.
    const fs::path hidden = checkpoints / (kTemporary + rows[i].path.filename().string() + "-gone");
    std::error_code error;
    fs::rename(rows[i].path, hidden, error);
    if (!error) fs::remove_all(hidden, error);
  }
}

void set_aside_newer(const fs::path& checkpoints, int64_t step) {
  for (const auto& path : entries(checkpoints)) {
    if (checkpoint_step(path.filename().string()).value_or(-1) <= step) continue;
    const fs::path aside = checkpoints / ("aside-" + path.filename().string());
    std::error_code error;
    fs::remove_all(aside, error);
    fs::rename(path, aside, error);
    if (error) disk_error("rename", path, error.value());
  }
}

void remove_leftovers(const fs::path& checkpoints) {
  std::error_code ignored;
  for (const auto& path : entries(checkpoints))
    if (path.filename().string().rfind(kTemporary, 0) == 0) fs::remove_all(path, ignored);
}

}  // namespace eng
