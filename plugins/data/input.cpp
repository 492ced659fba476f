// SPDX-License-Identifier: Apache-2.0
#include "input.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "failure.hpp"
#include "files.hpp"

namespace text_data {

void fail_errno(const std::string& path, const char* doing, int code) {
  throw Failure(code == ENOMEM ? ENG_NO_MEMORY : ENG_DATA_LOSS,
                "[data] " + path + ": cannot " + doing + ": " + std::generic_category().message(code));
}

bool same_time(const struct timespec& a, const struct timespec& b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

InputFile::InputFile(const std::string& path)
    : path_(path), fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (fd_ < 0 && errno == EMFILE)
    throw Failure(ENG_DATA_LOSS, "[data] " + path +
                                     ": too many open files; files above 1 MiB stay open during a run: " +
                                     "join them, or raise the limit (ulimit -n)");
  if (fd_ < 0) fail_errno(path, "open", errno);
  const int code = fstat(fd_, &status_) != 0 ? errno : 0;
  if (code == 0 && S_ISREG(status_.st_mode)) return;
  close(fd_);
  if (code != 0) fail_errno(path, "look at the file", code);
  throw Failure(ENG_INVALID, "[data] " + path + " " + not_a_file(status_.st_mode));
}

InputFile::~InputFile() {
  close(fd_);
}

bool InputFile::same() const {
  struct stat now {};
  return fstat(fd_, &now) == 0 && now.st_size == status_.st_size && same_time(now.st_mtim, status_.st_mtim);
}

bool InputFile::copy(uint64_t offset, uint64_t size, void* out) const {
  for (auto* to = static_cast<unsigned char*>(out); size > 0;) {
    const ssize_t got = pread(fd_, to, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got, offset += static_cast<uint64_t>(got), size -= static_cast<uint64_t>(got);
  }
  return same();  // checked last, so that a change during the copy is noticed
}

void InputFile::check_same() const {
  if (same()) return;
  throw Failure(ENG_DATA_LOSS,
                "[data] " + path_ + ": the file changed while it was read; start again when it is complete");
}

void InputFile::read_at(uint64_t offset, uint64_t size, char* out) const {
  for (uint64_t done = 0; done < size;) {
    const ssize_t got = pread(fd_, out + done, size - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno(path_, "read", errno);
    if (got == 0) {
      check_same();
      throw Failure(ENG_DATA_LOSS, "[data] " + path_ + " is shorter than it says");
    }
    done += static_cast<uint64_t>(got);
  }
}

void InputFile::each_piece(uint64_t begin, uint64_t end, const Take& take) const {
  posix_fadvise(fd_, static_cast<off_t>(begin), static_cast<off_t>(end - begin), POSIX_FADV_SEQUENTIAL);
  std::string buffer(std::min<uint64_t>(piece_bytes, end - begin), '\0');
  while (begin < end) {
    const std::size_t wanted = std::min<uint64_t>(buffer.size(), end - begin);
    read_at(begin, wanted, buffer.data());
    take(std::string_view(buffer.data(), wanted));
    if (on_read) on_read(wanted);
    begin += wanted;
  }
  check_same();
}

}  // namespace text_data
