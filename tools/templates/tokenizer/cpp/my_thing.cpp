// SPDX-License-Identifier: Apache-2.0
// A tokenizer, and a source of training data that uses it. The tokenizer is named `auto`: `engine generate` and
// `engine data inspect` ask that of the first plugin that has one, and a folder of --plugin-path comes first.
//
// Ids: 0 to 255 are the bytes. 256 + c is a space and the byte c, so most words begin with one id instead of two.
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "engine/data.h"
#include "engine/plugin.h"
#include "engine/tokenizer.h"

ENG_DESCRIPTION(R"(
[plugin]
id = 'org.example.my_thing'
name = 'my_thing'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'a tokenizer, and a source of texts'

[[provides]]
kind = 'eng.tokenizer/1'
name = 'auto'
summary = 'bytes, and bytes after a space'

[[provides]]
kind = 'eng.data/1'
name = 'my_thing'
summary = 'texts in the ids of the tokenizer'

[provides.options]
paths = { type = 'strings', required = true, help = 'files of text' }
validation = { type = 'float', default = 0.1, min = 0, max = 0.9, help = 'the part of the windows that is held out' }
tokenizer = { type = 'string', default = 'bytes', choices = ['bytes'], help = 'what `engine generate` opens' }
)")

namespace {

constexpr int64_t vocabulary = 512;
constexpr char content_hash[] = "5370616365642062797465732031";  // any hexadecimal text; another one for other ids

eng_status fail(eng_error* error, eng_status status, const std::string& text) {
  if (error) error->set(error, status, text.data(), text.size());
  return status;
}

// Runs `body`. Nothing may be thrown to the engine.
template <class F>
eng_status guarded(eng_error* error, F body) noexcept {
  try {
    return body();
  } catch (...) {
    if (error) error->set(error, ENG_NO_MEMORY, "out of memory", 13);
    return ENG_NO_MEMORY;
  }
}

// ---- the tokenizer ----

// Gives the ids of a text to `put`, one by one.
template <class F>
void each_id(const char* text, uint64_t size, F put) {
  for (uint64_t k = 0; k < size; ++k) {
    const bool word = text[k] == ' ' && k + 1 < size && text[k + 1] != ' ';
    if (word) ++k;
    put((word ? 256 : 0) + static_cast<int32_t>(static_cast<unsigned char>(text[k])));
  }
}

// There are no files to open. What others wrote into a file must not be read as if it were ours.
eng_status create_tokenizer(const eng_options*, const char* path, void** self, eng_error* error) {
  static char something;
  if (std::strcmp(path, "bytes") != 0)
    return fail(error, ENG_UNSUPPORTED, std::string("my_thing has ids of its own and reads no ") + path);
  *self = &something;
  return ENG_OK;
}

void destroy_tokenizer(void*) {}

eng_status describe_tokenizer(void*, eng_tokenizer_info* out, eng_error*) {
  out->vocabulary = vocabulary;
  out->bos = out->eos = out->eot = -1;  // there are none
  std::memcpy(out->content_hash, content_hash, sizeof content_hash);
  return ENG_OK;
}

// Several calls may be at work at a time, so nothing is kept between them. Both functions count everything, and write
// what there is room for.
eng_status encode(void*, const char* text, uint64_t size, uint32_t, int32_t* ids, uint64_t capacity, uint64_t* count,
                  eng_error*) {
  uint64_t n = 0;
  each_id(text, size, [&](int32_t id) {
    if (n < capacity) ids[n] = id;
    ++n;
  });
  *count = n;
  return ENG_OK;
}

eng_status decode(void*, const int32_t* ids, uint64_t count, char* text, uint64_t capacity, uint64_t* size,
                  eng_error* error) {
  for (uint64_t k = 0; k < count; ++k)
    if (ids[k] < 0 || ids[k] >= vocabulary)
      return fail(error, ENG_OUT_OF_RANGE, "there is no id " + std::to_string(ids[k]));
  uint64_t n = 0;
  const auto put = [&](int32_t byte) {
    if (n < capacity) text[n] = static_cast<char>(byte);
    ++n;
  };
  for (uint64_t k = 0; k < count; ++k) {
    if (ids[k] >= 256) put(' ');
    put(ids[k] % 256);
  }
  *size = n;
  return ENG_OK;
}

constexpr eng_tokenizer make_tokenizer() {
  eng_tokenizer table{};
  table.struct_size = sizeof table;
  table.minor = ENG_ABI_MINOR;
  table.create = create_tokenizer;
  table.destroy = destroy_tokenizer;
  table.describe = describe_tokenizer;
  table.encode = encode;
  table.decode = decode;
  return table;
}
constexpr eng_tokenizer tokenizer = make_tokenizer();

// ---- the source: all texts in a row, cut into windows of T ids; the last ones are held out ----

struct Source {
  std::vector<int32_t> ids;
  uint64_t length, train, held;  // T; windows
};

eng_status add_file(Source& source, const std::string& path, eng_error* error) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(error, ENG_NOT_FOUND, "cannot open " + path);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  each_id(text.data(), text.size(), [&](int32_t id) { source.ids.push_back(id); });
  return ENG_OK;
}

eng_status create(const eng_options* options, const eng_data_request* request, void** self, eng_error* error) {
  return guarded(error, [&]() -> eng_status {
    uint32_t files = 0;
    double validation = 0;
    if (eng_status s = options->get_count(options, "paths", &files, error)) return s;
    if (eng_status s = options->get_float(options, "validation", &validation, error)) return s;
    if (request->vocabulary < vocabulary)
      return fail(error, ENG_INVALID, "ids go up to 511: set vocab_size of the model to 512 or more");
    Source source{};
    for (uint32_t k = 0; k < files; ++k) {
      const char* path = nullptr;
      if (eng_status s = options->get_string_at(options, "paths", k, &path, error)) return s;
      // Relative paths are relative to the configuration.
      const std::string whole = path[0] == '/' ? path : std::string(request->base_dir) + "/" + path;
      if (eng_status s = add_file(source, whole, error)) return s;
    }
    source.length = static_cast<uint64_t>(request->sequence_length);
    const uint64_t windows = source.ids.empty() ? 0 : (source.ids.size() - 1) / source.length;
    source.held = static_cast<uint64_t>(validation * static_cast<double>(windows));
    source.train = windows - source.held;
    if (!source.train) return fail(error, ENG_INVALID, "the texts are shorter than train.sequence_length");
    *self = new Source(std::move(source));
    return ENG_OK;
  });
}

void destroy(void* self) {
  delete static_cast<Source*>(self);
}

// The hash is equal if and only if the data is equal: a run is not resumed with other data.
eng_status describe_data(void* self, eng_data_info* out, eng_error*) {
  const Source& source = *static_cast<const Source*>(self);
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const int32_t id : source.ids) hash = (hash ^ static_cast<uint64_t>(id)) * 0x100000001b3u;
  out->tokens = source.ids.size();
  out->train_samples = source.train;
  out->validation_samples = source.held;
  out->vocabulary = vocabulary;
  out->host_bytes = source.ids.size() * sizeof(int32_t);
  std::snprintf(out->content_hash, sizeof out->content_hash, "%016" PRIx64 "%08x%08x", hash,
                static_cast<unsigned>(source.train), static_cast<unsigned>(source.held));
  return ENG_OK;
}

// A pure function of split and position, which goes on beyond one epoch; every epoch begins at another window.
eng_status read_sample(void* self, int32_t split, uint64_t position, void* const* values, eng_error*) {
  const Source& source = *static_cast<const Source*>(self);
  const uint64_t epoch = position / source.train;
  const uint64_t window =
      split == ENG_SPLIT_TRAIN ? (position + epoch % source.train * 7919) % source.train : source.train + position;
  const int32_t* at = source.ids.data() + window * source.length;
  std::memcpy(values[0], at, source.length * sizeof(int32_t));
  std::memcpy(values[1], at + 1, source.length * sizeof(int32_t));  // labels: the id after each
  return ENG_OK;
}

constexpr eng_data make_data() {
  eng_data table{};
  table.struct_size = sizeof table;
  table.minor = ENG_ABI_MINOR;
  table.create = create;
  table.destroy = destroy;
  table.describe = describe_data;
  table.read = read_sample;
  return table;
}
constexpr eng_data data = make_data();

// ---- the plugin ----

const char* describe() {
  return eng_description;
}

eng_status start(const eng_host*, eng_error*) {
  return ENG_OK;
}

void stop() {}

const void* get_interface(const char* kind, const char* name) {
  if (!std::strcmp(kind, ENG_TOKENIZER_KIND) && !std::strcmp(name, "auto")) return &tokenizer;
  return !std::strcmp(kind, ENG_DATA_KIND) && !std::strcmp(name, "my_thing") ? &data : nullptr;
}

const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
