// SPDX-License-Identifier: Apache-2.0
// eng.data/1: a sample depends on its position alone.
#include <cstring>
#include <fstream>
#include <set>
#include <thread>

#include "engine/data.h"
#include "session/data/fields.hpp"
#include "tools/engine/plugin_test/kinds.hpp"

namespace eng::plugin_test {
namespace {

struct Sample {
  std::vector<int32_t> tokens, labels;
  std::vector<std::vector<int32_t>> others;  // further fields, bit for bit
  bool operator==(const Sample&) const = default;
};

class Source {
 public:
  Source(const Subject& s, const eng_data& table, uint64_t seed, int64_t length, int64_t vocabulary)
      : table_(table), config_(s.config()), length_(length) {
    const Watched options(config_.section("data"));
    const std::string base = s.scratch.string();
    Sink sink;
    fields_ = {{"tokens"}, {"labels"}};
    if (table.fields) {
      eng_field said[ENG_MAX_FIELDS] = {};
      uint32_t n = 0;
      check_made(table.fields(options.get(), said, ENG_MAX_FIELDS, &n, sink.get()), sink, options.misuse());
      if (n > ENG_MAX_FIELDS) throw Broken(fmt::format("it says that it provides {} fields", n));
      for (uint32_t k = 0; k < n; ++k) {
        if (!said[k].name || (said[k].dtype != ENG_I32 && said[k].dtype != ENG_F32))
          throw Broken(fmt::format("field {} has no name, or is neither i32 nor f32", k));
        fields_.push_back({said[k].name, said[k].dtype});
      }
    }
    std::vector<eng_field> wanted;
    for (const Field& field : fields_) wanted.push_back({field.name.c_str(), field.dtype, 0});
    const eng_data_request request = {sizeof(eng_data_request),
                                      static_cast<uint32_t>(wanted.size()),
                                      seed,
                                      length,
                                      vocabulary,
                                      base.c_str(),
                                      wanted.data()};
    check_made(table.create(options.get(), &request, &self_, sink.get()), sink, options.misuse());
    made_ = true;
    info.struct_size = sizeof info;
    sink.check(table.describe(self_, &info, sink.get()), Exit::data, "describe");
  }
  ~Source() {
    if (made_) table_.destroy(self_);
  }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  // `fill`: what stands in both lists before, to see that all is written.
  Sample read(int32_t split, uint64_t position, int32_t fill = -77) const {
    const auto n = static_cast<size_t>(length_);
    constexpr size_t guard = 64;
    Sample out{std::vector<int32_t>(n + guard, fill), std::vector<int32_t>(n + guard, fill), {}};
    out.others.assign(fields_.size() - 2, std::vector<int32_t>(n + guard, fill));
    std::vector<void*> values = {out.tokens.data(), out.labels.data()};
    for (auto& field : out.others) values.push_back(field.data());
    Sink sink;
    sink.check(table_.read(self_, split, position, values.data(), sink.get()), Exit::data,
               [&] { return fmt::format("read of sample {}", position); });
    std::vector<std::vector<int32_t>*> lists = {&out.tokens, &out.labels};
    for (auto& field : out.others) lists.push_back(&field);
    for (auto* list : lists) {
      for (size_t k = n; k < n + guard; ++k)
        if ((*list)[k] != fill) throw Broken(fmt::format("sample {}: it writes element {} of {}", position, k, n));
      list->resize(n);
    }
    // Checks the fields by the meaning of their names.
    FieldCheck(fields_, length_, INT32_MAX).check(values, "its", position);
    for (size_t k = 0; k < n; ++k) {
      const int32_t token = out.tokens[k], label = out.labels[k];
      if (token < 0 || token >= info.vocabulary)
        throw Broken(fmt::format("sample {} of split {}: token {} is {}, it says that ids are below {}", position,
                                 split, k, token, info.vocabulary));
      if (label != ENG_IGNORE_LABEL && (label < 0 || label >= info.vocabulary))
        throw Broken(fmt::format("sample {} of split {}: label {} is {}, it says that ids are below {}", position,
                                 split, k, label, info.vocabulary));
      if (k + 1 < n && label != ENG_IGNORE_LABEL && label != out.tokens[k + 1])
        throw Broken(fmt::format("sample {} of split {}: label {} is {}, but token {} is {}", position, split, k, label,
                                 k + 1, out.tokens[k + 1]));
    }
    return out;
  }
  eng_data_info info{};

 private:
  const eng_data& table_;
  const Config config_;
  std::vector<Field> fields_;
  int64_t length_;
  void* self_ = nullptr;
  bool made_ = false;
};

constexpr uint64_t most = 400;  // samples that are looked at

void check_info(const eng_data_info& info) {
  const void* end = std::memchr(info.content_hash, 0, sizeof info.content_hash);
  const std::string hash(info.content_hash, end ? std::strlen(info.content_hash) : 0);
  if (hash.empty() || hash.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos)
    throw Broken("content_hash is not hexadecimal text that ends in NUL");
  if (!info.train_samples || info.train_samples > uint64_t{1} << 62 || info.validation_samples > uint64_t{1} << 62)
    throw Broken(
        fmt::format("it has {} training samples and {} held out", info.train_samples, info.validation_samples));
  if (info.vocabulary < 1) throw Broken(fmt::format("its vocabulary is {}", info.vocabulary));
}

std::vector<uint64_t> some_positions(const eng_data_info& info, Random& random) {
  std::vector<uint64_t> out = {0, info.train_samples - 1, info.train_samples, 2 * info.train_samples + 1};
  for (uint64_t k = 1; k < std::min<uint64_t>(40, info.train_samples); ++k) out.push_back(k);
  for (int k = 0; k < 40; ++k) out.push_back(random() % (3 * std::min<uint64_t>(info.train_samples, 1 << 30)));
  return out;
}

}  // namespace

void test_data(const Subject& s, Sheet& sheet) {
  eng_data table{};
  std::unique_ptr<Source> one;
  int64_t length = 24, vocabulary = 300;
  const bool made = sheet.check("create, describe", [&] {
    table = s.table<eng_data>();
    if (table.build) {
      const Config config = s.config();
      const Watched options(config.section("data"));
      const std::string base = s.scratch.string();
      const eng_data_request request = {sizeof(eng_data_request), 0, s.seed, length, 0, base.c_str(), nullptr};
      const auto built = std::make_unique<eng_data_built>();
      built->struct_size = sizeof(eng_data_built);
      Sink sink;
      check_made(table.build(options.get(), &request, nullptr, built.get(), sink.get()), sink, options.misuse());
      if (!std::memchr(built->path, 0, sizeof built->path))
        throw Broken("the path that build gives does not end in NUL");
    }
    // A small vocabulary, for a source whose samples depend on it; any other source may have larger ids.
    try {
      const Source small(s, table, s.seed, length, vocabulary);
    } catch (const Untested&) {
      vocabulary = INT32_MAX;
    }
    {
      const Source first(s, table, s.seed, length, vocabulary);
      check_info(first.info);
      // So long that an epoch can be read.
      length =
          std::max<int64_t>(length, static_cast<int64_t>(std::min<uint64_t>(first.info.tokens, 1 << 20) / (most - 50)));
    }
    one = std::make_unique<Source>(s, table, s.seed, length, vocabulary);
    check_info(one->info);
    const Source two(s, table, s.seed, length, vocabulary);
    if (std::memcmp(&one->info, &two.info, sizeof one->info) != 0)
      throw Broken("two objects with the same options describe themselves differently");
    return fmt::format("{} training samples of {} tokens, {} held out", one->info.train_samples, length,
                       one->info.validation_samples);
  });
  if (!made) return;
  const eng_data_info info = one->info;
  const uint64_t train = std::min(most, info.train_samples), held = std::min(most, info.validation_samples);
  std::map<uint64_t, Sample> known;
  sheet.check("ids, labels, all written", [&] {
    for (uint64_t k = 0; k < train; ++k) {
      known[k] = one->read(ENG_SPLIT_TRAIN, k);
      if (k < 20 && !(known[k] == one->read(ENG_SPLIT_TRAIN, k, -99)))
        throw Broken(
            fmt::format("sample {} depends on what stood in the lists before: not all of it is written, or two "
                        "reads differ",
                        k));
    }
    for (uint64_t k = 0; k < held; ++k) one->read(ENG_SPLIT_VALIDATION, k);
    return fmt::format("{} training samples, {} held out", train, held);
  });
  sheet.check("any order, another object", [&] {
    Random random = s.random("order");
    auto positions = some_positions(info, random);
    std::map<uint64_t, Sample> first;
    for (uint64_t p : positions) first[p] = one->read(ENG_SPLIT_TRAIN, p);
    std::shuffle(positions.begin(), positions.end(), random);
    const Source two(s, table, s.seed, length, vocabulary);
    for (uint64_t p : positions) {
      if (held) one->read(ENG_SPLIT_VALIDATION, p % info.validation_samples);
      if (!(one->read(ENG_SPLIT_TRAIN, p) == first[p]))
        throw Broken(fmt::format("sample {} is another one when it is read in another order", p));
      if (!(two.read(ENG_SPLIT_TRAIN, p) == first[p]))
        throw Broken(fmt::format("sample {} of another object with the same options is another one", p));
    }
    return fmt::format("{} positions, to {}", first.size(), first.rbegin()->first);
  });
  sheet.check("validation apart from training", [&] {
    if (!held) throw Untested("nothing is held out; give validation=0.2 if it has such an option");
    std::set<std::vector<int32_t>> seen;
    for (uint64_t k = 0; k < train; ++k) seen.insert(one->read(ENG_SPLIT_TRAIN, k).tokens);
    uint64_t equal = 0;
    for (uint64_t k = 0; k < held; ++k) equal += seen.count(one->read(ENG_SPLIT_VALIDATION, k).tokens);
    // Equal texts may occur in different places; mostly equal windows are the same ones.
    if (equal * 2 > held) throw Broken(fmt::format("{} of {} held out samples are training samples", equal, held));
    return fmt::format("{} of {} held out samples occur in training", equal, held);
  });
  sheet.check("end of an epoch", [&] {
    if (info.train_samples > most) throw Untested(fmt::format("an epoch has {} samples", info.train_samples));
    std::multiset<std::vector<int32_t>> first, second;
    for (uint64_t k = 0; k < info.train_samples; ++k) {
      first.insert(one->read(ENG_SPLIT_TRAIN, k).tokens);
      second.insert(one->read(ENG_SPLIT_TRAIN, info.train_samples + k).tokens);
    }
    const size_t distinct = std::set(first.begin(), first.end()).size();
    if (info.train_samples > 20 && distinct * 10 < info.train_samples)
      throw Broken(fmt::format("an epoch of {} samples has {} distinct ones", info.train_samples, distinct));
    return fmt::format("{} distinct samples; the second epoch {} those of the first", distinct,
                       first == second ? "has" : "has not exactly");
  });
  sheet.check("inspect", [&]() -> std::string {
    if (!table.inspect) return "it has none";
    const std::filesystem::path file = s.scratch / "a file";
    std::ofstream(file) << "x";
    std::string text(65536, '\x7f');
    uint64_t size = 0;
    Sink sink;
    const eng_status status = table.inspect(file.c_str(), ENG_INSPECT_VERIFY, text.data(), 1024, &size, sink.get());
    if (text.find_first_not_of('\x7f', 1024) != std::string::npos) throw Broken("inspect wrote beyond its capacity");
    if (status != ENG_OK) return "it refuses a file of one byte";
    if (size > 65536) throw Broken(fmt::format("inspect of a file of one byte returned {} bytes", size));
    return "";
  });
  sheet.check("several objects at a time", [&] {
    if (known.size() < train)
      throw Untested(
          fmt::format("of {} samples {} could be read: see \"ids, labels, all written\"", train, known.size()));
    std::vector<std::unique_ptr<Source>> all;
    for (int k = 0; k < 3; ++k) all.push_back(std::make_unique<Source>(s, table, s.seed, length, vocabulary));
    std::vector<std::string> wrong(all.size());
    std::vector<std::thread> threads;
    for (size_t k = 0; k < all.size(); ++k)
      threads.emplace_back([&, k] {
        try {
          for (uint64_t p = 0; p < 4 * train; ++p)
            if (const uint64_t at = (p * 7 + k) % train; !(all[k]->read(ENG_SPLIT_TRAIN, at) == known.at(at)))
              throw Broken(fmt::format("sample {} is another one while other objects read on other threads", at));
        } catch (const std::exception& e) {
          wrong[k] = e.what();
        }
      });
    for (std::thread& t : threads) t.join();
    for (const std::string& w : wrong)
      if (!w.empty()) throw Broken(w);
    return "3 objects on 3 threads";
  });
}

}  // namespace eng::plugin_test
