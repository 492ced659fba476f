// SPDX-License-Identifier: Apache-2.0
// Tokens made from text: what they are, that they are made once, and the same whatever the number of threads.

#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "harness.hpp"
#include "tokenizer_harness.hpp"

using namespace data_test;
using Catch::Contains;
namespace fs = std::filesystem;

namespace {

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// English enough, of any length, and different all the way.
std::string prose(std::size_t size) {
  std::string text;
  const char* words[] = {"the", "engine", "Reads", "a",     "tensor", "from",
                         "its", "plan",   "42",    "isn't", "where",  "caf\u00e9"};
  for (uint32_t i = 1, x = 1; text.size() < size; ++i) {
    x = x * 1664525u + 1013904223u;
    text += words[(x >> 16) % 12];
    text += x >> 28 == 0 ? ".\n\n" : x >> 28 == 1 ? ",  " : " ";
  }
  return text;
}

struct Watch {
  eng_data_watch table{};
  uint64_t calls = 0, last_done = 0, last_total = 0, tokens = 0, stop_after = ~uint64_t{0};
  bool forward = true;
  explicit Watch(uint32_t threads) {
    table = {sizeof(table), threads, this, [](const eng_data_watch* self, uint64_t done, uint64_t total, uint64_t n) {
               auto* w = static_cast<Watch*>(self->data);
               w->forward = w->forward && done >= w->last_done && n >= w->tokens;
               w->last_done = done;
               w->last_total = total;
               w->tokens = n;
               return static_cast<int32_t>(++w->calls <= w->stop_after);
             }};
  }
};

struct Build {
  Folder folder;
  eng_data_built built{};
  std::string error;

  eng_status build(const Settings& settings, Watch* watch) { return build(settings, &watch->table); }
  eng_status build(const Settings& settings, const eng_data_watch* watch = nullptr) {
    const Opening with(folder, settings);
    built = {};
    built.struct_size = sizeof(built);
    eng_error sink{sizeof(sink), 0, this, [](eng_error* self, eng_status, const char* text, uint64_t length) {
                     static_cast<Build*>(self->data)->error.assign(text, length);
                   }};
    return table("text").build(&with.options, &with.request, watch, &built, &sink);
  }
  static Settings settings(const std::string& tokenizer, std::vector<std::string> paths) {
    return {.paths = std::move(paths),
            .strings = {{"tokenizer", golden + tokenizer}},
            .numbers = {{"validation", 0}},
            .vocabulary = 1000};
  }
  // All tokens, through a source that makes them itself.
  Ids all(Settings settings) {
    settings.length = 1;
    Source once(folder, settings);
    if (once.status() != ENG_OK) FAIL(once.error());
    settings.length = static_cast<int64_t>(once.info().tokens) - 1;
    return Source(folder, settings).tokens();
  }
  std::size_t files() const {
    const fs::path cache = folder.path() / ".engine-cache";
    return fs::exists(cache) ? static_cast<std::size_t>(std::distance(fs::directory_iterator(cache), {})) : 0;
  }
};

}  // namespace

TEST_CASE_METHOD(Build, "documents become ids with what stands between them") {
  folder.write("a.txt", "Hello, world!");
  folder.write("b.jsonl", "{\"text\": \"It's one\"}\n{\"text\": \"\"}\n{\"text\": \"and two\"}\n");
  for (const char* name : {"gpt2", "opt", "llama3", "llama"}) {
    CAPTURE(name);
    TokenizerUse tokenizer("auto", golden + name);
    const int32_t eot = tokenizer.info().eot;
    Settings given = settings(name, {"a.txt", "b.jsonl"});
    Ids expected, special, separated;
    for (const std::string text : {"Hello, world!", "It's one", "and two"}) {
      const Ids plain = tokenizer.encode(text), around = tokenizer.encode(text, ENG_ENCODE_SPECIAL);
      expected.insert(expected.end(), plain.begin(), plain.end());
      expected.push_back(eot);
      special.insert(special.end(), around.begin(), around.end());
      special.push_back(eot);
      const Ids between = separated.empty() ? Ids() : tokenizer.encode("\n");
      separated.insert(separated.end(), between.begin(), between.end());
      separated.insert(separated.end(), plain.begin(), plain.end());
    }
    CHECK(all(given) == expected);
    given.numbers["special_tokens"] = 1;
    CHECK(all(given) == special);
    given.numbers["special_tokens"] = 0;
    given.numbers["eot"] = 0;
    CHECK(all(given) == separated);
    REQUIRE(build(given) == ENG_OK);
    CHECK(built.documents == 3);
    CHECK(built.tokens == separated.size());
  }
}

TEST_CASE_METHOD(Build, "compressed JSON Lines and text are what they hold") {
  const std::string lines = "{\"text\": \"one one\"}\n{\"text\": \"two\"}\n";
  folder.write("plain/a.jsonl", lines);
  folder.write("gz/a.jsonl.gz", gzip(lines.substr(0, 10)) + gzip(lines.substr(10)));  // two members
  folder.write("zst/a.jsonl.zst", zstd(lines.substr(0, 10)) + zstd(lines.substr(10)));
  const Ids expected = all(settings("gpt2", {"plain/*"}));
  CHECK(all(settings("gpt2", {"gz/*"})) == expected);
  CHECK(all(settings("gpt2", {"zst/*"})) == expected);
  const std::string text = prose(2 << 20);
  folder.write("gz/b.txt.gz", gzip(text));
  folder.write("zst/b.txt.zst", zstd(text));
  for (const char* path : {"gz/b.txt.gz", "zst/b.txt.zst"}) {
    Settings bytes{.paths = {path}, .numbers = {{"validation", 0}}, .length = static_cast<int64_t>(text.size()) - 1};
    CHECK(Source(folder, bytes).text() == text);
    const std::string whole = read(folder.path() / path);
    for (const std::size_t size : {std::size_t{0}, std::size_t{5}, whole.size() / 2, whole.size() - 1}) {
      folder.write(path, whole.substr(0, size));
      Source cut(folder, bytes);
      CHECK(cut.status() == ENG_DATA_LOSS);
      CHECK_THAT(cut.error(), Contains(path) && Contains("damaged"));
    }
    std::string other = whole;
    other[other.size() / 2] = static_cast<char>(other[other.size() / 2] ^ 0x10);
    folder.write(path, other);
    CHECK((Source(folder, bytes).status() == ENG_DATA_LOSS || std::string(path) == "zst/b.txt.zst"));
    folder.write(path, "not compressed at all");  // as a server may have it decompressed
    bytes.length = 20;
    CHECK(Source(folder, bytes).text() == "not compressed at all");
  }
}

TEST_CASE_METHOD(Build, "the same bytes whatever the number of threads, and the ids of the whole text") {
  const std::string text = prose(1'200'000);
  folder.write("a.txt", text);
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += "{\"text\": \"line " + std::to_string(i) + " of many\"}\n";
  folder.write("b.jsonl", lines);
  std::string first;
  for (const uint32_t threads : {1u, 3u}) {
    Settings given = settings("gpt2", {"a.txt", "b.jsonl"});
    given.strings["cache"] = "cache" + std::to_string(threads);
    Watch watch(threads);
    REQUIRE(build(given, &watch) == ENG_OK);
    CHECK(built.reused == 0);
    CHECK(built.documents == 1001);
    CHECK(watch.calls > 0);
    CHECK(watch.forward);
    CHECK(watch.last_done == watch.last_total);
    CHECK(watch.tokens == built.tokens);
    const std::string bytes = read(built.path);
    if (first.empty()) first = bytes;
    CHECK(bytes == first);
  }
  TokenizerUse tokenizer("auto", golden + "gpt2");
  Ids expected = tokenizer.encode(text);
  expected.push_back(tokenizer.info().eot);
  CHECK(all(settings("gpt2", {"a.txt"})) == expected);
}

TEST_CASE_METHOD(Build, "long texts are cut for the threads where that changes no id", "[.slow]") {
  const std::string text = prose(1'200'000);
  folder.write("a.txt", text);
  for (const char* name : {"llama3", "neox", "llama"}) {
    CAPTURE(name);
    TokenizerUse tokenizer("auto", golden + name);
    Ids expected = tokenizer.encode(text);
    expected.push_back(tokenizer.info().eot);
    CHECK(all(settings(name, {"a.txt"})) == expected);
  }
}

TEST_CASE_METHOD(Build, "made once, and again when what it is made of changes") {
  folder.write("a.txt", "Hello, world! Hello again.");
  Settings given = settings("gpt2", {"a.txt"});
  REQUIRE(build(given) == ENG_OK);
  CHECK(built.reused == 0);
  const std::string path = built.path, bytes = read(path);
  CHECK(fs::path(path).parent_path() == folder.path() / ".engine-cache");
  REQUIRE(build(given) == ENG_OK);
  CHECK(built.reused == 1);
  CHECK(built.path == path);
  given.length = 2;
  CHECK(Source(folder, given).status() == ENG_OK);
  CHECK(files() == 1);
  // The name stands for the content, not for the file's time or place.
  folder.write("sub/other.txt", "Hello, world! Hello again.");
  REQUIRE(build(settings("gpt2", {"sub/other.txt"})) == ENG_OK);
  CHECK(built.path == path);
  for (const auto& change : {Settings{.numbers = {{"eot", 0}}}, Settings{.numbers = {{"special_tokens", 1}}},
                             Settings{.strings = {{"tokenizer", golden + "neox"}}}}) {
    Settings other = settings("gpt2", {"a.txt"});
    for (const auto& [key, value] : change.numbers) other.numbers[key] = value;
    for (const auto& [key, value] : change.strings) other.strings[key] = value;
    REQUIRE(build(other) == ENG_OK);
    CHECK(built.path != path);
  }
  folder.write("a.txt", "Hello, world! Hello, Again.");
  REQUIRE(build(given) == ENG_OK);
  CHECK(built.path != path);
}

TEST_CASE_METHOD(Build, "a damaged file is made again; named itself, it is refused") {
  folder.write("a.txt", prose(20000));
  const Settings given = settings("gpt2", {"a.txt"});
  REQUIRE(build(given) == ENG_OK);
  const std::string path = built.path, good = read(path);
  const auto name = fs::path(path).filename().string();
  const auto write = [&](const std::string& bytes) {
    fs::remove(path);
    folder.write(".engine-cache/" + name, bytes);
  };
  Settings named{
      .paths = {".engine-cache/" + name}, .numbers = {{"validation", 0}}, .vocabulary = 1000, .source = "tokens"};
  CHECK(Source(folder, named).status() == ENG_OK);
  named.vocabulary = 699;
  CHECK_THAT(Source(folder, named).error(), Contains("tokenizer of 700 ids") && Contains("vocabulary is 699"));
  named.vocabulary = 1000;
  named.strings = {{"tokenizer", golden + "gpt2"}};
  CHECK(Source(folder, named).status() == ENG_OK);
  named.strings = {{"tokenizer", golden + "neox"}};
  CHECK_THAT(Source(folder, named).error(), Contains(name + " was made by another tokenizer") && Contains("neox"));
  named.strings.clear();
  for (const std::size_t at : {std::size_t{3}, std::size_t{17}, std::size_t{70}, std::size_t{250}, std::size_t{256},
                               good.size() / 2, good.size() - 3}) {
    CAPTURE(at);
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x40);
    write(bad);
    char text[4096];
    uint64_t size = 0;
    CHECK(table("tokens").inspect(path.c_str(), ENG_INSPECT_VERIFY, text, sizeof(text), &size, nullptr) != ENG_OK);
    if (at >= 8) {  // before that it is another kind of file
      Source refused(folder, named);
      CHECK(refused.status() == ENG_DATA_LOSS);
      CHECK_THAT(refused.error(), Contains(name) && Contains("build it again"));
    }
    REQUIRE(build(given) == ENG_OK);
    CHECK(built.reused == 0);
    CHECK(read(path) == good);
  }
  for (const std::size_t size : {std::size_t{0}, std::size_t{100}, std::size_t{256}, good.size() - 1}) {
    write(good.substr(0, size));
    REQUIRE(build(given) == ENG_OK);
    CHECK(read(path) == good);
  }
  write(good + "x");
  REQUIRE(build(given) == ENG_OK);
  CHECK(read(path) == good);
  char text[4096];
  uint64_t size = 0;
  REQUIRE(table("tokens").inspect(path.c_str(), ENG_INSPECT_VERIFY, text, sizeof(text), &size, nullptr) == ENG_OK);
  CHECK_THAT(std::string(text, size),
             Contains("format: engine") && Contains("documents: 1\n") && Contains("vocabulary: 700"));
}

TEST_CASE_METHOD(Build, "a build that is stopped leaves nothing") {
  folder.write("a.txt", prose(1'500'000));
  for (const uint64_t after : {uint64_t{0}, uint64_t{1}}) {
    Watch watch(2);
    watch.stop_after = after;
    CHECK(build(settings("gpt2", {"a.txt"}), &watch) == ENG_UNAVAILABLE);
    CHECK_THAT(error, Contains("stopped"));
    CHECK(files() == 0);
  }
}

// Stops a build between two reports, when it has read that many bytes. A build that lasts is asked every tenth of a
// second: since each report here takes longer than that, it is asked for every piece that it reads.
struct Stop {
  eng_data_watch table{};
  uint64_t at;
  explicit Stop(uint64_t bytes) : at(bytes) {
    table = {sizeof(table), 2, this, [](const eng_data_watch* self, uint64_t done, uint64_t, uint64_t) {
               std::this_thread::sleep_for(std::chrono::milliseconds(110));
               return static_cast<int32_t>(done <= static_cast<const Stop*>(self->data)->at);
             }};
  }
};

TEST_CASE_METHOD(Build, "a build that was interrupted goes on at a file", "[.slow]") {
  std::vector<std::string> names;
  uint64_t all = 0, two = 0;
  for (int k = 0; k < 3; ++k) {
    const std::string text = prose(1'200'000 + 1000 * static_cast<std::size_t>(k));
    folder.write(names.emplace_back(std::to_string(k) + ".txt"), text);
    all += text.size();
    if (k < 2) two += text.size();
  }
  Settings given = settings("gpt2", names);
  given.numbers["eot"] = 0;
  given.strings["cache"] = "whole";
  REQUIRE(build(given) == ENG_OK);
  const std::string wanted = read(built.path);
  const auto left = [&](const std::string& cache) {
    return std::distance(fs::directory_iterator(folder.path() / cache), {});
  };
  // All bytes are read for the name, then again for the tokens.
  const auto stopped = [&](const std::string& cache, uint64_t at) {
    given.strings["cache"] = cache;
    const Stop stop(at);
    REQUIRE(build(given, &stop.table) == ENG_UNAVAILABLE);
    return error.find("goes on where it was") != std::string::npos;
  };
  CHECK_FALSE(stopped("a", all));  // in the first file: nothing to go on from
  CHECK(left("a") == 0);
  CHECK(stopped("a", all + two));  // in the third file
  CHECK(left("a") == 3);
  logged();
  REQUIRE(build(given) == ENG_OK);
  CHECK_THAT(logged(), Contains("was interrupted: this one goes on behind the first"));
  CHECK(read(built.path) == wanted);
  CHECK(left("a") == 1);
  // Damaged files do not count.
  REQUIRE(stopped("b", all + two));
  for (const auto& entry : fs::directory_iterator(folder.path() / "b")) {
    std::string bytes = read(entry.path().string());
    if (entry.path().string().find("documents") == std::string::npos && bytes.size() > 1000) bytes[600] ^= 1;
    std::ofstream(entry.path(), std::ios::binary) << bytes;
  }
  logged();
  REQUIRE(build(given) == ENG_OK);
  CHECK(logged().find("goes on behind") == std::string::npos);
  CHECK(read(built.path) == wanted);
}

TEST_CASE_METHOD(Build, "what cannot be built says why") {
  folder.write("a.txt", "text");
  folder.write("data.parquet", "PAR1");
  CHECK(build(settings("gpt2", {"data.parquet"})) == ENG_UNSUPPORTED);
  CHECK_THAT(error, Contains("tools/export-dataset " + (folder.path() / "data.parquet").string() + " --out " +
                             (folder.path() / "data.jsonl.zst").string()));
  CHECK_THAT(Source(folder, {.paths = {"*.parquet"}}).error(), Contains("tools/export-dataset"));
  Settings small = settings("gpt2", {"a.txt"});
  small.vocabulary = 699;
  CHECK(build(small) == ENG_INVALID);
  CHECK_THAT(error, Contains("has 700 token ids") && Contains("vocabulary is 699") && Contains("vocab_size to 700"));
  CHECK(Source(folder, small).status() == ENG_INVALID);
  small.vocabulary = 0;  // a build alone does not know the model
  CHECK(build(small) == ENG_OK);
  Settings bytes{.paths = {"a.txt"}};
  CHECK(build(bytes) == ENG_OK);
  CHECK(std::string(built.path).empty());
  Settings blocked = settings("gpt2", {"a.txt"});
  blocked.strings["cache"] = "a.txt/cache";
  CHECK(build(blocked) != ENG_OK);
  CHECK_THAT(error, Contains("a.txt/cache") && Contains("[data] cache"));
  // A tokenizer that ends no text: what stands between documents is the separator, and eot = true is an error.
  folder.write("plain/tokenizer.json",
               R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "Ċ": 3}, "merges": ["a b"]},)"
               R"( "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}})");
  folder.write("ab.txt", "abab");
  folder.write("ac.txt", "ba");
  Settings none{.paths = {"ab.txt", "ac.txt"}, .strings = {{"tokenizer", "plain"}}, .numbers = {{"validation", 0}}};
  CHECK(all(none) == Ids{2, 2, 3, 1, 0});
  none.numbers["eot"] = 1;
  CHECK(build(none) == ENG_INVALID);
  CHECK_THAT(error, Contains("eot = true") && Contains("eot = false"));
}
