// SPDX-License-Identifier: Apache-2.0
// [[data.sources]]: several sources in one stream.
#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "plugins.hpp"
#include "session/config/config_text.hpp"
#include "session/data/data.hpp"
#include "session/planning/setup.hpp"
#include "tests/session/checkpoint/scratch.hpp"

using namespace eng;
using namespace fields_test;
using Catch::Contains;
using eng::test::Scratch;
using eng::test::write_file;

namespace {

using Shares = std::vector<uint64_t>;

// A folder with data: each file has letters that no other has.
struct Files : Scratch {
  Files() {
    write_file(*this / "a.txt", letters('a', 8 * 60 + 1));
    write_file(*this / "b.txt", letters('k', 8 * 20 + 1));
    std::string ids, lines, pairs;
    for (int k = 0; k < 8 * 10 + 1; ++k) ids += std::string(1, static_cast<char>('A' + k % 10)) + '\0';
    for (int k = 0; k < 40; ++k) lines += "{\"words\": \"" + letters('q', 2 + k % 7) + "\"}\n";
    for (int k = 0; k < 6; ++k) {
      const std::string n(1, static_cast<char>('0' + k));
      pairs += R"({"prompt": ")" + n + R"(", "chosen": "yes", "rejected": "no"})" + "\n";
    }
    write_file(*this / "c.bin", ids);
    write_file(*this / "d.jsonl", lines);
    write_file(*this / "pairs.jsonl", pairs);
    write_file(*this / "more.jsonl", pairs);
    write_file(*this / "empty.txt", "");
  }
  static std::string letters(char first, int n) {
    std::string out;
    for (int k = 0; k < n; ++k) out += static_cast<char>(first + k % 6);
    return out;
  }
  std::string paths(const std::string& name) const { return "paths = ['" + (*this / name).string() + "']\n"; }
  // An entry.
  std::string source(const std::string& name, const std::string& more = "") const {
    return "[[data.sources]]\n" + paths(name) + more;
  }
};

Config mixed(const std::string& data, const std::string& train = "") {
  return config_of(
      "[model]\nplugin = 'llama'\nhidden_size = 32\nintermediate_size = 64\nnum_hidden_layers = 1\n"
      "num_attention_heads = 2\nnum_key_value_heads = 2\nvocab_size = 256\n[train]\nsequence_length = 8\n" +
      train + "[data]\n" + data);
}

std::unique_ptr<Data> opened(const Config& config) {
  const Setup setup = make_plan_only(config, registry());
  return std::make_unique<Data>(registry(), config, 256, setup.model.fields);
}

// The source of a sample, by its first letter: a to d.
char origin(const std::vector<int32_t>& tokens, std::size_t at = 0) {
  const int32_t t = tokens.at(at);
  return t < 'a' ? 'c' : t < 'k' ? 'a' : t < 'q' ? 'b' : 'd';
}

// The origins of `n` samples from `first` on.
std::string origins(const Data& data, uint64_t first, int64_t n) {
  Batch batch;
  data.read(ENG_SPLIT_TRAIN, first, n, batch);
  std::string out;
  for (int64_t k = 0; k < n; ++k) out += origin(batch.tokens, static_cast<std::size_t>(k * data.length()));
  return out;
}

const std::string no_validation = "validation = 0\n";

}  // namespace

TEST_CASE("every source of a mixture has its share of any samples in succession", "[mixture]") {
  std::mt19937_64 random(5);
  std::vector<Shares> cases = {{1}, {3, 1}, {0, 5, 0}, {1, 1, 1}, {7, 0, 2, 11}, {1, 1000}, {1000, 1}};
  for (int k = 0; k < 20; ++k) {
    cases.emplace_back();
    for (uint64_t n = 1 + random() % 6; n; --n) cases.back().push_back(random() % 40);
    cases.back().push_back(1 + random() % 40);
  }
  for (const Shares& shares : cases)
    for (const uint32_t group : {1u, 2u}) {
      const Mixture mixture(shares, group);
      uint64_t all = 0;
      for (uint64_t n : shares) all += n;
      CHECK(mixture.samples() == all * group);
      Shares seen(shares.size(), 0);
      for (uint64_t p = 0; p < 3 * all * group; ++p) {
        const Mixture::Place at = mixture.at(p);
        // Each source goes on where it was, over the ends of epochs too.
        REQUIRE(at.position == seen[at.source]++);
        if ((p + 1) % group) continue;
        for (std::size_t k = 0; k < shares.size(); ++k) {
          const double due = static_cast<double>(p + 1) * static_cast<double>(shares[k]) / static_cast<double>(all);
          REQUIRE(std::abs(static_cast<double>(seen[k]) - due) <= static_cast<double>(group * (k + 1)));
        }
        if ((p + 1) % (all * group) == 0)
          for (std::size_t k = 0; k < shares.size(); ++k)
            REQUIRE(seen[k] == shares[k] * group * ((p + 1) / (all * group)));
      }
    }
  // Numbers that need more than 64 bits.
  const uint64_t large = uint64_t{1} << 55;
  const Mixture wide({large, 3 * large}, 1);
  const uint64_t epochs = 100;
  const auto [source, position] = wide.at(epochs * wide.samples());
  CHECK(position == epochs * (source == 0 ? large : 3 * large));
}

TEST_CASE("weights, epochs, temperature and sizes say the shares", "[mixture]") {
  const auto shares = [](std::vector<std::optional<double>> weights, std::vector<std::optional<double>> epochs,
                         const Shares& sizes, std::optional<double> temperature = {}) {
    std::vector<DataSource> sources(sizes.size());
    for (std::size_t k = 0; k < sizes.size(); ++k) {
      if (!weights.empty()) sources[k].weight = weights[k];
      if (!epochs.empty()) sources[k].epochs = epochs[k];
    }
    return mixture_shares(sources, sizes, temperature);
  };
  CHECK(shares({}, {}, {60, 20, 7}) == Shares{60, 20, 7});
  CHECK(shares({1, 1}, {}, {60, 20}) == Shares{40, 40});
  CHECK(shares({3, std::nullopt}, {}, {60, 20}) == Shares{60, 20});
  CHECK(shares({0.5, 0, 0.25}, {}, {60, 20, 30}) == Shares{60, 0, 30});
  CHECK(shares({1e9, 1e-9}, {}, {60, 20}) == Shares{80, 1});  // one at least
  CHECK(shares({}, {2, std::nullopt, 0.5}, {60, 20, 7}) == Shares{120, 20, 4});
  CHECK(shares({}, {0, 1}, {60, 20}) == Shares{0, 20});
  CHECK(shares({}, {}, {90, 10}, 1) == Shares{90, 10});
  CHECK(shares({}, {}, {90, 10}, 2) == Shares{75, 25});  // 3 to 1
  CHECK(shares({}, {}, {90, 10}, 1e6) == Shares{50, 50});
  CHECK(shares({}, {}, {0, 0}) == Shares{0, 0});
  CHECK_THROWS_AS(shares({}, {}, {60, 0}), Error);
  CHECK(shares({1, 0}, {}, {60, 0}) == Shares{60, 0});
}

TEST_CASE("a mixture of formats is one stream, which any ranks and any start continue", "[mixture]") {
  Files files;
  const std::string data = no_validation + files.source("a.txt", "name = 'novels'\nweight = 3\n") +
                           files.source("c.bin", "plugin = 'tokens'\nweight = 1\ndtype = 'uint16'\n") +
                           files.source("d.jsonl", "field = 'words'\nseparator = ''\nweight = 2.0\n");
  const Config config = mixed(data);
  const auto source = opened(config);
  CHECK(source->names() == std::vector<std::string>{"novels", "tokens-2", "text-3"});
  CHECK(source->info().files == 3);
  const auto n = static_cast<int64_t>(source->info().train_samples);
  const std::string epoch = origins(*source, 0, n);
  CHECK(std::abs(std::count(epoch.begin(), epoch.end(), 'a') * 6 - 3 * n) <= 6);
  CHECK(std::abs(std::count(epoch.begin(), epoch.end(), 'c') * 6 - n) <= 6);
  CHECK(std::abs(std::count(epoch.begin(), epoch.end(), 'd') * 6 - 2 * n) <= 6);
  for (std::size_t at = 0; at + 12 <= epoch.size(); at += 6) {
    const std::string some = epoch.substr(at, 12);
    CHECK(std::abs(std::count(some.begin(), some.end(), 'a') - 6) <= 1);
  }
  // A sample is a function of its position: what is read first, how much at once, and by which object, do not matter.
  Batch whole, again;
  source->read(ENG_SPLIT_TRAIN, 0, 3 * n, whole);
  const auto other = opened(config);
  std::vector<int32_t> tokens(whole.tokens.size());
  std::mt19937_64 random(3);
  std::vector<uint64_t> order(static_cast<std::size_t>(3 * n));
  for (std::size_t k = 0; k < order.size(); ++k) order[k] = k;
  std::shuffle(order.begin(), order.end(), random);
  for (const uint64_t p : order) {
    again.clear();
    other->read(ENG_SPLIT_TRAIN, p, 1, again);
    std::copy(again.tokens.begin(), again.tokens.end(), tokens.begin() + static_cast<std::ptrdiff_t>(p * 8));
  }
  CHECK(tokens == whole.tokens);
  // Counts of each source, and all of their labels.
  REQUIRE(whole.parts.size() == 3);
  int64_t samples = 0, valid = 0;
  for (const Batch::Part& part : whole.parts) samples += part.samples, valid += part.valid;
  CHECK(samples == 3 * n);
  CHECK(valid == whole.valid);
  CHECK(source->mixture_lines().size() == 3);
  CHECK_THAT(source->mixture_lines()[0], Contains("source novels: 50.0 % of the samples"));
  CHECK_THAT(notes_of(config, *source, 256).back(), Contains("source text-3: 33.0 %"));
  // The content of a mixture is what its sources hold and what their shares are.
  std::string heavier = data;
  heavier.replace(heavier.find("weight = 3"), 10, "weight = 4");
  CHECK(std::string(opened(mixed(heavier))->info().content_hash) != source->info().content_hash);
  CHECK(std::string(other->info().content_hash) == source->info().content_hash);
}

TEST_CASE("what is held out of a mixture is that of each source, one after the other", "[mixture]") {
  Files files;
  const std::string data = files.source("a.txt", "validation = 0.2\n") + files.source("b.txt", "validation = 0\n") +
                           files.source("d.jsonl", "validation = 0.1\nfield = 'words'\nseparator = ''\n");
  const auto source = opened(mixed(data));
  const auto& held = source->held_out();
  REQUIRE(held.size() == 3);
  CHECK(held[0].samples > 0);
  CHECK(held[1].samples == 0);
  CHECK(held[2].samples > 0);
  CHECK(held[2].first == held[0].samples);
  CHECK(source->info().validation_samples == held[0].samples + held[2].samples);
  Batch batch;
  source->read(ENG_SPLIT_VALIDATION, 0, static_cast<int64_t>(source->info().validation_samples) + 1, batch);
  for (uint64_t k = 0; k < source->info().validation_samples; ++k)
    CHECK(origin(batch.tokens, k * 8) == (k < held[0].samples ? 'a' : 'd'));
  CHECK(batch.labels.back() == ENG_IGNORE_LABEL);  // after the last
  CHECK(batch.parts[0].samples + batch.parts[2].samples == static_cast<int64_t>(source->info().validation_samples));
  // Rows after the end of a source do not count.
  batch.clear();
  source->read(ENG_SPLIT_VALIDATION, held[0].samples - 1, 2, batch, held[0].samples);
  CHECK(batch.valid == 8);
}

TEST_CASE("packed sources mix, and keys of [data] are the defaults of the sources", "[mixture]") {
  Files files;
  const std::string data = no_validation + "pack = true\nfield = 'words'\nseparator = ''\nplugin = 'text'\n" +
                           files.source("d.jsonl") + files.source("b.txt", "pack = true\n");
  const auto source = opened(mixed(data));
  CHECK(source->packed());
  CHECK(source->info().documents > 40);
  CHECK(source->padding() < 0.5);
  CHECK_THAT(origins(*source, 0, 10), Contains("b") && Contains("d"));
}

TEST_CASE("pairs of answers stay together in a mixture", "[mixture]") {
  Files files;
  const std::string data =
      no_validation + "plugin = 'pairs'\n" + files.source("pairs.jsonl") + files.source("more.jsonl", "weight = 2\n");
  const auto source = opened(mixed(data));
  Batch batch;
  const int64_t n = 2 * static_cast<int64_t>(source->info().train_samples);
  source->read(ENG_SPLIT_TRAIN, 0, n, batch);
  for (int64_t k = 0; k < n; k += 2) {
    const int32_t* first = batch.tokens.data() + k * 8;
    CHECK(first[0] == first[8]);  // the prompt
    CHECK(first[1] == 'y');
    CHECK(first[9] == 'n');
  }
  const Refusal beside = refusal([&] {
    make_plan_only(mixed(no_validation + files.source("a.txt") + files.source("pairs.jsonl", "plugin = 'pairs'\n")),
                   registry());
  });
  CHECK(beside.exit == Exit::usage);
  CHECK_THAT(beside.text, Contains("samples of data plugin pairs, source `pairs-2` belong together, 2 at a time, and "
                                   "those of data plugin text, source `text-1` do not"));
}

TEST_CASE("sources that do not go together, or hold nothing, are refused", "[mixture]") {
  Files files;
  const auto planned = [&](const std::string& data) {
    return refusal([&] { make_plan_only(mixed(data), registry()); });
  };
  const Refusal packed = planned(files.source("a.txt") + files.source("d.jsonl", "pack = true\nfield = 'words'\n"));
  CHECK(packed.exit == Exit::usage);
  CHECK_THAT(packed.text, Contains("data plugin text, source `text-2` provides the field `segments`, and data plugin "
                                   "text, source `text-1` does not"));
  CHECK_THAT(packed.help, Contains("`pack`"));
  const std::string score = "[[data.sources]]\nplugin = 'scored'\nprovides = ['org.example.score']\n";
  CHECK_THAT(planned(files.source("a.txt") + score).text, Contains("provides the field `org.example.score`"));
  // A factor of 1 is what the lack of weights means.
  const std::string weighted = "[[data.sources]]\nplugin = 'scored'\nprovides = ['loss_weights']\n";
  CHECK(planned(files.source("a.txt") + weighted).text == "");
  const auto opening = [&](const std::string& data) { return refusal([&] { opened(mixed(data)); }); };
  const Refusal empty = opening(files.source("a.txt") + files.source("empty.txt"));
  CHECK(empty.exit == Exit::data);
  CHECK_THAT(empty.text, Contains("data plugin text, source `text-2`") && Contains("empty"));
  const Refusal nothing = opening(files.source("a.txt") + files.source("b.txt", "validation = 1\n"));
  CHECK(nothing.exit == Exit::data);
  CHECK_THAT(nothing.text, Contains("source `text-2` has nothing to train on"));
  CHECK_THAT(nothing.help, Contains("weight = 0"));
  const Refusal misfit = planned("eot = true\n" + files.source("a.txt") + files.source("c.bin", "plugin = 'tokens'\n"));
  CHECK(misfit.exit == Exit::usage);
  CHECK_THAT(misfit.text, Contains("source `tokens-2`: `eot` of [data] must be of type"));
}

TEST_CASE("errors in [[data.sources]] name the entry", "[mixture]") {
  Files files;
  const auto wrong = [&](const std::string& data) { return refusal([&] { mixed(data); }).text; };
  const std::string a = files.source("a.txt"), b = files.source("b.txt");
  CHECK_THAT(wrong(a + "weight = -1\n" + b), Contains("[[data.sources]] 1: `weight` must be at least 0"));
  CHECK_THAT(wrong(a + "weight = 0\n" + b + "weight = 0.0\n"), Contains("`weight` is 0 for all"));
  CHECK_THAT(wrong(a + "epochs = 0\n"), Contains("`epochs` is 0 for all"));
  CHECK(wrong(a + "weight = 0\n" + b) == "");
  CHECK_THAT(wrong(a + b + "wieght = 2\n"), Contains("[[data.sources]] 2: `wieght` is unknown"));
  CHECK_THAT(wrong(a + "weight = 1\n" + b + "epochs = 2\n"), Contains("`weight` and `epochs`"));
  CHECK_THAT(wrong("temperature = 2\n" + a + "weight = 1\n" + b), Contains("`temperature` and `weight`"));
  CHECK_THAT(wrong("temperature = 0\n" + a + b), Contains("`temperature` must be above 0"));
  CHECK_THAT(wrong(a + "name = 'x'\n" + b + "name = 'x'\n"), Contains("2: another source is called `x`"));
  CHECK_THAT(wrong(a + "name = 'two words'\n"), Contains("1: `name` is"));
  CHECK_THAT(wrong(a + "tokenizer = 'bytes'\n"), Contains("`tokenizer` is a key of [data]"));
  CHECK_THAT(wrong("[[data.sources]]\nweight = 1\n"), Contains("[[data.sources]] 1: it needs `paths`"));
  CHECK_THAT(wrong("[[data.sources]]\nplugin = 'tokenz'\n"), Contains("no data plugin named `tokenz`"));
  CHECK_THAT(wrong("paths = ['x']\n" + a + b), Contains("`paths` of [data] has no effect"));
  CHECK_THAT(wrong("pakc = true\n" + a), Contains("unknown key `pakc`"));
  CHECK_THAT(wrong("temperature = 2\npaths = ['x']\n"),
             Contains("`temperature` is for [[data.sources]], of which there are none"));
  CHECK_THAT(wrong("plugin = 'tokens'\n" + a + "plugin = 'text'\n"), Contains("`plugin` of [data] has no effect"));
  std::string many;
  for (int k = 0; k < 65; ++k) many += a;
  CHECK_THAT(wrong(many), Contains("there are 65 [[data.sources]]; the limit is 64"));
}

TEST_CASE("the resolved text of a mixture is the same mixture", "[mixture]") {
  Files files;
  const Config config = mixed(no_validation + "temperature = 3\n" + files.source("a.txt", "name = 'x'\n") +
                              files.source("c.bin", "plugin = 'tokens'\ndtype = 'uint16'\n"));
  const std::string text = resolved_text(config);
  const Config again = config_of(text);
  CHECK(std::string(opened(again)->info().content_hash) == opened(config)->info().content_hash);
  for (const Section& section : config.sections())
    for (const auto& [key, setting] : section.settings()) {
      CAPTURE(section.name(), key);
      CHECK(again.section(section.name()).settings().at(key).value == setting.value);
    }
  // Without a mixture, [data] has no key more than before.
  CHECK(resolved_text(mixed("paths = ['x']\n")).find("sources") == std::string::npos);
}
