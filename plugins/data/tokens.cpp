// SPDX-License-Identifier: Apache-2.0
// The data source "tokens": files that hold token ids.
#include <algorithm>
#include <set>
#include <utility>

#include "documents.hpp"
#include "failure.hpp"
#include "host_threads.hpp"
#include "options.hpp"
#include "source.hpp"
#include "tables.hpp"
#include "token_file.hpp"
#include "tokenizer.hpp"

namespace text_data {
namespace {

std::unique_ptr<Source> open_tokens(const eng_options* options, const eng_data_request& request) {
  const DataFiles files = data_files(options, request);
  // Opened only where a file says which tokenizer made it.
  const std::string named = options->is_set(options, "tokenizer") ? get_string(options, "tokenizer") : "";
  std::string meaning;
  auto source = std::make_unique<Source>();
  take_fields(*source, options, request);
  int64_t eot = get_int(options, "eot");
  const std::string dtype = get_string(options, "dtype");
  if (source->pack && eot < 0 && !named.empty()) eot = open_tokenizer(named, base_of(request))->info().eot;
  std::set<std::string> taken;  // PREFIX.bin and PREFIX.idx belong together
  const auto add = [&](const std::vector<std::string>& paths, Stream& stream, std::vector<uint64_t>& starts) {
    Hash hash;
    std::vector<TokenFile> opened;
    for (const std::string& path : paths) {
      TokenFile file = open_token_file(path, dtype, request.vocabulary);
      if (!taken.insert(file.path).second) continue;
      ++source->files;
      if (file.header.masked != 0)
        throw Failure(ENG_INVALID,
                      "[data] " + path +
                          " holds chat data with masks, which only [data] plugin = \"chat\" reads: give it "
                          "the rows that this file was made from");
      if (file.header.vocabulary > request.vocabulary) {
        throw Failure(ENG_INVALID, "[data] " + path + " was made by a tokenizer of " +
                                       std::to_string(file.header.vocabulary) + " ids, but the model's vocabulary is " +
                                       std::to_string(request.vocabulary) + ": set [model] vocab_size to " +
                                       std::to_string(file.header.vocabulary) + " or more");
      }
      if (!named.empty() && file.header.magic[0] != 0) {
        if (meaning.empty()) meaning = open_tokenizer(named, base_of(request))->info().hash;
        if (hexadecimal(file.header.tokenizer) != meaning)
          throw Failure(ENG_INVALID, "[data] " + path + " was made by another tokenizer than [data] tokenizer = \"" +
                                         named + "\": build it again with this one, or name the one it was made by");
      }
      opened.push_back(std::move(file));
    }
    // Every token is read: the slow part, where there are many files.
    each_of(opened.size(), [&](uint64_t k) { scan(opened[k], request.vocabulary); });
    for (const TokenFile& file : opened) {
      source->vocabulary = std::max({source->vocabulary, file.header.vocabulary, file.largest + 1});
      hash.add_field(file.hash + " " + std::to_string(file.width));
      if (file.tokens == 0) continue;
      auto kept = std::make_unique<InputFile>(file.path);
      if (kept->size() < file.offset + file.tokens * file.width)
        throw Failure(ENG_DATA_LOSS, "[data] " + file.path + ": the file changed while it was read");
      if (source->pack) add_documents(file, eot, stream.size(), starts);
      stream.add(std::move(kept), file.offset, file.tokens, file.width);
    }
    return hash.text();
  };
  const std::string held = add(files.held, source->held, source->held_starts);
  source->hash = add(files.train, source->stream, source->starts);
  cut_windows(*source, request, files, held, "tokens");
  return source;
}

eng_status create_tokens(const eng_options* options, const eng_data_request* given, void** self, eng_error* error) {
  return guarded(error, "opening the data", [&] { *self = open_tokens(options, complete(given)).release(); });
}

}  // namespace

const eng_data tokens_table = {.struct_size = sizeof(eng_data),
                               .minor = 0,
                               .create = create_tokens,
                               .destroy = destroy_source,
                               .describe = describe_source,
                               .read = read_source,
                               .build = nullptr,
                               .inspect = inspect_file,
                               .fields = fields_of_source};

}  // namespace text_data
