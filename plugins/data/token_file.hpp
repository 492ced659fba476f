// SPDX-License-Identifier: Apache-2.0
// Files of tokens: our own format, nanoGPT's, llm.c's, NeMo's, Megatron's and NumPy's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hash.hpp"
#include "input.hpp"

namespace text_data {

// The header of our own files, little-endian. After it, from byte 256 on, come `tokens` ids of `width` bytes, zeros up
// to a multiple of 8, for each document the index (u64) of its first token, and `weights` times WeightFrom.
struct TokenHeader {
  char magic[8];     // "ENGTOKEN"
  uint32_t version;  // 1
  uint32_t width;    // 2 or 4
  uint64_t tokens;
  uint64_t documents;
  int64_t vocabulary;             // of the tokenizer: ids are below
  int64_t largest;                // id; -1: no tokens
  int64_t eot;                    // id between documents; -1: none
  uint64_t table;                 // where the documents' indices begin
  Digest token_hash, table_hash;  // table: the documents' indices and the weights
  Digest key;                     // of what it was made from; its name
  Digest tokenizer;               // of the tokenizer
  uint64_t skipped, wrong;        // rows without a text, and bytes that are no text, of what it was made from
  uint64_t masked;                // 1: a value is 2 * id, and 1 more if the token is trained
  uint64_t trained;               // tokens of masked ones, and rows that were left out for want of one
  uint64_t empty;
  uint64_t too_long, cut;  // rows that were left out, and that lost their end
  uint64_t weights;
  uint64_t unread;  // rows whose weight does not count
  char reserved[40];
  Digest header_hash;  // of all bytes before
};
static_assert(sizeof(TokenHeader) == 256);

// The tokens from this one to that of the next entry have this weight in the loss; those before the first have 1.
struct WeightFrom {
  uint64_t token;
  float weight;  // finite, at least 0
  uint32_t reserved;
};
static_assert(sizeof(WeightFrom) == 16);

// The tokens of a file: their position and properties.
struct TokenFile {
  std::string path;  // of the file that holds the tokens
  std::string format;
  uint64_t offset = 0, tokens = 0, documents = 0;  // documents: 0 where the format does not say
  uint32_t width = 2;
  bool is_signed = false;
  TokenHeader header{};  // only for our own files; then its magic is set
  std::string doubt;     // the width of the ids was not stated: ends errors about them
  // Filled by `scan`.
  int64_t largest = -1, smallest = 0;
  std::string hash;
};

// The type of an id, by its name in [data] dtype; NULL: there is none.
struct Dtype {
  const char* name;
  uint32_t width;
  bool is_signed;
};
const Dtype* find_dtype(std::string_view name);
bool has_ending(const std::string& path, std::string_view ending);  // in small or capital letters

// Recognises the format and checks everything except the tokens. `path` may be Megatron's .idx or its .bin. `dtype` is
// the type of ids in files without a header, or "auto"; then they are compared with `vocabulary` (0: not known). Throws
// Failure.
TokenFile open_token_file(const std::string& path, const std::string& dtype = "auto", int64_t vocabulary = 0);
// Reads every token. Throws Failure for an id that is not below `vocabulary` (0: any id is accepted), with file and
// offset, and for a wrong checksum.
void scan(TokenFile& file, int64_t vocabulary);
// A description as lines "name: value".
std::string describe(const TokenFile& file, bool scanned);

// The place at which an interrupted writer goes on: before this part of this file, of those that it makes tokens of;
// and the counts of the rows before it.
struct BuildMark {
  uint64_t file = 0, part = 0, skipped = 0, wrong = 0;
};

// Throws Failure for a file that cannot be written, of which `code` is the error.
[[noreturn]] void fail_write(const std::string& path, int code);

// Writes our own format. The file has a temporary name until it is complete and on the disk.
class TokenWriter {
 public:
  // `path` is the final name. Throws Failure.
  TokenWriter(std::string path, const TokenHeader& header);
  TokenWriter(const TokenWriter&) = delete;
  TokenWriter& operator=(const TokenWriter&) = delete;
  ~TokenWriter();  // removes what was not finished, unless it is to be kept
  // If this process ends before the file is finished, a writer with the same path and header goes on from here.
  void keep(const BuildMark& mark);
  // Goes on with the file of a writer that was interrupted, whose process has ended. Nothing: there is none. To be
  // called before anything is written.
  std::optional<BuildMark> go_on();
  // Leaves what was kept for another writer. False if nothing was.
  bool leave() { return left_ = documents_fd_ >= 0; }
  void begin_document() { documents_.push_back(header_.tokens); }
  bool has_documents() const { return !documents_.empty(); }
  void add(const int32_t* ids, std::size_t count);
  uint64_t tokens() const { return header_.tokens; }
  void weigh(uint64_t token, float weight);  // from this token on, which is behind that of the call before
  // For the header.
  void set_masks(uint64_t trained, uint64_t empty, uint64_t too_long, uint64_t cut, uint64_t unread);
  TokenHeader finish(uint64_t skipped = 0, uint64_t wrong = 0);  // these two for the header

 private:
  void write(const void* data, std::size_t size);
  void flush();
  bool adopt(const std::string& temporary, BuildMark& mark);
  void remove_kept() const;
  std::string beside(const char* what) const;  // a file beside the temporary one
  std::string path_, temporary_;
  int fd_ = -1, documents_fd_ = -1;
  uint64_t documents_kept_ = 0;
  bool left_ = false;
  TokenHeader header_;
  Hash hash_;
  std::vector<uint64_t> documents_;
  std::vector<WeightFrom> weights_;
  std::string buffer_;
};

}  // namespace text_data
