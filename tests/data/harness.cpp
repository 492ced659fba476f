// SPDX-License-Identifier: Apache-2.0
#include "harness.hpp"

#include <dlfcn.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <toml++/toml.h>
#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>

#include "core/registry/threads.hpp"
#include "engine/plugin.h"

namespace data_test {
namespace fs = std::filesystem;

namespace {

const Settings& settings_of(const eng_options* options) {
  return *static_cast<const Settings*>(options->data);
}

eng_status get_float(const eng_options* options, const char* key, double* out, eng_error*) {
  auto at = settings_of(options).numbers.find(key);
  if (at == settings_of(options).numbers.end()) return ENG_NOT_FOUND;
  *out = at->second;
  return ENG_OK;
}

eng_status get_int(const eng_options* options, const char* key, int64_t* out, eng_error*) {
  double value = 0;
  const eng_status status = get_float(options, key, &value, nullptr);
  if (status == ENG_OK) *out = static_cast<int64_t>(value);
  return status;
}

eng_status get_bool(const eng_options* options, const char* key, int32_t* out, eng_error*) {
  double value = 0;
  const eng_status status = get_float(options, key, &value, nullptr);
  if (status == ENG_OK) *out = value != 0;
  return status;
}

int32_t is_set(const eng_options* options, const char* key) {
  return static_cast<int32_t>(settings_of(options).given.count(key));
}

eng_status get_string(const eng_options* options, const char* key, const char** out, eng_error*) {
  auto at = settings_of(options).strings.find(key);
  if (at == settings_of(options).strings.end()) return ENG_NOT_FOUND;
  *out = at->second.c_str();
  return ENG_OK;
}

const std::vector<std::string>* list_of(const eng_options* options, const char* key) {
  const Settings& settings = settings_of(options);
  if (std::strcmp(key, "validation_paths") == 0) return &settings.validation_paths;
  return std::strcmp(key, "paths") == 0 ? &settings.paths : nullptr;
}

eng_status get_count(const eng_options* options, const char* key, uint32_t* out, eng_error*) {
  const std::vector<std::string>* list = list_of(options, key);
  if (list == nullptr) return ENG_NOT_FOUND;
  *out = static_cast<uint32_t>(list->size());
  return ENG_OK;
}

eng_status get_string_at(const eng_options* options, const char* key, uint32_t index, const char** out, eng_error*) {
  const std::vector<std::string>* list = list_of(options, key);
  if (list == nullptr) return ENG_NOT_FOUND;
  *out = list->at(index).c_str();
  return ENG_OK;
}

// "256MiB"
uint64_t bytes_of(const std::string& text) {
  if (!text.ends_with("MiB")) throw std::runtime_error("a size in another unit: " + text);
  return std::stoull(text) << 20;
}

// Settings that the user left out take the defaults of the description.
Settings complete(Settings settings) {
  static const toml::table description = toml::parse(plugin().describe());
  const toml::table options = [&] {
    for (const toml::node& provided : *description["provides"].as_array())
      if (provided.as_table()->at_path("name").value_or("") == settings.source &&
          provided.as_table()->at_path("kind").value_or("") == std::string_view(ENG_DATA_KIND))
        return *provided.as_table()->at_path("options").as_table();
    throw std::runtime_error("no source " + settings.source);
  }();
  for (const auto& [key, value] : settings.numbers) settings.given.insert(key);
  for (const auto& [key, value] : settings.strings) settings.given.insert(key);
  for (const auto& [key, option] : options) {
    const toml::node_view<const toml::node> fallback = option.as_table()->at_path("default");
    if (option.as_table()->at_path("type").value_or("") == std::string("bytes"))
      settings.numbers.emplace(std::string(key.str()), double(bytes_of(fallback.value_or(""))));
    else if (auto text = fallback.value<std::string>())
      settings.strings.emplace(std::string(key.str()), *text);
    if (auto flag = fallback.is_boolean() ? fallback.value<bool>() : std::nullopt)
      settings.numbers.emplace(std::string(key.str()), *flag ? 1 : 0);
    if (fallback.is_integer()) settings.numbers.emplace(std::string(key.str()), double(*fallback.value<int64_t>()));
    if (fallback.is_floating_point()) settings.numbers.emplace(std::string(key.str()), *fallback.value<double>());
  }
  return settings;
}

}  // namespace

Folder::Folder() : Folder(fs::temp_directory_path()) {}

Folder::Folder(const fs::path& root) {
  std::string name = (root / "engine-data-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make " + name);
  path_ = name;
  fs::permissions(path_, fs::perms(0755));
}

Folder::~Folder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string Folder::write(const std::string& name, const std::string& text) const {
  fs::path path = path_ / name;
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
  return path.string();
}

std::string gzip(const std::string& text) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(text.size() + 1000, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

static std::string log_lines;

std::string logged() {
  return std::exchange(log_lines, "");
}

const eng_formats* host_formats = nullptr;

const eng_plugin& plugin() {
  static const eng_plugin* const loaded = [] {
    void* library = dlopen((std::string(ENGINE_PLUGIN_DIR) + "/data/data.eng.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(dlerror());
    auto query = reinterpret_cast<eng_plugin_query_fn>(dlsym(library, "eng_plugin_query_1"));
    if (query == nullptr) throw std::runtime_error("no eng_plugin_query_1");
    const eng_plugin* found = query(ENG_ABI_MINOR);
    static eng_host host = {sizeof(eng_host), ENG_ABI_MINOR, nullptr,
                            [](const eng_host*, int32_t, const char* text, uint64_t length) {
                              log_lines.append(text, length).append("\n");
                            },
                            [](const eng_host*, const char* id) -> const void* {
                              if (std::strcmp(id, ENG_FORMATS_EXTENSION) == 0) return host_formats;
                              return std::strcmp(id, ENG_THREADS_EXTENSION) == 0 ? &eng::host_threads : nullptr;
                            }};
    if (found->start(&host, nullptr) != ENG_OK) throw std::runtime_error("start failed");
    return found;
  }();
  return *loaded;
}

const eng_data& table(const std::string& source) {
  return *static_cast<const eng_data*>(plugin().get_interface(ENG_DATA_KIND, source.c_str()));
}

void Source::set(eng_error* self, eng_status code, const char* text, uint64_t length) {
  auto* source = static_cast<Source*>(self->data);
  source->error_.assign(text, length);
  self->code = code;
}

Opening::Opening(const Folder& folder, const Settings& given)
    : settings(complete(given)), base(folder.path().string()) {
  options.struct_size = sizeof(options);
  options.data = &settings;
  options.get_bool = get_bool;
  options.get_float = get_float;
  options.get_int = get_int;
  options.get_string = get_string;
  options.get_count = get_count;
  options.get_string_at = get_string_at;
  options.is_set = is_set;
  request.struct_size = sizeof(request);
  request.seed = settings.seed;
  request.sequence_length = settings.length;
  request.vocabulary = settings.vocabulary;
  request.base_dir = base.c_str();
  // The fields that a run would read: everything that there is.
  fields[0] = {ENG_FIELD_TOKENS, ENG_I32, 0}, fields[1] = {ENG_FIELD_LABELS, ENG_I32, 0};
  uint32_t more = 0;
  if (const auto& source = table(settings.source); source.fields)
    REQUIRE(source.fields(&options, fields + 2, 3, &more, nullptr) == ENG_OK);
  REQUIRE(more <= 3);
  request.n_fields = 2 + more;
  request.fields = fields;
}

Source::Source(const Folder& folder, const Settings& given) : table_(table(given.source)) {
  const Opening with(folder, given);
  sink_ = {sizeof(sink_), 0, this, set};
  status_ = table_.create(&with.options, &with.request, &self_, &sink_);
  if (status_ != ENG_OK) {
    CHECK(self_ == nullptr);
    CHECK(sink_.code == status_);
    CHECK(table_.create(&with.options, &with.request, &self_, nullptr) == status_);
    return;
  }
  info_.struct_size = sizeof(info_);
  REQUIRE(table_.describe(self_, &info_, &sink_) == ENG_OK);
  sample_.tokens.resize(static_cast<std::size_t>(given.length));
  sample_.labels.resize(static_cast<std::size_t>(given.length));
  for (uint32_t k = 2; k < with.request.n_fields; ++k) {
    fields_.emplace_back(with.fields[k].name);
    const auto n = static_cast<std::size_t>(given.length);
    if (fields_.back() == ENG_FIELD_SEGMENTS)
      sample_.segments.resize(n);
    else if (fields_.back() == ENG_FIELD_POSITIONS)
      sample_.positions.resize(n);
    else
      sample_.weights.resize(n);
  }
}

Source::~Source() {
  if (self_ != nullptr) table_.destroy(self_);
}

eng_status Source::try_read(int split, uint64_t position) {
  // Unwritten tokens must show.
  for (int32_t& token : sample_.tokens) token = -1;
  for (int32_t& label : sample_.labels) label = -1;
  for (int32_t& segment : sample_.segments) segment = -7;
  for (int32_t& at : sample_.positions) at = -7;
  for (float& weight : sample_.weights) weight = -7;
  void* values[5] = {sample_.tokens.data(), sample_.labels.data()};
  for (std::size_t k = 0; k < fields_.size(); ++k)
    values[2 + k] = fields_[k] == ENG_FIELD_SEGMENTS    ? static_cast<void*>(sample_.segments.data())
                    : fields_[k] == ENG_FIELD_POSITIONS ? static_cast<void*>(sample_.positions.data())
                                                        : static_cast<void*>(sample_.weights.data());
  return table_.read(self_, split, position, values, &sink_);
}

const Sample& Source::read(int split, uint64_t position) {
  if (status_ != ENG_OK || try_read(split, position) != ENG_OK) FAIL(error_);
  return sample_;
}

std::vector<int32_t> Source::tokens() {
  REQUIRE(status_ == ENG_OK);
  REQUIRE(info_.train_samples == 1);
  read(0, 0);
  std::vector<int32_t> all = sample_.tokens;
  all.push_back(sample_.labels.back());
  CHECK(std::equal(all.begin() + 1, all.end(), sample_.labels.begin()));
  return all;
}

std::string Source::text() {
  REQUIRE(status_ == ENG_OK);
  std::string text;
  for (const int32_t token : tokens()) text += static_cast<char>(token);
  return text;
}

std::string pairs(std::size_t size) {
  std::string text;
  for (int a = 0; a < 256; ++a) {
    text += static_cast<char>(a);
    for (int b = a + 1; b < 256; ++b) text += {static_cast<char>(a), static_cast<char>(b)};
  }
  REQUIRE(size <= text.size());
  return text.substr(0, size);
}

uint64_t place(int32_t first, int32_t second) {
  static const std::vector<uint32_t> places = [] {
    std::string text = pairs(65536);
    std::vector<uint32_t> at(65536, 65536);
    for (uint32_t i = 0; i + 1 < text.size(); ++i) {
      std::size_t pair = static_cast<unsigned char>(text[i]) * 256u + static_cast<unsigned char>(text[i + 1]);
      if (at[pair] != 65536) throw std::logic_error("a pair occurs twice");
      at[pair] = i;
    }
    return at;
  }();
  return places.at(static_cast<std::size_t>(first * 256 + second));
}

}  // namespace data_test
