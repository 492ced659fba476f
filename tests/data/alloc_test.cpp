// SPDX-License-Identifier: Apache-2.0
// Reading is quiet and quick: it allocates nothing, and a large file costs no more than a small one.
#include <toml++/toml.h>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "engine/tokenizer.h"
#include "harness.hpp"

using namespace data_test;

namespace {
[[maybe_unused]] std::atomic<uint64_t> allocations{0};
}

// The sanitizers bring their own allocator; without them this program's malloc counts for all shared objects too.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define OWN_MALLOC 0
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OWN_MALLOC 0
#endif
#ifndef OWN_MALLOC
#define OWN_MALLOC 1
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);

void* malloc(size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_calloc(count, size);
}
void* realloc(void* old, size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_realloc(old, size);
}
}
#endif

#if OWN_MALLOC
TEST_CASE("read allocates nothing") {
  Folder folder;
  folder.write("a.txt", std::string(60000, 'a'));
  folder.write("b.txt", std::string(3 << 20, 'b'));
  folder.write("c.jsonl", "{\"text\": \"" + std::string(10000, 'c') + "\"}\n");
  uint64_t before = allocations;
  Source source(folder, {.paths = {"*"}, .length = 64});
  REQUIRE(source.status() == ENG_OK);
  CHECK(allocations > before + 10);  // the count sees what the plugin does

  bool good = true;
  before = allocations;
  for (uint64_t p = 0; p < 2 * source.info().train_samples; ++p) good = good && source.try_read(0, p) == ENG_OK;
  for (uint64_t p = 0; p < source.info().validation_samples; ++p) good = good && source.try_read(1, p) == ENG_OK;
  const uint64_t during = allocations - before;
  CHECK(good);
  CHECK(during == 0);
}

TEST_CASE("reading packed documents allocates nothing") {
  Folder folder;
  std::string lines;
  for (int i = 0; i < 2000; ++i) lines += "{\"text\": \"" + std::string(1 + i * 37 % 150, char('a' + i % 26)) + "\"}\n";
  folder.write("c.jsonl", lines);
  Source source(folder, {.paths = {"*"}, .numbers = {{"pack", 1}}, .length = 64});
  REQUIRE(source.status() == ENG_OK);
  bool good = true;
  const uint64_t before = allocations;
  for (uint64_t p = 0; p < 2 * source.info().train_samples; ++p) good = good && source.try_read(0, p) == ENG_OK;
  for (uint64_t p = 0; p < source.info().validation_samples; ++p) good = good && source.try_read(1, p) == ENG_OK;
  const uint64_t during = allocations - before;
  CHECK(good);
  CHECK(during == 0);
}

TEST_CASE("a line without the field is refused without a tree of it") {
  Folder folder;
  std::string line = "{";
  for (int i = 0; i < 50000; ++i)
    line += std::string(i ? "," : "") + "\"a key too long to be short " + std::to_string(i) + "\":[{},[]]";
  folder.write("a.jsonl", line + "}\n");
  const uint64_t before = allocations;
  Source source(folder, {.paths = {"*"}, .length = 64});
  CHECK(source.status() == ENG_INVALID);
  CHECK_THAT(source.error(), Catch::Contains("(50000 in all)"));
  CHECK(allocations < before + 5000);
}
#endif

TEST_CASE("the description names what the table serves") {
  const toml::table description = toml::parse(plugin().describe());
  CHECK_FALSE(description.contains("draft"));
  CHECK(description["plugin"]["license"].value<std::string>() == "Apache-2.0");
  const auto provided = description["provides"][0];
  CHECK(provided["kind"].value<std::string>() == ENG_DATA_KIND);
  CHECK(provided["name"].value<std::string>() == "text");
  const toml::table& options = *provided["options"].as_table();
  CHECK(options.size() == 14);
  for (const auto& [key, option] : options) {
    CAPTURE(std::string(key.str()));
    CHECK(option.as_table()->at_path("help").is_string());
    CHECK(option.as_table()->at_path("type").is_string());
  }
  CHECK(plugin().get_interface(ENG_DATA_KIND, "other") == nullptr);
  for (const auto& [kind, name] : {std::pair{ENG_DATA_KIND, "tokens"},
                                   {ENG_TOKENIZER_KIND, "auto"},
                                   {ENG_TOKENIZER_KIND, "bytes"},
                                   {ENG_TOKENIZER_KIND, "huggingface"},
                                   {ENG_TOKENIZER_KIND, "sentencepiece"}}) {
    CAPTURE(name);
    CHECK(plugin().get_interface(kind, name) != nullptr);
    bool listed = false;
    for (const auto& entry : *description["provides"].as_array())
      listed = listed || (entry.at_path("kind").value<std::string>() == kind &&
                          entry.at_path("name").value<std::string>() == name);
    CHECK(listed);
  }
  CHECK(plugin().get_interface("eng.model/1", "text") == nullptr);
}

TEST_CASE("100 MB are opened and read quickly", "[.slow]") {
  Folder folder;
  const std::string part = pairs(65536);
  std::string large;
  while (large.size() < 100'000'000) large += part;
  folder.write("large.txt", large);
  auto now = [] { return std::chrono::steady_clock::now(); };
  auto seconds = [](auto from, auto to) { return std::chrono::duration<double>(to - from).count(); };
  const auto opened = now();
  Source source(folder, {.paths = {"large.txt"}, .strings = {{"format", "bytes"}}, .length = 1024});
  REQUIRE(source.status() == ENG_OK);
  const auto reading = now();
  const uint64_t samples = source.info().train_samples;
  bool right = true;
  for (uint64_t p = 0; p < samples; ++p) {
    const Sample& sample = source.read(0, p);
    const char* at = part.data() + place(sample.tokens[0], sample.labels[0]);
    right = right && sample.tokens[1] == static_cast<unsigned char>(at[1]);
  }
  const auto done = now();
  CHECK(right);
  WARN("opened in " << seconds(opened, reading) << " s, " << samples << " samples of 1024 in " << seconds(reading, done)
                    << " s");
  CHECK(seconds(opened, reading) < 5);
  CHECK(seconds(reading, done) < 10);
}
