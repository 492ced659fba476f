// SPDX-License-Identifier: Apache-2.0
// Binaries that were compiled when their headers were frozen (frozen/build.sh). If a case fails, the promise of
// docs/abi-policy.md is broken: change the engine until it loads and runs these files, not the files.
#include <catch2/catch.hpp>
#include <filesystem>

#include "engine/schedule.h"
#include "engine/tokenizer.h"
#include "session/plugins/search.hpp"

using namespace eng;
namespace fs = std::filesystem;

#if defined(__x86_64__)
namespace {

// Versions of the ABI whose binaries are kept, oldest first.
constexpr const char* versions[] = {"draft-9", "1.0"};

// A folder with a copy of one version's files, which only this user can write.
class Kept {
 public:
  explicit Kept(const std::string& version) {
    std::string pattern = (fs::temp_directory_path() / "engine-frozen-XXXXXX").string();
    if (!mkdtemp(pattern.data())) throw std::runtime_error("cannot make " + pattern);
    path_ = fs::canonical(pattern);
    for (const auto& entry :
         fs::directory_iterator(fs::path(ENGINE_SOURCE_DIR) / "tests/abi/frozen/x86_64" / version)) {
      fs::copy_file(entry, path_ / entry.path().filename());
      fs::permissions(path_ / entry.path().filename(), fs::perms(0644));
    }
    registry_ = find_plugins({{path_}, false});
    for (const Candidate& file : registry_->candidates())
      if (file.path.parent_path() == path_) {
        INFO(file.path.string());
        CHECK(file.refused == "");
        for (const Provided& one : file.description.provides) CHECK(one.refused == "");
        ++files_;
      }
    CHECK(files_ == 3);
  }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;
  ~Kept() {
    std::error_code none;
    fs::remove_all(path_, none);
  }
  // The options of something that it provides, as a configuration with these keys has them.
  Section section(const std::string& kind, const std::string& name, const std::map<std::string, Value>& given = {}) {
    const Provided* provided = registry_->find(kind, name);
    REQUIRE(provided);
    std::map<std::string, Setting> settings;
    for (const Option& option : provided->schema.options) settings[option.key] = {option.fallback, "default"};
    for (const auto& [key, value] : given) {
      REQUIRE(settings.count(key));
      settings[key] = {value, "file", true};
    }
    return {name, std::move(settings)};
  }
  Registry& registry() { return *registry_; }

 private:
  fs::path path_;
  std::unique_ptr<Registry> registry_;
  int files_ = 0;
};

}  // namespace

TEST_CASE("frozen binaries: a schedule has its rates", "[frozen]") {
  for (const char* version : versions) {
    INFO(version);
    std::string logged;
    set_plugin_log([&](const std::string&, int32_t level, const std::string& text) {
      logged += fmt::format("{} {}\n", level, text);
    });
    Kept kept(version);
    const auto table = kept.registry().table<eng_schedule>("eng.schedule/1", "halving");
    set_plugin_log(nullptr);
    CHECK(logged == "2 halving is started\n");
    const eng_schedule_run run = {sizeof(run), 0, 8, 0.5};
    const auto rates = [&](const Section& section) {
      const auto self = make_object(table, section, "halving", &run);
      std::vector<double> out(6);
      for (uint64_t k = 1; k <= out.size(); ++k) CHECK(table.rate(self.get(), k, &out[k - 1], nullptr) == ENG_OK);
      return out;
    };
    CHECK(rates(kept.section("eng.schedule/1", "halving")) == std::vector<double>{0.5, 0.5, 0.25, 0.25, 0.125, 0.125});
    CHECK(rates(kept.section("eng.schedule/1", "halving", {{"half", int64_t{3}}})) ==
          std::vector<double>{0.5, 0.5, 0.5, 0.25, 0.25, 0.25});
    CHECK_THROWS_WITH(rates(kept.section("eng.schedule/1", "halving", {{"half", int64_t{9}}})),
                      "halving: half is more than train.steps: lower it");
  }
}

TEST_CASE("frozen binaries: a data source has its tokens, labels and weights", "[frozen]") {
  for (const char* version : versions) {
    INFO(version);
    Kept kept(version);
    const auto table = kept.registry().table<eng_data>("eng.data/1", "squares");
    const Section section = kept.section("eng.data/1", "squares", {{"weighted", true}, {"scale", 3.0}});
    const Options options(section);
    eng_field more[ENG_MAX_FIELDS];
    uint32_t n = 0;
    REQUIRE(table.fields);
    REQUIRE(table.fields(options.get(), more, ENG_MAX_FIELDS, &n, nullptr) == ENG_OK);
    REQUIRE(n == 1);
    CHECK(more[0].name == std::string("loss_weights"));
    CHECK(more[0].dtype == ENG_F32);
    CHECK(!table.build);
    const eng_field fields[] = {{"tokens", ENG_I32, 0}, {"labels", ENG_I32, 0}, more[0]};
    const eng_data_request request = {sizeof(request), 3, 7, 5, 50, "/", fields};
    const auto self = make_object(table, section, "squares", &request);
    eng_data_info info{};
    info.struct_size = sizeof(info);
    REQUIRE(table.describe(self.get(), &info, nullptr) == ENG_OK);
    CHECK(info.train_samples == 64);
    CHECK(info.validation_samples == 4);
    CHECK(info.tokens == 340);
    CHECK(info.vocabulary == 50);
    CHECK(info.content_hash == std::string("5c0a7e5"));
    std::vector<int32_t> tokens(5), labels(5);
    std::vector<float> weights(5);
    void* const values[] = {tokens.data(), labels.data(), weights.data()};
    REQUIRE(table.read(self.get(), ENG_SPLIT_TRAIN, 1, values, nullptr) == ENG_OK);
    CHECK(tokens == std::vector<int32_t>{25, 36, 49, 14, 31});
    CHECK(labels == std::vector<int32_t>{36, 49, 14, 31, 0});
    CHECK(weights == std::vector<float>{3, 1.5F, 3, 1.5F, 3});
    REQUIRE(table.read(self.get(), ENG_SPLIT_VALIDATION, 3, values, nullptr) == ENG_OK);
    CHECK(tokens == std::vector<int32_t>{25, 46, 19, 44, 21});  // of 335 to 339, modulo 50
  }
}

TEST_CASE("frozen binaries: a tokenizer has its ids", "[frozen]") {
  for (const char* version : versions) {
    INFO(version);
    Kept kept(version);
    const auto table = kept.registry().table<eng_tokenizer>("eng.tokenizer/1", "letters");
    const Section none;
    CHECK_THROWS_WITH(make_object(table, none, "letters", "/nowhere"),
                      "letters: letters has no files: its path is \"bytes\"");
    const auto self = make_object(table, none, "letters", "bytes");
    eng_tokenizer_info info{};
    info.struct_size = sizeof(info);
    REQUIRE(table.describe(self.get(), &info, nullptr) == ENG_OK);
    CHECK(info.vocabulary == 257);
    CHECK(info.bos == 0);
    CHECK(info.eos == -1);
    CHECK(info.eot == -1);
    CHECK(info.content_hash == std::string("1e77e5"));
    std::vector<int32_t> ids(4);
    uint64_t count = 0;
    REQUIRE(table.encode(self.get(), "a\xff!", 3, ENG_ENCODE_SPECIAL, ids.data(), 4, &count, nullptr) == ENG_OK);
    CHECK(count == 4);
    CHECK(ids == std::vector<int32_t>{0, 98, 256, 34});
    char text[3];
    uint64_t size = 0;
    REQUIRE(table.decode(self.get(), ids.data(), 4, text, 3, &size, nullptr) == ENG_OK);
    CHECK(std::string(text, size) == "a\xff!");
    ids[0] = 257;
    Sink sink;
    CHECK(table.decode(self.get(), ids.data(), 4, text, 3, &size, sink.get()) == ENG_OUT_OF_RANGE);
    CHECK(sink.text() == "no such id");
  }
}
#else
TEST_CASE("frozen binaries", "[frozen]") {
  WARN("skipped: the kept binaries are for x86-64");
}
#endif
