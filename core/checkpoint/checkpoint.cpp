// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/checkpoint.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <set>

#include "core/checkpoint/file.hpp"
#include "core/checkpoint/list.hpp"
#include "core/checkpoint/safetensors.hpp"
#include "core/tensor/dtype.hpp"

namespace eng {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kTile = 8u << 20;  // bytes hashed, then written while still in the cache

[[noreturn]] void refuse(const std::string& where, const std::string& why) {
  throw Error(Exit::checkpoint, where + ": " + why);
}

std::string stored_name(const std::string& name, const std::string& role) {
  return role == kParameterRole ? name : name + "." + role;
}

// The staging memory of one call, taken on first use if the caller gave none.
class Tiles {
 public:
  Tiles(Staging staging, uint64_t largest)
      : data_(static_cast<char*>(staging.data)),
        bytes_(staging.data ? staging.bytes : std::max<uint64_t>(16, std::min(staging.bytes, largest))) {
    if (bytes_ < 16) throw Error(Exit::bug, "staging memory of a checkpoint has fewer than 16 bytes");
  }
  char* data() {
    if (!data_) {
      own_ = std::make_unique_for_overwrite<char[]>(size_t(bytes_));
      data_ = own_.get();
    }
    return data_;
  }
  uint64_t elements(int32_t dtype) const { return std::min(bytes_, kTile) / dtype_size(dtype); }

 private:
  char* data_;
  uint64_t bytes_;
  std::unique_ptr<char[]> own_;
};

// One file being saved: which tensors, in which order.
struct Part {
  std::string name;
  std::vector<const TensorRef*> tensors;
  std::vector<StoredTensor> stored;
  std::string header;
  uint64_t bytes = 0;
};

template <class Tensor>
void lay_out(Part& part, const std::vector<const Tensor*>& tensors) {
  for (const Tensor* t : tensors) part.stored.push_back({stored_name(t->name, t->role), t->dtype, t->shape, 0, 0});
  part.header = safetensors_header(part.stored, {{"format", "pt"}});
  part.bytes = part.header.size() + (part.stored.empty() ? 0 : part.stored.back().end);
}

std::string write_tensor(FileWriter& file, const TensorRef& t, Tiles& tiles) {
  const uint64_t all = element_count(t.shape, t.name), size = dtype_size(t.dtype), tile = tiles.elements(t.dtype);
  Checksum sum;
  for (uint64_t first = 0; first < all; first += tile) {
    const uint64_t count = std::min(tile, all - first);
    const void* from = nullptr;
    if (t.host) {
      from = static_cast<const char*>(t.host) + first * size;
    } else {
      t.read(tiles.data(), first, count);
      from = tiles.data();
    }
    sum.add(from, count * size);
    file.write(from, count * size);
  }
  return sum.hex();
}

std::vector<Part> parts_of(const std::vector<TensorRef>& tensors) {
  std::vector<Part> parts(2);
  parts[0].name = "model-00000.safetensors";
  parts[1].name = "optim-00000.safetensors";
  std::set<std::pair<std::string, std::string>> seen;
  for (const auto& t : tensors) {
    if (!t.host && !t.read && element_count(t.shape, t.name)) {
      throw Error(Exit::bug, fmt::format("tensor `{}` ({}) has nothing to save it from", t.name, t.role));
    }
    if (!seen.insert({t.name, t.role}).second) {
      throw Error(Exit::bug, fmt::format("tensor `{}` ({}) is saved twice", t.name, t.role));
    }
    parts[t.role == kParameterRole ? 0 : 1].tensors.push_back(&t);
  }
  for (auto& p : parts) lay_out(p, p.tensors);
  if (parts[1].tensors.empty()) parts.pop_back();
  return parts;
}

void write_parts(const fs::path& directory, const std::vector<Part>& parts, Manifest& manifest, Tiles& tiles) {
  // All are created, and their space reserved, before the first byte: a full disk is known at once.
  std::vector<std::unique_ptr<FileWriter>> files;
  for (const auto& p : parts) files.push_back(std::make_unique<FileWriter>(directory / p.name, p.bytes));
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& p = parts[i];
    files[i]->write(p.header.data(), p.header.size());
    manifest.files.push_back({p.name, p.bytes, Checksum::of(p.header)});
    for (size_t k = 0; k < p.tensors.size(); ++k) {
      const TensorRef& t = *p.tensors[k];
      const std::string sum = write_tensor(*files[i], t, tiles);
      const Slice slice{p.name, p.stored[k].name, 0, p.stored[k].count(), sum};
      manifest.tensors.push_back({t.name, t.role, t.dtype, t.shape, {slice}});
    }
    files[i]->finish();
  }
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
  if (named && *named != out.manifest.point.step) {
    refuse(directory.string(), fmt::format("its manifest is of step {}", out.manifest.point.step));
  }
  std::map<std::string, std::set<std::string>> unclaimed;
  for (const auto& f : out.manifest.files) {
    const fs::path path = directory / f.name;
    {
      const FileReader file(path, Exit::checkpoint);
      if (file.size() != f.bytes) {
        refuse(path.string(), fmt::format("has {} bytes, {} were written: truncated or damaged", file.size(), f.bytes));
      }
    }
    auto file = std::make_unique<SafetensorsFile>(path);
    if (Checksum::of(file->header_text()) != f.header_xxh3_128) {
      refuse(path.string(), "the checksum of its header does not match: damaged");
    }
    for (const auto& t : file->header().tensors) unclaimed[f.name].insert(t.name);
    out.files[f.name] = std::move(file);
  }
  for (const auto& t : out.manifest.tensors) {
    for (const auto& s : t.slices) {
      const auto& file = *out.files.at(s.file);
      const std::string where = fmt::format("{}: tensor `{}`", file.path().string(), s.stored);
      const StoredTensor* stored = file.find(s.stored);
      if (!stored) refuse(where, "is missing");
      if (!unclaimed[s.file].erase(s.stored)) refuse(where, "is claimed by two slices");
      if (stored->dtype != t.dtype || stored->count() != s.count)
        refuse(where, "its type or size is not the manifest's");
    }
  }
  for (const auto& [name, tensors] : unclaimed) {
    if (!tensors.empty())
      refuse((directory / name).string(), fmt::format("tensor `{}` is in no slice", *tensors.begin()));
  }
  return out;
}

void stream(const Opened& in, const ManifestTensor& t, const TensorSpec* spec, const Fill& fill, Tiles& tiles) {
  const uint64_t size = dtype_size(t.dtype), tile = tiles.elements(t.dtype);
  for (const auto& s : t.slices) {
    const auto& file = *in.files.at(s.file);
    const StoredTensor& stored = *file.find(s.stored);
    Checksum sum;
    for (uint64_t at = 0; at < s.count; at += tile) {
      const uint64_t count = std::min(tile, s.count - at);
      file.read(stored, at, count, tiles.data());
      sum.add(tiles.data(), count * size);
      if (spec) fill(*spec, s.first + at, count, tiles.data());
    }
    if (sum.hex() != s.xxh3_128) {
      refuse(file.path().string(), fmt::format("the checksum of tensor `{}` does not match: damaged", s.stored));
    }
  }
}

std::string describe(int32_t dtype, const std::vector<int64_t>& shape) {
  std::string text = std::string(dtype_safetensors(dtype)) + " [";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace

Saved save_checkpoint(const fs::path& checkpoints, const RunPoint& point, const std::vector<TensorRef>& tensors,
                      Staging staging) {
  const auto started = std::chrono::steady_clock::now();
  const auto parts = parts_of(tensors);
  Tiles tiles(staging, kTile);
  make_directories(checkpoints);
  remove_leftovers(checkpoints);
  const std::string name = checkpoint_name(point.step);
  const fs::path temporary = checkpoints / (".tmp-" + name);
  Saved saved;
  saved.path = checkpoints / name;
  try {
    make_directories(temporary);
    Manifest manifest;
    manifest.point = point;
    write_parts(temporary, parts, manifest, tiles);
    const std::string text = manifest_text(manifest);
    FileWriter file(temporary / "manifest.json", text.size());
    file.write(text.data(), text.size());
    file.finish();
    sync_directory(temporary);
    rename_directory(temporary, saved.path);
    saved.bytes = text.size();
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    throw;
  }
  for (const auto& p : parts) saved.bytes += p.bytes;
  saved.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return saved;
}

uint64_t checkpoint_bytes(const std::vector<TensorSpec>& tensors) {
  std::vector<const TensorSpec*> model, optim;
  for (const auto& t : tensors) (t.role == kParameterRole ? model : optim).push_back(&t);
  Part a, b;
  lay_out(a, model);
  if (!optim.empty()) lay_out(b, optim);
  return a.bytes + b.bytes;
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
    if (spec.dtype != t.dtype || spec.shape != t.shape) {
      refuse(where,
             fmt::format("holds {}, this run needs {}", describe(t.dtype, t.shape), describe(spec.dtype, spec.shape)));
    }
    specs.push_back(&spec);
    wanted.erase(it);
  }
  if (!wanted.empty()) {
    const auto& [name, role] = wanted.begin()->first;
    refuse(directory.string(), fmt::format("tensor `{}` ({}) is missing{}", name, role,
                                           wanted.size() > 1 ? fmt::format(", and {} more", wanted.size() - 1) : ""));
  }
  Tiles tiles(staging, kTile);
  for (size_t i = 0; i < specs.size(); ++i) stream(in, in.manifest.tensors[i], specs[i], fill, tiles);
  return in.manifest.point;
}

Manifest verify_checkpoint(const fs::path& directory, Staging staging) {
  Opened in = open_checkpoint(directory);
  Tiles tiles(staging, kTile);
  for (const auto& t : in.manifest.tensors) stream(in, t, nullptr, {}, tiles);
  return std::move(in.manifest);
}

}  // namespace eng
