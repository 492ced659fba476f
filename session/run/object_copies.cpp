// SPDX-License-Identifier: Apache-2.0
// Copies of checkpoints in a store of objects. The manifest of a checkpoint is written last and removed first, so that
// whatever has a manifest is whole. One that is set aside has its manifest under another name.
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "session/checkpoint/best.hpp"
#include "session/run/copy_place.hpp"
#include "session/run/run_dir.hpp"

namespace eng {
namespace fs = std::filesystem;
namespace {

// A run that begins removes temporary folders, but not those with this prefix.
constexpr const char* bring_prefix = "bring-";

std::string key_of(const std::string& checkpoint, const std::string& file = "") {
  return fmt::format("{}/{}/{}", checkpoints_folder, checkpoint, file);
}

// The files of each checkpoint, by name.
using Files = std::map<std::string, std::vector<Object>>;

Files files_in(ObjectStore& store, const std::string& below) {
  Files out;
  for (const Object& object : store.list(below)) {
    const fs::path path = object.key;
    const std::string checkpoint = path.parent_path().filename();
    if (object.key == key_of(checkpoint, path.filename())) out[checkpoint].push_back(object);
  }
  return out;
}

bool has_manifest(const std::vector<Object>& files) {
  return std::any_of(files.begin(), files.end(),
                     [](const Object& o) { return fs::path(o.key).filename() == manifest_name; });
}

class ObjectCopies final : public CopyPlace {
 public:
  explicit ObjectCopies(std::unique_ptr<ObjectStore> store) : store_(std::move(store)) {}

  std::string name() const override { return store_->address(); }
  void go_on_while(std::function<void()> go_on) override {
    store_->stop_when([go_on = std::move(go_on)] {
      try {
        go_on();
        return false;
      } catch (const Error&) {
        return true;
      }
    });
  }
  std::set<std::string> checkpoints() override {
    const std::vector<std::string> all = stored_checkpoints(*store_);
    return {all.begin(), all.end()};
  }
  std::string manifest_sum(const std::string& checkpoint) override try {
    return Checksum::of(store_->get_text(key_of(checkpoint, manifest_name), largest_manifest));
  } catch (const Error& e) {
    if (e.exit() != Exit::data) throw;
    return "";
  }
  CheckpointRow usable(const std::string& checkpoint, const fs::path& into) override {
    CheckpointRow row{into / checkpoint, checkpoint_step(checkpoint).value_or(0), 0, 0, ""};
    fetch_checkpoint(*store_, checkpoint, into, row.problem);
    if (!row.problem.empty()) row.path = store_->address() + "/" + key_of(checkpoint);
    return row;
  }
  void begin(int64_t step, const std::string& next) override {
    const std::string prefix = fmt::format("{}/", checkpoints_folder);
    store_->abandon(prefix, [&](const std::string& key) { return !key.starts_with(key_of(next)); });
    for (const auto& [checkpoint, files] : files_in(*store_, prefix)) {
      const auto at = checkpoint_step(checkpoint);
      if (!at || checkpoint == next) continue;
      if (!has_manifest(files)) {
        if (!set_aside(files)) remove(files);
      } else if (*at > step) {
        store_->put_text(key_of(checkpoint, aside_prefix + std::string(manifest_name)),
                         store_->get_text(key_of(checkpoint, manifest_name), largest_manifest));
        store_->remove(key_of(checkpoint, manifest_name));
      }
    }
  }

  void copy(const CopyJob& job, const fs::path& run) override {
    // An earlier attempt at this step is no checkpoint any more, and its files of other names are not of this one.
    std::set<std::string> wanted;
    for (const CopyJob::File& file : job.files)
      if (file.name != manifest_name) wanted.insert(key_of(job.name, file.name));
    std::vector<Object> before = store_->list(key_of(job.name));
    std::erase_if(before, [&](const Object& object) { return wanted.count(object.key) > 0; });
    remove(before);
    for (const CopyJob::File& file : job.files)
      if (file.name != manifest_name) store_->put(key_of(job.name, file.name), file.fd, file.bytes);
    for (const char* name : run_files) {
      std::error_code none;
      if (!fs::is_regular_file(run / name, none)) continue;
      const Fd fd = open_regular(run / name, O_RDONLY);
      store_->put(name, fd, file_bytes(fd, run / name));
    }
  }
  void publish(const CopyJob& job, int64_t keep) override {
    const std::string manifest = manifest_of(job);
    store_->put_text(key_of(job.name, manifest_name), manifest);
    if (keep <= 0) return;
    const int64_t best = best_step(parse_manifest(manifest, job.name).point.extra);
    std::vector<std::string> all = stored_checkpoints(*store_);
    for (size_t k = static_cast<size_t>(keep); k < all.size(); ++k)
      if (checkpoint_step(all[k]) != best) remove(store_->list(key_of(all[k])));
  }
  // A failed copy has no manifest. The next attempt at it goes on from what is there.
  void discard(const CopyJob&) noexcept override {}

 private:
  static bool set_aside(const std::vector<Object>& files) {
    return std::any_of(files.begin(), files.end(), [](const Object& o) {
      return fs::path(o.key).filename() == aside_prefix + std::string(manifest_name);
    });
  }
  void remove(std::vector<Object> files) {
    std::stable_partition(files.begin(), files.end(),
                          [](const Object& o) { return fs::path(o.key).filename() == manifest_name; });
    for (const Object& object : files) store_->remove(object.key);
  }

  const std::unique_ptr<ObjectStore> store_;
};

}  // namespace

std::unique_ptr<CopyPlace> object_copies(std::unique_ptr<ObjectStore> store) {
  return std::make_unique<ObjectCopies>(std::move(store));
}

std::vector<std::string> stored_checkpoints(ObjectStore& store) {
  std::vector<std::string> out;
  for (const auto& [checkpoint, files] : files_in(store, fmt::format("{}/", checkpoints_folder)))
    if (checkpoint_step(checkpoint) && has_manifest(files)) out.push_back(checkpoint);
  std::sort(out.begin(), out.end(),
            [](const auto& a, const auto& b) { return checkpoint_step(a) > checkpoint_step(b); });
  return out;
}

void remove_unfinished(const fs::path& checkpoints) {
  std::error_code none;
  std::vector<fs::path> all;
  for (const auto& entry : fs::directory_iterator(checkpoints, none))
    if (entry.path().filename().string().starts_with(bring_prefix)) all.push_back(entry.path());
  for (const fs::path& path : all) fs::remove_all(path, none);
}

fs::path fetch_checkpoint(ObjectStore& store, const std::string& name, const fs::path& checkpoints,
                          std::string& problem, const std::function<void(uint64_t, uint64_t)>& progress) {
  const fs::path complete = checkpoints / name, temporary = checkpoints / (bring_prefix + name);
  make_directories(temporary);
  uint64_t all = 0, done = 0;
  std::vector<Object> objects = store.list(key_of(name));
  // The mark of a folder, which some tools make, and what an interrupted call of `begin` has left.
  std::erase_if(objects, [&](const Object& object) {
    return object.key.ends_with('/') || object.key == key_of(name, aside_prefix + std::string(manifest_name));
  });
  for (const Object& object : objects) {
    if (object.bytes > std::numeric_limits<int64_t>::max() - all)
      throw Error(Exit::data,
                  fmt::format("{}/{}: the store lists {} bytes", store.address(), object.key, object.bytes));
    all += object.bytes;
  }
  const fs::space_info space = fs::space(temporary);
  for (const Object& object : objects) {
    const std::string file = fs::path(object.key).filename();
    if (object.key != key_of(name, file) || !is_plain_name(file))
      throw Error(Exit::checkpoint, fmt::format("{}/{} is no file of a checkpoint", store.address(), object.key));
    std::error_code none;
    if (const auto there = fs::file_size(temporary / file, none); !none)
      done += std::min<uint64_t>(there, object.bytes);
  }
  if (all - done > space.available)
    throw Error(
        Exit::disk,
        fmt::format("{} of {} needs {} more, and {} are free in {}", name, store.address(),
                    format_bytes(double(all - done)), format_bytes(double(space.available)), checkpoints.string()),
        "free space: the same command goes on from what is there");
  const bool resumed = done > 0;
  done = 0;
  for (const Object& object : objects) {
    store.get(object, temporary / fs::path(object.key).filename(), [&](uint64_t bytes) {
      if (progress) progress(done + bytes, all);
    });
    done += object.bytes;
  }
  sync_directory(temporary);
  problem = inspect_checkpoint(temporary, true).problem;
  if (!problem.empty()) {
    std::error_code none;
    fs::remove_all(temporary, none);
    if (none) disk_error("remove", temporary, none.value());
    if (resumed) return fetch_checkpoint(store, name, checkpoints, problem, progress);  // of an object replaced since
    return complete;
  }
  if (fs::exists(complete))
    if (const std::error_code error = remove_checkpoint(complete)) disk_error("remove", complete, error.value());
  rename_durably(temporary, complete);
  return complete;
}

}  // namespace eng
