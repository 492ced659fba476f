// SPDX-License-Identifier: Apache-2.0
#include "source.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "failure.hpp"
#include "options.hpp"
#include "token_file.hpp"

namespace text_data {
namespace {

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  return text;
}

}  // namespace

eng_data_request complete(const eng_data_request* given) {
  eng_data_request request{};
  std::memcpy(&request, given, std::min<std::size_t>(sizeof(request), given->struct_size));
  return request;
}

double held_out_share(const eng_options* options, const eng_data_request& request) {
  if (request.sequence_length < 1) {
    throw Failure(ENG_INVALID,
                  "[train] sequence_length is " + std::to_string(request.sequence_length) + "; it must be 1 or more");
  }
  const double share = get_float(options, "validation");
  if (!(share >= 0 && share <= 0.5))
    throw Failure(ENG_INVALID, "[data] validation is " + number(share) + "; it must be from 0 to 0.5");
  return share;
}

void cut_windows(Source& source, const eng_data_request& request, double held_out, const char* unit) {
  const uint64_t tokens = source.stream.size(), length = static_cast<uint64_t>(request.sequence_length);
  const std::string have = "[data] the " + std::to_string(source.files) +
                           (source.files == 1 ? " file holds " : " files hold ") + std::to_string(tokens) + " " + unit;
  if (tokens <= length) {
    throw Failure(ENG_INVALID, have + ", but one sample takes " + std::to_string(length + 1) +
                                   " ([train] sequence_length = " + std::to_string(length) +
                                   " and one more): add text or lower sequence_length");
  }
  source.windows = Windows(tokens, length, held_out);
  if (source.windows.count(0) == 0 || (held_out > 0 && source.windows.count(1) == 0)) {
    throw Failure(ENG_INVALID, have + ", but one training and one held-out sample take " +
                                   std::to_string(2 * length + 2) + " ([data] validation = " + number(held_out) +
                                   "): add text, lower [train] sequence_length, or set validation = 0");
  }
  source.seed = request.seed;
  source.length = length;
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
  info.tokens = source->stream.size();
  info.train_samples = source->windows.count(ENG_SPLIT_TRAIN);
  info.validation_samples = source->windows.count(ENG_SPLIT_VALIDATION);
  info.vocabulary = source->vocabulary;
  std::snprintf(info.content_hash, sizeof(info.content_hash), "%s", source->hash.c_str());
  std::memcpy(out, &info, std::min<std::size_t>(sizeof(info), out->struct_size));
  return ENG_OK;
}

eng_status read_source(void* self, int32_t split, uint64_t position, int32_t* tokens, int32_t* labels,
                       eng_error* error) {
  auto* source = static_cast<Source*>(self);
  if (split != ENG_SPLIT_TRAIN && split != ENG_SPLIT_VALIDATION)
    return fail(error, ENG_INVALID, "[data] there is no such split");
  const uint64_t samples = source->windows.count(split);
  if (samples == 0) return fail(error, ENG_PRECONDITION, "[data] nothing is held out: validation is 0");
  // Held-out samples always come in one order, whatever the seed, so that the first k of them are comparable.
  const bool train = split == ENG_SPLIT_TRAIN;
  Permutation order(samples, train ? source->seed : 0, train ? position / samples : 0, static_cast<uint64_t>(split));
  const uint64_t start = source->windows.start(split, order(position % samples));
  const MappedFile* changed = source->stream.read(start, source->length, tokens, labels);
  if (changed == nullptr) return ENG_OK;
  char text[512];  // the step allocates nothing, not even to fail
  const int size =
      std::snprintf(text, sizeof(text),
                    "[data] %.300s changed while the run was reading it; leave the data as it is during a run, and "
                    "start a new run to use the new text",
                    changed->path().c_str());
  return fail(error, ENG_DATA_LOSS, {text, static_cast<std::size_t>(size)});
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
