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

// Elements pass through here, a tile at a time.
class Tiles {
 public:
  explicit Tiles(std::span<char> staging) : memory_(staging.empty() ? kTile : 0) {
    tile_ = staging.empty() ? std::span(memory_) : staging.first(std::min<size_t>(staging.size(), kTile));
  }
  // Calls `use` with each (first, count) of `all` elements of `size` bytes.
  template <class Use>
  void each(uint64_t all, uint64_t size, Use use) const {
    const uint64_t most = tile_.size() / size;
    for (uint64_t first = 0; first < all; first += most) use(first, std::min(most, all - first));
  }
  char* data() const { return tile_.data(); }

 private:
  std::vector<char> memory_;
  std::span<char> tile_;
};

// What will be written where: parameters in the first file, states in the second. The checksums are not known yet.
struct Layout {
  std::vector<ManifestTensor> tensors;  // in the order of the files
  std::vector<ManifestFile> files;
  std::vector<std::string> headers;  // of each file
};

Layout lay_out(const std::vector<TensorSpec>& tensors) {
  Layout out;
  for (const bool states : {false, true}) {
    const std::string file = states ? "optim-00000.safetensors" : "model-00000.safetensors";
    std::vector<StoredTensor> stored;
    for (const TensorSpec& t : tensors) {
      if ((t.role != kParameterRole) != states) continue;
      stored.push_back({states ? t.name + "." + t.role : t.name, t.dtype, t.shape});
      out.tensors.push_back({t, {{file, stored.back().name, 0, stored.back().count(), ""}}});
    }
    if (states && stored.empty()) break;
    out.headers.push_back(safetensors_header(stored, {{"format", "pt"}}));
    const std::string& header = out.headers.back();
    out.files.push_back({file, header.size() + (stored.empty() ? 0 : stored.back().end), Checksum::of(header)});
  }
  return out;
}

// The files of a checkpoint, opened, with everything checked that needs no data to be read.
struct Opened {
  Manifest manifest;
  std::map<std::string, std::unique_ptr<SafetensorsFile>> files;
};

Opened open_checkpoint(const fs::path& directory) {
  Opened out;
  out.manifest = read_manifest(directory);
  const auto named = checkpoint_step(fs::absolute(directory));
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

// Reads and checks every byte of a tensor, and hands it on.
void stream(const Opened& in, const ManifestTensor& t, const Fill& fill, const Tiles& tiles) {
  for (const auto& s : t.slices) {
    const auto& file = *in.files.at(s.file);
    const uint64_t size = dtype_size(t.dtype);
    Checksum sum;
    tiles.each(s.count, size, [&](uint64_t first, uint64_t count) {
      file.read(*file.find(s.stored), first, count, tiles.data());
      sum.add(tiles.data(), count * size);
      fill(t, s.first + first, count, tiles.data());
    });
    if (sum.hex() != s.xxh3_128)
      refuse(file.path().string(), fmt::format("the checksum of tensor `{}` does not match: damaged", s.stored));
  }
}

std::string describe(const TensorSpec& t) {
  return fmt::format("{} [{}]", dtype_safetensors(t.dtype), fmt::join(t.shape, ", "));
}

std::vector<fs::path> entries(const fs::path& directory) {
  std::error_code error;
  std::vector<fs::path> out;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error))
    out.push_back(it->path());
  return out;
}

}  // namespace

Saved save_checkpoint(const fs::path& checkpoints, const RunPoint& point, const std::vector<TensorSpec>& tensors,
                      const Read& read, std::span<char> staging) {
  const auto started = std::chrono::steady_clock::now();
  const Layout layout = lay_out(tensors);
  const Tiles tiles(staging);
  make_directories(checkpoints);
  remove_leftovers(checkpoints);
  const fs::path path = checkpoints / checkpoint_name(point.step),
                 temporary = checkpoints / (kTemporary + checkpoint_name(point.step));
  Saved saved{path, 0, 0};
  try {
    make_directories(temporary);
    Manifest manifest{point, layout.tensors, layout.files};
    // All are created, and their space reserved, before the first byte: a full disk is known at once.
    std::map<std::string, std::unique_ptr<FileWriter>> files;
    for (const auto& f : manifest.files) files[f.name] = std::make_unique<FileWriter>(temporary / f.name, f.bytes);
    for (size_t i = 0; i < layout.headers.size(); ++i)
      files[manifest.files[i].name]->write(layout.headers[i].data(), layout.headers[i].size());
    for (ManifestTensor& t : manifest.tensors) {
      Slice& slice = t.slices[0];
      const uint64_t size = dtype_size(t.dtype);
      Checksum sum;
      tiles.each(slice.count, size, [&](uint64_t first, uint64_t count) {
        read(t, first, count, tiles.data());
        sum.add(tiles.data(), count * size);
        files[slice.file]->write(tiles.data(), count * size);
      });
      slice.xxh3_128 = sum.hex();
    }
    for (const auto& f : manifest.files) {
      files[f.name]->finish();
      saved.bytes += f.bytes;
    }
    const std::string text = manifest_text(manifest);
    write_text(temporary / "manifest.json", text);
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
  for (const auto& f : lay_out(tensors).files) bytes += f.bytes;
  return bytes;
}

RunPoint load_checkpoint(const fs::path& directory, const std::vector<TensorSpec>& expected, const Fill& fill,
                         std::span<char> staging, const std::string& only_role) {
  Opened in = open_checkpoint(directory);
  if (!only_role.empty())
    std::erase_if(in.manifest.tensors, [&](const ManifestTensor& t) { return t.role != only_role; });
  std::map<std::pair<std::string, std::string>, const TensorSpec*> wanted;
  for (const auto& t : expected) wanted[{t.name, t.role}] = &t;
  for (const auto& t : in.manifest.tensors) {
    const std::string where = fmt::format("{}: tensor `{}` ({})", directory.string(), t.name, t.role);
    const auto it = wanted.find({t.name, t.role});
    if (it == wanted.end()) refuse(where, "this run has no such tensor: another model or optimizer");
    const TensorSpec& spec = *it->second;
    if (spec.dtype != t.dtype || spec.shape != t.shape)
      refuse(where, fmt::format("holds {}, this run needs {}", describe(t), describe(spec)));
    wanted.erase(it);
  }
  if (!wanted.empty()) {
    const auto& [name, role] = wanted.begin()->first;
    refuse(directory.string(), fmt::format("tensor `{}` ({}) is missing{}", name, role,
                                           wanted.size() > 1 ? fmt::format(", and {} more", wanted.size() - 1) : ""));
  }
  const Tiles tiles(staging);
  if (fill)
    for (const auto& t : in.manifest.tensors) stream(in, t, fill, tiles);
  return in.manifest.point;
}

std::string checkpoint_name(int64_t step) {
  return fmt::format("step-{:08d}", step);
}

std::optional<int64_t> checkpoint_step(const fs::path& path) {
  const std::string name = path.filename();
  const int64_t step = name.starts_with("step-") ? std::strtoll(name.c_str() + 5, nullptr, 10) : -1;
  return step >= 0 && checkpoint_name(step) == name ? std::optional(step) : std::nullopt;
}

CheckpointRow inspect_checkpoint(const fs::path& path, bool every_byte) {
  CheckpointRow row{path, checkpoint_step(path).value_or(0), 0, 0, ""};
  try {
    const Opened in = open_checkpoint(path);
    row.tensors = in.manifest.tensors.size();
    row.bytes = fs::file_size(path / "manifest.json");
    for (const auto& f : in.manifest.files) row.bytes += f.bytes;
    if (!every_byte) return row;
    const Tiles tiles({});
    for (const auto& t : in.manifest.tensors)
      stream(
          in, t, [](auto&&...) {}, tiles);
  } catch (const std::exception& e) {
    row.problem = e.what();
  }
  return row;
}

std::vector<CheckpointRow> list_checkpoints(const fs::path& checkpoints, bool every_byte) {
  std::vector<CheckpointRow> rows;
  for (const auto& path : entries(checkpoints))
    if (checkpoint_step(path)) rows.push_back(inspect_checkpoint(path, every_byte));
  std::sort(rows.begin(), rows.end(), [](const CheckpointRow& a, const CheckpointRow& b) { return a.step < b.step; });
  return rows;
}

Found find_latest(const fs::path& checkpoints) {
  Found found;
  auto rows = list_checkpoints(checkpoints);
  for (auto row = rows.rbegin(); row != rows.rend() && !found.path; ++row) {
    *row = inspect_checkpoint(row->path, true);
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
    if (checkpoint_step(path).value_or(-1) <= step) continue;
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
    if (path.filename().string().starts_with(kTemporary)) fs::remove_all(path, ignored);
}

}  // namespace eng
