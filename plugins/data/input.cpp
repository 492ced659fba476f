// SPDX-License-Identifier: Apache-2.0
#include "input.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <new>
#include <system_error>
#include <utility>

#include "failure.hpp"
#include "files.hpp"
#include "jsonl.hpp"
#include "script.hpp"

namespace text_data {
namespace {

constexpr std::size_t piece_bytes = std::size_t{1} << 20;

bool ends_with(std::string_view text, std::string_view ending) {
  return text.size() > ending.size() && text.substr(text.size() - ending.size()) == ending;
}

}  // namespace

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

void InputFile::each_piece(uint64_t begin, uint64_t end, const Take& take) const {
  posix_fadvise(fd_, static_cast<off_t>(begin), static_cast<off_t>(end - begin), POSIX_FADV_SEQUENTIAL);
  std::string buffer(std::min<uint64_t>(piece_bytes, end - begin), '\0');
  while (begin < end) {
    const std::size_t wanted = std::min<uint64_t>(buffer.size(), end - begin);
    for (std::size_t done = 0; done < wanted;) {
      const ssize_t got = pread(fd_, buffer.data() + done, wanted - done, static_cast<off_t>(begin + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail_errno(path_, "read", errno);
      if (got == 0) {
        check_same();
        throw Failure(ENG_DATA_LOSS, "[data] " + path_ + " is shorter than it says");
      }
      done += static_cast<std::size_t>(got);
    }
    take(std::string_view(buffer.data(), wanted));
    if (on_read) on_read(wanted);
    begin += wanted;
  }
  check_same();
}

void InputFile::each_piece(const Take& take) const {
  if (ends_with(path_, ".gz")) return inflate(take);
  if (ends_with(path_, ".zst")) return unzstd(take);
  each_piece(0, size(), take);
}

void InputFile::inflate(const Take& take) const {
  z_stream stream{};
  constexpr int gzip_alone = 16 + MAX_WBITS;
  if (inflateInit2(&stream, gzip_alone) != Z_OK) throw std::bad_alloc();
  const std::unique_ptr<z_stream, int (*)(z_stream*)> guard(&stream, inflateEnd);
  std::string out(piece_bytes, '\0');
  bool whole = true;  // between two members
  each_piece(0, size(), [&](std::string_view piece) {
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(piece.data()));
    stream.avail_in = static_cast<uInt>(piece.size());
    bool full = false;
    while (stream.avail_in > 0 || full) {
      if (whole && inflateReset(&stream) != Z_OK) throw std::bad_alloc();
      stream.next_out = reinterpret_cast<Bytef*>(out.data());
      stream.avail_out = static_cast<uInt>(out.size());
      const int status = ::inflate(&stream, Z_NO_FLUSH);
      if (status == Z_MEM_ERROR) throw std::bad_alloc();
      if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
        throw Failure(ENG_DATA_LOSS, "[data] " + path_ + " is damaged: it is not gzip, or its checksum is wrong");
      whole = status == Z_STREAM_END;
      full = !whole && stream.avail_out == 0;
      take(std::string_view(out.data(), out.size() - stream.avail_out));
    }
  });
  if (!whole || size() == 0) throw Failure(ENG_DATA_LOSS, "[data] " + path_ + " is damaged: it is cut short");
}

void InputFile::unzstd(const Take& take) const {
  const std::unique_ptr<ZSTD_DStream, std::size_t (*)(ZSTD_DStream*)> stream(ZSTD_createDStream(), ZSTD_freeDStream);
  if (stream == nullptr) throw std::bad_alloc();
  ZSTD_DCtx_setParameter(stream.get(), ZSTD_d_windowLogMax, 27);  // 128 MiB: the most memory that a frame may require
  std::string out(piece_bytes, '\0');
  std::size_t wanted = 1;  // 0: between two frames
  each_piece(0, size(), [&](std::string_view piece) {
    ZSTD_inBuffer in{piece.data(), piece.size(), 0};
    bool full = false;
    while (in.pos < in.size || full) {
      ZSTD_outBuffer to{out.data(), out.size(), 0};
      wanted = ZSTD_decompressStream(stream.get(), &to, &in);
      if (ZSTD_isError(wanted))
        throw Failure(ENG_DATA_LOSS, "[data] " + path_ + " is damaged: " + ZSTD_getErrorName(wanted));
      full = wanted != 0 && to.pos == to.size;
      take(std::string_view(out.data(), to.pos));
    }
  });
  if (wanted != 0) throw Failure(ENG_DATA_LOSS, "[data] " + path_ + " is damaged: it is cut short");
}

TextFormat text_format(const std::string& path, const std::string& format) {
  std::string_view name = path;
  bool compressed = false;
  for (const std::string_view ending : {".gz", ".zst"}) {
    if (!ends_with(name, ending)) continue;
    name.remove_suffix(ending.size());
    compressed = true;
    break;
  }
  for (const char* ending : {".parquet", ".arrow"}) {
    if (!ends_with(name, ending)) continue;
    const std::string to = std::string(name.substr(0, name.size() - std::string_view(ending).size())) + ".jsonl.zst";
    throw Failure(ENG_UNSUPPORTED, "[data] paths: " + path + " is not text. Turn it into JSON Lines first:\n  " +
                                       export_dataset() + " " + shell_word(path) + " --out " + shell_word(to));
  }
  if (format == "text") return {TextKind::plain, compressed};
  const bool lines = format == "jsonl" || ends_with(name, ".jsonl") || ends_with(name, ".ndjson");
  if (lines) return {TextKind::json_lines, compressed};
  for (const auto& [ending, what] :
       {std::pair(".json", "JSON"), std::pair(".csv", "a table"), std::pair(".tsv", "a table")}) {
    if (!ends_with(name, ending)) continue;
    throw Failure(ENG_INVALID, "[data] paths: " + path + " is " + what +
                                   " by its name: its quotes, braces or commas would be trained on as text. If each "
                                   "line is a JSON object, set [data] format = \"jsonl\" (and field); to train on the "
                                   "bytes as they are, set format = \"text\"; otherwise write its texts into a file of "
                                   "JSON Lines, {\"text\": ...} on each line");
  }
  return {TextKind::plain, compressed};
}

void each_document(const InputFile& file, const Reading& reading, const DocumentSink& sink) {
  if (text_format(file.path(), reading.format).kind == TextKind::json_lines) {
    JsonlReader reader(file.path(), reading.field, reading.replace, [&](std::string_view text) {
      if (text.empty()) return;
      sink.begin();
      sink.text(text);
      sink.end();
    });
    file.each_piece([&](std::string_view piece) { reader.feed(piece); });
    return reader.finish();
  }
  bool any = false;
  file.each_piece([&](std::string_view piece) {
    if (piece.empty()) return;
    if (!any) sink.begin();
    any = true;
    sink.text(piece);
  });
  if (any) sink.end();
}

}  // namespace text_data
