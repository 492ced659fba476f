// SPDX-License-Identifier: Apache-2.0
// The files that a TokenWriter keeps in case that its process ends; another one goes on with them. Beside the temporary
// file KEY.tokens.PID.part stand KEY.tokens.PID.documents.part, which grows with it, and KEY.tokens.PID.mark.part,
// which says how much of the two counts. Their writer has locked the first one as long as it lives.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "token_file.hpp"

namespace text_data {
namespace {

struct KeptTokens {
  char magic[8];          // "ENGBUILD"
  TokenHeader header;     // with the tokens that were written
  Digest documents_hash;  // of the indices of its documents
  BuildMark mark;
  Digest own_hash;  // of all bytes before
};

constexpr std::size_t reread_bytes = std::size_t{4} << 20;

Digest hash_of_kept(const KeptTokens& kept) {
  Hash hash;
  hash.add(&kept, offsetof(KeptTokens, own_hash));
  return hash.digest();
}

void write_all(int fd, const void* data, std::size_t size, const std::string& path) {
  for (std::size_t done = 0; done < size;) {
    const ssize_t put = ::write(fd, static_cast<const char*>(data) + done, size - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_write(path, errno);
    done += static_cast<std::size_t>(put);
  }
}

// False if the file has not so many bytes from `offset` on.
bool read_all(int fd, void* data, std::size_t size, uint64_t offset) {
  for (std::size_t done = 0; done < size;) {
    const ssize_t got = pread(fd, static_cast<char*>(data) + done, size - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    done += static_cast<std::size_t>(got);
  }
  return true;
}

struct OpenedFile {
  explicit OpenedFile(const std::string& path) : fd(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW)) {}
  ~OpenedFile() {
    if (fd >= 0) close(fd);
  }
  OpenedFile(const OpenedFile&) = delete;
  OpenedFile& operator=(const OpenedFile&) = delete;
  int take() { return std::exchange(fd, -1); }
  int fd;
};

}  // namespace

std::string TokenWriter::beside(const char* what) const {
  return temporary_.substr(0, temporary_.size() - 5) + "." + what + ".part";
}

void TokenWriter::remove_kept() const {
  for (const char* what : {"documents", "mark", "new"}) unlink(beside(what).c_str());
}

void TokenWriter::keep(const BuildMark& mark) {
  flush();
  const std::string documents = beside("documents");
  if (documents_fd_ < 0)
    documents_fd_ = open(documents.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (documents_fd_ < 0) fail_write(documents, errno);
  write_all(documents_fd_, documents_.data() + documents_kept_, (documents_.size() - documents_kept_) * 8, documents);
  documents_kept_ = documents_.size();
  KeptTokens kept{};
  std::memcpy(kept.magic, "ENGBUILD", 8);
  kept.header = header_;
  kept.header.documents = documents_.size();
  kept.header.token_hash = hash_.digest();
  Hash hash;
  hash.add(documents_.data(), documents_.size() * 8);
  kept.documents_hash = hash.digest();
  kept.mark = mark;
  kept.own_hash = hash_of_kept(kept);
  const std::string fresh = beside("new"), name = beside("mark");
  const int fd = open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) fail_write(fresh, errno);
  const ssize_t put = ::write(fd, &kept, sizeof(kept));
  const int code = put < 0 ? errno : ENOSPC;
  close(fd);
  if (put != sizeof(kept)) fail_write(fresh, code);
  if (std::rename(fresh.c_str(), name.c_str()) != 0) fail_write(name, errno);
}

std::optional<BuildMark> TokenWriter::go_on() {
  namespace fs = std::filesystem;
  const fs::path path(path_);
  const std::string begin = path.filename().string() + ".", end = ".mark.part";
  std::vector<std::string> others;
  std::error_code error;
  for (fs::directory_iterator entry(path.parent_path(), error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.size() > begin.size() + end.size() && name.starts_with(begin) && name.ends_with(end))
      others.push_back((path.parent_path() / (name.substr(0, name.size() - end.size()) + ".part")).string());
  }
  std::sort(others.begin(), others.end());
  for (const std::string& other : others)
    if (BuildMark mark; adopt(other, mark)) return mark;
  return std::nullopt;
}

// False if the writer of these files lives, or if they are not those of this file, or damaged.
bool TokenWriter::adopt(const std::string& temporary, BuildMark& mark) {
  OpenedFile tokens(temporary);
  if (tokens.fd < 0 || flock(tokens.fd, LOCK_EX | LOCK_NB) != 0) return false;
  const std::string own = std::exchange(temporary_, temporary);
  OpenedFile documents(beside("documents")), marked(beside("mark"));
  const auto other = [&] {
    temporary_ = own;
    return false;
  };
  KeptTokens kept;
  if (documents.fd < 0 || marked.fd < 0 || !read_all(marked.fd, &kept, sizeof(kept), 0)) return other();
  const TokenHeader& saved = kept.header;
  struct stat size {};
  if (std::memcmp(kept.magic, "ENGBUILD", 8) != 0 || kept.own_hash != hash_of_kept(kept) || saved.key != header_.key ||
      saved.width != header_.width || saved.eot != header_.eot || saved.vocabulary != header_.vocabulary ||
      fstat(documents.fd, &size) != 0 || static_cast<uint64_t>(size.st_size) < saved.documents * 8)
    return other();
  std::vector<uint64_t> starts(saved.documents);
  Hash table, hash;
  if (!read_all(documents.fd, starts.data(), starts.size() * 8, 0)) return other();
  table.add(starts.data(), starts.size() * 8);
  std::string piece;
  const uint64_t end = sizeof(TokenHeader) + saved.tokens * saved.width;
  for (uint64_t at = sizeof(TokenHeader); at < end; at += piece.size()) {
    piece.resize(static_cast<std::size_t>(std::min<uint64_t>(reread_bytes, end - at)));
    if (!read_all(tokens.fd, piece.data(), piece.size(), at)) return other();
    hash.add(piece);
  }
  if (table.digest() != kept.documents_hash || hash.digest() != saved.token_hash) return other();
  if (ftruncate(tokens.fd, static_cast<off_t>(end)) != 0 || lseek(tokens.fd, 0, SEEK_END) < 0 ||
      ftruncate(documents.fd, static_cast<off_t>(starts.size() * 8)) != 0 || lseek(documents.fd, 0, SEEK_END) < 0)
    return other();
  unlink(own.c_str());
  close(fd_);
  fd_ = tokens.take();
  documents_fd_ = documents.take();
  buffer_.clear();  // the room for the header is there
  header_ = saved;
  hash_ = std::move(hash);
  documents_ = std::move(starts);
  documents_kept_ = documents_.size();
  mark = kept.mark;
  return true;
}

}  // namespace text_data
