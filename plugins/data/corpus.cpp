// SPDX-License-Identifier: Apache-2.0
#include "corpus.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "failure.hpp"
#include "jsonl.hpp"

namespace text_data {
namespace {

constexpr uint64_t small_file = uint64_t{1} << 20;
constexpr uint64_t small_files_in_all = uint64_t{64} << 20;
constexpr uint64_t copy_block = uint64_t{8}
                                << 20;  // a copied segment ends after this much, so that growing stays cheap
constexpr std::size_t read_piece = std::size_t{1} << 20;

[[noreturn]] void fail_errno(const std::string& path, const char* doing, int code) {
  throw Failure(code == ENOMEM ? ENG_NO_MEMORY : ENG_DATA_LOSS,
                "[data] " + path + ": cannot " + doing + ": " + std::generic_category().message(code));
}

bool same_time(const struct timespec& a, const struct timespec& b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

class OpenFile {
 public:
  explicit OpenFile(const std::string& path) : path_(path), fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (fd_ < 0) fail_errno(path, "open", errno);
    if (fstat(fd_, &status_) != 0) {
      int code = errno;
      close(fd_);
      fail_errno(path, "look at the file", code);
    }
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() { close(fd_); }

  int fd() const { return fd_; }
  const struct stat& status() const { return status_; }
  uint64_t size() const { return static_cast<uint64_t>(status_.st_size); }

  // Calls take(piece) over the whole file. Reading rather than touching a mapping: a file cut short is an error here.
  template <class Take>
  void each_piece(std::string& buffer, Take take) const {
    posix_fadvise(fd_, 0, 0, POSIX_FADV_SEQUENTIAL);
    buffer.resize(read_piece);
    uint64_t total = 0;
    while (true) {
      ssize_t got = ::read(fd_, buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail_errno(path_, "read", errno);
      if (got == 0) break;
      total += static_cast<uint64_t>(got);
      take(std::string_view(buffer.data(), static_cast<std::size_t>(got)));
    }
    struct stat now {};
    bool same = total == size() && fstat(fd_, &now) == 0 && same_time(now.st_mtim, status_.st_mtim);
    if (!same) {
      throw Failure(ENG_DATA_LOSS,
                    "[data] " + path_ + ": the file changed while it was read; start again when it is complete");
    }
  }

 private:
  const std::string& path_;
  int fd_;
  struct stat status_ {};
};

bool is_jsonl(const std::string& path) {
  const std::string_view ending = ".jsonl";
  return path.size() > ending.size() && path.compare(path.size() - ending.size(), ending.size(), ending) == 0;
}

}  // namespace

MappedFile::MappedFile(const std::string& path, int fd, const struct stat& status)
    : path_(path),
      size_(static_cast<uint64_t>(status.st_size)),
      device_(status.st_dev),
      inode_(status.st_ino),
      modified_(status.st_mtim) {
  void* address = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
  if (address == MAP_FAILED) fail_errno(path, "map", errno);
  madvise(address, size_, MADV_RANDOM);  // samples are shuffled: reading ahead would be wasted
  data_ = static_cast<const unsigned char*>(address);
}

MappedFile::~MappedFile() {
  munmap(const_cast<unsigned char*>(data_), size_);
}

bool MappedFile::changed() const {
  struct stat now {};
  if (stat(path_.c_str(), &now) != 0) return false;
  if (now.st_dev != device_ || now.st_ino != inode_) return false;
  return static_cast<uint64_t>(now.st_size) != size_ || !same_time(now.st_mtim, modified_);
}

// Appends to the stream and hashes it on the way.
class Corpus::Builder {
 public:
  Builder(Corpus& corpus, const std::string& separator) : corpus_(corpus), separator_(separator) {
    state_.reset(XXH3_createState());
    if (state_ == nullptr) throw std::bad_alloc();
    XXH3_128bits_reset(state_.get());
    add_hashed("engine text: bytes\n");
  }

  void begin_document() {
    if (corpus_.size_ > 0) copy(separator_);
  }

  void copy(std::string_view text) {
    if (text.empty()) return;
    if (block_ == nullptr) block_ = std::make_unique<std::string>();
    block_->append(text);
    corpus_.size_ += text.size();
    add_hashed(text);
    if (block_->size() >= copy_block) end_block();
  }

  void map(const std::string& path, const OpenFile& file) {
    end_block();
    auto mapped = std::make_unique<MappedFile>(path, file.fd(), file.status());
    file.each_piece(buffer_, [this](std::string_view piece) { add_hashed(piece); });
    corpus_.segments_.push_back({corpus_.size_, mapped->data(), mapped.get()});
    corpus_.size_ += mapped->size();
    corpus_.mapped_.push_back(std::move(mapped));
  }

  void file(const std::string& path, const std::string& field) {
    OpenFile file(path);
    if (!S_ISREG(file.status().st_mode)) throw Failure(ENG_INVALID, "[data] " + path + " is not a regular file");
    if (is_jsonl(path)) {
      JsonlReader reader(path, field, [this](std::string_view text) {
        if (text.empty()) return;
        begin_document();
        copy(text);
      });
      file.each_piece(buffer_, [&](std::string_view piece) { reader.feed(piece); });
      reader.finish();
    } else if (file.size() > 0) {
      begin_document();
      if (file.size() <= small_file && small_ + file.size() <= small_files_in_all) {
        small_ += file.size();
        file.each_piece(buffer_, [this](std::string_view piece) { copy(piece); });
      } else {
        map(path, file);
      }
    }
  }

  void finish() {
    end_block();
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_.get()));
    for (unsigned char byte : canonical.digest) {
      corpus_.hash_ += "0123456789abcdef"[byte >> 4];
      corpus_.hash_ += "0123456789abcdef"[byte & 15];
    }
  }

 private:
  struct FreeState {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };

  void add_hashed(std::string_view text) { XXH3_128bits_update(state_.get(), text.data(), text.size()); }

  void end_block() {
    if (block_ == nullptr) return;
    block_->shrink_to_fit();
    const auto* data = reinterpret_cast<const unsigned char*>(block_->data());
    corpus_.segments_.push_back({corpus_.size_ - block_->size(), data, nullptr});
    corpus_.copied_.push_back(std::move(block_));
  }

  Corpus& corpus_;
  const std::string& separator_;
  std::unique_ptr<XXH3_state_t, FreeState> state_;
  std::unique_ptr<std::string> block_;
  std::string buffer_;
  uint64_t small_ = 0;
};

Corpus::Corpus(const std::vector<std::string>& files, const std::string& field, const std::string& separator) {
  Builder builder(*this, separator);
  for (const std::string& path : files) builder.file(path, field);
  builder.finish();
}

const MappedFile* Corpus::read(uint64_t start, uint64_t length, int32_t* tokens, int32_t* labels) const {
  auto after = [](uint64_t position, const Segment& segment) { return position < segment.start; };
  auto segment = std::upper_bound(segments_.begin(), segments_.end(), start, after) - 1;
  uint64_t done = 0;  // of length + 1
  while (done <= length) {
    uint64_t end = segment + 1 == segments_.end() ? size_ : (segment + 1)->start;
    uint64_t from = start + done - segment->start;
    uint64_t here = std::min(end - (start + done), length + 1 - done);
    if (segment->file != nullptr && segment->file->changed()) return segment->file;
    const unsigned char* data = segment->data + from;
    for (uint64_t i = 0; i < here && done + i < length; ++i) tokens[done + i] = data[i];
    for (uint64_t i = done == 0 ? 1 : 0; i < here; ++i) labels[done + i - 1] = data[i];
    done += here;
    ++segment;
  }
  return nullptr;
}

}  // namespace text_data
