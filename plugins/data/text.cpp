// SPDX-License-Identifier: Apache-2.0
// The data source "text": documents that formats read from files. With the tokenizer "bytes" the documents are the
// tokens, and large plain files are read in place. For all other tokenizers the tokens are made once and kept in a
// file.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include "build.hpp"
#include "documents.hpp"
#include "failure.hpp"
#include "notes.hpp"
#include "options.hpp"
#include "source.hpp"
#include "tables.hpp"
#include "text_format.hpp"

namespace text_data {
namespace {

constexpr uint64_t small_file = uint64_t{1} << 20;
constexpr uint64_t small_files_in_all = uint64_t{64} << 20;
constexpr uint64_t copy_block = uint64_t{8} << 20;  // a copied segment ends here, so that growing stays cheap

// Bytes as tokens: the documents in the order of the files, with the separator between two; empty documents are
// skipped. Files above 1 MiB stay on disk, open. Smaller ones are copied as long as the copies are below 64 MiB in all:
// a process cannot have thousands of files open everywhere, and small files are those that people edit while a run
// reads them. JSON Lines and compressed files are copied, up to `most` bytes in all.
class ByteStream {
 public:
  // `starts`: receives the first token of each document; may be NULL.
  ByteStream(Stream& stream, Reading reading, std::string separator, uint64_t most, std::vector<uint64_t>* starts)
      : stream_(stream), reading_(std::move(reading)), separator_(std::move(separator)), most_(most), starts_(starts) {
    hash_.add("engine text: bytes\n");
  }

  void add(const std::string& path) {
    auto opened = std::make_unique<InputFile>(path);
    const InputFile& file = *opened;
    const TextFormat format = text_format(file, reading_);
    const bool plain = format.is_verbatim() && format.packed == Packed::no;
    path_ = path;
    const uint64_t count = file.size() - std::min(format.mark, file.size());
    if (plain && (count > small_file || small_ + count > small_files_in_all)) {
      each_document(file, reading_, format,
                    {[this] {
                       begin_document();
                       end_block();
                     },
                     [this](std::string_view text) { hash_.add(text); }, [] {}},
                    seen);
      size_ += count;
      return stream_.add(std::move(opened), format.mark, count, 1);
    }
    if (plain) small_ += count;
    each_document(file, reading_, format,
                  {[this] { begin_document(); }, [this](std::string_view text) { copy(text); }, [] {}}, seen);
  }

  Seen seen;

  std::string finish() {
    end_block();
    return hash_.text();
  }

 private:
  void begin_document() {
    if (size_ > 0) copy(separator_);
    if (starts_ != nullptr) starts_->push_back(size_);
  }
  void copy(std::string_view text) {
    if (text.empty()) return;
    kept_ += text.size();
    if (kept_ > most_)
      throw Failure(ENG_INVALID,
                    "[data] paths: the text of " + path_ + ", and of the files before it, is more than the " +
                        std::to_string(most_) +
                        " bytes of [data] memory. Plain text files above 1 MiB stay on disk and do not "
                        "count: decompress it, or write the texts of JSON Lines into one. Or raise memory");
    if (block_ == nullptr) block_ = std::make_unique<std::string>();
    block_->append(text);
    size_ += text.size();
    hash_.add(text);
    if (block_->size() >= copy_block) end_block();
  }
  void end_block() {
    if (block_ == nullptr) return;
    block_->shrink_to_fit();
    stream_.add(std::move(block_));
  }

  Stream& stream_;
  Reading reading_;
  std::string separator_;
  std::unique_ptr<std::string> block_;
  Hash hash_;
  uint64_t size_ = 0, small_ = 0, kept_ = 0;
  const uint64_t most_;
  std::vector<uint64_t>* starts_;
  std::string path_;  // of the file that is read
};

Reading reading_of(const eng_options* options) {
  return {get_string(options, "format"), get_string(options, "field"), get_string(options, "errors") == "replace",
          get_string(options, "missing") == "skip", options};
}

void tell(const Seen& seen, bool bytes, bool skip) {
  if (seen.skipped > 0)
    note((skip ? "[data] missing = \"skip\": rows without a text that are left out: "
               : "[data] rows that the format leaves out: ") +
         std::to_string(seen.skipped));
  if (seen.wrong > 0)
    note("[data] bytes of the text that are not UTF-8, or NUL: " + std::to_string(seen.wrong) + "; " +
         (bytes ? "they are trained on as they are" : "those that are not UTF-8 are read as U+FFFD"));
}

BuildRequest build_request(const eng_options* options, const eng_data_request& request, const std::string& name,
                           const Tokenizer& tokenizer) {
  BuildRequest out;
  out.reading = reading_of(options);
  if (out.reading.format == "bytes")
    throw Failure(ENG_INVALID, "[data] format = \"bytes\" is for tokenizer = \"bytes\": " + name +
                                   " reads text, and would lose what is not UTF-8. Set format = \"auto\" or \"text\"");
  out.separator = get_string(options, "separator");
  if (get_bool(options, "eot")) {
    out.eot = tokenizer.info().eot;
    if (out.eot < 0 && options->is_set(options, "eot") != 0) {
      throw Failure(ENG_INVALID, "[data] eot = true, but the tokenizer " + name +
                                     " has no end-of-text token: set eot = false, then separator is put between "
                                     "two documents");
    }
  }
  out.special = get_bool(options, "special_tokens");
  out.folder = (std::filesystem::path(base_of(request)) / get_string(options, "cache")).lexically_normal().string();
  return out;
}

void refuse_empty(const std::vector<std::string>& files) {
  const bool one = files.size() == 1;
  const std::string first = one ? files[0] + " is empty" : "all " + std::to_string(files.size()) + " files are empty";
  throw Failure(ENG_INVALID, "[data] paths: " + first + (one ? "" : " (the first is " + files[0] + ")"));
}

std::unique_ptr<Source> open_source(const eng_options* options, const eng_data_request& request) {
  const DataFiles files = data_files(options, request);
  const std::string name = get_string(options, "tokenizer");
  const auto tokenizer = open_tokenizer(name, base_of(request));
  check_vocabulary(name, *tokenizer, request, false);
  auto source = std::make_unique<Source>();
  take_fields(*source, options, request);
  source->vocabulary = tokenizer->info().vocabulary;
  source->files = static_cast<uint32_t>(files.train.size() + files.held.size());
  Seen seen;
  // Puts the tokens of the files into the stream and returns their hash.
  const auto add = [&](const std::vector<std::string>& paths, Stream& stream, std::vector<uint64_t>& starts) {
    if (paths.empty()) return std::string();
    if (name == "bytes") {
      ByteStream bytes(stream, reading_of(options), get_string(options, "separator"),
                       static_cast<uint64_t>(get_int(options, "memory")), source->pack ? &starts : nullptr);
      for (const std::string& path : paths) bytes.add(path);
      seen.skipped += bytes.seen.skipped, seen.wrong += bytes.seen.wrong;
      return bytes.finish();
    }
    BuildRequest wanted = build_request(options, request, name, *tokenizer);
    wanted.files = paths;
    const Built built = build(wanted, *tokenizer, nullptr);
    seen.skipped += built.file.header.skipped, seen.wrong += built.file.header.wrong;
    if (source->pack) add_documents(built.file, -1, 0, starts);
    if (built.file.tokens > 0)
      stream.add(std::make_unique<InputFile>(built.file.path), built.file.offset, built.file.tokens, built.file.width);
    return built.file.hash;
  };
  source->hash = add(files.train, source->stream, source->starts);
  const std::string held = add(files.held, source->held, source->held_starts);
  tell(seen, name == "bytes", get_string(options, "missing") == "skip");
  if (name == "bytes" && !files.train.empty() && source->stream.size() == 0) refuse_empty(files.train);
  cut_windows(*source, request, files, held, name == "bytes" ? "tokens (bytes)" : "tokens");
  return source;
}

eng_status create(const eng_options* options, const eng_data_request* given, void** self, eng_error* error) {
  return guarded(error, "opening the data", [&] { *self = open_source(options, complete(given)).release(); });
}

eng_status build_tokens(const eng_options* options, const eng_data_request* given, const eng_data_watch* watch_of_host,
                        eng_data_built* out, eng_error* error) {
  return guarded(error, "building tokens", [&] {
    const eng_data_request request = complete(given);
    eng_data_watch watch{};
    if (watch_of_host != nullptr)
      std::memcpy(&watch, watch_of_host, std::min<std::size_t>(sizeof(watch), watch_of_host->struct_size));
    eng_data_built built{};
    built.struct_size = out->struct_size;
    const std::string name = get_string(options, "tokenizer");
    if (name != "bytes") {
      const auto tokenizer = open_tokenizer(name, base_of(request));
      check_vocabulary(name, *tokenizer, request, true);
      const DataFiles files = data_files(options, request);
      BuildRequest wanted = build_request(options, request, name, *tokenizer);
      Built done;
      built.reused = 1;
      // The build reports the file of the training data. The held-out files have one of their own.
      for (const auto* paths : {&files.held, &files.train}) {
        if (paths->empty()) continue;
        wanted.files = *paths;
        done = build(wanted, *tokenizer, &watch);
        built.reused = built.reused != 0 && done.reused ? 1 : 0;
      }
      tell_built(done, built);
    }
    std::memcpy(out, &built, std::min<std::size_t>(sizeof(built), out->struct_size));
  });
}

}  // namespace

const eng_data text_table = {.struct_size = sizeof(eng_data),
                             .minor = 0,
                             .create = create,
                             .destroy = destroy_source,
                             .describe = describe_source,
                             .read = read_source,
                             .build = build_tokens,
                             .inspect = inspect_file,
                             .fields = fields_of_source};

}  // namespace text_data
