// SPDX-License-Identifier: Apache-2.0
// The common part of this plugin's sources: a stream of tokens, cut into windows or, with `pack`, into documents.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/data.h"
#include "hash.hpp"
#include "packing.hpp"
#include "stream.hpp"
#include "token_file.hpp"
#include "windows.hpp"

namespace text_data {

class Tokenizer;

struct Source {
  uint32_t files = 0;
  uint64_t seed = 0, length = 0;
  int64_t vocabulary = 0;
  std::string hash;
  Stream stream;  // of the training files; a held-out share is part of it
  Windows windows;
  Stream held;  // of the held-out files: every token once; the last window is padded
  uint64_t held_windows() const { return held.size() < 2 ? 0 : (held.size() - 2) / length + 1; }

  bool pack = false;    // samples hold whole documents
  bool alone = false;   // with `pack`: each sample holds one
  bool masked = false;  // with `pack`: the values are those of masked tokens (chat/masked_tokens.hpp)
  std::vector<uint64_t> starts, held_starts;      // of documents, while the source is opened
  Packing packing[2], held_packing;               // of the stream's splits, and of `held`
  std::size_t segments = 0, positions = 0;        // the place of these fields among those that are read; 0: not read
  bool weighs = false;                            // with `pack`: tokens have weights, the field loss_weights
  std::size_t loss_weights = 0;                   // its place
  std::vector<WeightFrom> weights, held_weights;  // of the tokens of the streams

  // Samples of a split: those of `stream`, and all.
  uint64_t of_stream(int32_t split) const { return pack ? packing[split].samples() : windows.count(split); }
  uint64_t samples(int32_t split) const {
    return of_stream(split) + (split != ENG_SPLIT_VALIDATION ? 0 : pack ? held_packing.samples() : held_windows());
  }
};

// The files of [data], and which of them are held out.
struct DataFiles {
  std::vector<std::string> train, held;
  double share = 0;  // of the windows of `train`
};
DataFiles data_files(const eng_options* options, const eng_data_request& request);

// Throws Failure if the model has fewer ids than the tokenizer `name`. `may_be_unknown`: the vocabulary may be 0.
void check_vocabulary(const std::string& name, const Tokenizer& tokenizer, const eng_data_request& request,
                      bool may_be_unknown);
// Takes the fields that the option `pack`, Source::weighs and the request ask for.
void take_fields(Source& source, const eng_options* options, const eng_data_request& request);
// The host's request in the size that this plugin knows, whichever version the host has.
eng_data_request complete(const eng_data_request* given);
std::string base_of(const eng_data_request& request);
// Cuts the streams into windows. `unit` names their tokens, such as "tokens (bytes)". `held_hash` is the hash of the
// held-out files' content. With `pack`, into samples of whole documents. Throws Failure if there are too few tokens.
void cut_windows(Source& source, const eng_data_request& request, const DataFiles& files, const std::string& held_hash,
                 const char* unit);

// Slots of the C table.
void destroy_source(void* self);
eng_status describe_source(void* self, eng_data_info* out, eng_error* error);
eng_status read_source(void* self, int32_t split, uint64_t position, void* const* values, eng_error* error);
eng_status fields_of_source(const eng_options* options, eng_field* out, uint32_t cap, uint32_t* n, eng_error* error);
eng_status inspect_file(const char* path, uint32_t flags, char* text, uint64_t capacity, uint64_t* size,
                        eng_error* error);

}  // namespace text_data
