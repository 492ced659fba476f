// SPDX-License-Identifier: Apache-2.0
// The data source "pairs": of two answers to one question, the first is preferred. Each row of a file is an object
// with the texts `prompt`, `chosen` and `rejected`. Samples 2k and 2k + 1 are the two answers of a pair, each after the
// prompt; only tokens of the answer are labels. The order of pairs is drawn anew in every epoch.
//
// With the option `unpaired`, an object has the texts `prompt` and `completion`, and `label`: true for a good answer.
// Sample 2k is the answer, and 2k + 1 its prompt with the answer of the row before, for the loss kto. The first row of
// a split takes that of the last. The field `desirable` is 1 at each position of a good answer's two samples, else 0.
//
// With the option `weights`, a row may have a `weight`, and there is the field `pair_weights`: it has that of a pair,
// or of a single answer, at the first label of sample 2k.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "failure.hpp"
#include "files.hpp"
#include "hash.hpp"
#include "json_text.hpp"
#include "notes.hpp"
#include "options.hpp"
#include "rows.hpp"
#include "source.hpp"
#include "tables.hpp"
#include "text_format.hpp"
#include "tokenizer.hpp"
#include "windows.hpp"

namespace text_data {
namespace {

// Tokens [first, first + length) of the source, without the one behind the last label. The labels of the tokens before
// `trained` do not count.
struct Sequence {
  uint64_t first = 0;
  uint32_t length = 0, trained = 0;
};

struct PairSource {
  uint32_t files = 0;
  uint64_t seed = 0, length = 0;
  int64_t vocabulary = 0;
  std::string hash;
  std::vector<int32_t> tokens;
  std::vector<Sequence> sequences[2];  // by split; two for each pair
  bool unpaired = false, weighs = false;
  std::vector<uint8_t> desirable[2];               // by split; one for each pair, if unpaired
  std::vector<float> weights[2];                   // by split; one for each pair, if weighs
  uint32_t desirable_field = 0, weight_field = 0;  // numbers of the fields; 0: there is none
};

// Reads rows, and makes two sequences of each.
class PairReader {
 public:
  PairReader(const eng_options* options, const eng_data_request& request, const Tokenizer& tokenizer,
             PairSource& source)
      : tokenizer_(tokenizer),
        source_(source),
        share_(get_float(options, "validation")),
        too_long_(get_string(options, "too_long")),
        eot_(get_bool(options, "eot") ? tokenizer.info().eot : -1),
        length_(static_cast<std::size_t>(request.sequence_length)) {
    if (!(share_ >= 0 && (share_ <= 0.5 || share_ == 1)))
      throw Failure(ENG_INVALID, "[data] validation must be from 0 to 0.5, or 1 to hold out everything");
  }

  void read(const std::string& path) {
    const InputFile file(path);
    const Reading reading;
    const TextFormat format = text_format(file, reading);
    if (!format.has_rows()) throw Failure(ENG_INVALID, "[data] " + path + " is not JSON Lines: a row is " + form());
    each_row(file, reading, format, [&](const std::string& text, std::string where) {
      where_ = std::move(where);
      row(text);
    });
  }

  void finish() {
    for (int split = 0; split < 2 && source_.unpaired; ++split) {
      std::vector<Sequence>& all = source_.sequences[split];
      if (all.empty()) continue;
      if (all.size() == 2)
        throw Failure(ENG_INVALID, "[data] unpaired: one row is too few, its prompt needs the answer of another one");
      all[1] = sequence(first_[split], before_[split]);
    }
    const std::string cut = std::to_string(cut_), skipped = std::to_string(skipped_);
    if (cut_) note("[data] too_long = \"cut\": answers that lost their end: " + cut);
    if (skipped_) note("[data] too_long = \"" + too_long_ + "\": pairs that are left out: " + skipped);
    if (unread_)
      note("[data] weights = false: rows whose weight, or loss_weight, does not count: " + std::to_string(unread_));
    if (pairs_ == 0)
      throw Failure(ENG_INVALID,
                    "[data] paths: " + (skipped_ ? "each of the " + skipped + " pairs is longer than a sample"
                                                 : std::string("the files hold no pair")));
    if (source_.sequences[0].empty() && share_ != 1)
      throw Failure(ENG_INVALID, "[data] validation holds out every pair: nothing is left to train on");
    const auto& weights = source_.weights[0];
    if (source_.weighs &&
        std::count(weights.begin(), weights.end(), 0.0F) == static_cast<std::ptrdiff_t>(weights.size()) &&
        !weights.empty())
      throw Failure(ENG_INVALID, "[data] weights: each of the " + std::to_string(weights.size()) +
                                     " rows that train has the weight 0: nothing is left to train on (the last is " +
                                     where_ + ")");
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw Failure(ENG_INVALID, where_ + ": " + what); }

  const std::string& text_of(const nlohmann::json& row, const char* name) const {
    const auto found = row.find(name);
    if (found == row.end())
      fail(std::string("no field \"") + name + "\": a " + (source_.unpaired ? "row" : "pair") + " is " + form());
    if (!found->is_string())
      fail(std::string("field \"") + name + "\" is a " + found->type_name() + ", not a string" +
           (found->is_array() ? ": chats are not read as pairs yet; write each answer as one text, for example by "
                                "tokenizer.apply_chat_template of transformers"
                              : ""));
    return found->get_ref<const std::string&>();
  }

  void row(const std::string& text) {
    nlohmann::json row;
    try {
      row = nlohmann::json::parse(text);
    } catch (const nlohmann::json::exception& error) {
      fail("not valid JSON: " + json_reason(error.what()));
    }
    if (!row.is_object()) fail(std::string("the row is a ") + row.type_name() + ", not an object");
    const std::string& prompt = text_of(row, "prompt");
    weight_ = weight_of(row);
    if (source_.unpaired) return alone(row, prompt);
    std::vector<int32_t> before = tokenizer_.prefix();
    tokenizer_.encode(prompt, before);
    const std::vector<int32_t> chosen = tokens_of(prompt, text_of(row, "chosen")),
                               rejected = tokens_of(prompt, text_of(row, "rejected"));
    const std::size_t all = std::max(chosen.size(), rejected.size());
    if (all > length_ + 1 && too_long_ == "stop") fail(longer(all));
    // The first token has none before it, so it is no label.
    const std::size_t from[2] = {std::max<std::size_t>(shared(before, chosen), 1),
                                 std::max<std::size_t>(shared(before, rejected), 1)};
    if (from[0] >= chosen.size() || from[1] >= rejected.size()) fail("an answer has no token to train");
    if (all > length_ + 1 && (too_long_ == "skip" || std::max(from[0], from[1]) > length_)) {
      ++skipped_;
      return;
    }
    const bool out = held_out();
    add(source_.sequences[out], chosen, from[0]);
    add(source_.sequences[out], rejected, from[1]);
    if (source_.weighs) source_.weights[out].push_back(weight_);
  }

  // `weight` or `loss_weight` of a row, as of conversations; 1 if it has none.
  float weight_of(const nlohmann::json& row) {
    const nlohmann::json* found = nullptr;
    for (const char* name : {"weight", "loss_weight"}) {
      const auto at = row.find(name);
      if (at == row.end() || at->is_null()) continue;
      if (!source_.weighs) {
        unread_ += at->is_number() && at->get<double>() != 1;
        return 1;
      }
      if (found) fail("the row has weight and loss_weight: leave one of them out");
      found = &*at;
    }
    const double weight = !found ? 1 : found->is_number() ? found->get<double>() : -1;
    if (weight == 0 || (weight >= 1e-9 && weight <= 1e9)) return static_cast<float>(weight);
    fail("the row has the weight " + found->dump() + "; a weight is 0, or a number from 1e-9 to 1e9");
  }

  // The share that is held out is spread evenly.
  bool held_out() {
    const double held = share_ * static_cast<double>(pairs_++);
    return static_cast<uint64_t>(held + share_) > static_cast<uint64_t>(held);
  }

  // A row with one answer.
  void alone(const nlohmann::json& row, const std::string& prompt) {
    const std::string& answer = text_of(row, "completion");
    const auto label = row.find("label");
    if (label == row.end() || !label->is_boolean())
      fail(std::string(label == row.end() ? "no field \"label\"" : "field \"label\" is neither true nor false") +
           ": a row is " + form());
    std::vector<int32_t> before = tokenizer_.prefix();
    tokenizer_.encode(prompt, before);
    const std::vector<int32_t> ids = tokens_of(prompt, answer);
    if (ids.size() > length_ + 1 && too_long_ == "stop") fail(longer(ids.size()));
    const std::size_t from = std::max<std::size_t>(shared(before, ids), 1);
    if (from >= ids.size()) fail("the answer has no token to train");
    if (ids.size() > length_ + 1 && (too_long_ == "skip" || from > length_)) {
      ++skipped_;
      return;
    }
    const bool out = held_out();
    std::vector<Sequence>& all = source_.sequences[out];
    const bool first = all.empty();
    add(all, ids, from);
    all.push_back(first ? Sequence() : sequence(prompt, before_[out]));
    if (first) first_[out] = prompt;
    before_[out] = answer;
    source_.desirable[out].push_back(label->get<bool>());
    if (source_.weighs) source_.weights[out].push_back(weight_);
  }

  // A prompt with the answer to another one, cut to a sample.
  Sequence sequence(const std::string& prompt, const std::string& answer) {
    std::vector<int32_t> before = tokenizer_.prefix();
    tokenizer_.encode(prompt, before);
    const std::vector<int32_t> ids = tokens_of(prompt, answer);
    std::vector<Sequence> made;
    const uint64_t cut = cut_;
    add(made, ids, std::max<std::size_t>(shared(before, ids), 1));
    cut_ = cut;
    return made[0];
  }

  std::string longer(std::size_t tokens) const {
    return "prompt and answer are " + std::to_string(tokens) + " tokens, a sample holds " +
           std::to_string(length_ + 1) + " ([train] sequence_length = " + std::to_string(length_) +
           " and one more): raise it, or set [data] too_long = \"cut\" or \"skip\"";
  }
  std::string form() const {
    return source_.unpaired ? R"({"prompt": "...", "completion": "...", "label": true})"
                            : R"({"prompt": "...", "chosen": "...", "rejected": "..."})";
  }

  // The tokens of the prompt and an answer, as one text.
  std::vector<int32_t> tokens_of(const std::string& prompt, const std::string& answer) const {
    std::vector<int32_t> out = tokenizer_.prefix();
    tokenizer_.encode(prompt + answer, out);
    if (eot_ >= 0) out.push_back(eot_);
    return out;
  }

  static std::size_t shared(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
    const std::size_t most = std::min(a.size(), b.size());
    return static_cast<std::size_t>(
        std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(most), b.begin()).first - a.begin());
  }

  void add(std::vector<Sequence>& to, const std::vector<int32_t>& ids, std::size_t from) {
    const std::size_t n = std::min(ids.size(), length_ + 1);
    cut_ += n < ids.size();
    to.push_back({source_.tokens.size(), static_cast<uint32_t>(n - 1), static_cast<uint32_t>(from)});
    source_.tokens.insert(source_.tokens.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n));
  }

  const Tokenizer& tokenizer_;
  PairSource& source_;
  const double share_;
  const std::string too_long_;
  const int32_t eot_;
  const std::size_t length_;
  std::string where_;  // of the row
  float weight_ = 1;   // of the row
  uint64_t pairs_ = 0, cut_ = 0, skipped_ = 0, unread_ = 0;
  std::string first_[2], before_[2];  // by split, if unpaired: the first prompt, and the latest answer
};

void take_pair_fields(PairSource& source, const eng_options* options, const eng_data_request& request) {
  source.unpaired = get_bool(options, "unpaired"), source.weighs = get_bool(options, "weights");
  for (uint32_t k = 2; k < request.n_fields; ++k) {
    const std::string_view name = request.fields[k].name;
    if (name == "desirable" && source.unpaired)
      source.desirable_field = k;
    else if (name == "pair_weights" && source.weighs)
      source.weight_field = k;
    else
      throw Failure(ENG_INVALID, "[data] there is no field " + std::string(name));
  }
  if (source.unpaired && !source.desirable_field)
    throw Failure(ENG_INVALID, "[data] unpaired = true is for [loss] plugin = \"preference\" with kind = \"kto\"");
  if (source.weighs && !source.weight_field)
    throw Failure(ENG_INVALID,
                  "[data] weights = true needs a loss that reads pair_weights, as [loss] plugin = "
                  "\"preference\" does: set weights = false");
}

std::unique_ptr<PairSource> open_pairs(const eng_options* options, const eng_data_request& request) {
  const std::string base = request.base_dir ? request.base_dir : "", name = get_string(options, "tokenizer");
  const auto tokenizer = open_tokenizer(name, base);
  if (request.vocabulary < tokenizer->info().vocabulary)
    throw Failure(ENG_INVALID, "[data] tokenizer = \"" + name + "\" has " +
                                   std::to_string(tokenizer->info().vocabulary) +
                                   " token ids, but the model's vocabulary is " + std::to_string(request.vocabulary));
  auto source = std::make_unique<PairSource>();
  const std::vector<std::string> files = find_files(base, get_strings(options, "paths"));
  source->files = static_cast<uint32_t>(files.size());
  source->seed = request.seed, source->length = static_cast<uint64_t>(request.sequence_length);
  source->vocabulary = tokenizer->info().vocabulary;
  take_pair_fields(*source, options, request);
  PairReader reader(options, request, *tokenizer, *source);
  for (const std::string& path : files) reader.read(path);
  reader.finish();
  Hash hash;
  hash.add("engine pairs\n");
  for (const auto& split : source->sequences) {
    hash.add_field(std::to_string(split.size()));
    for (const Sequence& one : split) {
      hash.add_field(std::to_string(one.trained));
      hash.add_field({reinterpret_cast<const char*>(source->tokens.data() + one.first),
                      (std::size_t{one.length} + 1) * sizeof(int32_t)});
    }
  }
  for (const auto& flags : source->desirable)
    if (source->unpaired) hash.add_field({reinterpret_cast<const char*>(flags.data()), flags.size()});
  if (source->weighs) {
    hash.add_field("weights");
    for (const auto& weights : source->weights)
      hash.add_field({reinterpret_cast<const char*>(weights.data()), weights.size() * sizeof(float)});
  }
  source->hash = hash.text();
  source->tokens.shrink_to_fit();
  return source;
}

eng_status create_pairs(const eng_options* options, const eng_data_request* given, void** self, eng_error* error) {
  return guarded(error, "opening the data", [&] { *self = open_pairs(options, complete(given)).release(); });
}

void destroy_pairs(void* self) {
  delete static_cast<PairSource*>(self);
}

eng_status describe_pairs(void* self, eng_data_info* out, eng_error*) {
  const auto& source = *static_cast<const PairSource*>(self);
  eng_data_info info{};
  info.struct_size = out->struct_size;
  info.files = source.files;
  info.tokens = source.tokens.size();
  info.train_samples = source.sequences[ENG_SPLIT_TRAIN].size();
  info.validation_samples = source.sequences[ENG_SPLIT_VALIDATION].size();
  info.vocabulary = source.vocabulary;
  std::snprintf(info.content_hash, sizeof(info.content_hash), "%s", source.hash.c_str());
  info.host_bytes = source.tokens.capacity() * sizeof(int32_t);
  for (const auto& split : source.sequences) info.host_bytes += split.capacity() * sizeof(Sequence);
  for (const auto& split : source.weights) info.host_bytes += split.capacity() * sizeof(float);
  std::memcpy(out, &info, std::min<std::size_t>(sizeof(info), out->struct_size));
  return ENG_OK;
}

eng_status read_pair(void* self, int32_t split, uint64_t position, void* const* values, eng_error* error) {
  const auto& source = *static_cast<const PairSource*>(self);
  if (split != ENG_SPLIT_TRAIN && split != ENG_SPLIT_VALIDATION)
    return report(error, ENG_INVALID, "[data] the split is neither training nor validation");
  const std::vector<Sequence>& all = source.sequences[split];
  if (all.empty()) return report(error, ENG_PRECONDITION, "[data] this split holds no pair");
  const bool train = split == ENG_SPLIT_TRAIN;
  const uint64_t pairs = all.size() / 2, at = position / 2;
  const Permutation order(pairs, train ? source.seed : 0, train ? at / pairs : 0, static_cast<uint64_t>(split));
  const Sequence& one = all[2 * order(at % pairs) + position % 2];
  const int32_t* const ids = source.tokens.data() + one.first;
  auto *tokens = static_cast<int32_t*>(values[0]), *labels = static_cast<int32_t*>(values[1]);
  for (uint64_t t = 0; t < source.length; ++t) {
    tokens[t] = t < one.length ? ids[t] : 0;
    labels[t] = t < one.length && t + 1 >= one.trained ? ids[t + 1] : ENG_IGNORE_LABEL;
  }
  const auto pair = order(at % pairs);
  if (source.unpaired)
    std::fill_n(static_cast<float*>(values[source.desirable_field]), source.length,
                source.desirable[split][pair] ? 1.0f : 0.0f);
  if (source.weighs) {
    auto* const weights = static_cast<float*>(values[source.weight_field]);
    std::fill_n(weights, source.length, 0.0F);
    if (position % 2 == 0) weights[std::max(one.trained, 1U) - 1] = source.weights[split][pair];
  }
  return ENG_OK;
}

eng_status fields_of_pairs(const eng_options* options, eng_field* out, uint32_t cap, uint32_t* n, eng_error* error) {
  return guarded(error, "telling the fields", [&] {
    *n = 0;
    const auto add = [&](const char* option, const char* name) {
      if (!get_bool(options, option)) return;
      if (*n < cap) out[*n] = {name, ENG_F32, 0};
      ++*n;
    };
    add("unpaired", "desirable"), add("weights", "pair_weights");
  });
}

}  // namespace

const eng_data pairs_table = {.struct_size = sizeof(eng_data),
                              .minor = 0,
                              .create = create_pairs,
                              .destroy = destroy_pairs,
                              .describe = describe_pairs,
                              .read = read_pair,
                              .build = nullptr,
                              .inspect = nullptr,
                              .fields = fields_of_pairs};

}  // namespace text_data
