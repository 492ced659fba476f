// SPDX-License-Identifier: Apache-2.0
// Windows, labels, and what is held out.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <set>
#include <tuple>

#include "harness.hpp"

using namespace data_test;

namespace {

// Counts how often an epoch of a split touches each token of `text`; checks tokens and labels of every sample on the
// way.
std::vector<int> touched(Source& source, const std::string& text, int split, std::size_t length) {
  std::vector<int> count(text.size());
  std::set<uint64_t> starts;
  bool right = true;
  for (uint64_t p = 0; p < source.samples(split); ++p) {
    const Sample& sample = source.read(split, p);
    uint64_t start = place(sample.tokens[0], sample.labels[0]);
    REQUIRE(start + length < text.size());
    starts.insert(start);
    for (std::size_t t = 0; t < length; ++t) {
      right = right && sample.tokens[t] == static_cast<unsigned char>(text[start + t]);
      right = right && sample.labels[t] == static_cast<unsigned char>(text[start + t + 1]);
    }
    for (std::size_t t = 0; t <= length; ++t) ++count[start + t];
  }
  CHECK(right);
  CHECK(starts.size() == source.samples(split));
  return count;
}

// Tokens in both splits.
std::size_t shared(const std::vector<int>& a, const std::vector<int>& b) {
  std::size_t both = 0;
  for (std::size_t i = 0; i < a.size(); ++i) both += a[i] > 0 && b[i] > 0;
  return both;
}

}  // namespace

TEST_CASE("windows follow each other and share one token") {
  Folder folder;
  folder.write("a.txt", "abcdefghij");
  Source source(folder, {.paths = {"a.txt"}, .numbers = {{"validation", 0}}, .length = 3});
  REQUIRE(source.status() == ENG_OK);
  CHECK(source.info().files == 1);
  CHECK(source.info().tokens == 10);
  CHECK(source.info().train_samples == 3);
  CHECK(source.info().validation_samples == 0);
  CHECK(source.info().vocabulary == 256);
  std::set<std::vector<int32_t>> seen;
  for (uint64_t p = 0; p < 3; ++p) {
    const Sample& sample = source.read(0, p);
    std::vector<int32_t> window = sample.tokens;
    for (std::size_t t = 0; t < 3; ++t) CHECK(sample.labels[t] == sample.tokens[t] + 1);
    seen.insert(window);
  }
  CHECK(seen == std::set<std::vector<int32_t>>{{'a', 'b', 'c'}, {'d', 'e', 'f'}, {'g', 'h', 'i'}});
}

TEST_CASE("no token of a held-out window is in a training window, and next to none is lost") {
  Folder folder;
  const double shares[] = {0.001, 0.05, 0.29, 0.5};
  int sources = 0;
  for (std::size_t size : {6u, 9u, 10u, 47u, 200u, 1000u, 4099u, 20000u}) {
    const std::string text = pairs(size);
    folder.write("a.txt", text);
    for (std::size_t length : {1u, 2u, 3u, 8u, 31u, 256u}) {
      for (double share : shares) {
        if (size < 2 * length + 2) continue;
        CAPTURE(size, length, share);
        ++sources;
        Source source(folder, {.paths = {"a.txt"},
                               .strings = {{"format", "bytes"}},
                               .numbers = {{"validation", share}},
                               .length = int64_t(length)});
        REQUIRE(source.status() == ENG_OK);
        std::vector<int> train = touched(source, text, 0, length);
        std::vector<int> held = touched(source, text, 1, length);
        CHECK(shared(train, held) == 0);
        // Windows of one split share at most a token, and only with a neighbour.
        CHECK(*std::max_element(train.begin(), train.end()) <= 2);
        CHECK(*std::max_element(held.begin(), held.end()) <= 2);
        uint64_t windows = source.samples(0) + source.samples(1);
        uint64_t most = (size - 1) / length;
        CHECK(windows + 32 / length + 1 >= most);
        double wanted = share * double(windows);
        CHECK(double(source.samples(1)) <= std::max(1.0, wanted + 1e-6));
        CHECK(double(source.samples(1)) >= std::max(1.0, wanted - 1));
      }
    }
  }
  CHECK(sources > 100);
}

TEST_CASE("the check for shared tokens sees one") {
  // Windows cut in a row, the last ones held out without a gap: the naive split.
  std::vector<int> train(20), held(20);
  for (std::size_t t = 0; t <= 12; ++t) ++train[t];
  for (std::size_t t = 12; t <= 16; ++t) ++held[t];
  CHECK(shared(train, held) == 1);
}

TEST_CASE("held-out windows are spread over the data and do not depend on the seed") {
  Folder folder;
  const std::string text = pairs(40000);
  folder.write("a.txt", text);
  auto held_by = [&](uint64_t seed) {
    Source source(folder, {.paths = {"a.txt"}, .strings = {{"format", "bytes"}}, .seed = seed, .length = 16});
    return touched(source, text, 1, 16);
  };
  std::vector<int> held = held_by(1);
  CHECK(held == held_by(2));
  for (std::size_t quarter = 0; quarter < 4; ++quarter) {
    auto begin = held.begin() + std::ptrdiff_t(quarter * 10000);
    auto tokens = 10000 - std::count(begin, begin + 10000, 0);
    CHECK(tokens > 400);
    CHECK(tokens < 600);
  }
}

TEST_CASE("labels go on across the ends of files, with the separator between") {
  Folder folder;
  folder.write("b/2.txt", "cd");
  folder.write("a.txt", "ab");
  folder.write("empty.txt", "");
  folder.write("z.txt", "efg");
  Settings settings{.paths = {"**/*.txt"}, .numbers = {{"validation", 0}}, .length = 8};
  CHECK(Source(folder, settings).text() == "ab\ncd\nefg");
  settings.strings["separator"] = "";
  settings.length = 6;
  CHECK(Source(folder, settings).text() == "abcdefg");
  settings.strings["separator"] = "<|end|>";
  settings.length = 20;
  CHECK(Source(folder, settings).text() == "ab<|end|>cd<|end|>efg");
}

TEST_CASE("a file above 1 MiB is read in place, its neighbours join it") {
  Folder folder;
  std::string large;
  while (large.size() < (3u << 20)) large += pairs(65536);
  large += "tail";
  folder.write("b.txt", large);
  folder.write("a.txt", "start");
  folder.write("c.txt", "end");
  const std::string whole = "start\n" + large + "\nend";
  const auto length = static_cast<int64_t>(whole.size() - 1);
  Settings settings{
      .paths = {"*.txt"}, .strings = {{"format", "bytes"}}, .numbers = {{"validation", 0}}, .length = length};
  CHECK(Source(folder, settings).text() == whole);

  // Each small window too, whether it lies in one file or in three.
  settings.length = 61;
  Source source(folder, settings);
  std::multiset<std::string> expected, found;
  for (uint64_t i = 0; i < source.samples(0); ++i) {
    expected.insert(whole.substr(i * 61, 62));
    const Sample& sample = source.read(0, i);
    std::string window(sample.tokens.begin(), sample.tokens.end());
    found.insert(window + static_cast<char>(sample.labels.back()));
  }
  CHECK(found == expected);
}

TEST_CASE("the content hash is that of the data") {
  Folder folder;
  folder.write("a.txt", "one text");
  folder.write("b.txt", "and another");
  folder.write("c.jsonl", "{\"text\": \"one text\", \"other\": \"different\"}\n{\"text\": \"and another\"}\n");
  Settings settings{.paths = {"a.txt", "b.txt"}};
  auto hash = [&] {
    Source source(folder, settings);
    REQUIRE(source.status() == ENG_OK);
    return std::string(source.info().content_hash);
  };
  const std::string first = hash();
  CHECK(first.size() == 32);
  CHECK(first.find_first_not_of("0123456789abcdef") == std::string::npos);
  settings.seed = 7;
  CHECK(hash() == first);
  settings.paths = {"c.jsonl"};
  CHECK(hash() == first);
  settings.strings["field"] = "other";
  folder.write("c.jsonl", "{\"text\": \"one text\", \"other\": \"different\"}\n{\"other\": \"and another\"}\n");
  CHECK(hash() != first);
  settings.paths = {"a.txt", "b.txt"};
  settings.strings["separator"] = " ";
  CHECK(hash() != first);
  settings.strings.erase("separator");
  folder.write("b.txt", "and anothes");
  CHECK(hash() != first);
  folder.write("b.txt", "and another");
  CHECK(hash() == first);
}

namespace {

// The bytes that are predicted in all held-out samples, sorted, and how many labels are ignored.
std::pair<std::string, std::size_t> predicted(Source& source) {
  std::string all;
  std::size_t ignored = 0;
  for (uint64_t p = 0; p < source.samples(1); ++p) {
    const Sample& sample = source.read(1, p);
    for (std::size_t t = 0; t < sample.labels.size(); ++t) {
      if (sample.labels[t] == ENG_IGNORE_LABEL) {
        ++ignored;
        CHECK(sample.tokens[t] == 0);
      } else {
        CHECK(sample.tokens[t] == sample.labels[t] - 1);  // the text counts up
        all += static_cast<char>(sample.labels[t]);
      }
    }
  }
  std::sort(all.begin(), all.end());
  return {all, ignored};
}

}  // namespace

TEST_CASE("files that are held out: every token but the first once, the last window filled up") {
  Folder folder;
  folder.write("train.txt", "0123456789");
  folder.write("held.txt", "abcdefghijk");
  {
    Settings settings{.paths = {"train.txt"}, .length = 4};
    settings.validation_paths = {"held.txt"};
    Source source(folder, settings);
    INFO(source.error());
    REQUIRE(source.status() == ENG_OK);
    CHECK(source.info().files == 2);
    CHECK(source.info().tokens == 21);
    CHECK(source.samples(0) == 2);  // nothing of it is held out
    CHECK(source.samples(1) == 3);
    CHECK(predicted(source) == std::pair<std::string, std::size_t>("bcdefghijk", 2));
    // With a share that is asked for, of the others too.
    settings.numbers["validation"] = 0.5;
    Source both(folder, settings);
    CHECK(both.samples(0) == 1);
    CHECK(both.samples(1) == 4);
    CHECK(std::string(both.info().content_hash) == source.info().content_hash);
    settings.validation_paths = {};
    CHECK(std::string(Source(folder, settings).info().content_hash) != source.info().content_hash);
  }
  // Exactly whole windows, one token more, and the least.
  for (const auto& [text, windows, ignored] : {std::tuple("abcde", 1u, 0u), {"abcdef", 2u, 3u}, {"ab", 1u, 3u}}) {
    folder.write("held.txt", text);
    Settings settings{.paths = {"train.txt"}, .length = 4};
    settings.validation_paths = {"held.txt"};
    Source source(folder, settings);
    CHECK(source.samples(1) == windows);
    CHECK(predicted(source) == std::pair<std::string, std::size_t>(std::string(text).substr(1), ignored));
  }
}

TEST_CASE("a file that is held out is not trained on, by whatever name") {
  Folder folder;
  folder.write("a.txt", "0123456789");
  folder.write("held.txt", "abcdefghijk");
  std::filesystem::create_symlink("held.txt", folder.path() / "link.txt");
  Settings settings{.paths = {"*.txt"}, .length = 4};
  settings.validation_paths = {"link.txt"};
  Source source(folder, settings);
  REQUIRE(source.status() == ENG_OK);
  CHECK(source.samples(0) == 2);
  for (uint64_t p = 0; p < 2; ++p) CHECK(source.read(0, p).tokens[0] < 'a');
  CHECK(predicted(source).first == "bcdefghijk");
  settings.paths = {"held.txt"};
  Source nothing(folder, settings);
  CHECK(nothing.status() == ENG_INVALID);
  CHECK_THAT(nothing.error(), Catch::Contains("holds out every file of paths"));
  settings.validation_paths = {"none.txt"};
  Source absent(folder, settings);
  CHECK(absent.status() == ENG_NOT_FOUND);
  CHECK_THAT(absent.error(), Catch::Contains("[data] validation_paths: no file"));
  folder.write("one.txt", "a");
  settings.validation_paths = {"one.txt"};
  Source one(folder, settings);
  CHECK(one.status() == ENG_INVALID);
  CHECK_THAT(one.error(), Catch::Contains("one.txt holds 1 tokens (bytes); an evaluation needs at least 2"));
}

TEST_CASE("validation = 1 evaluates all, every token once") {
  Folder folder;
  folder.write("a.txt", "abcdef");
  folder.write("b.txt", "ghijk");
  Source source(folder,
                {.paths = {"*.txt"}, .strings = {{"separator", ""}}, .numbers = {{"validation", 1}}, .length = 4});
  REQUIRE(source.status() == ENG_OK);
  CHECK(source.samples(0) == 0);
  CHECK(predicted(source) == std::pair<std::string, std::size_t>("bcdefghijk", 2));
  CHECK(source.try_read(ENG_SPLIT_TRAIN, 0) == ENG_PRECONDITION);
  CHECK_THAT(source.error(), Catch::Contains("there is no training data"));
}

TEST_CASE("files of tokens are held out as texts are") {
  Folder folder;
  const auto ids = [](int first, int count) {
    std::string bytes;
    for (int i = first; i < first + count; ++i) bytes += {static_cast<char>(i), '\0'};
    return bytes;
  };
  folder.write("train.bin", ids(1, 10));
  folder.write("held.bin", ids(100, 11));
  Settings settings{.paths = {"*.bin"}, .length = 4, .source = "tokens"};
  settings.validation_paths = {"held.bin"};
  Source source(folder, settings);
  INFO(source.error());
  REQUIRE(source.status() == ENG_OK);
  CHECK(source.samples(0) == 2);
  CHECK(source.samples(1) == 3);
  std::string expected;
  for (int i = 101; i < 111; ++i) expected += static_cast<char>(i);
  CHECK(predicted(source) == std::pair<std::string, std::size_t>(expected, 2));
}
