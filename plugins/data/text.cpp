// SPDX-License-Identifier: Apache-2.0
// The data source "text": plain files and JSON Lines, one token per byte.
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "corpus.hpp"
#include "engine/data.h"
#include "failure.hpp"
#include "files.hpp"
#include "tables.hpp"
#include "windows.hpp"

namespace {

using namespace text_data;

struct Source {
  uint32_t files;
  uint64_t seed;
  uint64_t length;
  Corpus corpus;
  Windows windows;
};

constexpr int64_t byte_vocabulary = 256;

void check(eng_status status, const char* key) {
  if (status != ENG_OK)
    throw Failure(status, std::string("[data] ") + key + ": the engine did not hand over this option");
}

std::string get_string(const eng_options* options, const char* key) {
  const char* value = nullptr;
  check(options->get_string(options, key, &value, nullptr), key);
  return value;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  return text;
}

void check_length(uint64_t tokens, uint64_t length, std::size_t files, double held_out, const Windows& windows) {
  std::string have = "[data] the " + std::to_string(files) + (files == 1 ? " file holds " : " files hold ") +
                     std::to_string(tokens) + " tokens (bytes)";
  if (tokens <= length) {
    throw Failure(ENG_INVALID, have + ", but one sample takes " + std::to_string(length + 1) +
                                   " ([train] sequence_length = " + std::to_string(length) +
                                   " and one more): add text or lower sequence_length");
  }
  if (windows.count(0) == 0 || (held_out > 0 && windows.count(1) == 0)) {
    throw Failure(ENG_INVALID, have + ", but one training and one held-out sample take " +
                                   std::to_string(2 * length + 2) + " ([data] validation = " + number(held_out) +
                                   "): add text, lower [train] sequence_length, or set validation = 0");
  }
}

std::unique_ptr<Source> open_source(const eng_options* options, const eng_data_request& request) {
  if (request.sequence_length < 1) {
    throw Failure(ENG_INVALID,
                  "[train] sequence_length is " + std::to_string(request.sequence_length) + "; it must be 1 or more");
  }
  if (std::string tokenizer = get_string(options, "tokenizer"); tokenizer != "bytes") {
    throw Failure(ENG_INVALID, "[data] tokenizer '" + tokenizer + "' is unknown; use \"bytes\"");
  }
  if (request.vocabulary < byte_vocabulary) {
    throw Failure(ENG_INVALID, "[data] tokenizer = \"bytes\" has 256 token ids, but the model's vocabulary is " +
                                   std::to_string(request.vocabulary) + ": set [model] vocab_size to 256 or more");
  }
  double held_out = 0;
  check(options->get_float(options, "validation", &held_out, nullptr), "validation");
  if (!(held_out >= 0 && held_out <= 0.5)) {
    throw Failure(ENG_INVALID, "[data] validation is " + number(held_out) + "; it must be from 0 to 0.5");
  }
  uint32_t count = 0;
  check(options->get_count(options, "paths", &count, nullptr), "paths");
  std::vector<std::string> patterns;
  for (uint32_t i = 0; i < count; ++i) {
    const char* pattern = nullptr;
    check(options->get_string_at(options, "paths", i, &pattern, nullptr), "paths");
    patterns.emplace_back(pattern);
  }

  std::vector<std::string> files = find_files(request.base_dir == nullptr ? "" : request.base_dir, patterns);
  Corpus corpus(files, get_string(options, "field"), get_string(options, "separator"));
  if (corpus.size() == 0) {
    std::string first =
        files.size() == 1 ? files[0] + " is empty" : "all " + std::to_string(files.size()) + " files are empty";
    throw Failure(ENG_INVALID,
                  "[data] paths: " + first + (files.size() == 1 ? "" : " (the first is " + files[0] + ")"));
  }
  auto length = static_cast<uint64_t>(request.sequence_length);
  Windows windows(corpus.size(), length, held_out);
  check_length(corpus.size(), length, files.size(), held_out, windows);
  return std::unique_ptr<Source>(
      new Source{static_cast<uint32_t>(files.size()), request.seed, length, std::move(corpus), windows});
}

eng_status create(const eng_options* options, const eng_data_request* given, void** self, eng_error* error) try {
  eng_data_request request{};
  std::memcpy(&request, given, std::min<std::size_t>(sizeof(request), given->struct_size));
  *self = open_source(options, request).release();
  return ENG_OK;
} catch (const Failure& failure) {
  return fail(error, failure.status(), failure.what());
} catch (const std::bad_alloc&) {
  return fail(error, ENG_NO_MEMORY, "[data] out of memory while the data was opened");
} catch (const std::exception& exception) {
  return fail(error, ENG_INTERNAL, std::string("[data] ") + exception.what());
}

void destroy(void* self) {
  delete static_cast<Source*>(self);
}

eng_status describe(void* self, eng_data_info* out, eng_error*) {
  const auto* source = static_cast<const Source*>(self);
  eng_data_info info{};
  info.struct_size = out->struct_size;
  info.files = source->files;
  info.tokens = source->corpus.size();
  info.train_samples = source->windows.count(ENG_SPLIT_TRAIN);
  info.validation_samples = source->windows.count(ENG_SPLIT_VALIDATION);
  info.vocabulary = byte_vocabulary;
  std::snprintf(info.content_hash, sizeof(info.content_hash), "%s", source->corpus.hash().c_str());
  std::memcpy(out, &info, std::min<std::size_t>(sizeof(info), out->struct_size));
  return ENG_OK;
}

eng_status read(void* self, int32_t split, uint64_t position, int32_t* tokens, int32_t* labels, eng_error* error) {
  const auto* source = static_cast<const Source*>(self);
  if (split != ENG_SPLIT_TRAIN && split != ENG_SPLIT_VALIDATION) {
    return fail(error, ENG_INVALID, "[data] there is no such split");
  }
  const uint64_t samples = source->windows.count(split);
  if (samples == 0) return fail(error, ENG_PRECONDITION, "[data] nothing is held out: validation is 0");
  // Held-out samples always come in one order, whatever the seed, so that the first k of them are comparable.
  const bool train = split == ENG_SPLIT_TRAIN;
  Permutation order(samples, train ? source->seed : 0, train ? position / samples : 0, static_cast<uint64_t>(split));
  uint64_t start = source->windows.start(split, order(position % samples));
  const MappedFile* changed = source->corpus.read(start, source->length, tokens, labels);
  if (changed == nullptr) return ENG_OK;
  char text[512];  // the step allocates nothing, not even to fail
  int size =
      std::snprintf(text, sizeof(text),
                    "[data] %.300s changed while the run was reading it; leave the data as it is during a run, and "
                    "start a new run to use the new text",
                    changed->path().c_str());
  return fail(error, ENG_DATA_LOSS, {text, static_cast<std::size_t>(size)});
}

}  // namespace

namespace text_data {
const eng_data text_table = {sizeof(eng_data), 0, create, destroy, describe, read, nullptr};
}
