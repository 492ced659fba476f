// SPDX-License-Identifier: Apache-2.0
// A data source: a pure function from (split, position) to one sample. So a run is resumed from its position alone, and
// nothing is kept from one sample to the next. Every sample counts upwards from another number; now and then it jumps.
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <new>

#include "engine/data.h"
#include "engine/plugin.h"

ENG_DESCRIPTION(R"(
[plugin]
id = 'org.example.my_thing'
name = 'my_thing'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'a data source'

[[provides]]
kind = 'eng.data/1'
name = 'my_thing'
summary = 'numbers in order, with jumps'

[provides.options]
samples = { type = 'int', default = 4096, min = 1, max = 1e9, help = 'distinct samples of one epoch' }
jumps = { type = 'float', default = 0.05, min = 0, max = 1, help = 'how often the next number is any number' }
)")

namespace {

eng_status fail(eng_error* error, eng_status status, const char* text) {
  if (error) error->set(error, status, text, std::strlen(text));
  return status;
}

// A word that depends on its three arguments alone, well mixed (Steele et al. 2014).
uint64_t mix(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t z = (a * 0x9e3779b97f4a7c15u) ^ (b + 0xbf58476d1ce4e5b9u) * 0x94d049bb133111ebu ^ c;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

struct Source {
  uint64_t seed, samples, vocabulary, limit;  // a random word below `limit` makes a jump
  int64_t length;                             // T

  void read(int32_t split, uint64_t position, int32_t* tokens, int32_t* labels) const {
    // Held-out samples have numbers of their own. In every epoch the training samples are in another order.
    const uint64_t sample =
        split == ENG_SPLIT_TRAIN ? (position + position / samples * 7919) % samples : uint64_t{1} << 40 | position;
    uint64_t number = mix(seed, sample, 0) % vocabulary;
    for (int64_t t = 0; t < length; ++t) {
      const uint64_t word = mix(seed, sample, static_cast<uint64_t>(t) + 1);
      tokens[t] = static_cast<int32_t>(number);
      number = (word & 0xffffffff) < limit ? (word >> 32) % vocabulary : (number + 1) % vocabulary;
      labels[t] = static_cast<int32_t>(number);  // the token after tokens[t]
    }
  }
};

eng_status create(const eng_options* options, const eng_data_request* request, void** self, eng_error* error) {
  int64_t samples = 0;
  double jumps = 0;
  if (eng_status s = options->get_int(options, "samples", &samples, error)) return s;
  if (eng_status s = options->get_float(options, "jumps", &jumps, error)) return s;
  Source* made = new (std::nothrow) Source();
  if (!made) return fail(error, ENG_NO_MEMORY, "out of memory");
  made->seed = request->seed;
  made->samples = static_cast<uint64_t>(samples);
  made->vocabulary = static_cast<uint64_t>(request->vocabulary);
  made->limit = static_cast<uint64_t>(jumps * 4294967296.0);
  made->length = request->sequence_length;
  *self = made;
  return ENG_OK;
}

void destroy(void* self) {
  delete static_cast<Source*>(self);
}

// The hash is equal if and only if the data is equal: a run is not resumed with other data.
eng_status describe_data(void* self, eng_data_info* out, eng_error*) {
  const Source& source = *static_cast<const Source*>(self);
  out->tokens = source.samples * static_cast<uint64_t>(source.length);
  out->train_samples = source.samples;
  out->validation_samples = 8;
  out->vocabulary = static_cast<int64_t>(source.vocabulary);
  std::snprintf(out->content_hash, sizeof out->content_hash, "%08" PRIx64 "%08" PRIx64 "%016" PRIx64, source.vocabulary,
                source.samples, source.limit);
  return ENG_OK;
}

// values[0] are T tokens, values[1] T labels: the fields that every run reads.
eng_status read_sample(void* self, int32_t split, uint64_t position, void* const* values, eng_error*) {
  static_cast<const Source*>(self)->read(split, position, static_cast<int32_t*>(values[0]),
                                         static_cast<int32_t*>(values[1]));
  return ENG_OK;
}

constexpr eng_data make_table() {
  eng_data table{};
  table.struct_size = sizeof table;
  table.minor = ENG_ABI_MINOR;
  table.create = create;
  table.destroy = destroy;
  table.describe = describe_data;
  table.read = read_sample;
  return table;  // the rest is NULL: nothing is slow, and there are no files or other fields
}
constexpr eng_data table = make_table();

const char* describe() {
  return eng_description;
}

eng_status start(const eng_host*, eng_error*) {
  return ENG_OK;
}

void stop() {}

const void* get_interface(const char* kind, const char* name) {
  return !std::strcmp(kind, ENG_DATA_KIND) && !std::strcmp(name, "my_thing") ? &table : nullptr;
}

const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
