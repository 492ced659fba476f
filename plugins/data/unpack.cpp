// SPDX-License-Identifier: Apache-2.0
// Reads what is compressed.
#include <fcntl.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <memory>
#include <new>

#include "failure.hpp"
#include "input.hpp"
#include "sniff.hpp"

namespace text_data {

// Fills `out` from the pieces of a compressed file.
class Unpacker {
 public:
  explicit Unpacker(const InputFile& file) : file_(file), buffer_(std::min<uint64_t>(piece_bytes, file.size()), '\0') {}
  virtual ~Unpacker() = default;
  virtual std::size_t read(char* out, std::size_t size) = 0;

 protected:
  // The next piece of the file; empty at its end.
  std::string_view next() {
    const uint64_t size = std::min<uint64_t>(buffer_.size(), file_.size() - at_);
    if (size == 0) {
      file_.check_same();
      return {};
    }
    file_.read_at(at_, size, buffer_.data());
    at_ += size;
    if (file_.on_read) file_.on_read(size);
    return {buffer_.data(), size};
  }
  [[noreturn]] void damaged(const std::string& how) const {
    throw Failure(ENG_DATA_LOSS, "[data] " + file_.path() + " is damaged: " + how);
  }
  const InputFile& file_;

 private:
  std::string buffer_;
  uint64_t at_ = 0;
};

namespace {

class Gunzip final : public Unpacker {
 public:
  explicit Gunzip(const InputFile& file) : Unpacker(file) {
    constexpr int gzip_alone = 16 + MAX_WBITS;
    if (inflateInit2(&stream_, gzip_alone) != Z_OK) throw std::bad_alloc();
  }
  ~Gunzip() override { inflateEnd(&stream_); }

  std::size_t read(char* out, std::size_t size) override {
    const auto room = static_cast<uInt>(std::min<std::size_t>(size, std::size_t{1} << 30));
    stream_.next_out = reinterpret_cast<Bytef*>(out);
    stream_.avail_out = room;
    while (stream_.avail_out > 0) {
      if (stream_.avail_in == 0 && !full_ && !refill()) break;
      if (whole_) {  // zeros fill up blocks, of a tape for example
        while (stream_.avail_in > 0 && *stream_.next_in == 0) ++stream_.next_in, --stream_.avail_in;
        if (stream_.avail_in == 0) continue;
        if (inflateReset(&stream_) != Z_OK) throw std::bad_alloc();
      }
      const int status = ::inflate(&stream_, Z_NO_FLUSH);
      if (status == Z_MEM_ERROR) throw std::bad_alloc();
      if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
        damaged(whole_ ? "what follows the end of its gzip is neither gzip nor zeros"
                       : "its gzip or the checksum is wrong");
      whole_ = status == Z_STREAM_END;
      full_ = !whole_ && stream_.avail_out == 0;
    }
    if (stream_.avail_out > 0 && (!whole_ || file_.size() == 0)) damaged("it is cut short");
    return room - stream_.avail_out;
  }

 private:
  bool refill() {
    const std::string_view piece = next();
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(piece.data()));
    stream_.avail_in = static_cast<uInt>(piece.size());
    return !piece.empty();
  }
  z_stream stream_{};
  bool whole_ = true;  // between two members
  bool full_ = false;  // zlib may hold bytes that found no room
};

class Unzstd final : public Unpacker {
 public:
  explicit Unzstd(const InputFile& file) : Unpacker(file), stream_(ZSTD_createDStream(), ZSTD_freeDStream) {
    if (stream_ == nullptr) throw std::bad_alloc();
    ZSTD_DCtx_setParameter(stream_.get(), ZSTD_d_windowLogMax,
                           27);  // 128 MiB: the most memory that a frame may require
  }

  std::size_t read(char* out, std::size_t size) override {
    ZSTD_outBuffer to{out, size, 0};
    while (to.pos < to.size) {
      if (in_.pos == in_.size && !full_ && !refill()) break;
      const auto* bytes = static_cast<const char*>(in_.src);
      while (wanted_ == 0 && in_.pos < in_.size && bytes[in_.pos] == 0) ++in_.pos;  // as after gzip
      if (wanted_ == 0 && in_.pos == in_.size) continue;
      wanted_ = ZSTD_decompressStream(stream_.get(), &to, &in_);
      if (ZSTD_isError(wanted_)) damaged(ZSTD_getErrorName(wanted_));
      full_ = wanted_ != 0 && to.pos == to.size;
    }
    if (to.pos < to.size && wanted_ != 0) damaged("it is cut short");
    return to.pos;
  }

 private:
  bool refill() {
    const std::string_view piece = next();
    in_ = {piece.data(), piece.size(), 0};
    return !piece.empty();
  }
  std::unique_ptr<ZSTD_DStream, std::size_t (*)(ZSTD_DStream*)> stream_;
  ZSTD_inBuffer in_{nullptr, 0, 0};
  std::size_t wanted_ = 1;  // 0: between two frames
  bool full_ = false;       // the library may hold bytes that found no room
};

}  // namespace

ContentReader::ContentReader(const InputFile& file, Packed packed) : file_(file) {
  posix_fadvise(file.fd(), 0, 0, POSIX_FADV_SEQUENTIAL);
  if (packed == Packed::gzip) unpacker_ = std::make_unique<Gunzip>(file);
  if (packed == Packed::zstd) unpacker_ = std::make_unique<Unzstd>(file);
}

ContentReader::~ContentReader() = default;

std::size_t ContentReader::read(char* out, std::size_t size) {
  std::size_t done = 0;
  while (unpacker_ && done < size) {
    const std::size_t got = unpacker_->read(out + done, size - done);
    if (got == 0) break;
    done += got;
  }
  while (!unpacker_ && done < size) {
    const uint64_t part = std::min<uint64_t>({size - done, piece_bytes, file_.size() - std::min(at_, file_.size())});
    if (part == 0) break;
    file_.read_at(at_, part, out + done);
    at_ += part, done += part;
    if (file_.on_read) file_.on_read(part);
  }
  if (!unpacker_ && done < size) file_.check_same();
  return done;
}

std::string InputFile::head(Packed packed, bool* whole) const {
  std::string head(packed == Packed::no ? std::min<uint64_t>(head_bytes, size() + 1) : head_bytes, '\0');
  const std::size_t room = head.size();
  head.resize(ContentReader(*this, packed).read(head.data(), room));
  *whole = head.size() < room;
  if (!*whole && packed == Packed::no) check_same();
  return head;
}

}  // namespace text_data
