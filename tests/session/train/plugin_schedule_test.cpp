// SPDX-License-Identifier: Apache-2.0
// Schedules of plugins: the shipped ones against formulas written a second time and tables by hand; one in C.
#include <catch2/catch.hpp>
#include <cmath>

#include "session/config/config_text.hpp"
#include "session/config/problem_text.hpp"
#include "session/planning/schedule.hpp"
#include "session/plugins/search.hpp"
#include "session/run/changes.hpp"
#include "tests/session/built.hpp"

using namespace eng;
using namespace eng::test;
using Catch::Contains;

namespace {

// The plugins of this build, and the fixture.
Registry& with_fixture() {
  static const auto all = [] {
    std::vector<std::filesystem::path> files = {FIXTURE_SCHEDULE};
    for (const auto& entry : std::filesystem::recursive_directory_iterator(ENGINE_PLUGIN_DIR))
      if (entry.path().string().ends_with(".eng.so")) files.push_back(entry.path());
    return find_plugins({files, false});
  }();
  return *all;
}

Config config(const std::string& schedule, const std::vector<std::string>& overrides = {}) {
  return Config::parse(
      "[model]\nplugin = \"llama\"\npreset = \"tiny\"\n[train]\nsteps = 100\n[optimizer]\n"
      "learning_rate = 8e-3\n[schedule]\n" +
          schedule,
      "c.toml", "/", overrides, schemas_of(with_fixture()));
}

Schedule made(const std::string& schedule, const std::vector<std::string>& overrides = {}) {
  return make_schedule(config(schedule, overrides), with_fixture());
}

std::string refused(const std::string& schedule, const std::vector<std::string>& overrides = {}) try {
  made(schedule, overrides);
  return "";
} catch (const ConfigError& e) {
  return tell(e);
} catch (const Error& e) {
  return fmt::format("{}: {} ({})", int(e.exit()), e.what(), e.help());
}

}  // namespace

TEST_CASE("wsd: a table by hand", "[schedule]") {
  // Warm-up to update 2; stable to 4; four updates of decay.
  const std::string more = "kind = \"wsd\"\nwarmup_steps = 2\ndecay_steps = 4\n";
  const Schedule line = made(more + "decay = \"linear\"\nmin_learning_rate = 4e-3\n", {"train.steps=8"});
  const double expected[] = {4e-3, 8e-3, 8e-3, 8e-3, 7e-3, 6e-3, 5e-3, 4e-3, 4e-3};
  for (int64_t k = 1; k <= 9; ++k) CHECK(line.at(k) == Approx(expected[k - 1]).epsilon(1e-14));
  // sqrt(1/4) = 1/2, sqrt(1/2), sqrt(3/4)
  const Schedule root = made(more, {"train.steps=8"});
  const double half = 8e-3 * (1 - std::sqrt(0.5)), most = 8e-3 * (1 - std::sqrt(3.0) / 2);
  const double other[] = {4e-3, 8e-3, 8e-3, 8e-3, 4e-3, half, most, 0, 0};
  for (int64_t k = 1; k <= 9; ++k) CHECK(root.at(k) == Approx(other[k - 1]).epsilon(1e-14).margin(1e-300));
}

TEST_CASE("wsd at every update, of all lengths", "[schedule]") {
  for (const int64_t warmup : {0, 1, 7, 60, 99, 100, 130})
    for (const int64_t decay : {0, 1, 20, 100})
      for (const std::string shape : {"linear", "1-sqrt", "cosine"}) {
        const std::string length =
            decay ? fmt::format("decay_steps = {}\n", decay) : std::string("decay_share = 0.0\n");
        const Schedule s =
            made(fmt::format("kind = \"wsd\"\nwarmup_steps = {}\ndecay = \"{}\"\n"
                             "min_learning_rate = 2e-3\n{}",
                             warmup, shape, length));
        INFO(warmup << " " << decay << " " << shape);
        double before = 0;
        for (int64_t k = 1; k <= 110; ++k) {
          INFO("update " << k);
          // As Haegele et al. write it: n of N updates, the last N_decay of them a cooldown.
          const double n = double(k), N = 100, N_decay = std::min(double(decay), N - double(warmup));
          double expected = 8e-3;
          if (k < warmup) {
            expected = 8e-3 * n / double(warmup);
          } else if (N_decay > 0 && n > N - N_decay) {
            const double part = std::min(1.0, (n - (N - N_decay)) / N_decay);
            const double half_wave = std::pow(std::cos(std::acos(-1) * part / 2), 2);
            expected = 2e-3 + 6e-3 * (shape == "linear"   ? 1 - part
                                      : shape == "cosine" ? half_wave
                                                          : 1 - std::pow(part, 0.5));
          }
          const double got = s.at(k);
          CHECK(got == Approx(expected).epsilon(1e-12));
          CHECK((k <= warmup ? got > before : k == 1 || got <= before));
          before = got;
        }
        if (warmup >= 1) CHECK(s.at(warmup) == 8e-3);
        if (decay && warmup < 100) CHECK(s.at(100) == 2e-3);  // exactly
      }
  // The share is of the steps; a fifth if nothing is said.
  const Schedule share = made("kind = \"wsd\"\n");
  CHECK(share.at(80) == 8e-3);
  CHECK(share.at(81) < 8e-3);
  CHECK(share.at(100) == 0);
}

TEST_CASE("inverse_sqrt at every update", "[schedule]") {
  // Vaswani et al.: d^-0.5 min(k^-0.5, k W^-1.5), scaled so that the peak is at W.
  const Schedule vaswani = made("kind = \"inverse_sqrt\"\nwarmup_steps = 40\n");
  for (int64_t k = 1; k <= 5000; ++k) {
    const double n = double(k), formula = std::min(std::pow(n, -0.5), n * std::pow(40.0, -1.5));
    CHECK(vaswani.at(k) == Approx(8e-3 * formula * std::sqrt(40.0)).epsilon(1e-12));
  }
  CHECK(vaswani.at(40) == 8e-3);
  CHECK(vaswani.at(160) == Approx(4e-3).epsilon(1e-15));
  // A timescale of its own: after 3 T updates the rate is half.
  const Schedule long_one = made("kind = \"inverse_sqrt\"\nwarmup_steps = 10\ntimescale = 1000\n");
  CHECK(long_one.at(5) == 4e-3);
  CHECK(long_one.at(10) == 8e-3);
  CHECK(long_one.at(10 + 3000) == Approx(4e-3).epsilon(1e-15));
  // It does not see the number of steps.
  CHECK(made("kind = \"inverse_sqrt\"\nwarmup_steps = 40\n", {"train.steps=9000"}).at(77) == vaswani.at(77));
}

TEST_CASE("a schedule in C is selected by its name, with its own keys alone", "[schedule]") {
  const Config chosen = config("kind = \"halving\"\nhalf = 3\n");
  const Section& section = chosen.section("schedule");
  CHECK(section.settings().size() == 3);
  CHECK(section.string("kind") == "halving");
  const Schedule s = make_schedule(chosen, with_fixture());
  const double expected[] = {8e-3, 8e-3, 8e-3, 4e-3, 4e-3, 4e-3, 2e-3};
  for (int64_t k = 7; k >= 1; --k) CHECK(s.at(k) == expected[k - 1]);
  CHECK_THAT(resolved_text(chosen), Contains("half = 3") && !Contains("warmup_num_steps"));
  // A name of the engine's own is the engine's.
  CHECK(!made("kind = \"cosine\"\n").plugin);
  CHECK(config("kind = \"cosine\"\n").section("schedule").settings().count("compatible") == 1);
  // Keys of other kinds are reported.
  CHECK_THAT(refused("kind = \"halving\"\nwarmup_steps = 3\n"),
             Contains("`warmup_steps`") && Contains("[schedule] has: fault, half, kind"));
  CHECK_THAT(refused("kind = \"cosine\"\nhalf = 3\n"), Contains("`half` belongs to plugin `halving`"));
  CHECK_THAT(refused("kind = \"halvin\"\n"), Contains("error[E0107]") && Contains("did you mean `halving`?"));
  CHECK_THAT(refused("kind = \"wsd\"\ncompatible = \"deepspeed\"\n"), Contains("`compatible`"));
  CHECK_THAT(refused("kind = \"wsd\"\ndecay = \"square\"\n"), Contains("\"linear\", \"1-sqrt\", \"cosine\""));
}

TEST_CASE("rates that none can be are refused by name, with the update", "[schedule]") {
  const auto at_4 = [](const std::string& fault) -> std::string {
    const Schedule s = made("kind = \"halving\"\nfault = \"" + fault + "\"\n");
    CHECK(s.at(3) == 4e-3);
    CHECK(s.at(5) == 2e-3);
    try {
      s.at(4);
    } catch (const Error& e) {
      CHECK(e.exit() == Exit::environment);
      return e.what();
    }
    return "";
  };
  const std::string where = "[schedule] halving, update 4: ";
  CHECK(at_4("none").empty());
  CHECK(at_4("nan").starts_with(where + "the learning rate is nan; it must be a number from 0 to "
                                        "optimizer.learning_rate = 0.008"));
  CHECK(at_4("infinite").starts_with(where + "the learning rate is inf"));
  CHECK(at_4("negative").starts_with(where + "the learning rate is -1e-09"));
  CHECK(at_4("high").starts_with(where + "the learning rate is 0.00800"));
  CHECK(at_4("error") == where + "it has no rate today");
}

TEST_CASE("options that contradict each other or the run", "[schedule]") {
  CHECK_THAT(refused("kind = \"halving\"\nhalf = 101\n"), Contains("2: [schedule] halving: half is more than"));
  CHECK_THAT(refused("kind = \"wsd\"\ndecay_steps = 101\n"), Contains("2: [schedule] wsd: decay_steps = 101 is more"));
  CHECK_THAT(refused("kind = \"wsd\"\ndecay_steps = 10\ndecay_share = 0.1\n"), Contains("both given"));
  CHECK_THAT(refused("kind = \"wsd\"\nmin_learning_rate = 1.0\n"), Contains("above optimizer.learning_rate"));
  CHECK_THAT(refused("kind = \"inverse_sqrt\"\n"), Contains("needs timescale"));
}

TEST_CASE("a resumed run is told when its schedule changes the rate", "[schedule][changes]") {
  const auto notes = [](const std::string& before, const std::vector<std::string>& overrides) {
    const Config first = config(before);
    Problems problems;
    const Document old = read_document(resolved_text(first), {}, problems);
    const Config now = Config::parse(resolved_text(first), "run", "/", overrides, schemas_of(with_fixture()));
    const auto all = changes(old, now, schemas_of(with_fixture()));
    return resume_notes({old, now, all, 1, 1, 90, with_fixture()});
  };
  const std::string wsd = "kind = \"wsd\"\nwarmup_steps = 10\ndecay = \"linear\"\n";
  CHECK(notes(wsd, {}).empty());
  // In the decay from 80 on, the rate of update 91 was 8e-3 (1 - 11 / 20).
  const auto longer = notes(wsd, {"train.steps=200"});
  REQUIRE(longer.size() == 1);
  CHECK_THAT(longer[0], Contains("from 4.00e-03 at step 90 to 8.00e-03 at step 91") && Contains("train.steps = 200"));
  // To another kind and back, also if they have keys of the same name.
  const auto other = notes(wsd, {"schedule.kind=cosine", "-schedule.decay"});
  REQUIRE(!other.empty());
  CHECK_THAT(other[0], Contains("schedule.kind = \"cosine\" (\"wsd\" before)"));
  const auto back = notes("kind = \"cosine\"\nwarmup_steps = 10\nwarmup = \"linear\"\n",
                          {"schedule.kind=wsd", "-schedule.warmup", "schedule.decay=linear"});
  REQUIRE(!back.empty());
  CHECK_THAT(back[0], Contains("schedule.kind = \"wsd\" (\"cosine\" before)"));
  CHECK(notes("kind = \"halving\"\n", {"schedule.fault=nan"}).empty());  // declared free
}
