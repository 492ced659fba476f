// SPDX-License-Identifier: Apache-2.0
// The data source "chat": conversations, of which only the answers train. Each is written by a chat template, tokenised
// once, and kept in a file with a bit for each token, and with weights. A sample is one conversation, or with `pack`
// several.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include "../documents.hpp"
#include "../failure.hpp"
#include "../notes.hpp"
#include "../options.hpp"
#include "../source.hpp"
#include "../tables.hpp"
#include "chat_build.hpp"

namespace text_data {
namespace {

Policy policy_of(const eng_options* options, const char* key) {
  const std::string value = get_string(options, key);
  return value == "skip" ? Policy::skip : value == "cut" ? Policy::cut : Policy::stop;
}

// All that is opened to read the rows of [data].
struct ChatSetup {
  ChatSetup(const eng_options* options, const eng_data_request& given, bool may_be_unknown)
      : files(data_files(options, given)),
        name(get_string(options, "tokenizer")),
        tokenizer(open_tokenizer(name, base_of(given))),
        chat(get_string(options, "chat_template"), name, base_of(given), get_string(options, "date")) {
    check_vocabulary(name, *tokenizer, given, may_be_unknown);
    chat.check_tokens(*tokenizer);
    const std::string train_on = get_string(options, "train_on");
    request.reading = {get_string(options, "format"), get_string(options, "field"),
                       get_string(options, "errors") == "replace", get_string(options, "missing") == "skip", options};
    request.chat = &chat;
    request.train_on = train_on == "all" ? TrainOn::all : train_on == "last" ? TrainOn::last : TrainOn::assistant;
    request.weights = get_bool(options, "weights");
    request.too_long = policy_of(options, "too_long"), request.on_empty = policy_of(options, "on_empty");
    request.length = static_cast<uint64_t>(given.sequence_length);
    request.folder = (std::filesystem::path(base_of(given)) / get_string(options, "cache")).lexically_normal().string();
  }
  ChatSetup(const ChatSetup&) = delete;
  ChatSetup& operator=(const ChatSetup&) = delete;

  Built built(const std::vector<std::string>& paths, const eng_data_watch* watch) {
    request.files = paths;
    return build_chat(request, *tokenizer, watch);
  }

  DataFiles files;
  std::string name;
  std::unique_ptr<Tokenizer> tokenizer;
  ChatTemplate chat;
  ChatRequest request;
};

void tell(const TokenHeader& all) {
  const auto told = [](uint64_t n, const char* what) {
    if (n > 0) note(std::string("[data] ") + what + ": " + std::to_string(n));
  };
  told(all.skipped, "missing = \"skip\": rows without messages that are left out");
  told(all.empty, "on_empty = \"skip\": rows that train no token and are left out");
  told(all.too_long, "too_long = \"skip\": conversations that are left out");
  told(all.cut, "too_long = \"cut\": conversations whose answers lost their end");
  told(all.unread, "weights = false: rows whose weight, or loss_weight, does not count");
}

// That of the tokens, and of their weights if there are any.
std::string content_hash(const TokenFile& file) {
  if (file.header.weights == 0) return file.hash;
  Hash hash;
  hash.add_field(file.hash);
  hash.add_field(hexadecimal(file.header.table_hash));
  return hash.text();
}

std::unique_ptr<Source> open_chat(const eng_options* options, const eng_data_request& request) {
  ChatSetup setup(options, request, false);
  auto source = std::make_unique<Source>();
  source->weighs = setup.request.weights;
  take_fields(*source, options, request);
  source->alone = !source->pack;
  source->pack = source->masked = true;
  source->vocabulary = setup.tokenizer->info().vocabulary;
  source->files = static_cast<uint32_t>(setup.files.train.size() + setup.files.held.size());
  TokenHeader all{};
  const auto add = [&](const std::vector<std::string>& paths, Stream& stream, std::vector<uint64_t>& starts,
                       std::vector<WeightFrom>& weights) {
    if (paths.empty()) return std::string();
    const Built built = setup.built(paths, nullptr);
    const TokenHeader& header = built.file.header;
    all.skipped += header.skipped, all.empty += header.empty, all.too_long += header.too_long, all.cut += header.cut;
    all.unread += header.unread;
    add_documents(built.file, -1, 0, starts);
    stream.add(std::make_unique<InputFile>(built.file.path), built.file.offset, built.file.tokens, built.file.width);
    add_weights(built.file, weights);
    return content_hash(built.file);
  };
  source->hash = add(setup.files.train, source->stream, source->starts, source->weights);
  const std::string held = add(setup.files.held, source->held, source->held_starts, source->held_weights);
  tell(all);
  cut_windows(*source, request, setup.files, held, "tokens");
  return source;
}

eng_status create_chat(const eng_options* options, const eng_data_request* given, void** self, eng_error* error) {
  return guarded(error, "opening the data", [&] { *self = open_chat(options, complete(given)).release(); });
}

// The fields of every source, and weights.
eng_status fields_of_chat(const eng_options* options, eng_field* out, uint32_t cap, uint32_t* n, eng_error* error) {
  if (const eng_status status = fields_of_source(options, out, cap, n, error); status != ENG_OK) return status;
  return guarded(error, "telling the fields", [&] {
    if (!get_bool(options, "weights")) return;
    if (*n < cap) out[*n] = {ENG_FIELD_LOSS_WEIGHTS, ENG_F32, 0};
    ++*n;
  });
}

eng_status build_rows(const eng_options* options, const eng_data_request* given, const eng_data_watch* watch_of_host,
                      eng_data_built* out, eng_error* error) {
  return guarded(error, "building tokens", [&] {
    const eng_data_request request = complete(given);
    eng_data_watch watch{};
    if (watch_of_host != nullptr)
      std::memcpy(&watch, watch_of_host, std::min<std::size_t>(sizeof(watch), watch_of_host->struct_size));
    ChatSetup setup(options, request, true);
    eng_data_built built{};
    built.struct_size = out->struct_size;
    built.reused = 1;
    Built done;
    for (const auto* paths : {&setup.files.held, &setup.files.train}) {
      if (paths->empty()) continue;
      done = setup.built(*paths, &watch);
      built.reused = built.reused != 0 && done.reused ? 1 : 0;
    }
    tell_built(done, built);
    std::memcpy(out, &built, std::min<std::size_t>(sizeof(built), out->struct_size));
  });
}

}  // namespace

const eng_data chat_table = {.struct_size = sizeof(eng_data),
                             .minor = 0,
                             .create = create_chat,
                             .destroy = destroy_source,
                             .describe = describe_source,
                             .read = read_source,
                             .build = build_rows,
                             .inspect = nullptr,  // the source text does it
                             .fields = fields_of_chat};

}  // namespace text_data
