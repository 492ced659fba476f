// SPDX-License-Identifier: Apache-2.0
// Packing: whole documents side by side in a sample.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <random>

#include "harness.hpp"

using namespace data_test;
using Catch::Contains;

namespace {

using Ids = std::vector<int32_t>;

// Documents of random bytes; the first letter of each is in no other place, so one is known by its beginning.
std::vector<std::string> documents(std::size_t n, std::size_t longest, uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  std::vector<std::string> out;
  for (std::size_t i = 0; i < n; ++i) {
    std::string text = std::to_string(i) + ":";
    const std::size_t size = 1 + random() % longest;
    while (text.size() < size) text += static_cast<char>('a' + random() % 26);
    out.push_back(text);
  }
  return out;
}

std::string lines(const std::vector<std::string>& documents) {
  std::string out;
  for (const std::string& text : documents) out += "{\"text\": \"" + text + "\"}\n";
  return out;
}

Settings packed(std::vector<std::string> paths, int64_t length, double validation = 0) {
  return {.paths = std::move(paths),
          .strings = {{"separator", ""}},
          .numbers = {{"pack", 1}, {"validation", validation}},
          .length = length};
}

struct Passage {
  Ids tokens, labels;
};

// Takes a sample apart, after checking what every packed sample keeps to.
std::vector<Passage> apart(const Sample& s, uint64_t* padding = nullptr) {
  std::vector<Passage> out;
  const std::size_t length = s.tokens.size();
  REQUIRE(s.segments.size() == length);
  REQUIRE(s.positions.size() == length);
  for (std::size_t t = 0; t < length; ++t) {
    const bool starts = t == 0 || s.segments[t] != s.segments[t - 1];
    REQUIRE(s.positions[t] == (starts ? 0 : s.positions[t - 1] + 1));
    if (s.segments[t] == ENG_PADDING_SEGMENT) {
      REQUIRE(s.labels[t] == ENG_IGNORE_LABEL);
      if (padding != nullptr) ++*padding;
      continue;
    }
    if (starts) {
      REQUIRE(s.segments[t] == static_cast<int32_t>(out.size()));
      out.emplace_back();
    }
    out.back().tokens.push_back(s.tokens[t]);
    out.back().labels.push_back(s.labels[t]);
  }
  for (const Passage& d : out)  // inside a document the label is the next token
    REQUIRE(std::equal(d.tokens.begin() + 1, d.tokens.end(), d.labels.begin()));
  return out;
}

std::string text_of(const Ids& tokens) {
  std::string out;
  for (const int32_t t : tokens) out += static_cast<char>(t);
  return out;
}

// Every document of an epoch, in any order.
std::multiset<std::string> epoch(Source& source, int split = 0, uint64_t first = 0) {
  std::multiset<std::string> out;
  for (uint64_t p = 0; p < source.samples(split); ++p)
    for (const Passage& d : apart(source.read(split, first + p))) out.insert(text_of(d.tokens));
  return out;
}

template <class T>
std::string raw(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

}  // namespace

TEST_CASE("an epoch of packed samples has every document once, whole", "[pack]") {
  Folder folder;
  const auto texts = documents(3000, 64);
  folder.write("a.jsonl", lines(texts));
  Source source(folder, packed({"a.jsonl"}, 64));
  REQUIRE(source.error() == "");
  const std::multiset<std::string> all(texts.begin(), texts.end());
  CHECK(epoch(source) == all);
  CHECK(epoch(source, 0, source.samples(0)) == all);
  CHECK(source.info().documents == texts.size());
  uint64_t padding = 0, ends = 0;
  for (uint64_t p = 0; p < source.samples(0); ++p)
    for (const Passage& d : apart(source.read(0, p), &padding)) ends += d.labels.back() == ENG_IGNORE_LABEL;
  CHECK(ends == texts.size());
  CHECK(source.info().padding == padding);
  // Lengths of 1 to 64 fit into 64 nearly without loss.
  CHECK(static_cast<double>(padding) < 0.01 * static_cast<double>(64 * source.samples(0)));
  CHECK(padding > 0);
}

TEST_CASE("documents of skewed lengths fill 99 % of the samples, window by window", "[pack]") {
  std::mt19937_64 random(11);
  std::lognormal_distribution<double> skewed(3.5, 1.2);  // half below 33, one in 100 above 540
  constexpr std::size_t n = 70000, length = 512;         // more than one window of documents
  std::string text;
  for (std::size_t i = 0; i < n; ++i) {
    const auto size = static_cast<std::size_t>(std::clamp(skewed(random), 2.0, 4000.0));
    text += "{\"text\": \"" + std::string(size, static_cast<char>('a' + i % 26)) + "\"}\n";
  }
  Folder folder;
  folder.write("a.jsonl", text);
  Source source(folder, packed({"a.jsonl"}, length)), again(folder, packed({"a.jsonl"}, length));
  REQUIRE(source.error() == "");
  const double positions = static_cast<double>(length * source.samples(0));
  CHECK(static_cast<double>(source.info().padding) < 0.01 * positions);
  CHECK(source.info().documents > n);
  for (const uint64_t p : {uint64_t{0}, source.samples(0) / 2, source.samples(0) - 1})
    CHECK(again.read(0, p) == source.read(0, p));
}

TEST_CASE("a packed sample is a function of its position", "[pack]") {
  Folder folder;
  folder.write("a.jsonl", lines(documents(800, 90)));
  const Settings settings = packed({"a.jsonl"}, 64, 0.2);
  Source source(folder, settings), again(folder, settings);
  const uint64_t n = source.samples(0);
  REQUIRE(n > 20);
  for (const uint64_t p : {uint64_t{5}, n + 3, uint64_t{0}, 7 * n + 11, uint64_t{5}}) {
    const Sample first = source.read(0, p);
    again.read(0, p + 1);
    CHECK(again.read(0, p) == first);
  }
  // Another epoch and another seed have the same samples in another order; what is held out comes in one order.
  Settings other = settings;
  other.seed = 2;
  Source seeded(folder, other);
  CHECK(seeded.samples(0) == n);
  const auto order = [](Source& s, uint64_t first, int split) {
    std::vector<Ids> out;
    for (uint64_t p = 0; p < s.samples(split); ++p) out.push_back(s.read(split, first + p).tokens);
    return out;
  };
  const auto one = order(source, 0, 0), two = order(source, n, 0), three = order(seeded, 0, 0);
  CHECK(one != two);
  CHECK(one != three);
  const auto sorted = [](std::vector<Ids> v) { return std::sort(v.begin(), v.end()), v; };
  CHECK(sorted(one) == sorted(two));
  CHECK(sorted(one) == sorted(three));
  CHECK(order(source, 0, 1) == order(seeded, 0, 1));
}

TEST_CASE("a document longer than a sample is cut; each of its tokens but the first is a label once", "[pack]") {
  Folder folder;
  for (const std::size_t size : {2u, 7u, 8u, 9u, 16u, 17u, 40u, 41u, 42u}) {
    CAPTURE(size);
    std::string text = pairs(size);
    for (char& c : text) c = static_cast<char>('A' + (c + 300) % 50);
    folder.write("a.jsonl", lines({text, "xy"}));
    Source source(folder, packed({"a.jsonl"}, 8));
    REQUIRE(source.error() == "");
    std::map<std::string, std::string> labels;  // by the tokens of the part
    std::string found;
    std::size_t counted = 0;
    for (uint64_t p = 0; p < source.samples(0); ++p)
      for (const Passage& d : apart(source.read(0, p))) {
        if (text_of(d.tokens) == "xy") continue;
        const std::size_t at = text.find(text_of(d.tokens).substr(0, std::min<std::size_t>(d.tokens.size(), 2)));
        REQUIRE(at % 8 == 0);
        const bool last = at + d.tokens.size() == text.size();
        // The next token of the document is the label of a part's end.
        CHECK(d.labels.back() == (last ? ENG_IGNORE_LABEL : text[at + d.tokens.size()]));
        counted += d.tokens.size() - (last ? 1 : 0);
      }
    CHECK(counted == size - 1);
  }
}

TEST_CASE("with pack, whole documents are held out", "[pack]") {
  Folder folder;
  const auto texts = documents(2000, 120);
  folder.write("a.jsonl", lines(texts));
  std::size_t all = 0;
  for (const auto& t : texts) all += t.size();
  std::multiset<std::string> before;
  for (const int64_t length : {64, 200}) {
    Source source(folder, packed({"a.jsonl"}, length, 0.1));
    const auto held = epoch(source, 1), train = epoch(source, 0);
    std::size_t size = 0;
    for (const auto& t : held) size += t.size();
    CHECK(size == Approx(0.1 * static_cast<double>(all)).epsilon(0.01));
    for (const auto& t : held) REQUIRE(train.count(t) == 0);
    if (length == 200) CHECK(held.size() + train.size() == texts.size());
    // The choice of held-out documents does not depend on the length of samples.
    if (length == 200) {
      std::size_t same = 0;
      for (const auto& t : before) same += t.size() < 64 && held.count(t);
      CHECK(same > 20);
    }
    before = held;
  }
  folder.write("held.jsonl", lines({"one of them", "another"}));
  Settings settings = packed({"a.jsonl"}, 64);
  settings.numbers.erase("validation");
  settings.validation_paths = {"held.jsonl"};
  Source paths(folder, settings);
  CHECK(epoch(paths, 1) == std::multiset<std::string>{"one of them", "another"});
  Source whole(folder, packed({"a.jsonl"}, 200, 1));
  CHECK(whole.samples(0) == 0);
  CHECK(epoch(whole, 1).size() == texts.size());
}

TEST_CASE("a plain file is one document; what cannot be packed is refused", "[pack]") {
  Folder folder;
  folder.write("a.txt", "the first file");
  folder.write("b.txt", "the second");
  Source source(folder, packed({"*.txt"}, 32));
  CHECK(epoch(source) == std::multiset<std::string>{"the first file", "the second"});
  Source held(folder, packed({"*.txt"}, 32, 0.05));
  CHECK_THAT(held.error(), Contains("validation = 0.05 with pack") && Contains("validation_paths"));
  folder.write("c.jsonl", lines({"a", "b", "c"}));
  Source single(folder, packed({"c.jsonl"}, 32));
  CHECK_THAT(single.error(), Contains("two tokens"));
  // The separator is the end of the document before it.
  Settings settings = packed({"*.txt"}, 32);
  settings.strings["separator"] = "\n";
  Source ends(folder, settings);
  CHECK(epoch(ends) == std::multiset<std::string>{"the first file\n", "the second"});
}

TEST_CASE("documents of a file of tokens are those of its index, or between its end-of-text tokens", "[pack]") {
  Folder folder;
  const std::vector<uint16_t> nano = {5, 6, 7, 99, 8, 9, 99, 1, 2, 3, 4, 99};
  folder.write("nano.bin", raw(nano));
  Settings settings = packed({"nano.bin"}, 16);
  settings.source = "tokens", settings.vocabulary = 60000, settings.strings.clear();
  Source unknown(folder, settings);
  CHECK_THAT(unknown.error(),
             Contains("nano.bin") && Contains("does not say where its documents end") && Contains("eot"));
  settings.numbers["eot"] = 98;
  Source absent(folder, settings);
  CHECK_THAT(absent.error(), Contains("the token 98") && Contains("pack = false"));
  const auto of = [](Source& source) {
    REQUIRE(source.error() == "");
    std::multiset<Ids> out;
    for (uint64_t p = 0; p < source.samples(0); ++p)
      for (const Passage& d : apart(source.read(0, p))) out.insert(d.tokens);
    return out;
  };
  settings.numbers["eot"] = 99;
  Source ended(folder, settings);
  CHECK(of(ended) == std::multiset<Ids>{{5, 6, 7, 99}, {8, 9, 99}, {1, 2, 3, 4, 99}});
  // llm.c's begin with theirs, which is known.
  std::vector<int32_t> header(256);
  const std::vector<uint16_t> gpt2 = {50256, 6, 7, 50256, 8, 9, 10, 50256, 4};
  header[0] = 20240520, header[1] = 1, header[2] = static_cast<int32_t>(gpt2.size());
  folder.write("llmc.bin", raw(header) + raw(gpt2));
  settings.numbers.erase("eot");
  settings.paths = {"llmc.bin"};
  Source begun(folder, settings);
  CHECK(of(begun) == std::multiset<Ids>{{50256, 6, 7}, {50256, 8, 9, 10}, {50256, 4}});
  // Megatron's index counts sequences: the second document has two.
  folder.write("mega.bin", raw(std::vector<uint16_t>{1, 2, 3, 4, 5, 6, 7, 8, 9}));
  folder.write("mega.idx", std::string("MMIDIDX\0\0", 9) + raw(std::vector<uint64_t>{1}) + '\x08' +
                               raw(std::vector<uint64_t>{3, 3}) + raw(std::vector<int32_t>{4, 2, 3}) +
                               raw(std::vector<int64_t>{0, 8, 12}) + raw(std::vector<int64_t>{0, 1, 3}));
  settings.paths = {"mega.bin"};
  Source indexed(folder, settings);
  CHECK(of(indexed) == std::multiset<Ids>{{1, 2, 3, 4}, {5, 6, 7, 8, 9}});
  // Several files: none goes on in the next.
  settings.paths = {"mega.bin", "llmc.bin"};
  Source several(folder, settings);
  CHECK(of(several).size() == 5);
}

TEST_CASE("text with a tokenizer packs documents with their end-of-text tokens", "[pack]") {
  Folder folder;
  const auto texts = documents(60, 80);
  folder.write("a.jsonl", lines(texts));
  Settings settings = packed({"a.jsonl"}, 128);
  settings.vocabulary = 700;
  settings.strings = {{"tokenizer", std::string(ENGINE_SOURCE_DIR) + "/tests/data/golden/gpt2"},
                      {"cache", folder.path().string()}};
  Source source(folder, settings);
  REQUIRE(source.error() == "");
  CHECK(source.info().documents == texts.size());
  std::size_t n = 0;
  std::set<int32_t> last;
  for (uint64_t p = 0; p < source.samples(0); ++p)
    for (const Passage& d : apart(source.read(0, p))) last.insert(d.tokens.back()), ++n;
  CHECK(n == texts.size());
  CHECK(last.size() == 1);  // the token that ends each
  // The file that was built, as tokens, has the same documents.
  Settings tokens = settings;
  tokens.source = "tokens", tokens.paths = {"*.tokens"}, tokens.strings.clear();
  Source built(folder, tokens);
  REQUIRE(built.error() == "");
  for (uint64_t p = 0; p < source.samples(0); ++p) CHECK(built.read(0, p) == source.read(0, p));
}

TEST_CASE("a source says its fields and takes no others", "[pack]") {
  Folder folder;
  folder.write("a.jsonl", lines(documents(20, 20)));
  for (const bool pack : {false, true}) {
    Settings settings = packed({"a.jsonl"}, 32);
    settings.numbers["pack"] = pack;
    Opening with(folder, settings);
    CHECK(with.request.n_fields == (pack ? 4 : 2));
    eng_field odd[3] = {{"tokens", ENG_I32, 0}, {"labels", ENG_I32, 0}, {"org.example.other", ENG_F32, 0}};
    with.request.fields = odd, with.request.n_fields = 3;
    void* self = nullptr;
    CHECK(table("text").create(&with.options, &with.request, &self, nullptr) == ENG_UNSUPPORTED);
    with.request.n_fields = 2;
    const eng_status blind = table("text").create(&with.options, &with.request, &self, nullptr);
    CHECK(blind == (pack ? ENG_INVALID : ENG_OK));
    if (blind == ENG_OK) table("text").destroy(self);
  }
}
