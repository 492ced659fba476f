// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/list.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "core/checkpoint/checkpoint.hpp"
#include "core/checkpoint/file.hpp"

namespace eng {
namespace fs = std::filesystem;
namespace {

constexpr const char* kPrefix = "step-";
constexpr const char* kTemporary = ".tmp-";
constexpr const char* kReplaced = "replaced-";  // see rename_directory

std::vector<fs::path> entries(const fs::path& directory) {
  std::error_code error;
  std::vector<fs::path> out;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    out.push_back(it->path());
  }
  return out;
}

CheckpointRow row_of(const fs::path& path, int64_t step) {
  CheckpointRow row;
  row.path = path;
  row.step = step;
  try {
    const Manifest manifest = read_manifest(path);
    if (manifest.point.step != step) row.problem = fmt::format("its manifest is of step {}", manifest.point.step);
    row.tensors = manifest.tensors.size();
    row.bytes = uint64_t(fs::file_size(path / "manifest.json"));
    for (const auto& f : manifest.files) {
      const FileReader file(path / f.name, Exit::checkpoint);
      if (file.size() != f.bytes) {
        row.problem = fmt::format("{} has {} of {} bytes", f.name, file.size(), f.bytes);
      }
      row.bytes += file.size();
    }
  } catch (const std::exception& e) {
    row.problem = e.what();
  }
  return row;
}

}  // namespace

std::string checkpoint_name(int64_t step) {
  return fmt::format("{}{:08d}", kPrefix, step);
}

std::optional<int64_t> checkpoint_step(const std::string& name) {
  const std::string digits = name.rfind(kPrefix, 0) == 0 ? name.substr(5) : "";
  if (digits.size() < 8 || digits.size() > 18) return std::nullopt;
  int64_t step = 0;
  for (char c : digits) {
    if (c < '0' || c > '9') return std::nullopt;
    step = step * 10 + (c - '0');
  }
  return step;
}

std::vector<CheckpointRow> list_checkpoints(const fs::path& checkpoints) {
  std::vector<CheckpointRow> rows;
  for (const auto& path : entries(checkpoints)) {
    const auto step = checkpoint_step(path.filename().string());
    if (step) rows.push_back(row_of(path, *step));
  }
  std::sort(rows.begin(), rows.end(), [](const CheckpointRow& a, const CheckpointRow& b) { return a.step < b.step; });
  return rows;
}

std::string checkpoint_table(const std::vector<CheckpointRow>& rows) {
  std::string text;
  for (const auto& r : rows) {
    text += fmt::format("{}  {:>10.1f} MiB  {:>5} tensors  {}\n", r.path.filename().string(),
                        double(r.bytes) / double(1 << 20), r.tensors, r.problem.empty() ? "complete" : r.problem);
  }
  return text;
}

Found find_latest(const fs::path& checkpoints) {
  Found found;
  auto rows = list_checkpoints(checkpoints);
  for (auto it = rows.rbegin(); it != rows.rend(); ++it) {
    try {
      if (!it->problem.empty()) throw Error(Exit::checkpoint, it->problem);
      verify_checkpoint(it->path);
      found.path = it->path;
      return found;
    } catch (const Error& e) {
      found.refused.push_back({it->path, e.what()});
    }
  }
  return found;
}

std::vector<Verified> verify_all(const fs::path& directory) {
  std::vector<fs::path> paths;
  if (fs::exists(directory / "manifest.json") || checkpoint_step(fs::absolute(directory).filename().string())) {
    paths.push_back(directory);
  } else {
    const bool run = fs::is_directory(directory / "checkpoints");
    for (const auto& row : list_checkpoints(run ? directory / "checkpoints" : directory)) paths.push_back(row.path);
  }
  if (paths.empty()) throw Error(Exit::checkpoint, directory.string() + ": there is no checkpoint here");
  std::vector<Verified> out;
  for (const auto& path : paths) {
    std::string problem;
    try {
      verify_checkpoint(path);
    } catch (const Error& e) {
      problem = e.what();
    }
    out.push_back({path, problem});
  }
  return out;
}

std::vector<fs::path> collect_checkpoints(const fs::path& checkpoints, int64_t keep, const fs::path& in_use) {
  std::vector<fs::path> removed;
  if (keep <= 0) return removed;
  auto rows = list_checkpoints(checkpoints);
  std::erase_if(rows, [](const CheckpointRow& r) { return !r.problem.empty(); });
  const size_t gone = rows.size() > size_t(keep) ? rows.size() - size_t(keep) : 0;
  for (size_t i = 0; i < gone; ++i) {
    std::error_code error;
    if (!in_use.empty() && fs::equivalent(rows[i].path, in_use, error)) continue;
    // Hidden first, so that no half-removed checkpoint is ever seen under its name.
    const fs::path hidden = checkpoints / (kTemporary + rows[i].path.filename().string() + "-gone");
    fs::rename(rows[i].path, hidden, error);
    if (error) continue;
    fs::remove_all(hidden, error);
    removed.push_back(rows[i].path);
  }
  return removed;
}

std::vector<fs::path> set_aside_newer(const fs::path& checkpoints, int64_t step) {
  std::vector<fs::path> moved;
  for (const auto& path : entries(checkpoints)) {
    const auto found = checkpoint_step(path.filename().string());
    if (!found || *found <= step) continue;
    const fs::path aside = checkpoints / ("aside-" + path.filename().string());
    std::error_code error;
    fs::remove_all(aside, error);
    fs::rename(path, aside, error);
    if (error) throw Error(Exit::disk, fmt::format("cannot rename {}: {}", path.string(), error.message()));
    moved.push_back(aside);
  }
  return moved;
}

void remove_leftovers(const fs::path& checkpoints) {
  for (const auto& path : entries(checkpoints)) {
    const std::string name = path.filename().string();
    std::error_code ignored;
    if (name.rfind(kReplaced, 0) == 0) {
      const fs::path original = checkpoints / name.substr(std::string(kReplaced).size());
      if (!fs::exists(original, ignored)) fs::rename(path, original, ignored);
    }
    if (name.rfind(kTemporary, 0) == 0 || name.rfind(kReplaced, 0) == 0) fs::remove_all(path, ignored);
  }
}

}  // namespace eng
