// SPDX-License-Identifier: Apache-2.0
#include "session/checkpoint/memory_copies.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>
#include <sstream>

#include "core/tensor/dtype.hpp"
#include "session/checkpoint/checkpoint.hpp"
#include "session/checkpoint/layout.hpp"
#include "session/held_folder.hpp"
#include "session/json.hpp"

namespace eng {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t largest_part = uint64_t{1} << 30, memory_page = 4096;

std::string part_name(uint32_t rank, uint32_t ranks) {
  return fmt::format("part-{:05d}-of-{:05d}.json", rank, ranks);
}

// A part that a host has.
struct PartInMemory {
  int64_t step = -1;
  uint32_t rank = 0, ranks = 0;
  fs::path path(const fs::path& folder) const { return folder / checkpoint_name(step) / part_name(rank, ranks); }
};

// Only what this user has written.
bool trusted(const fs::path& folder) {
  struct stat info {};
  return ::lstat(folder.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() &&
         (info.st_mode & 077) == 0;
}

std::vector<PartInMemory> parts_in(const fs::path& folder) {
  std::vector<PartInMemory> out;
  if (!trusted(folder.parent_path())) return out;
  std::error_code none;
  for (const auto& of_step : fs::directory_iterator(folder, none)) {
    const auto step = checkpoint_step(of_step.path());
    if (!step) continue;
    for (const auto& file : fs::directory_iterator(of_step.path(), none)) {
      PartInMemory part{*step};
      const std::string name = file.path().filename();
      if (std::sscanf(name.c_str(), "part-%u-of-%u.json", &part.rank, &part.ranks) == 2 && part.rank < part.ranks &&
          name == part_name(part.rank, part.ranks))
        out.push_back(part);
    }
  }
  return out;
}

// By part, the first rank whose host has it.
using PartHolders = std::map<uint32_t, uint32_t>;
struct NewestParts {
  int64_t step = -1;
  uint32_t ranks = 0;
  PartHolders holders;
};

// `lists`: of every rank, lines of "step rank ranks".
NewestParts newest_of(const std::vector<std::string>& lists, int64_t above) {
  std::map<std::pair<int64_t, uint32_t>, PartHolders> all;  // by step and number of ranks
  for (uint32_t r = 0; r < lists.size(); ++r) {
    std::istringstream lines(lists[r]);
    for (PartInMemory p; lines >> p.step >> p.rank >> p.ranks;) all[{p.step, p.ranks}].try_emplace(p.rank, r);
  }
  NewestParts out;
  for (auto& [key, holders] : all)
    if (key.first > std::max(above, out.step) && holders.size() == key.second)
      out = {key.first, key.second, std::move(holders)};
  return out;
}

std::vector<std::string> list_parts(const fs::path& folder, const Peers& peers, bool first) {
  return peers.agree([&] {
    std::string text;
    if (first)
      for (const PartInMemory& p : parts_in(folder)) text += fmt::format("{} {} {}\n", p.step, p.rank, p.ranks);
    return text;
  });
}

Manifest read_part_manifest(const fs::path& path) {
  return parse_manifest(read_text(path, largest_part, Exit::checkpoint), path.string(), true);
}

void copy_part_file(const fs::path& from, const fs::path& to, uint64_t bytes) {
  const FileReader in(from, Exit::checkpoint);
  if (in.size() != bytes) refuse(from.string(), fmt::format("has {} bytes, and should have {}", in.size(), bytes));
  FileWriter out(to, bytes);
  std::vector<char> buffer(std::min<uint64_t>(bytes, 1 << 20));
  for (uint64_t at = 0; at < bytes; at += buffer.size()) {
    const uint64_t n = std::min<uint64_t>(buffer.size(), bytes - at);
    in.read(buffer.data(), at, n);
    out.write(buffer.data(), n);
  }
  out.finish();
}

// Adds the ranges and files of a part to those before.
void add_manifest(Manifest& whole, Manifest part, const std::string& where) {
  if (whole.tensors.empty()) {
    whole = std::move(part);
    return;
  }
  if (!(part.point == whole.point) || part.tensors.size() != whole.tensors.size())
    refuse(where, "is of another run than the parts of other ranks");
  for (size_t i = 0; i < part.tensors.size(); ++i) {
    ManifestTensor &to = whole.tensors[i], &from = part.tensors[i];
    if (to.name != from.name || to.role != from.role || to.shape != from.shape || to.dtype != from.dtype)
      refuse(where, fmt::format("its tensor {} is `{}`, and `{}` in another part", i, from.name, to.name));
    to.ranges.insert(to.ranges.end(), from.ranges.begin(), from.ranges.end());
  }
  whole.files.insert(whole.files.end(), part.files.begin(), part.files.end());
}

void make_own_folder(const fs::path& folder, bool first) {
  const fs::path above = folder.parent_path();
  for (const fs::path& one : {above, folder}) {
    if (::mkdir(one.c_str(), 0700) != 0 && errno != EEXIST) disk_error("create directory", one, errno);
    if (trusted(one)) continue;
    throw Error(Exit::disk, fmt::format("{} is not a folder that only this user can read and write", one.string()),
                "remove it, or give another checkpoint.memory_path");
  }
  std::error_code none;
  std::vector<fs::path> old;
  for (const auto& entry : fs::directory_iterator(above, none))
    if (first && entry.path() != folder) old.push_back(entry.path());
  for (const fs::path& path : old) fs::remove_all(path, none);
}

void remove_steps(const fs::path& folder, const std::set<int64_t>& but) {
  std::error_code none;
  std::vector<fs::path> old;
  for (const auto& entry : fs::directory_iterator(folder, none))
    if (const auto step = checkpoint_step(entry.path()); !step || !but.count(*step)) old.push_back(entry.path());
  for (const fs::path& path : old) fs::remove_all(path, none);  // other ranks of this host do it too
}

}  // namespace

fs::path copies_folder(const fs::path& memory, const fs::path& run, int64_t attempt) {
  const std::string path = (fs::absolute(run) / "").lexically_normal().parent_path();
  return memory / fmt::format("engine-copies-{}-{}", ::geteuid(), Checksum::of(path).substr(0, 16)) /
         fmt::format("attempt-{}", attempt);
}

uint64_t memory_copy_bytes(const std::vector<TensorShare>& tensors, bool hosts) {
  uint64_t bytes = 0;
  Manifest manifest = lay_out(tensors, 0).manifest;
  for (const ManifestFile& f : manifest.files) bytes += (f.bytes + memory_page - 1) / memory_page * memory_page;
  for (ManifestTensor& t : manifest.tensors)
    for (StoredRange& r : t.ranges) r.xxh3_128.resize(32, '0');
  constexpr uint64_t point = 16 << 10;  // plugins, choices of the device, and a page of each folder
  bytes += (manifest_text(manifest).size() + point + memory_page - 1) / memory_page * memory_page;
  return bytes * 2 * (hosts ? 2 : 1);
}

MemoryCopies::MemoryCopies(fs::path folder, Peers peers, const World& world, uint64_t bytes)
    : folder_(std::move(folder)), peers_(std::move(peers)) {
  peers_.agree([&] {
    make_own_folder(folder_, world.local_rank == 0);
    return "";
  });
  peers_.agree([&] {
    struct statvfs room {};
    const uint64_t needs = bytes * world.local_size;
    if (::statvfs(folder_.c_str(), &room) != 0) disk_error("look at", folder_, errno);
    if (const uint64_t left = uint64_t{room.f_bavail} * room.f_frsize; left < needs)
      throw Error(
          Exit::host_memory,
          fmt::format("checkpoint.memory_every: {} has {} bytes left, and the parts of the {} ranks here take {}",
                      folder_.parent_path().parent_path().string(), left, world.local_size, needs),
          "make that file system larger (mount -o remount,size=... ), give another checkpoint.memory_path, or "
          "remove checkpoint.memory_every");
    return "";
  });
  link_ = PeerLink::join(folder_, peers_);
}

MemoryCopies::~MemoryCopies() = default;

// The result of the last copy, on all ranks. `busy`: some rank still sends it.
std::string MemoryCopies::settle(bool& busy) {
  std::string told;
  bool failed = false;
  const auto all = peers_.agree([&]() -> std::string {
    if (link_ && link_->busy()) return "b";
    std::string text = failed_.empty() ? "o" : "f" + failed_;
    if (std::string lost = link_ ? link_->news() : ""; !lost.empty() && failed_.empty()) text = "l" + lost;
    return text;
  });
  busy = false;
  for (size_t r = 0; r < all.size(); ++r) {
    busy = busy || all[r][0] == 'b';
    failed = failed || all[r][0] == 'f';
    if (told.empty() && all[r].size() > 1)
      told = fmt::format("checkpoint.memory_every: {}{}; training goes on",
                         all.size() > 1 ? fmt::format("rank {}: ", r) : "", all[r].substr(1));
  }
  if (busy)
    return std::exchange(told_busy_, true) ? ""
                                           : "checkpoint.memory_every: a rank still sends its part of the "
                                             "last step to another host, so this step is left out";
  if (!failed && last_ >= 0) whole_ = last_;
  return told;
}

std::string MemoryCopies::take(const RunPoint& point, std::vector<TensorShare> tensors, const Read& read,
                               std::span<char> staging) {
  bool busy = false;
  const std::string told = settle(busy);
  if (busy) return told;
  remove_steps(folder_, {whole_, point.step});
  number_copies(tensors, peers_);
  last_ = point.step, failed_.clear();
  try {
    write(point.step, point, tensors, read, staging);
  } catch (const std::exception& e) {
    failed_ = e.what();
  }
  return told;
}

void MemoryCopies::write(int64_t step, const RunPoint& point, const std::vector<TensorShare>& tensors, const Read& read,
                         std::span<char> staging) {
  const fs::path folder = folder_ / checkpoint_name(step);
  make_directories(folder);
  Layout layout = lay_out(tensors, peers_.rank);
  std::map<std::string, std::unique_ptr<FileWriter>> files;
  for (size_t i = 0; i < layout.manifest.files.size(); ++i) {
    const ManifestFile& f = layout.manifest.files[i];
    files[f.name] = std::make_unique<FileWriter>(folder / f.name, f.bytes);
    files[f.name]->write(layout.headers[i].data(), layout.headers[i].size());
  }
  const Tiles tiles(staging);
  for (ManifestTensor& t : layout.manifest.tensors)
    for (StoredRange& range : t.ranges) {
      const uint64_t size = dtype_size(t.dtype);
      Checksum sum;
      tiles.each(range.count, size, [&](uint64_t first, uint64_t count) {
        read_part(read, t, range.columns, {range.first + first, count}, tiles.data());
        sum.add(tiles.data(), count * size);
        files[range.file]->write(tiles.data(), count * size);
      });
      range.xxh3_128 = sum.hex();
    }
  files.clear();
  layout.manifest.point = point;
  std::vector<std::string> names;
  for (const ManifestFile& f : layout.manifest.files) names.push_back(f.name);
  names.push_back(part_name(peers_.rank, peers_.size));
  const fs::path part = folder / names.back(), unready = folder / (temporary_prefix + names.back());
  write_text(unready, manifest_text(layout.manifest));
  fs::rename(unready, part);
  if (link_) link_->send(checkpoint_name(step), std::move(names));
}

void MemoryCopies::remove() {
  link_.reset();
  peers_.agree([] { return ""; });
  std::error_code none;
  fs::remove_all(folder_.parent_path(), none);
}

int64_t newest_in_memory(const fs::path& folder, int64_t above, const Peers& peers, bool first) {
  return newest_of(list_parts(folder, peers, first), above).step;
}

void save_from_memory(const fs::path& folder, int64_t step, const fs::path& checkpoints, const Peers& peers,
                      bool first) {
  const NewestParts found = newest_of(list_parts(folder, peers, first), step - 1);
  if (found.step != step) throw Error(Exit::bug, "the copies in memory have changed");
  const HeldFolder held(checkpoints);
  const fs::path complete = held.inside() / checkpoint_name(step);
  const fs::path temporary = held.inside() / (temporary_prefix + checkpoint_name(step));
  try {
    peers.lead([&] {
      make_directories(temporary);
      return "";
    });
    peers.agree([&] {
      for (const auto& [rank, holder] : found.holders) {
        if (holder != peers.rank) continue;
        const fs::path part = PartInMemory{step, rank, found.ranks}.path(folder);
        for (const ManifestFile& f : read_part_manifest(part).files) {
          if (!is_plain_name(f.name)) refuse(part.string(), "it names a file that is not plain");
          copy_part_file(part.parent_path() / f.name, temporary / f.name, f.bytes);
        }
        write_text(temporary / part.filename(), read_text(part, largest_part, Exit::checkpoint));
      }
      return "";
    });
    peers.lead([&] {
      Manifest whole;
      for (uint32_t rank = 0; rank < found.ranks; ++rank) {
        const fs::path part = temporary / part_name(rank, found.ranks);
        add_manifest(whole, read_part_manifest(part), part.string());
        fs::remove(part);
      }
      check_manifest(whole, checkpoints.string());
      write_text(temporary / "manifest.json", manifest_text(whole));
      sync_directory(temporary);
      rename_durably(temporary, complete);
      return "";
    });
  } catch (...) {
    std::error_code none;
    if (peers.rank == 0) fs::remove_all(temporary, none);
    throw;
  }
}

}  // namespace eng
