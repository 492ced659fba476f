// SPDX-License-Identifier: Apache-2.0
#include "sniff.hpp"

#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace text_data {
namespace {

using namespace std::literals;
using Kind = Content::Kind;

template <class T>
T number(std::string_view head, std::size_t at) {
  T value{};
  if (at + sizeof(T) <= head.size()) std::memcpy(&value, head.data() + at, sizeof(T));
  return value;
}

unsigned char byte(std::string_view head, std::size_t at) {
  return at < head.size() ? static_cast<unsigned char>(head[at]) : 0;
}

// ---- what must hold beside the magic number ----

bool binary(std::string_view head) {  // soon after the magic number
  if (head.size() <= 4) return true;
  const std::string_view near = head.substr(0, 64);
  return std::any_of(near.begin(), near.end(), [](char c) {
    const auto u = static_cast<unsigned char>(c);
    return u >= 0x7f || (u < 0x20 && c != '\n' && c != '\r' && c != '\t');
  });
}

bool bzip2(std::string_view head) {
  const std::string_view block = head.substr(std::min<std::size_t>(4, head.size()), 6);
  return byte(head, 3) >= '1' && byte(head, 3) <= '9' &&
         (block == "\x31\x41\x59\x26\x53\x59"sv || block == "\x17\x72\x45\x38\x50\x90"sv);
}

bool skippable(std::string_view head) {  // frames of zstd before the first with content
  return byte(head, 0) >> 4 == 5;
}

bool lzma(std::string_view head) {
  return head.size() >= 13 && (number<uint64_t>(head, 5) == ~uint64_t{0} || number<uint64_t>(head, 5) >> 48 == 0);
}

// Two bytes do not prove it, so it is tried.
bool zlib(std::string_view head) {
  if ((byte(head, 0) * 256u + byte(head, 1)) % 31 != 0 || head.size() < 8) return false;
  z_stream stream{};
  if (inflateInit(&stream) != Z_OK) return false;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(head.data()));
  stream.avail_in = static_cast<uInt>(head.size());
  int status = Z_OK;
  char out[4096];
  while (status == Z_OK && stream.avail_in > 0) {
    stream.next_out = reinterpret_cast<Bytef*>(out);
    stream.avail_out = sizeof(out);
    status = inflate(&stream, Z_NO_FLUSH);
  }
  inflateEnd(&stream);
  return status == Z_STREAM_END || ((status == Z_OK || status == Z_BUF_ERROR) && head.size() >= 512);
}

// The sum of the header's bytes, in octal digits.
bool tar(std::string_view head) {
  constexpr std::size_t block = 512, at = 148, digits = 8;
  if (head.size() < block || head[0] == 0) return false;
  unsigned sum = digits * ' ', told = 0;
  for (std::size_t i = 0; i < block; ++i) sum += i < at || i >= at + digits ? byte(head, i) : 0;
  std::size_t i = at;
  while (i < at + digits && head[i] == ' ') ++i;
  for (; i < at + digits && head[i] >= '0' && head[i] <= '7'; ++i) told = told * 8 + unsigned(head[i] - '0');
  return told == sum;
}

bool first_in_zip(std::string_view head, std::initializer_list<std::string_view> names) {
  const std::string_view name = head.substr(std::min<std::size_t>(30, head.size()), number<uint16_t>(head, 26));
  return std::any_of(names.begin(), names.end(),
                     [&](std::string_view part) { return name.find(part) != std::string_view::npos; });
}
bool torch_zip(std::string_view head) {
  return first_in_zip(head, {"/data.pkl", "/.format_version", "/byteorder", "/.data/"});
}
bool npz(std::string_view head) {
  return first_in_zip(head, {".npy"});
}
bool document(std::string_view head) {
  return first_in_zip(head, {"[Content_Types].xml", "_rels/", "mimetype", "docProps/"});
}

bool framed(std::string_view head) {  // pickle, protocols 4 and 5
  return byte(head, 1) >= 4 && byte(head, 1) <= 5 && byte(head, 2) == 0x95 && number<uint64_t>(head, 3) >> 40 == 0;
}
bool pickled(std::string_view head) {  // protocols 2 and 3
  return byte(head, 1) >= 2 && byte(head, 1) <= 3 && std::strchr("}]()cXKU\x8a\x8b", byte(head, 2)) && byte(head, 2);
}

bool safetensors(std::string_view head) {
  const auto size = number<uint64_t>(head, 0);
  return head.size() > 8 && head[8] == '{' && size >= 2 && size <= uint64_t{100} << 20;
}

// The checksum of a record's length.
bool tfrecord(std::string_view head) {
  if (head.size() < 12) return false;
  uint32_t sum = ~uint32_t{0};
  for (std::size_t i = 0; i < 8; ++i) {
    sum ^= byte(head, i);
    for (int bit = 0; bit < 8; ++bit) sum = sum >> 1 ^ (sum & 1 ? 0x82f63b78u : 0);  // CRC-32C
  }
  sum = ~sum;
  return (sum >> 15 | sum << 17) + 0xa282ead8u == number<uint32_t>(head, 8);
}

bool arrow_stream(std::string_view head) {
  const auto size = number<uint32_t>(head, 4);
  return head.size() >= 8 && size > 0 && size < 1u << 26 && size % 8 == 0;
}

bool program(std::string_view head) {
  return head.size() >= 64 &&
         head.substr(std::min<std::size_t>(number<uint32_t>(head, 60), head.size()), 4) == "PE\0\0"sv;
}
bool film(std::string_view head) {
  return byte(head, 0) == 0 && byte(head, 1) == 0;
}
bool media(std::string_view head) {
  const std::string_view kind = head.substr(std::min<std::size_t>(8, head.size()), 4);
  return kind == "WAVE" || kind == "WEBP" || kind == "AVI ";
}
bool version_below_16(std::string_view head) {
  return byte(head, 3) < 16;
}
bool digit_after_slash(std::string_view head) {
  return byte(head, 5) >= '0' && byte(head, 5) <= '9';
}
bool version_1_or_7(std::string_view head) {
  return number<uint32_t>(head, 4) == 1 || number<uint32_t>(head, 4) == 7;
}

// ---- the table ----

struct Row {
  std::size_t at;
  std::string_view magic;
  bool (*also)(std::string_view head);
  Kind kind;
  std::string_view what;
  std::string_view advice = {}, command = {}, ending = {};
};

constexpr std::string_view decompress = "Decompress it first", unpack = "Unpack it first, and name the files in it",
                           convert = "Turn it into JSON Lines first",
                           by_arrow =
                               "The plugin arrow reads such files, and is not there (engine plugins ls --why). "
                               "Without it, turn it into JSON Lines first",
                           write_lines = "Write its texts into a file of JSON Lines, {\"text\": ...} on each line",
                           no_text = "Leave it out of paths", ids = "Set [data] plugin = \"tokens\"",
                           exported = "export-dataset";

constexpr Row known[] = {
    {0, "\x1f\x8b\x08"sv, nullptr, Kind::gzip, "compressed by gzip", decompress, "gzip -dc"},
    {0, "\x28\xb5\x2f\xfd"sv, nullptr, Kind::zstd, "compressed by zstd", decompress, "zstd -dc"},
    {1, "\x2a\x4d\x18"sv, skippable, Kind::zstd, "compressed by zstd", decompress, "zstd -dc"},
    {0, "BZh"sv, bzip2, Kind::other, "compressed by bzip2", decompress, "bzip2 -dc"},
    {0,
     "\xfd"
     "7zXZ\0"sv,
     nullptr, Kind::other, "compressed by xz", decompress, "xz -dc"},
    {0, "\x5d\0\0"sv, lzma, Kind::other, "compressed by lzma", decompress, "xz --format=lzma -dc"},
    {0, "LZIP\1"sv, nullptr, Kind::other, "compressed by lzip", decompress, "lzip -dc"},
    {0, "\x04\x22\x4d\x18"sv, nullptr, Kind::other, "compressed by lz4", decompress, "lz4 -dc"},
    {0, "\x02\x21\x4c\x18"sv, nullptr, Kind::other, "compressed by lz4", decompress, "lz4 -dc"},
    {0, "\x89LZO\0"sv, nullptr, Kind::other, "compressed by lzop", decompress, "lzop -dc"},
    {0, "\xff\x06\0\0sNaPpY"sv, nullptr, Kind::other, "compressed by snappy", decompress, "snzip -dc"},
    {0, "\x1f\x9d"sv, nullptr, Kind::other, "compressed by compress (.Z)", decompress, "gzip -dc"},
    {0, "\x1f\xa0"sv, nullptr, Kind::other, "compressed by compress -H", decompress, "gzip -dc"},
    {0, "\x1f\x1e"sv, nullptr, Kind::other, "compressed by pack", decompress, "gzip -dc"},
    {0, "x"sv, zlib, Kind::other, "a bare stream of zlib", decompress,
     "python3 -c 'import sys, zlib; sys.stdout.buffer.write(zlib.decompress(sys.stdin.buffer.read()))'"},
    {0, "PK\3\4"sv, torch_zip, Kind::other, "a file of PyTorch (a zip archive of weights or tensors)", no_text},
    {0, "PK\3\4"sv, npz, Kind::other, "a NumPy archive (.npz)",
     "Write the ids of an array with numpy.save and read them with [data] plugin = \"tokens\""},
    {0, "PK\3\4"sv, document, Kind::other, "an office document or a book (a zip archive)",
     "Save its text as plain text in UTF-8"},
    {0, "PK\3\4"sv, nullptr, Kind::other, "a zip archive", unpack, "unzip {}"},
    {0, "PK\5\6"sv, nullptr, Kind::other, "an empty zip archive"},
    {0, "PK\7\x8"sv, nullptr, Kind::other, "a part of a zip archive", unpack, "unzip {}"},
    {0, "7z\xbc\xaf\x27\x1c"sv, nullptr, Kind::other, "a 7z archive", unpack, "7z x {}"},
    {0, "Rar!\x1a\x07"sv, nullptr, Kind::other, "a rar archive", unpack, "unrar x {}"},
    {0, ""sv, tar, Kind::other, "a tar archive", unpack, "tar -xf {}"},
    {0, "!<arch>\n"sv, nullptr, Kind::other, "an ar archive", unpack, "ar x {}"},
    {0, "PAR1"sv, binary, Kind::other, "a Parquet file", by_arrow, exported, ".jsonl.zst"},
    {0, "PARE"sv, binary, Kind::other, "an encrypted Parquet file", write_lines},
    {0, "ARROW1\0\0"sv, nullptr, Kind::other, "an Arrow file (Feather)", by_arrow, exported, ".jsonl.zst"},
    {0, "\xff\xff\xff\xff"sv, arrow_stream, Kind::other, "a stream of Arrow, such as a cache of the library datasets",
     by_arrow, exported, ".jsonl.zst"},
    {0, "FEA1"sv, binary, Kind::other, "a Feather file of version 1", write_lines},
    {0, "ORC"sv, binary, Kind::other, "an ORC file", convert, exported, ".jsonl.zst"},
    {0, "Obj\1"sv, nullptr, Kind::other, "an Avro file", write_lines},
    {0, ""sv, tfrecord, Kind::other, "a TFRecord file", write_lines},
    {0, "SQLite format 3\0"sv, nullptr, Kind::other, "an SQLite database", write_lines},
    {0, "\x89HDF\r\n\x1a\n"sv, nullptr, Kind::other, "an HDF5 file", write_lines},
    {0, "MATLAB 5.0 MAT-file"sv, nullptr, Kind::other, "a MATLAB file", write_lines},
    {16, "\xde\xc0\xef\xbe"sv, nullptr, Kind::other, "an LMDB database", write_lines},
    {0, "\x93NUMPY"sv, nullptr, Kind::tokens, "a NumPy array", ids},
    {0, "ENGTOKEN"sv, nullptr, Kind::tokens, "a file of token ids (of engine data build)", ids},
    {0, "\x88\xd8\x34\x01"sv, version_1_or_7, Kind::tokens, "a file of token ids (llm.c)", ids},
    {0, "\xa1\xd9\x34\x01"sv, version_1_or_7, Kind::tokens, "a file of token ids (llm.c)", ids},
    {0, "\xcb\x99\x9f\x10"sv, version_1_or_7, Kind::tokens, "a file of token ids (NeMo)", ids},
    {0, "MMIDIDX\0\0"sv, nullptr, Kind::tokens, "the index of Megatron's token ids", ids},
    {0, "TNTIDX\0\0"sv, nullptr, Kind::other, "an index of fairseq or of an old Megatron",
     "Make it anew with Megatron's present tools, whose index begins with MMIDIDX"},
    {0, "\x80\2\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"sv, nullptr, Kind::other, "a file of PyTorch", no_text},
    {0, "(lp0\n"sv, nullptr, Kind::other, "a file of pickled Python objects", write_lines},
    {0, "(dp0\n"sv, nullptr, Kind::other, "a file of pickled Python objects", write_lines},
    {0, "]q\0"sv, nullptr, Kind::other, "a file of pickled Python objects", write_lines},
    {0, "}q\0"sv, nullptr, Kind::other, "a file of pickled Python objects", write_lines},
    {0, "\x80"sv, framed, Kind::other, "a file of pickled Python objects", write_lines},
    {0, "\x80"sv, pickled, Kind::other, "a file of pickled Python objects", write_lines},
    {0, ""sv, safetensors, Kind::other, "a file of weights (safetensors)", no_text},
    {0, "GGUF"sv, binary, Kind::other, "a file of weights (GGUF)", no_text},
    {0, "lmgg"sv, binary, Kind::other, "a file of weights (GGML)", no_text},
    {0, "tjgg"sv, binary, Kind::other, "a file of weights (GGML)", no_text},
    {0, "fmgg"sv, binary, Kind::other, "a file of weights (GGML)", no_text},
    {0, "%PDF-"sv, nullptr, Kind::other, "a PDF document", "Extract its text first", "pdftotext {} -", ".txt"},
    {0, "%!PS"sv, nullptr, Kind::other, "a PostScript document", "Extract its text first", "ps2ascii {}", ".txt"},
    {0, "{\\rtf"sv, nullptr, Kind::other, "a document in RTF", "Save its text as plain text in UTF-8"},
    {0, "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"sv, nullptr, Kind::other, "an office document of an old form",
     "Save its text as plain text in UTF-8"},
    {0, "\x89PNG\r\n\x1a\n"sv, nullptr, Kind::other, "a picture (PNG)", no_text},
    {0, "\xff\xd8\xff"sv, nullptr, Kind::other, "a picture (JPEG)", no_text},
    {0, "GIF87a"sv, nullptr, Kind::other, "a picture (GIF)", no_text},
    {0, "GIF89a"sv, nullptr, Kind::other, "a picture (GIF)", no_text},
    {0, "II*\0"sv, nullptr, Kind::other, "a picture (TIFF)", no_text},
    {0, "MM\0*"sv, nullptr, Kind::other, "a picture (TIFF)", no_text},
    {0, "RIFF"sv, media, Kind::other, "a picture, sound or film (RIFF)", no_text},
    {0, "OggS\0"sv, nullptr, Kind::other, "sound (Ogg)", no_text},
    {0, "fLaC"sv, binary, Kind::other, "sound (FLAC)", no_text},
    {0, "ID3"sv, version_below_16, Kind::other, "sound (MP3)", no_text},
    {4, "ftyp"sv, film, Kind::other, "a film or sound (MP4)", no_text},
    {0, "\x1a\x45\xdf\xa3"sv, nullptr, Kind::other, "a film (Matroska)", no_text},
    {0,
     "\x7f"
     "ELF"sv,
     nullptr, Kind::other, "a program or library (ELF)", no_text},
    {0, "MZ"sv, program, Kind::other, "a program (Windows)", no_text},
    {0, "\xcf\xfa\xed\xfe"sv, nullptr, Kind::other, "a program (macOS)", no_text},
    {0, "\0asm"sv, nullptr, Kind::other, "a program (WebAssembly)", no_text},
    {0, "Salted__"sv, binary, Kind::other, "encrypted by openssl", "Decrypt it first"},
    {0, "age-encryption.org/"sv, nullptr, Kind::other, "encrypted by age", "Decrypt it first", "age -d"},
    {0, "-----BEGIN PGP MESSAGE-----"sv, nullptr, Kind::other, "encrypted by PGP", "Decrypt it first", "gpg -d"},
    {0, "version https://git-lfs.github.com/spec/"sv, nullptr, Kind::other, "a Git LFS pointer, not the file itself",
     "Fetch the file, in its repository", "cd {dir} && git lfs pull"},
    {0, "version https://hawser.github.com/spec/"sv, nullptr, Kind::other, "a Git LFS pointer, not the file itself",
     "Fetch the file, in its repository", "cd {dir} && git lfs pull"},
    {0, "/annex/objects/"sv, nullptr, Kind::other, "a pointer of git-annex, not the file itself",
     "Fetch the file, in its repository", "cd {dir} && git annex get {}"},
    {0, "outs:\n- md5: "sv, nullptr, Kind::other, "a pointer of DVC, not the file itself",
     "Fetch the file, in its repository", "cd {dir} && dvc pull"},
    {0, "WARC/"sv, digit_after_slash, Kind::page, "a web archive (WARC), with headers between its pages"},
};

bool matches(const Row& row, std::string_view head) {
  return head.size() >= row.at + row.magic.size() && head.substr(row.at, row.magic.size()) == row.magic &&
         (!row.also || row.also(head));
}

// One id of 16 bits can be so by chance.
bool weak(const Row& row) {
  return row.magic.size() <= 2 && (!row.also || row.also == pickled || row.also == zlib);
}

Content sniff_table(std::string_view head, bool among_ids) {
  for (const Row& row : known)
    if (!(among_ids && weak(row)) && matches(row, head))
      return {row.kind, row.what, row.advice, row.command, row.ending};
  return {};
}

}  // namespace

Content sniff(std::string_view head, bool whole) {
  constexpr std::string_view mark = "\xef\xbb\xbf";
  const bool marked = head.substr(0, mark.size()) == mark;
  if (!marked) {
    if (const Content found = sniff_table(head, false); found.kind != Kind::text) return found;
    if (const Content found = sniff_encoding(head, whole); found.kind != Kind::text) return found;
  }
  const std::string_view text = head.substr(marked ? mark.size() : 0);
  Content found = sniff_page(text);
  if (found.kind == Kind::text) found = sniff_json(text, whole);
  found.mark = marked ? mark.size() : 0;
  return found;
}

Content sniff_among_ids(std::string_view head, bool whole) {
  if (const Content found = sniff_table(head, true); found.kind != Kind::text) return found;
  return is_plain_text(head) ? sniff(head, whole) : Content();
}

}  // namespace text_data
