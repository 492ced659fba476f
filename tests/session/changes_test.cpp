// SPDX-License-Identifier: Apache-2.0
#include "session/run/changes.hpp"
#include "session/config/schemas.hpp"

#include <catch2/catch.hpp>

#include "session/config/config_text.hpp"
#include "session/ranks/ranks.hpp"
#include "session/run/record.hpp"
#include "session/run/run_dir.hpp"
#include "tests/session/built.hpp"

using namespace eng;
using namespace eng::test;
using Catch::Contains;

namespace {

Config configured(const std::string& more, const std::vector<std::string>& overrides = {}) {
  return built_config("[model]\nplugin = \"llama\"\npreset = \"tiny\"\n" + more, overrides);
}

const char* const cosine =
    "[train]\nsteps = 300\nmicro_batch = 8\naccumulate = 2\nsequence_length = 64\n[schedule]\nkind = \"cosine\"\n"
    "warmup_steps = 20\nmin_learning_rate = 3e-5\n";

Document text_of(const Config& config) {
  Problems problems;
  Document out = read_document(resolved_text(config), {}, problems);
  REQUIRE(problems.empty());
  return out;
}

// A run resumed at step `step` with `overrides`.
std::vector<std::string> notes_of(const std::vector<std::string>& overrides, uint32_t before, uint32_t ranks,
                                  int64_t step, const std::string& text = cosine) {
  const Config first = configured(text);
  const Document old = text_of(first);
  Config now = Config::parse(resolved_text(first), "run", "/", overrides, schemas_of(built_plugins()));
  share_batch(now, ranks);
  return resume_notes({old, now, changes(old, now, schemas_of(built_plugins())), before, ranks, step, built_plugins()});
}

}  // namespace

TEST_CASE("changes: every key whose value differs, in both directions", "[changes]") {
  const Config first = configured(cosine);
  CHECK(changes(text_of(first), first, schemas_of(built_plugins())).empty());
  const Config now =
      configured(cosine, {"train.steps=600", "optimizer.plugin=sgd", "train.global_batch=16", "-train.accumulate"});
  std::map<std::string, std::pair<std::string, std::string>> found;
  for (const Change& c : changes(text_of(first), now, schemas_of(built_plugins()))) found[c.key] = {c.before, c.now};
  using Pair = std::pair<std::string, std::string>;
  CHECK(found.at("train.steps") == Pair{"300", "600"});
  CHECK(found.at("train.global_batch") == Pair{"", "16"});
  CHECK(found.at("optimizer.plugin") == Pair{"\"adamw\"", "\"sgd\""});
  CHECK(found.at("optimizer.beta1").second.empty());
  CHECK(found.at("optimizer.momentum").first.empty());
  CHECK(found.count("train.accumulate") == 0);  // derived, and the same
}

TEST_CASE("changes: a run resumed without changes has nothing to note", "[changes]") {
  CHECK(notes_of({}, 1, 1, 300).empty());
  CHECK(notes_of({"log.every=5", "checkpoint.every=7"}, 2, 2, 100).empty());
  // Longer at a constant rate; half of each on twice as many ranks.
  CHECK(notes_of({"train.steps=900"}, 1, 1, 300, "[train]\nsteps = 300\n").empty());
  CHECK(notes_of({"train.accumulate=1"}, 1, 2, 300).empty());
  // A warm-up that is under way grows as it would have.
  CHECK(notes_of({}, 1, 1, 5).empty());
}

TEST_CASE("changes: another number of samples in a step is noted, with what keeps it", "[changes]") {
  const auto doubled = notes_of({}, 1, 2, 300);
  REQUIRE(doubled.size() == 1);
  CHECK(doubled[0] ==
        "a step now takes 32 sequences of 64 tokens; before, it took 16 of 64; ranks = 2 (1 before); to "
        "keep it: train.global_batch=16 --unset train.accumulate");
  // As it says.
  CHECK(notes_of({"train.global_batch=16", "-train.accumulate"}, 1, 2, 300).empty());
  const auto odd = notes_of({}, 1, 3, 300);
  REQUIRE(odd.size() == 1);
  CHECK_THAT(odd[0], Contains("48 sequences") && !Contains("keep it"));  // 16 are not 3 equal parts
  CHECK_THAT(notes_of({}, 2, 8, 300).at(0), Contains("train.global_batch=32 train.micro_batch=4"));
  CHECK_THAT(notes_of({"train.micro_batch=4"}, 1, 1, 300).at(0),
             Contains("takes 8 sequences") && Contains("train.micro_batch = 4 (8 before)"));
  CHECK_THAT(notes_of({"train.sequence_length=32"}, 1, 1, 300).at(0), Contains("16 sequences of 32 tokens"));
}

TEST_CASE("changes: a jump of the learning rate is noted", "[changes]") {
  const auto longer = notes_of({"train.steps=600"}, 1, 1, 300);
  REQUIRE(longer.size() == 1);
  CHECK(longer[0] ==
        "the learning rate changes from 3.00e-05 at step 300 to 1.72e-04 at step 301; train.steps = 600 (300 before)");
  CHECK_THAT(notes_of({"optimizer.learning_rate=1e-3"}, 1, 1, 100).at(0),
             Contains("optimizer.learning_rate = 0.001 (0.0003 before)"));
  CHECK_THAT(notes_of({"schedule.kind=linear"}, 1, 1, 150).at(0),
             Contains("schedule.kind = \"linear\" (\"cosine\" before)"));
}

TEST_CASE("changes: other keys that change the numbers are noted together, and those that do not are free",
          "[changes]") {
  CHECK(notes_of({"optimizer.weight_decay=0.2", "train.grad_clip=2.0", "zero.prefetch=3", "checkpoint.keep=1"}, 1, 1,
                 100) ==
        std::vector<std::string>{
            "from now on, train.grad_clip = 2.0 (1.0 before), optimizer.weight_decay = 0.2 (0.1 before)"});
  // Keys that come with another plugin speak for themselves.
  CHECK(notes_of({"optimizer.plugin=sgd"}, 1, 1, 100) ==
        std::vector<std::string>{R"(from now on, optimizer.plugin = "sgd" ("adamw" before))"});
}

TEST_CASE("changes: the model, the data and the random numbers stay, unless the user insists", "[changes]") {
  const std::string text = std::string(cosine) + "[data]\nplugin = \"text\"\npaths = [\"a.txt\"]\n";
  const Config first = configured(text);
  const Document old = text_of(first);
  const auto refused = [&](const std::vector<std::string>& overrides, const std::vector<std::string>& allowed = {}) {
    const Config now = Config::parse(resolved_text(first), "run", "/", overrides, schemas_of(built_plugins()));
    try {
      refuse_changes(changes(old, now, schemas_of(built_plugins())), allowed, now);
    } catch (const Error& e) {
      return std::string(e.what()) + "\n" + e.help();
    }
    return std::string();
  };
  CHECK(
      refused({"train.steps=900", "log.every=7", "data.cache=x", "data.paths=['b.txt']", "optimizer.learning_rate=1.0"})
          .empty());
  CHECK(refused({"train.seed=2"}) ==
        "a resumed run keeps its model, its data and its random numbers, but these differ:\n"
        "  train.seed = 2 (1 before)\n"
        "give the values of before, start a new run, or insist: --allow-change train.seed");
  for (const char* change : {"train.sequence_length=32", "data.validation=0.1", "model.rms_norm_eps=1e-3",
                             "model.rope_theta=1000.0", "data.tokenizer=x", "model.from=/x"})
    CHECK_THAT(refused({change}), Contains(std::string(change).substr(0, std::string(change).find('='))));
  CHECK_THAT(refused({"train.seed=2", "data.validation=0.1"}, {"train.seed"}),
             !Contains("train.seed") && Contains("--allow-change data.validation"));
  CHECK(refused({"train.seed=2"}, {"train.seed"}).empty());
  CHECK_THAT(refused({}, {"train.sed"}), Contains("--allow-change train.sed: there is no such key"));
  // An attempt by an engine or plugin that did not know the key yet.
  Document older = old;
  older.parts.at("model").keys.erase("rope_theta");
  CHECK_NOTHROW(refuse_changes(changes(older, first, schemas_of(built_plugins())), {}, first));
}

TEST_CASE("changes: a run that is older than a key keeps what it computed", "[changes]") {
  const Config first = configured("[optimizer]\nplugin = \"muon\"\n");
  CHECK(first.section("optimizer").string("products") == "bf16");
  const std::string text = resolved_text(first);
  std::string older = text;
  const size_t line = older.find("\nproducts = ");
  older.erase(line, older.find('\n', line + 1) - line);
  const Document old = read_resolved(older, "run");
  const auto again = [&](const std::string& from, const std::vector<std::string>& overrides) {
    return Config::parse(from, "run", "/", overrides, schemas_of(built_plugins()));
  };
  const auto notes = [&](const Config& now) {
    return resume_notes({old, now, changes(old, now, schemas_of(built_plugins())), 1, 1, 1, built_plugins()});
  };
  const Config kept = again(older, {});
  CHECK(kept.section("optimizer").string("products") == "f32");
  CHECK(changes(old, kept, schemas_of(built_plugins())).empty());
  CHECK(notes(kept) ==
        std::vector<std::string>{"optimizer.products = \"f32\", since the run is older than this key, and "
                                 "another value changes its numbers"});
  // Its configuration, or the plugin's name, given again: the default, with a note.
  const std::vector<std::string> told = {R"(from now on, optimizer.products = "bf16" ("f32" before))"};
  CHECK(notes(first) == told);
  CHECK(notes(again(older, {"optimizer.plugin=muon"})) == told);
  CHECK(notes(again(older, {"optimizer.products=bf16"})) == told);
  // Not where the run had the key, or another optimizer.
  CHECK(again(text, {"-optimizer.products"}).section("optimizer").string("products") == "bf16");
  CHECK(again(resolved_text(configured("")), {"optimizer.plugin=muon"}).section("optimizer").string("products") ==
        "bf16");
}

TEST_CASE("runs in a folder are found, newest last", "[changes]") {
  namespace fs = std::filesystem;
  std::string pattern = (fs::temp_directory_path() / "engine-runs-XXXXXX").string();
  const fs::path folder = mkdtemp(pattern.data());
  const auto now = fs::file_time_type::clock::now();
  int age = 0;
  for (const char* name : {"a/2", "b", "a/1"}) {
    fs::create_directories(folder / name / "checkpoints");
    write_atomic(folder / name / "state.json", "{}");
    fs::last_write_time(folder / name / "state.json", now + std::chrono::seconds(++age));
  }
  fs::create_directories(folder / "a" / "no run");
  CHECK(runs_in(folder, 10) == std::vector<fs::path>{folder / "a/2", folder / "b", folder / "a/1"});
  CHECK(runs_in(folder, 2) == std::vector<fs::path>{folder / "b", folder / "a/1"});
  CHECK(runs_in(folder / "a" / "1", 10).empty());
  CHECK(runs_in(folder / "absent", 10).empty());
  fs::remove_all(folder);
}
