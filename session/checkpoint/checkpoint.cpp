// SPDX-License-Identifier: Apache-2.0
#include "session/checkpoint/checkpoint.hpp"

#include <cstdlib>
#include <cstring>
#include <set>
#include <sstream>

#include "session/checkpoint/best.hpp"
#include "session/checkpoint/convert.hpp"
#include "session/dtypes.hpp"
#include "session/json.hpp"

namespace eng {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMostOpen = 128;  // files

// Reads and checks every byte of a range; `use` gets each tile of it, as a range of its part.
template <class Use>
void stream(const OpenCheckpoint& in, const ManifestTensor& t, const StoredRange& s, const Tiles& tiles, Use use) {
  const auto& file = *in.files.at(s.file);
  const uint64_t size = dtype_size(t.dtype);
  Checksum sum;
  tiles.each(s.count, size, [&](uint64_t first, uint64_t count) {
    file.read(*file.find(s.stored), first, count, tiles.data());
    sum.add(tiles.data(), count * size);
    use(Range{s.first + first, count});
  });
  if (sum.hex() != s.xxh3_128)
    refuse(file.path().string(), fmt::format("the checksum of tensor `{}` does not match: damaged", s.stored));
}

std::string describe(const TensorSpec& t) {
  return fmt::format("{} [{}]", dtype_safetensors(t.dtype), fmt::join(t.shape, ", "));
}

bool convertible(int32_t from, int32_t to) {
  const auto known = [](int32_t t) { return t == ENG_F32 || t == ENG_BF16 || t == ENG_F16; };
  return from == to || (known(from) && known(to));
}

// Elements as a checkpoint holds them, in the type that a run needs.
class Converter {
 public:
  Converter(const ManifestTensor& stored, const TensorSpec& needed, bool round)
      : stored_(stored), needed_(needed), round_(round) {}
  const char* operator()(const char* data, uint64_t count) {
    if (stored_.dtype == needed_.dtype) return data;
    const uint64_t bytes = count * dtype_size(stored_.dtype);
    made_.resize(count * dtype_size(needed_.dtype));
    convert(stored_.dtype, data, needed_.dtype, made_.data(), count);
    if (round_) return made_.data();
    back_.resize(bytes);
    convert(needed_.dtype, made_.data(), stored_.dtype, back_.data(), count);
    if (std::memcmp(back_.data(), data, bytes) != 0)
      refuse(
          fmt::format("tensor `{}` ({})", stored_.name, stored_.role),
          fmt::format("holds {} values that this run's {} would round: train with the precision of the checkpoint, or "
                      "begin a new run with its weights alone (model.from)",
                      dtype_safetensors(stored_.dtype), dtype_safetensors(needed_.dtype)));
    return made_.data();
  }

 private:
  const ManifestTensor& stored_;
  const TensorSpec& needed_;
  bool round_;
  std::vector<char> made_, back_;
};

// Calls `use` with each part of a range that lies in one of `ranges`.
template <class Use>
void common(const std::vector<Range>& ranges, const Range& range, Use use) {
  auto r = std::partition_point(ranges.begin(), ranges.end(), [&](const Range& x) { return x.end() <= range.first; });
  for (; r != ranges.end() && r->first < range.end(); ++r)
    if (const Range both = overlap(*r, range); both.count) use(both);
}
// Calls use(first element in the stored part, range in the tensor) for each piece of elements `own` of that part that
// the share has.
template <class Use>
void common(const Columns& stored, const Range& own, const TensorShare& share, Use use) {
  if (stored == share.columns) return common(share.ranges, own, [&](const Range& both) { stored.pieces(both, use); });
  if (stored.run == share.columns.run && stored.parts == share.columns.parts) return;  // other columns
  stored.pieces(own, [&](uint64_t at, const Range& piece) {
    share.columns.within(piece, [&](uint64_t mine, const Range& of_tensor) {
      common(share.ranges, {mine, of_tensor.count}, [&](const Range& both) {
        const uint64_t first = of_tensor.first + (both.first - mine);
        use(at + (first - piece.first), Range{first, both.count});
      });
    });
  });
}
bool any_common(const StoredRange& s, const TensorShare& share) {
  bool any = false;
  common(s.columns, s, share, [&](auto&&...) { any = true; });
  return any;
}

constexpr const char* other_model =
    "a checkpoint is read whole: give [model] and [optimizer] what config.resolved.toml of its run has. Parameters "
    "that a "
    "checkpoint lacks cannot be added to it; from Python, Run.write fills those that it has";

// The share of each stored tensor. Throws unless both are the same tensors; only policies may differ, and a stored
// tensor of a policy that this run does not have, or has in another shape, has no share.
std::vector<const TensorShare*> match(const std::vector<ManifestTensor>& stored,
                                      const std::vector<TensorShare>& expected, const std::string& directory) {
  std::map<std::pair<std::string, std::string>, const TensorShare*> wanted;
  std::vector<const TensorShare*> out;
  for (const auto& t : expected) wanted[{t.name, t.role}] = &t;
  for (const auto& t : stored) {
    const std::string where = fmt::format("{}: tensor `{}` ({})", directory, t.name, t.role);
    const auto it = wanted.find({t.name, t.role});
    if (t.role == kPolicyRole && (it == wanted.end() || it->second->shape != t.shape)) {
      out.push_back(nullptr);
      continue;
    }
    if (it == wanted.end()) refuse(where, "this run has no such tensor: another model or optimizer", other_model);
    out.push_back(it->second);
    if (!convertible(t.dtype, out.back()->dtype) || out.back()->shape != t.shape)
      refuse(where, fmt::format("holds {}, this run needs {}", describe(t), describe(*out.back())), other_model);
    wanted.erase(it);
  }
  std::erase_if(wanted, [](const auto& entry) { return entry.first.second == kPolicyRole || entry.second->optional; });
  if (!wanted.empty()) {
    const auto& [name, role] = wanted.begin()->first;
    refuse(directory,
           fmt::format("tensor `{}` ({}) is missing{}", name, role,
                       wanted.size() > 1 ? fmt::format(", and {} more", wanted.size() - 1) : ""),
           other_model);
  }
  return out;
}

std::vector<fs::path> entries(const fs::path& directory) {
  std::error_code error;
  std::vector<fs::path> out;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error))
    out.push_back(it->path());
  return out;
}

// One that a folder has. What a link there leads to is not the run's.
CheckpointRow inspect_entry(const fs::path& path, bool every_byte, const Peers& peers = {}) {
  std::error_code none;
  if (!fs::is_symlink(path, none)) return inspect_checkpoint(path, every_byte, peers);
  return {path, checkpoint_step(path).value_or(0), 0, 0, "it is a symbolic link, and a run follows none"};
}

// Checks as inspect_entry does, by checksums alone; the best step that it names, or nothing for a damaged one.
std::optional<int64_t> glance(const fs::path& path) try {
  std::error_code none;
  if (fs::is_symlink(path, none)) return std::nullopt;
  const Manifest head = read_head(path);
  if (head.point.step != checkpoint_step(path)) return std::nullopt;
  for (const ManifestFile& f : head.files) {
    const FileReader file(path / f.name, Exit::checkpoint);
    if (file.size() != f.bytes || header_checksum(file) != f.header_xxh3_128) return std::nullopt;
  }
  return best_step(head.point.extra);
} catch (const std::exception&) {
  return std::nullopt;
}

}  // namespace

OpenCheckpoint::OpenCheckpoint(const fs::path& directory) : manifest(read_manifest(directory)) {
  const auto named = checkpoint_step(fs::absolute(directory));
  if (named && *named != manifest.point.step)
    refuse(directory.string(), fmt::format("its manifest is of step {}", manifest.point.step));
  std::set<std::pair<std::string, std::string>> unclaimed;
  for (const auto& f : manifest.files) {
    auto file = std::make_unique<SafetensorsFile>(directory / f.name);
    if (file->size() != f.bytes || Checksum::of(file->header_text()) != f.header_xxh3_128)
      refuse(file->path().string(),
             fmt::format("its {} bytes or its header are not what was written: damaged", file->size()));
    for (const auto& t : file->header().tensors) unclaimed.insert({f.name, t.name});
    if (manifest.files.size() > kMostOpen) file->release();
    files[f.name] = std::move(file);
  }
  for (const auto& t : manifest.tensors) {
    for (const auto& s : t.ranges) {
      const auto& file = *files.at(s.file);
      const std::string where = fmt::format("{}: tensor `{}`", file.path().string(), s.stored);
      const StoredTensor* stored = file.find(s.stored);
      if (!stored) refuse(where, "is missing");
      if (!unclaimed.erase({s.file, s.stored})) refuse(where, "is claimed by two ranges");
      if (stored->dtype != t.dtype || stored->count() != s.count)
        refuse(where, "its type or size differs from the manifest");
    }
  }
  if (!unclaimed.empty())
    refuse((directory / unclaimed.begin()->first).string(),
           fmt::format("tensor `{}` is in no range", unclaimed.begin()->second));
}

void OpenCheckpoint::read(const ManifestTensor& tensor, uint64_t first, uint64_t count, void* out) const {
  for (const StoredRange& s : tensor.ranges) {
    const auto& file = *files.at(s.file);
    const StoredTensor* const stored = s.count ? file.find(s.stored) : nullptr;
    s.columns.within({first, count}, [&](uint64_t own, const Range& piece) {
      const Range both = overlap({own, piece.count}, s);
      if (both.count)
        file.read(*stored, both.first - s.first, both.count,
                  static_cast<char*>(out) + (piece.first + (both.first - own) - first) * dtype_size(tensor.dtype));
    });
  }
}

RunPoint load_checkpoint(const fs::path& directory, const std::vector<TensorShare>& expected, const Fill& fill,
                         std::span<char> staging, const std::string& only_role, const Peers& peers, bool round) {
  std::optional<OpenCheckpoint> in;
  const Tiles tiles(staging);
  const auto filled = peers.agree([&] {
    in.emplace(directory);
    if (!only_role.empty())
      std::erase_if(in->manifest.tensors,
                    [&](const ManifestTensor& t) { return t.role != only_role && t.role != kPolicyRole; });
    const auto shares = match(in->manifest.tensors, expected, directory.string());
    std::string seen;  // per range: whether this rank needed it
    for (size_t i = 0; fill && i < shares.size(); ++i) {
      const ManifestTensor& t = in->manifest.tensors[i];
      if (!shares[i]) {
        seen.append(t.ranges.size(), '0');
        continue;
      }
      Converter converted(t, *shares[i], round);
      for (const StoredRange& s : t.ranges) {
        seen += any_common(s, *shares[i]) ? '1' : '0';
        if (seen.back() == '0') continue;
        stream(*in, t, s, tiles, [&](const Range& tile) {
          common(s.columns, tile, *shares[i], [&](uint64_t at, const Range& r) {
            const char* const from = tiles.data() + (at - tile.first) * dtype_size(t.dtype);
            fill(*shares[i], r.first, r.count, converted(from, r.count));
          });
        });
      }
    }
    return seen;
  });
  // Ranges that no rank needs are still read and checked by one rank.
  std::vector<std::pair<const ManifestTensor*, const StoredRange*>> rest;
  size_t k = 0;
  for (const ManifestTensor& t : in->manifest.tensors)
    for (const StoredRange& s : t.ranges) {
      if (!fill) continue;
      if (std::none_of(filled.begin(), filled.end(), [k](const std::string& seen) { return seen.at(k) == '1'; }))
        rest.emplace_back(&t, &s);
      ++k;
    }
  if (!rest.empty())
    peers.agree([&] {
      for (size_t i = peers.rank; i < rest.size(); i += peers.size)
        stream(*in, *rest[i].first, *rest[i].second, tiles, [](auto&&...) {});
      return "";
    });
  return in->manifest.point;
}

std::string checkpoint_name(int64_t step) {
  return fmt::format("step-{:08d}", step);
}

std::optional<int64_t> checkpoint_step(const fs::path& path) {
  const std::string name = path.filename();
  const int64_t step = name.starts_with("step-") ? std::strtoll(name.c_str() + 5, nullptr, 10) : -1;
  return step >= 0 && checkpoint_name(step) == name ? std::optional(step) : std::nullopt;
}

CheckpointRow inspect_checkpoint(const fs::path& path, bool every_byte, const Peers& peers) {
  CheckpointRow row{path, checkpoint_step(path).value_or(0), 0, 0, ""};
  try {
    peers.agree([&] {
      const OpenCheckpoint in(path);
      row.tensors = in.manifest.tensors.size();
      row.best_step = best_step(in.manifest.point.extra);
      row.bytes = fs::file_size(path / "manifest.json");
      for (const auto& f : in.manifest.files) row.bytes += f.bytes;
      if (!every_byte) return "";
      const Tiles tiles({});
      size_t k = 0;
      for (const auto& t : in.manifest.tensors)
        for (const auto& s : t.ranges)
          if (k++ % peers.size == peers.rank) stream(in, t, s, tiles, [](auto&&...) {});
      return "";
    });
  } catch (const Error& e) {
    if (e.exit() == Exit::communication) throw;
    row.problem = e.what();
  } catch (const std::exception& e) {
    row.problem = e.what();
  }
  return row;
}

std::vector<CheckpointRow> list_checkpoints(const fs::path& checkpoints, bool every_byte) {
  std::vector<CheckpointRow> rows;
  for (const auto& path : entries(checkpoints))
    if (checkpoint_step(path)) rows.push_back(inspect_entry(path, every_byte));
  std::sort(rows.begin(), rows.end(), [](const CheckpointRow& a, const CheckpointRow& b) { return a.step < b.step; });
  const auto newest = std::find_if(rows.rbegin(), rows.rend(), [](const auto& r) { return r.problem.empty(); });
  for (CheckpointRow& row : rows) row.best = newest != rows.rend() && row.step == newest->best_step;
  return rows;
}

std::optional<fs::path> best_checkpoint(const std::vector<CheckpointRow>& rows) {
  const auto found = std::find_if(rows.begin(), rows.end(), [](const CheckpointRow& r) { return r.best; });
  return found == rows.end() ? std::nullopt : std::optional(found->path);
}

Found find_latest(const fs::path& checkpoints, const Peers& peers) {
  // Rank 0 lists the checkpoints, so that all ranks use the same ones.
  std::istringstream steps(peers.lead([&] {
    std::set<int64_t, std::greater<>> found;
    for (const auto& path : entries(checkpoints))
      if (const auto step = checkpoint_step(path)) found.insert(*step);
    return fmt::format("{}", fmt::join(found, " "));
  }));
  Found found;
  for (int64_t step = 0; !found.path && steps >> step;) {
    const CheckpointRow row = inspect_entry(checkpoints / checkpoint_name(step), true, peers);
    if (row.problem.empty())
      found.path = row.path, found.tensors = row.tensors;
    else
      found.refused.push_back(row);
  }
  return found;
}

// Every process of a run that saves does it beside its arenas, so it reads no tensors.
void collect_checkpoints(const fs::path& checkpoints, int64_t keep) {
  std::map<int64_t, fs::path, std::greater<>> all;  // the newest first
  for (const auto& path : entries(checkpoints))
    if (const auto step = checkpoint_step(path)) all[*step] = path;
  if (keep <= 0 || all.size() <= size_t(keep)) return;
  std::optional<int64_t> best;  // of the newest that is undamaged
  int64_t kept = 0;
  for (const auto& [step, path] : all) {
    const std::optional<int64_t> said = glance(path);
    if (!said) continue;
    if (!best) best = said;
    if (kept < keep)
      ++kept;
    else if (step != *best)
      remove_checkpoint(path);
  }
}

std::error_code remove_checkpoint(const fs::path& path) {
  const fs::path hidden = path.parent_path() / (temporary_prefix + path.filename().string() + "-gone");
  std::error_code error;
  fs::rename(path, hidden, error);
  if (!error) fs::remove_all(hidden, error);
  return error;
}

void remove_leftovers(const fs::path& checkpoints) {
  std::error_code ignored;
  for (const auto& path : entries(checkpoints))
    if (path.filename().string().starts_with(temporary_prefix)) fs::remove_all(path, ignored);
}

}  // namespace eng
