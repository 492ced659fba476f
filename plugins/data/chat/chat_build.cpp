// SPDX-License-Identifier: Apache-2.0
#include "chat_build.hpp"

#include <algorithm>

#include "../failure.hpp"
#include "../host_threads.hpp"
#include "../json_text.hpp"
#include "../rows.hpp"
#include "../utf8.hpp"
#include "masked_tokens.hpp"

namespace text_data {
namespace {

struct Counts {
  uint64_t missing = 0, empty = 0, too_long = 0, cut = 0, trained = 0, unread = 0;
};

// A row on its way to the file.
struct ChatRow {
  std::string text, where;
  MaskedTokens tokens;
  Counts counts;
};

class ChatWriter {
 public:
  ChatWriter(const ChatRequest& request, const Tokenizer& tokenizer, TokenWriter& out, Watch& watch)
      : request_(request), tokenizer_(tokenizer), out_(out), watch_(watch) {}

  void add(std::string text, std::string where) {
    bytes_ += text.size();
    rows_.push_back({std::move(text), std::move(where), {}, {}});
    if (rows_.size() == most_rows || bytes_ >= most_bytes) flush();
  }

  void flush() {
    each_of(rows_.size(), [&](uint64_t i) { read(rows_[i]); });
    for (const ChatRow& row : rows_) {
      const Counts& c = row.counts;
      counts_.missing += c.missing, counts_.empty += c.empty, counts_.too_long += c.too_long, counts_.cut += c.cut;
      counts_.trained += c.trained, counts_.unread += c.unread;
      const std::vector<int32_t>& values = row.tokens.values;
      if (values.empty()) continue;
      for (std::size_t i = 0; i < values.size(); ++i)
        if (values[i] % 2 != 0) out_.weigh(out_.tokens() + i, row.tokens.weights[i]);
      out_.begin_document();
      out_.add(values.data(), values.size());
    }
    watch_.tokens = out_.tokens();
    rows_.clear();
    bytes_ = 0;
  }
  const Counts& counts() const { return counts_; }

 private:
  static constexpr std::size_t most_rows = 1024, most_bytes = std::size_t{16} << 20;

  // Trained tokens that are labels: the first token of a sample is none.
  static uint64_t labels(const std::vector<int32_t>& values) {
    return static_cast<uint64_t>(
        std::count_if(values.begin() + (values.empty() ? 0 : 1), values.end(), [](int32_t v) { return v % 2 != 0; }));
  }

  void read(ChatRow& row) const {
    std::string kept;
    if (request_.reading.replace) {
      if (const std::string_view valid = valid_utf8(row.text, kept); valid.data() == kept.data()) row.text = kept;
    }
    Conversation conversation;
    try {
      conversation = read_conversation(row.text, request_.reading.field, row.where, request_.weights);
    } catch (const Failure& failure) {
      if (failure.status != ENG_NOT_FOUND) throw;
      if (!request_.reading.skip)
        throw Failure(ENG_INVALID,
                      failure.text + ". With [data] missing = \"skip\" such rows are left out, and counted");
      row.counts.missing = 1;
      return;
    }
    row.counts.unread = conversation.unread ? 1 : 0;
    MaskedText text;
    try {
      text = masked_text(*request_.chat, conversation, request_.train_on, row.where);
    } catch (const jinja::BadValue& bad) {
      throw Failure(ENG_INVALID, row.where + ": " + printable(bad.what(), 300));
    }
    row.tokens = masked_tokens(tokenizer_, text, row.where);
    const std::vector<int32_t>& values = row.tokens.values;
    const uint64_t before = labels(values), most = request_.length + 1;
    if (values.size() > most && before > 0) cut(row, most);
    if (values.empty()) return;
    row.counts.trained = labels(values);
    if (row.counts.trained > 0) return;
    if (request_.on_empty == Policy::stop)
      throw Failure(
          ENG_INVALID,
          row.where + ": the row trains no token: " +
              (before > 0 ? "its answers begin behind the " + std::to_string(most) +
                                " tokens of a sample. Raise [train] sequence_length"
               : conversation.weight == 0 ? std::string("its weight is 0")
               : text.spans.empty() ? std::string("it has no answer that trains (a message of the role assistant)")
                                    : std::string("its answers are empty")) +
              ", or leave such rows out with [data] on_empty = \"skip\"");
    row.counts = {};
    row.counts.empty = 1;
    row.tokens = {};
  }

  void cut(ChatRow& row, uint64_t most) const {
    if (request_.too_long == Policy::stop)
      throw Failure(ENG_INVALID, row.where + ": the conversation is " + std::to_string(row.tokens.values.size()) +
                                     " tokens, a sample holds " + std::to_string(most) +
                                     " ([train] sequence_length = " + std::to_string(request_.length) +
                                     " and one more): raise it, or set [data] too_long = \"cut\" or \"skip\"");
    if (request_.too_long == Policy::skip) {
      row.tokens = {};
      row.counts.too_long = 1;
      return;
    }
    const bool answer = std::any_of(row.tokens.values.begin() + static_cast<std::ptrdiff_t>(most),
                                    row.tokens.values.end(), [](int32_t v) { return v % 2 != 0; });
    row.counts.cut = answer ? 1 : 0;
    row.tokens.values.resize(most);
  }

  const ChatRequest& request_;
  const Tokenizer& tokenizer_;
  TokenWriter& out_;
  Watch& watch_;
  std::vector<ChatRow> rows_;
  std::size_t bytes_ = 0;
  Counts counts_;
};

Digest chat_key(const ChatRequest& request, const Tokenizer& tokenizer, Watch& watch) {
  Hash hash;
  hash.add_field("engine chat 1");
  hash.add_field(tokenizer.info().hash);
  hash.add_field(tokenizer.libraries());
  hash.add_field(request.chat->key());
  for (const int64_t value : {static_cast<int64_t>(request.train_on), static_cast<int64_t>(request.too_long),
                              static_cast<int64_t>(request.on_empty), static_cast<int64_t>(request.length),
                              int64_t{request.reading.replace}, int64_t{request.reading.skip}})
    hash.add_field(std::to_string(value));
  hash.add_field(request.reading.field);
  if (request.weights) hash.add_field("weights");
  for (const std::string& path : request.files) {
    InputFile file(path);
    const TextFormat format = text_format(file, request.reading);
    if (!format.has_rows())
      throw Failure(ENG_INVALID,
                    "[data] " + path + " is not JSON Lines: chat data are rows, an object of JSON on each line");
    hash.add_field(format.is_ours() ? format.key(path) : std::string("by ") + format.by_plugin.identity);
    hash.add_field(format.packed == Packed::gzip ? ".gz" : format.packed == Packed::zstd ? ".zst" : "");
    hash.add_field(hexadecimal(digest_of(file, watch)));
  }
  return hash.digest();
}

void read_file(const std::string& path, const ChatRequest& request, ChatWriter& rows, Watch& watch) {
  InputFile file(path);
  const TextFormat format = text_format(file, request.reading);
  file.on_read = [&](uint64_t bytes) { watch.add(bytes); };
  each_row(file, request.reading, format,
           [&](std::string row, std::string where) { rows.add(std::move(row), std::move(where)); });
  rows.flush();
  check_same(file);
}

}  // namespace

Built build_chat(const ChatRequest& request, const Tokenizer& tokenizer, const eng_data_watch* watch_of_host) {
  Watch watch(watch_of_host, request.files);
  const Digest key = chat_key(request, tokenizer, watch);
  return find_or_make(request.folder, key, [&](const std::string& path) {
    TokenHeader header{};
    header.masked = 1;
    header.width = tokenizer.info().vocabulary <= 32768 ? 2 : 4;
    header.vocabulary = tokenizer.info().vocabulary;
    header.eot = -1;
    header.key = key;
    set_tokenizer(header, tokenizer);
    TokenWriter writer(path, header);
    ChatWriter rows(request, tokenizer, writer, watch);
    for (const std::string& name : request.files) read_file(name, request, rows, watch);
    watch.tell();
    const Counts& c = rows.counts();
    if (writer.tokens() == 0)
      throw Failure(ENG_INVALID,
                    "[data] paths: no row is left to train on (without messages: " + std::to_string(c.missing) +
                        ", without a token that trains: " + std::to_string(c.empty) +
                        ", too long: " + std::to_string(c.too_long) + ")");
    writer.set_masks(c.trained, c.empty, c.too_long, c.cut, c.unread);
    writer.finish(c.missing, 0);
  });
}

}  // namespace text_data
