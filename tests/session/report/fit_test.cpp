// SPDX-License-Identifier: Apache-2.0
// The fastest settings that fit, against an exhaustive search; what is proposed where none fits.
#include "session/planning/fit/text.hpp"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <ctime>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "session/planning/fit/trial.hpp"
#include "session/planning/fits.hpp"
#include "session/report/report.hpp"
#include "tests/sanitized.hpp"
#include "tests/session/report/planned.hpp"

using Catch::Contains;

namespace fit_test {

using namespace planned;

namespace {

// 6 micro-batches x 6 settings of [recompute] on one rank, x 3 strategies on several, and stages of these.
Words small(const Words& more = {}) {
  Words words = tiny_width;
  words.insert(words.end(), {"train.micro_batch=4", "train.accumulate=3", "model.num_hidden_layers=4"});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

eng::World world_of(uint32_t ranks) {
  return {0, ranks, 0, 1};
}

eng::Fit fit_in(Words words, const std::string& device, uint32_t ranks) {
  words.push_back("device.describe=" + device);
  return eng::find_fit(config_of("tiny", "none", words), plugins(), world_of(ranks));
}

eng::Fit fit_of(const Words& words, uint64_t limit, uint32_t ranks = 1) {
  return fit_in(words, std::to_string(limit) + "B", ranks);
}

// A device with this much memory: an amount, whose device states no rates, or a card, which does.
struct Devices {
  bool card = false;
  std::filesystem::path file = std::filesystem::temp_directory_path() / fmt::format("fit-{}.toml", ::getpid());
  ~Devices() { std::filesystem::remove(file); }
  std::string with(uint64_t bytes) const {
    if (!card) return std::to_string(bytes) + "B";
    std::ofstream(file) << "plugin = 'reference'\nmemory = " << bytes
                        << "\nreserve = 0\nworkspace = 1\npeak_f32 = 2e12\nmemory_bandwidth = '100GB'\n"
                           "pcie = '10GB'\nlink = '20GB'\n";
    return file.string();
  }
};

// Every point of the grid, planned whole.
struct Whole {
  eng::Tried tried;
  size_t family = 0, format = 0;
};
std::vector<Whole> all_of(Words words, const std::string& device, uint32_t ranks) {
  words.push_back("device.describe=" + device);
  const eng::Config config = config_of("tiny", "none", words);
  const eng::Grid grid = eng::grid_of(config, plugins(), {}, world_of(ranks));
  eng::Trial trial(config, plugins());
  std::vector<Whole> out;
  for (size_t f = 0; f < grid.formats.size(); ++f) {
    const eng::Edits format = f ? eng::Edits{{"precision", "plugin", grid.formats[f].name}} : eng::Edits{};
    const uint64_t row = trial.row_bytes(format, world_of(ranks));
    for (size_t s = 0; s < grid.ways.size(); ++s)
      for (size_t k = 0; k < grid.keeps.size(); ++k)
        for (const int64_t micro :
             eng::offered(grid.ways[s], grid.keeps[k]) ? grid.ways[s].micro : std::vector<int64_t>{}) {
          const eng::Point point{f, s, k, micro};
          Whole one{trial.whole(eng::edits_of(config, grid, point, row), world_of(ranks)), f * 10000 + s * 100 + k, f};
          one.tried.effect = eng::effect_of(config, grid, point);
          if (one.tried.refused.empty()) out.push_back(std::move(one));
        }
  }
  return out;
}

// Without another number format, but where that has a fastest of its own that is faster than `but_faster` seconds.
const Whole* fastest(const std::vector<Whole>& all, uint64_t limit, bool same_numbers, const Whole* but = nullptr,
                     double but_faster = 0) {
  const Whole* best = nullptr;
  for (const Whole& one : all) {
    if (one.tried.peak.machine > limit || (same_numbers && !one.tried.effect.same_numbers)) continue;
    if ((but && but->family == one.family) || (one.format && one.tried.seconds >= but_faster)) continue;
    if (!best || eng::better(one.tried, best->tried)) best = &one;
  }
  return best;
}

uint64_t peak_with(const Words& words, uint32_t ranks = 1) {
  return eng::machine_peak(eng::make_plan_only(config_of("tiny", "none", words), plugins(), world_of(ranks)));
}

}  // namespace

namespace {

// Returns at how many of the limits a pipeline is the fastest.
size_t compare(const Words& words, uint32_t ranks, bool card, size_t limits) {
  Devices devices;
  devices.card = card;
  const std::vector<Whole> all = all_of(words, devices.with(uint64_t{1} << 40), ranks);
  CHECK(all.size() >= (ranks == 1 ? 15 : 45));
  size_t stages = 0;
  std::vector<uint64_t> peaks;
  for (const Whole& one : all) peaks.push_back(one.tried.peak.machine);
  std::sort(peaks.begin(), peaks.end());
  size_t none = 0, changed = 0;
  for (size_t k = 0; k <= limits; ++k) {
    const uint64_t limit = k == 0 ? peaks.front() - 1 : peaks[std::min(k * peaks.size() / limits, peaks.size() - 1)];
    INFO(ranks << " ranks, " << limit << " bytes, " << (card ? "with" : "without") << " rates");
    const eng::Fit fit = fit_in(words, devices.with(limit), ranks);
    CHECK(fit.timed == card);
    const Whole* own = fastest(all, limit, false);
    const double faster = own ? 0.99 * own->tried.seconds : std::numeric_limits<double>::infinity();
    const Whole *best = fastest(all, limit, false, nullptr, faster), *same = fastest(all, limit, true);
    CHECK(fit.own_fits == (own != nullptr));
    REQUIRE((fit.best || fit.same) == (best != nullptr));
    if (!best) {
      ++none;
      continue;
    }
    const eng::Tried& found = fit.best ? *fit.best : *fit.same;
    CHECK(eng::words_of(found.edits) == eng::words_of(best->tried.edits));
    stages += eng::words_of(found.edits).find("parallel.pipeline=") != std::string::npos;
    CHECK(found.seconds == best->tried.seconds);
    CHECK(found.peak.machine == best->tried.peak.machine);
    REQUIRE(fit.same.has_value() == (same != nullptr));
    if (same) CHECK(eng::words_of(fit.same->edits) == eng::words_of(same->tried.edits));
    if (fit.best) ++changed;
    const Whole* second = fastest(all, limit, false, best, faster);
    REQUIRE(fit.second.has_value() == (second != nullptr));
    if (second) CHECK(fit.second->seconds == second->tried.seconds);
    if (fit.own_format) {
      REQUIRE(own);
      CHECK(fit.own_format->seconds == own->tried.seconds);
    } else if (own) {
      const auto told = [&](const std::optional<eng::Tried>& t) {
        return t && eng::words_of(t->edits) == eng::words_of(own->tried.edits);
      };
      CHECK((told(fit.same) || told(fit.best) || told(fit.second)));
    }
  }
  CHECK(none == 1);
  CHECK(changed > 0);
  return stages;
}

}  // namespace

TEST_CASE("the fastest that fits is that of an exhaustive search", "[.slow]") {
  compare(small({"train.micro_batch=2", "train.accumulate=2"}), 1, false, 2);
  compare(small({"train.micro_batch=1", "train.accumulate=2"}), 2, true, 2);
}

TEST_CASE("the fastest that fits is that of an exhaustive search in a larger grid", "[.slow]") {
  for (const uint32_t ranks : {1u, 4u})
    for (const bool card : {false, true}) compare(small(), ranks, card, 16);
}

// With links so slow that sums over ranks take most of a step, ranks are better stages: their borders send less.
TEST_CASE("the fastest pipeline that fits is that of an exhaustive search", "[.slow]") {
  CHECK(compare(small({"train.micro_batch=1", "train.accumulate=2",
                       "comm.describe={bandwidth='1MB', latency='1us', ranks_per_node=1, flops=2e9}"}),
                4, true, 5) > 0);
}

TEST_CASE("what is found is the same every time, and said in words") {
  const uint64_t limit = (peak_with(small()) + peak_with(small({"recompute.policy=full"}))) / 2;
  const eng::Fit fit = fit_of(small(), limit);
  CHECK(eng::fit_text(fit) == eng::fit_text(fit_of(small(), limit)));
  REQUIRE(fit.same);
  CHECK(fit.same->effect.same_numbers);
  const std::string text = eng::fit_text(fit);
  CHECK_THAT(text, Contains("12 sequences per step") && Contains("the same numbers"));
  CHECK_THAT(text, Contains("[recompute]\n"));
  const auto json = nlohmann::json::parse(eng::fit_json(fit));
  CHECK(json["fits"] == true);
  CHECK(json["same_numbers"]["peak_bytes"] == fit.same->peak.machine);
  CHECK(json["device_bytes"] == limit);
  // Each proposal can be typed, and then needs what it says. Those that keep every number come first.
  bool same = true;
  for (const std::string& line : eng::proposals(fit)) {
    INFO(line);
    Words with = small();
    std::istringstream parts(line);
    for (std::string word; parts >> word && word[0] != '(';) with.push_back(word);
    const uint64_t peak = peak_with(with);
    CHECK(peak <= limit);
    CHECK_THAT(line, Catch::EndsWith(": " + eng::format_bytes(static_cast<double>(peak))));
    const bool here = line.find("(the same numbers)") != std::string::npos;
    CHECK((same || !here));
    same = here;
  }
  // A plan that fits is left as it is if nothing is faster.
  const eng::Fit roomy = fit_of(small({"train.micro_batch=12", "train.accumulate=1"}), uint64_t{1} << 40);
  REQUIRE(roomy.same);
  CHECK_THAT(eng::fit_text(fit_of({"train.micro_batch=8"}, uint64_t{1} << 40)), Contains("same bits   as it is"));
}

TEST_CASE("strategies are among what fits, with the same numbers") {
  const Words more = {"train.micro_batch=4", "recompute.policy=none"};
  const uint64_t here = peak_with(more, 8), two = eng::machine_peak(setup_of("tiny", "zero2", 8, more)),
                 three = eng::machine_peak(setup_of("tiny", "zero3", 8, more));
  CHECK(three < two);
  CHECK(two < here);
  const auto stages = [&](uint64_t limit) {
    const eng::Fit fit = fit_of(more, limit, 8);
    REQUIRE(fit.same);
    return eng::words_of(fit.same->edits);
  };
  CHECK_THAT(stages(two), Contains("zero.plugin=zero"));
  CHECK_THAT(stages(two - 1), Contains("zero.plugin=zero") || Contains("recompute."));
  // One rank cannot shard.
  for (const std::string& edit : eng::proposals(fit_of(more, peak_with(more) - 1)))
    CHECK((edit.starts_with("--ranks") || edit.find("zero.") == std::string::npos));
}

TEST_CASE("where nothing fits, the least changes are told, a smaller model last", "[.slow]") {
  // So wide that what ranks share outweighs the code of their communicator.
  const Words words = small({"train.sequence_length=64", "model.hidden_size=512", "model.intermediate_size=1024"});
  // Less than the weights, states and gradients take.
  const uint64_t weights = static_cast<uint64_t>(setup_of("tiny", "none", 1, words).plan.parameters) * 4;
  const eng::Fit probe = fit_of(words, uint64_t{1});
  REQUIRE_FALSE(probe.too_large.empty());
  const uint64_t least = probe.too_large.front().excess.bytes + 1;
  const eng::Fit fit = fit_of(words, least - weights / 2);
  CHECK_FALSE((fit.best || fit.same));
  REQUIRE_FALSE(fit.remedies.empty());
  CHECK_THAT(fit.remedies.back().effect.text, Catch::StartsWith("another model"));
  CHECK(fit.remedies.front().ranks > 1);
  for (const eng::Tried& remedy : fit.remedies) {
    INFO(eng::words_of(remedy.edits));
    CHECK_FALSE(remedy.effect.same_numbers);
    CHECK(remedy.peak.machine <= fit.available.device);
    const eng::Config with = eng::edited(config_of("tiny", "none", words), plugins(), remedy.edits, remedy.ranks);
    CHECK(eng::machine_peak(eng::make_plan_only(with, plugins(), world_of(remedy.ranks))) == remedy.peak.machine);
  }
  const std::string text = eng::fit_text(fit);
  CHECK_THAT(text, Contains("nothing fits: ") && Contains(" too much at least") && Contains("would fit   --ranks "));
  CHECK_THAT(text, Contains("too large") && Contains("arena reference: "));
  CHECK(nlohmann::json::parse(eng::fit_json(fit))["fits"] == false);
  // Neither are there plans that none could run.
  CHECK_THAT(eng::fit_text(probe), Contains("no smaller model fits either"));
}

TEST_CASE("edits of a configuration") {
  const Words given = {"recompute.every=2", "train.micro_batch=4", "zero.bucket=1MiB"};
  const eng::Config config = config_of("tiny", "zero2", given);
  eng::Edits edits = eng::recompute_edits(config, "policy", std::string("full"));
  edits.push_back({"zero", "plugin", std::string("zero3")});
  for (const eng::Edit& e : eng::batch_edits(config, 2, 4)) edits.push_back(e);
  CHECK(eng::words_of(edits) ==
        "--unset recompute.every recompute.policy=full zero.plugin=zero3 train.micro_batch=2 train.accumulate=2");
  CHECK(eng::toml_of(edits) ==
        "[recompute]\n# without every\npolicy = \"full\"\n[zero]\nplugin = \"zero3\"\n[train]\nmicro_batch = 2\n"
        "accumulate = 2\n");
  const eng::Config with = eng::edited(config, plugins(), edits, 1);
  CHECK_FALSE(with.section("recompute").given("every"));
  CHECK(with.section("zero").integer("bucket") == 1 << 20);
  CHECK(eng::plan_dump(eng::make_plan_only(with, plugins(), world_of(2)).plan) ==
        eng::plan_dump(
            setup_of("tiny", "zero3", 2,
                     {"recompute.policy=full", "train.micro_batch=2", "train.accumulate=2", "zero.bucket=1MiB"})
                .plan));
  // A derived key is not among the edits.
  const eng::Config global = config_of("tiny", "none", {"train.global_batch=8", "train.micro_batch=4"});
  CHECK(eng::words_of(eng::batch_edits(global, 2, 8)) == "train.micro_batch=2");
  CHECK(eng::edited(global, plugins(), {{"train", "micro_batch", int64_t{2}}}, 2)
            .section("train")
            .integer("accumulate") == 2);
}

TEST_CASE("a batch beyond any memory is told at once") {
  Words more = tiny_width;
  more.insert(more.end(), {"train.accumulate=10", "train.micro_batch=100000000"});
  const std::clock_t start = std::clock();
  const eng::Fit fit = fit_of(more, uint64_t{1} << 34);
  CHECK(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC < 3 * patience);
  // The batch of a step alone is larger, however it is cut.
  REQUIRE_FALSE(fit.too_large.empty());
  CHECK_THAT(fit.too_large.front().largest, Contains("arena reference: batch "));
  more.back() = "train.sequence_length=100000000";
  CHECK_THROWS_WITH(setup_of("tiny", "none", 1, more), Contains("sequence_length = 100000000") && Contains("512 MiB"));
  more.back() = "train.micro_batch=1000000";
  more.insert(more.end(), {"train.sequence_length=1000000", "model.intermediate_size=1048576"});
  CHECK_THROWS_WITH(setup_of("tiny", "none", 1, more), Contains("1000000000000 tokens; the maximum is 2147483647"));
}

TEST_CASE("what fits a model of seven billion parameters is found in ten seconds", "[.slow]") {
  const Words words = {"train.micro_batch=4", "train.accumulate=8", "train.sequence_length=1024"};
  for (const char* card : {"a800-80g", "h200"}) {
    Words with = words;
    with.push_back(std::string("device.describe=") + card);
    const std::clock_t start = std::clock();
    const eng::Fit fit = eng::find_fit(config_of("7b", "none", with), plugins(), {});
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    INFO(card << ": " << seconds << " s, " << fit.plans << " plans");
    CHECK(fit.timed);
    CHECK(seconds < 10 * patience);
  }
}

// Such a model is planned with few layers first, to learn what is worth planning whole.
TEST_CASE("settings for a model of very many layers", "[.slow]") {
  Words deep = tiny_width;
  deep.insert(deep.end(), {"model.num_hidden_layers=450", "train.micro_batch=5040", "train.sequence_length=1024"});
  const uint64_t limit = peak_with(deep) / 5;
  const std::clock_t start = std::clock();
  const eng::Fit fit = fit_of(deep, limit);
  CHECK(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC < 60);  // a slow case: never with a sanitizer
  REQUIRE(fit.best);
  // 5040 has many divisors, so what is found takes most of the memory.
  CHECK(fit.best->peak.machine <= limit);
  CHECK(static_cast<double>(fit.best->peak.machine) > 0.75 * static_cast<double>(limit));
}

}  // namespace fit_test
