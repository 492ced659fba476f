// SPDX-License-Identifier: Apache-2.0
#include "source.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "failure.hpp"
#include "files.hpp"
#include "options.hpp"
#include "token_file.hpp"
#include "tokenizer.hpp"

namespace text_data {
namespace {

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  return text;
}

// Window k of the held-out files. The last one may be short: the rest of it is ignored.
const InputFile* read_held(Source& source, uint64_t k, int32_t* tokens, int32_t* labels) {
  const uint64_t start = k * source.length, length = std::min(source.length, source.held.size() - 1 - start);
  std::fill(tokens + length, tokens + source.length, 0);
  std::fill(labels + length, labels + source.length, ENG_IGNORE_LABEL);
  return source.held.read(start, length, tokens, labels);
}

// Documents [starts[i], starts[i + 1]) of a stream; the last one ends with it. `share` of the tokens are held out, in
// whole documents spread evenly, whatever the seed and the length of samples.
void pack_documents(const std::vector<uint64_t>& starts, uint64_t size, double share, Packing& train, Packing& held) {
  double due = 0;  // tokens to be held out
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const uint64_t end = i + 1 < starts.size() ? starts[i + 1] : size;
    const auto n = static_cast<double>(end - starts[i]);
    due += share * n;
    const bool out = share > 0 && due >= n / 2 && n > 1;
    if (out) due -= n;
    (out ? held : train).add(starts[i], end);
  }
  train.finish();
  held.finish();
}

void pack_source(Source& source, const DataFiles& files) {
  const auto refuse = [](const std::string& text) { throw Failure(ENG_INVALID, "[data] " + text); };
  if (std::max(source.stream.size(), source.held.size()) > Document::most_start ||
      source.length > Document::most_length)
    refuse("pack: at most 2^40 tokens, in samples of up to 2^23 - 1, can be packed");
  for (Packing& packing : source.packing) packing = Packing(source.length, source.alone);
  source.held_packing = Packing(source.length, source.alone);
  Packing none;
  pack_documents(source.starts, source.stream.size(), files.share == 1 ? 0 : files.share, source.packing[0],
                 source.packing[1]);
  pack_documents(source.held_starts, source.held.size(), 0, source.held_packing, none);
  const std::string in =
      std::to_string(source.starts.size()) + " documents of the " + std::to_string(files.train.size()) + " files";
  if (!files.train.empty() && source.packing[0].samples() == 0)
    refuse("pack: none of the " + in + " that are left to train on has two tokens");
  if (!files.train.empty() && files.share > 0 && source.packing[1].samples() == 0)
    refuse("validation = " + number(files.share) + " with pack holds whole documents out, and none of the " + in +
           " is small enough: set validation_paths, a larger share, or validation = 0");
  if (!files.held.empty() && source.held_packing.samples() == 0)
    refuse("validation_paths: no document that is held out has two tokens");
  source.starts = source.held_starts = {};
  source.stream.prepare(source.length);
}

// One document of a sample. The label of its last token is the next one of the document, if that goes on.
const InputFile* read_document(Stream& stream, const Document& part, int32_t* tokens, int32_t* labels) {
  const uint64_t n = part.length();
  if (part.more()) return stream.read(part.start(), n, tokens, labels);
  const InputFile* changed = stream.read(part.start(), n - 1, tokens, labels);  // n - 1 tokens and n - 1 labels
  tokens[n - 1] = labels[n - 2];
  labels[n - 1] = ENG_IGNORE_LABEL;
  return changed;
}

// Values of masked tokens to ids, and to labels where they are trained.
void unmask(uint64_t length, int32_t* tokens, int32_t* labels) {
  for (uint64_t t = 0; t < length; ++t) {
    tokens[t] /= 2;
    if (labels[t] != ENG_IGNORE_LABEL) labels[t] = labels[t] % 2 != 0 ? labels[t] / 2 : ENG_IGNORE_LABEL;
  }
}

// The weights of a document's labels, the tokens behind its own.
void read_weights(const std::vector<WeightFrom>& weights, const Document& part, float* out) {
  const auto after = [](uint64_t token, const WeightFrom& from) { return token < from.token; };
  auto next = std::upper_bound(weights.begin(), weights.end(), part.start() + 1, after);
  float weight = next == weights.begin() ? 1 : std::prev(next)->weight;
  for (uint64_t t = 0; t < part.length(); ++t) {
    if (next != weights.end() && next->token == part.start() + 1 + t) weight = (next++)->weight;
    out[t] = weight;
  }
}

const InputFile* read_packed(const Source& source, Stream& stream, std::span<const Document> parts,
                             const std::vector<WeightFrom>& weights, void* const* values) {
  auto *tokens = static_cast<int32_t*>(values[0]), *labels = static_cast<int32_t*>(values[1]);
  auto* segments = source.segments ? static_cast<int32_t*>(values[source.segments]) : nullptr;
  auto* positions = source.positions ? static_cast<int32_t*>(values[source.positions]) : nullptr;
  auto* factors = source.loss_weights ? static_cast<float*>(values[source.loss_weights]) : nullptr;
  const auto put = [&](uint64_t at, uint64_t n, int32_t segment) {
    for (uint64_t t = 0; segments && t < n; ++t) segments[at + t] = segment;
    for (uint64_t t = 0; positions && t < n; ++t) positions[at + t] = static_cast<int32_t>(t);
  };
  uint64_t at = 0;
  int32_t segment = 0;
  for (const Document& part : parts) {
    if (const InputFile* changed = read_document(stream, part, tokens + at, labels + at)) return changed;
    put(at, part.length(), segment++);
    if (factors) read_weights(weights, part, factors + at);
    at += part.length();
  }
  std::fill(tokens + at, tokens + source.length, 0);
  std::fill(labels + at, labels + source.length, ENG_IGNORE_LABEL);
  put(at, source.length - at, ENG_PADDING_SEGMENT);
  if (factors) std::fill(factors + at, factors + source.length, 1.0F);
  if (source.masked) unmask(source.length, tokens, labels);
  return nullptr;
}

}  // namespace

void take_fields(Source& source, const eng_options* options, const eng_data_request& request) {
  source.pack = get_bool(options, "pack");
  for (uint32_t k = 2; k < request.n_fields; ++k) {
    const std::string_view name = request.fields[k].name;
    if (name == ENG_FIELD_SEGMENTS) source.segments = k;
    if (name == ENG_FIELD_POSITIONS) source.positions = k;
    if (name == ENG_FIELD_LOSS_WEIGHTS && source.weighs)
      source.loss_weights = k;
    else if (!source.pack || (name != ENG_FIELD_SEGMENTS && name != ENG_FIELD_POSITIONS))
      throw Failure(ENG_UNSUPPORTED, "[data] there is no field " + std::string(name));
  }
  if (source.pack && source.segments == 0)
    throw Failure(ENG_INVALID, "[data] pack = true needs a model that reads segments: set pack = false");
  if (source.weighs && source.loss_weights == 0)
    throw Failure(ENG_INVALID,
                  "[data] weights = true needs a model and a loss that read loss_weights, as the cross-entropy does: "
                  "set weights = false");
}

eng_status fields_of_source(const eng_options* options, eng_field* out, uint32_t cap, uint32_t* n, eng_error* error) {
  return guarded(error, "telling the fields", [&] {
    static constexpr eng_field fields[] = {{ENG_FIELD_SEGMENTS, ENG_I32, 0}, {ENG_FIELD_POSITIONS, ENG_I32, 0}};
    const uint32_t count = get_bool(options, "pack") ? 2 : 0;
    std::copy_n(fields, std::min(count, cap), out);
    *n = count;
  });
}

eng_data_request complete(const eng_data_request* given) {
  eng_data_request request{};
  std::memcpy(&request, given, std::min<std::size_t>(sizeof(request), given->struct_size));
  return request;
}

std::string base_of(const eng_data_request& request) {
  return request.base_dir == nullptr ? "" : request.base_dir;
}

void check_vocabulary(const std::string& name, const Tokenizer& tokenizer, const eng_data_request& request,
                      bool may_be_unknown) {
  if ((may_be_unknown && request.vocabulary == 0) || request.vocabulary >= tokenizer.info().vocabulary) return;
  const std::string ids = std::to_string(tokenizer.info().vocabulary);
  throw Failure(ENG_INVALID, "[data] tokenizer = \"" + name + "\" has " + ids +
                                 " token ids, but the model's vocabulary is " + std::to_string(request.vocabulary) +
                                 ": set [model] vocab_size to " + ids + " or more");
}

DataFiles data_files(const eng_options* options, const eng_data_request& request) {
  if (request.sequence_length < 1) {
    throw Failure(ENG_INVALID,
                  "[train] sequence_length is " + std::to_string(request.sequence_length) + "; it must be 1 or more");
  }
  DataFiles out;
  const std::vector<std::string> held = get_strings(options, "validation_paths");
  if (!held.empty()) out.held = find_files(base_of(request), held, "validation_paths");
  out.train = find_files(base_of(request), get_strings(options, "paths"));
  // Held-out files replace the default share. A share that the user sets is held out as well.
  out.share = held.empty() || options->is_set(options, "validation") != 0 ? get_float(options, "validation") : 0;
  if (!((out.share >= 0 && out.share <= 0.5) || out.share == 1)) {
    throw Failure(ENG_INVALID, "[data] validation is " + number(out.share) +
                                   "; it must be from 0 to 0.5, or 1 to hold out everything (evaluation only)");
  }
  out.train = without(out.train, out.held);
  if (out.share == 1) {
    out.held.insert(out.held.end(), out.train.begin(), out.train.end());
    std::sort(out.held.begin(), out.held.end());
    out.train.clear();
  } else if (out.train.empty()) {
    throw Failure(ENG_INVALID, "[data] validation_paths holds out every file of paths: nothing is left to train on");
  }
  return out;
}

void cut_windows(Source& source, const eng_data_request& request, const DataFiles& files, const std::string& held_hash,
                 const char* unit) {
  const uint64_t tokens = source.stream.size(), length = static_cast<uint64_t>(request.sequence_length);
  source.seed = request.seed;
  source.length = length;
  if (!files.held.empty()) {
    if (source.held.size() < 2) {
      throw Failure(ENG_INVALID, "[data] " + std::string(files.share == 1 ? "paths" : "validation_paths") + ": " +
                                     files.held[0] + (files.held.size() > 1 ? " and the others hold " : " holds ") +
                                     std::to_string(source.held.size()) + " " + unit +
                                     "; an evaluation needs at least 2");
    }
    Hash hash;
    for (const std::string_view part :
         {std::string_view(source.hash), std::string_view("held out"), std::string_view(held_hash)})
      hash.add_field(part);
    source.hash = hash.text();
    source.held.prepare(length);
  }
  if (source.pack) return pack_source(source, files);
  if (files.train.empty()) return;
  const std::string have = "[data] the " + std::to_string(files.train.size()) +
                           (files.train.size() == 1 ? " file holds " : " files hold ") + std::to_string(tokens) + " " +
                           unit;
  if (tokens <= length) {
    throw Failure(ENG_INVALID, have + ", but one sample takes " + std::to_string(length + 1) +
                                   " ([train] sequence_length = " + std::to_string(length) +
                                   " and one more): add text or lower sequence_length");
  }
  source.windows = Windows(tokens, length, files.share);
  if (source.windows.count(0) == 0 || (files.share > 0 && source.windows.count(1) == 0)) {
    throw Failure(ENG_INVALID, have + ", but one training and one held-out sample take " +
                                   std::to_string(2 * length + 2) + " ([data] validation = " + number(files.share) +
                                   "): add text, lower [train] sequence_length, or set validation = 0");
  }
  source.stream.prepare(length);
}

void destroy_source(void* self) {
  delete static_cast<Source*>(self);
}

eng_status describe_source(void* self, eng_data_info* out, eng_error*) {
  const auto* source = static_cast<const Source*>(self);
  eng_data_info info{};
  info.struct_size = out->struct_size;
  info.files = source->files;
  info.tokens = source->stream.size() + source->held.size();
  info.train_samples = source->samples(ENG_SPLIT_TRAIN);
  info.validation_samples = source->samples(ENG_SPLIT_VALIDATION);
  info.vocabulary = source->vocabulary;
  std::snprintf(info.content_hash, sizeof(info.content_hash), "%s", source->hash.c_str());
  info.host_bytes = source->stream.kept_bytes() + source->held.kept_bytes();
  for (const Packing* packing : {&source->packing[0], &source->packing[1], &source->held_packing})
    info.host_bytes += packing->kept_bytes();
  info.host_bytes += (source->weights.capacity() + source->held_weights.capacity()) * sizeof(WeightFrom);
  info.documents = source->packing[0].documents();
  info.padding = source->packing[0].padding();
  std::memcpy(out, &info, std::min<std::size_t>(sizeof(info), out->struct_size));
  return ENG_OK;
}

eng_status read_source(void* self, int32_t split, uint64_t position, void* const* values, eng_error* error) {
  auto* source = static_cast<Source*>(self);
  if (split != ENG_SPLIT_TRAIN && split != ENG_SPLIT_VALIDATION)
    return report(error, ENG_INVALID, "[data] the split is neither training nor validation");
  const bool train = split == ENG_SPLIT_TRAIN;
  const uint64_t of_stream = source->of_stream(split), samples = source->samples(split);
  if (samples == 0)
    return report(error, ENG_PRECONDITION,
                  train ? "[data] validation is 1, so there is no training data"
                        : "[data] validation is 0, so there is no held-out data");
  // Held-out samples always come in the same order, whatever the seed, so that the first k of them can be compared
  // between runs.
  Permutation order(samples, train ? source->seed : 0, train ? position / samples : 0, static_cast<uint64_t>(split));
  const uint64_t sample = order(position % samples);
  auto *tokens = static_cast<int32_t*>(values[0]), *labels = static_cast<int32_t*>(values[1]);
  const InputFile* changed = nullptr;
  if (source->pack) {
    const bool held = sample >= of_stream;
    const Packing& packing = held ? source->held_packing : source->packing[split];
    changed =
        read_packed(*source, held ? source->held : source->stream, packing.sample(held ? sample - of_stream : sample),
                    held ? source->held_weights : source->weights, values);
  } else if (sample < of_stream) {
    changed = source->stream.read(source->windows.start(split, sample), source->length, tokens, labels);
  } else {
    changed = read_held(*source, sample - of_stream, tokens, labels);
  }
  if (changed == nullptr) return ENG_OK;
  char text[512];  // the step allocates nothing, not even for an error
  const int size =
      std::snprintf(text, sizeof(text),
                    "[data] %.300s changed while the run was reading it; leave the data as it is during a run, and "
                    "start a new run to use the new text",
                    changed->path().c_str());
  return report(error, ENG_DATA_LOSS, {text, static_cast<std::size_t>(size)});
}

eng_status inspect_file(const char* path, uint32_t flags, char* text, uint64_t capacity, uint64_t* size,
                        eng_error* error) {
  return guarded(error, "inspecting a file of tokens", [&] {
    TokenFile file = open_token_file(path);
    const bool verify = (flags & ENG_INSPECT_VERIFY) != 0;
    if (verify) scan(file, 0);
    const std::string found = describe(file, verify);
    std::copy_n(found.begin(), std::min<uint64_t>(capacity, found.size()), text);
    *size = found.size();
  });
}

}  // namespace text_data
