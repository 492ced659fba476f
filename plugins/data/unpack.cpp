// SPDX-License-Identifier: Apache-2.0
// Reads what is compressed.
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <memory>
#include <new>

#include "failure.hpp"
#include "input.hpp"
#include "sniff.hpp"

namespace text_data {
namespace {

constexpr std::size_t piece_bytes = std::size_t{1} << 20;

}  // namespace

void InputFile::each_piece(Packed packed, const Take& take) const {
  if (packed == Packed::gzip) return inflate(take);
  if (packed == Packed::zstd) return unzstd(take);
  each_piece(0, size(), take);
}

std::string InputFile::head(Packed packed, bool* whole) const {
  std::string head;
  *whole = false;
  try {
    if (packed == Packed::no && size() > head_bytes) {
      each_piece(0, head_bytes, [&](std::string_view piece) { head += piece; });
      return head;
    }
    each_piece(packed, [&](std::string_view piece) {
      head += piece.substr(0, head_bytes - head.size());
      if (head.size() == head_bytes) throw Enough();
    });
    *whole = true;
  } catch (const Enough&) {
  }
  return head;
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
      if (whole) {  // zeros fill up blocks, of a tape for example
        while (stream.avail_in > 0 && *stream.next_in == 0) ++stream.next_in, --stream.avail_in;
        if (stream.avail_in == 0) return;
        if (inflateReset(&stream) != Z_OK) throw std::bad_alloc();
      }
      stream.next_out = reinterpret_cast<Bytef*>(out.data());
      stream.avail_out = static_cast<uInt>(out.size());
      const int status = ::inflate(&stream, Z_NO_FLUSH);
      if (status == Z_MEM_ERROR) throw std::bad_alloc();
      if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
        throw Failure(ENG_DATA_LOSS, "[data] " + path_ + " is damaged: " +
                                         (whole ? "what follows the end of its gzip is neither gzip nor zeros"
                                                : "its gzip or the checksum is wrong"));
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
      while (wanted == 0 && in.pos < in.size && piece[in.pos] == 0) ++in.pos;  // as after gzip
      if (wanted == 0 && in.pos == in.size) return;
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

}  // namespace text_data
