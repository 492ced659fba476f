// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "failure.hpp"
#include "token_file.hpp"

namespace text_data {

void fail_write(const std::string& path, int code) {
  throw Failure(code == ENOSPC || code == EDQUOT ? ENG_UNAVAILABLE : ENG_PRECONDITION,
                "[data] cannot write " + path + ": " + std::generic_category().message(code) +
                    "; set [data] cache = \"FOLDER\" to write it elsewhere");
}

namespace {

namespace fs = std::filesystem;

constexpr std::size_t buffer_bytes = std::size_t{4} << 20;

// Removes files that killed builds left here a day ago or earlier.
void remove_leftovers(const fs::path& folder) {
  std::error_code error;
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours(24);
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    std::error_code ignored;
    const fs::path& path = entry->path();
    if (path.extension() == ".part" && fs::last_write_time(path, ignored) < old && !ignored) fs::remove(path, ignored);
  }
}

}  // namespace

TokenWriter::TokenWriter(std::string path, const TokenHeader& header) : path_(std::move(path)), header_(header) {
  std::error_code error;
  const fs::path folder = fs::path(path_).parent_path();
  fs::create_directories(folder, error);
  if (error) fail_write(folder.string(), error.value());
  remove_leftovers(folder);
  for (int k = 0; fd_ < 0; ++k) {  // an earlier process may have had the same number
    temporary_ = path_ + "." + std::to_string(getpid()) + (k > 0 ? "-" + std::to_string(k) : "") + ".part";
    fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd_ < 0 && (errno != EEXIST || k == 1000)) break;
  }
  if (fd_ < 0) fail_write(temporary_, errno);
  flock(fd_, LOCK_EX | LOCK_NB);  // as long as this process lives
  std::memcpy(header_.magic, "ENGTOKEN", 8);
  header_.version = 1;
  header_.tokens = 0;
  header_.largest = -1;
  buffer_.assign(sizeof(TokenHeader), '\0');  // room for the header, which is written last
}

TokenWriter::~TokenWriter() {
  if (documents_fd_ >= 0) close(documents_fd_);
  if (fd_ < 0) return;
  if (!left_) unlink(temporary_.c_str()), remove_kept();
  close(fd_);
}

void TokenWriter::flush() {
  for (std::size_t done = 0; done < buffer_.size();) {
    const ssize_t put = ::write(fd_, buffer_.data() + done, buffer_.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_write(temporary_, errno);
    done += static_cast<std::size_t>(put);
  }
  buffer_.clear();
}

void TokenWriter::write(const void* data, std::size_t size) {
  buffer_.append(static_cast<const char*>(data), size);
  if (buffer_.size() >= buffer_bytes) flush();
}

void TokenWriter::add(const int32_t* ids, std::size_t count) {
  uint16_t narrow[4096];
  for (std::size_t done = 0; done < count;) {
    const std::size_t part = std::min<std::size_t>(std::size(narrow), count - done);
    for (std::size_t i = 0; i < part; ++i) {
      header_.largest = std::max<int64_t>(header_.largest, ids[done + i]);
      narrow[i] = static_cast<uint16_t>(ids[done + i]);
    }
    const void* data = header_.width == 2 ? static_cast<const void*>(narrow) : ids + done;
    hash_.add(data, part * header_.width);
    write(data, part * header_.width);
    done += part;
  }
  header_.tokens += count;
}

void TokenWriter::weigh(uint64_t token, float weight) {
  if (weight != (weights_.empty() ? 1 : weights_.back().weight)) weights_.push_back({token, weight, 0});
}

void TokenWriter::set_masks(uint64_t trained, uint64_t empty, uint64_t too_long, uint64_t cut, uint64_t unread) {
  header_.trained = trained, header_.empty = empty, header_.too_long = too_long, header_.cut = cut;
  header_.unread = unread;
}

TokenHeader TokenWriter::finish(uint64_t skipped, uint64_t wrong) {
  header_.skipped = skipped, header_.wrong = wrong;
  header_.token_hash = hash_.digest();
  const uint64_t end = sizeof(TokenHeader) + header_.tokens * header_.width;
  header_.table = (end + 7) / 8 * 8;
  header_.documents = documents_.size();
  write("\0\0\0\0\0\0\0", header_.table - end);
  Hash table;
  table.add(documents_.data(), documents_.size() * 8);
  header_.weights = weights_.size();
  if (!weights_.empty()) table.add(weights_.data(), weights_.size() * sizeof(WeightFrom));
  header_.table_hash = table.digest();
  write(documents_.data(), documents_.size() * 8);
  if (!weights_.empty()) write(weights_.data(), weights_.size() * sizeof(WeightFrom));
  flush();
  Hash hash;
  hash.add(&header_, offsetof(TokenHeader, header_hash));
  header_.header_hash = hash.digest();
  const auto* bytes = reinterpret_cast<const char*>(&header_);
  for (std::size_t done = 0; done < sizeof(header_);) {
    const ssize_t put = pwrite(fd_, bytes + done, sizeof(header_) - done, static_cast<off_t>(done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_write(temporary_, errno);
    done += static_cast<std::size_t>(put);
  }
  if (fsync(fd_) != 0) fail_write(temporary_, errno);
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail_write(path_, errno);
  close(fd_);
  fd_ = -1;
  remove_kept();
  const int folder = open(fs::path(path_).parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    fsync(folder);
    close(folder);
  }
  return header_;
}

}  // namespace text_data
