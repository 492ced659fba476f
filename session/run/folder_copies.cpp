// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "session/run/copy_place.hpp"
#include "session/run/run_dir.hpp"

namespace eng {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t copied_at_once = 1 << 20;

// A later read comes from the disk.
void forget_pages(const fs::path& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd >= 0) ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

class FolderCopies final : public CopyPlace {
 public:
  explicit FolderCopies(fs::path place) : place_(std::move(place)) {}

  std::string name() const override { return place_.string(); }
  void go_on_while(std::function<void()> go_on) override { go_on_ = std::move(go_on); }

  std::set<std::string> checkpoints() override {
    std::set<std::string> out;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(folder(), none))
      if (checkpoint_step(entry.path())) out.insert(entry.path().filename());
    return out;
  }
  std::string manifest_sum(const std::string& checkpoint) override try {
    return Checksum::of(read_text(folder() / checkpoint / manifest_name, largest_manifest, Exit::disk));
  } catch (const Error&) {
    return "";
  }
  CheckpointRow usable(const std::string& checkpoint, const fs::path&) override {
    return inspect_checkpoint(folder() / checkpoint, true);
  }
  void begin(int64_t step, const std::string&) override {
    remove_leftovers(folder());
    set_aside_newer(folder(), step);
  }

  void copy(const CopyJob& job, const fs::path& run) override {
    make_directories(folder());
    const fs::path temporary = temporary_of(job);
    fs::remove_all(temporary);
    make_directories(temporary);
    for (const CopyJob::File& file : job.files) {
      FileWriter out(temporary / file.name, file.bytes);
      copy_bytes(file.fd, job.name + "/" + file.name, file.bytes, out);
      forget_pages(temporary / file.name);
    }
    sync_directory(temporary);
    // Every byte as it is there now, by the checksums of the manifest.
    if (const CheckpointRow row = inspect_checkpoint(temporary, true); !row.problem.empty())
      throw Error(Exit::checkpoint, row.problem);
    for (const char* name : run_files) {
      const fs::path from = run / name, to = place_ / name, part = to.string() + ".tmp";
      std::error_code none;
      if (!fs::is_regular_file(from, none)) continue;
      const Fd fd = open_regular(from, O_RDONLY);
      const uint64_t bytes = file_bytes(fd, from);
      FileWriter out(part, bytes);
      copy_bytes(fd, from.string(), bytes, out);
      rename_durably(part, to);
    }
  }
  void publish(const CopyJob& job, int64_t keep) override {
    const fs::path complete = folder() / job.name;
    if (fs::exists(complete))
      if (const std::error_code error = remove_checkpoint(complete)) disk_error("remove", complete, error.value());
    rename_durably(temporary_of(job), complete);
    collect_checkpoints(folder(), keep);
  }
  void discard(const CopyJob& job) noexcept override {
    std::error_code none;
    fs::remove_all(temporary_of(job), none);
  }

 private:
  fs::path folder() const { return place_ / checkpoints_folder; }
  fs::path temporary_of(const CopyJob& job) const { return folder() / (temporary_prefix + job.name); }

  void copy_bytes(int from, const std::string& what, uint64_t bytes, FileWriter& out) const {
    std::vector<char> buffer(std::max<uint64_t>(1, std::min(copied_at_once, bytes)));
    for (uint64_t at = 0; at < bytes;) {
      const ssize_t n = ::pread(from, buffer.data(), std::min(buffer.size(), bytes - at), static_cast<off_t>(at));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0)
        throw Error(Exit::disk,
                    fmt::format("cannot read {}: {}", what, n < 0 ? std::strerror(errno) : "it ends early"));
      if (go_on_) go_on_();
      out.write(buffer.data(), static_cast<uint64_t>(n));
      at += static_cast<uint64_t>(n);
    }
    out.finish();
  }

  const fs::path place_;
  std::function<void()> go_on_;
};

}  // namespace

uint64_t file_bytes(int fd, const fs::path& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) disk_error("read", path, errno);
  return static_cast<uint64_t>(info.st_size);
}

CopyJob open_copy_job(const fs::path& checkpoint) {
  CopyJob job{checkpoint.filename(), {}};
  for (const auto& entry : fs::directory_iterator(checkpoint)) {
    Fd fd = open_regular(entry.path(), O_RDONLY);
    const uint64_t bytes = file_bytes(fd, entry.path());
    job.files.push_back({entry.path().filename(), std::move(fd), bytes});
  }
  std::stable_partition(job.files.begin(), job.files.end(), [](const auto& f) { return f.name != manifest_name; });
  return job;
}

std::string manifest_of(const CopyJob& job) {
  const CopyJob::File& file = job.files.back();
  if (file.name != manifest_name || file.bytes > largest_manifest)
    throw Error(Exit::disk, fmt::format("{} has no {}", job.name, manifest_name));
  std::string out(file.bytes, '\0');
  for (uint64_t at = 0; at < file.bytes;) {
    const ssize_t n = ::pread(file.fd, out.data() + at, file.bytes - at, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      throw Error(Exit::disk, fmt::format("cannot read {}/{}: {}", job.name, manifest_name,
                                          n < 0 ? std::strerror(errno) : "it ends early"));
    at += static_cast<uint64_t>(n);
  }
  return out;
}

std::unique_ptr<CopyPlace> folder_copies(fs::path place) {
  return std::make_unique<FolderCopies>(std::move(place));
}

}  // namespace eng
