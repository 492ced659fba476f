// SPDX-License-Identifier: Apache-2.0
// The proposals where nothing fits: the least number of ranks, the fewest edits, the number format that is there.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <memory>

#include "session/planning/fit/text.hpp"
#include "session/planning/fits.hpp"
#include "tests/session/report/planned.hpp"

using Catch::Contains;

namespace remedies_test {

using namespace planned;

namespace {

// 6 sequences per step; sharding a layer among a few ranks leaves no padding.
Words base(const Words& more = {}) {
  Words words = {"model.num_hidden_layers=4", "train.micro_batch=1", "train.accumulate=6"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

eng::Fit fit_of(Words words, uint64_t limit, uint32_t ranks = 1) {
  words.push_back(fmt::format("device.describe={}", limit));
  return eng::find_fit(config_of("tiny", "none", words), plugins(), {0, ranks, 0, 1});
}

uint64_t peak(const eng::Config& config, uint32_t ranks) {
  return eng::machine_peak(eng::make_plan_only(config, plugins(), {0, ranks, 0, 1}));
}

// A device with separate memory, of which each rank has its own.
std::string card(uint64_t bytes) {
  static const std::string file = (std::filesystem::temp_directory_path() / fmt::format("card-{}.toml", ::getpid()));
  static const std::shared_ptr<void> removed(nullptr, [](void*) { std::filesystem::remove(file); });
  std::ofstream(file) << "plugin = 'cuda'\nmemory = " << bytes << "\nreserve = 0\nworkspace = 1\n";
  return "device.describe=" + file;
}

// The least that any setting needs of a machine.
uint64_t least(uint32_t ranks, const Words& more = {}) {
  uint64_t out = UINT64_MAX;
  for (const char* stage : {"zero2", "zero3"})
    for (const char* keep : {"recompute.policy=none", "recompute.policy=full", "recompute.blocks=2"}) {
      Words words = base({fmt::format("train.accumulate={}", (6 + ranks - 1) / ranks), keep});
      words.insert(words.end(), more.begin(), more.end());
      out = std::min(out, peak(config_of("tiny", stage, words), ranks));
    }
  return out;
}

std::vector<eng::Tried> with_ranks(const eng::Fit& fit) {
  std::vector<eng::Tried> out;
  for (const eng::Tried& t : fit.remedies)
    if (t.ranks != fit.ranks) out.push_back(t);
  return out;
}

bool has_format(const eng::Tried& t) {
  return std::any_of(t.edits.begin(), t.edits.end(), [](const eng::Edit& e) { return e.section == "precision"; });
}

}  // namespace

TEST_CASE("the least number of ranks that fits is proposed, whatever it is", "[.slow]") {
  std::map<uint32_t, uint64_t> needs;
  for (const uint32_t ranks : {2u, 3u, 4u, 5u}) needs[ranks] = least(ranks);
  REQUIRE(needs[5] < std::min({needs[2], needs[3], needs[4]}));
  const std::vector<eng::Tried> five = with_ranks(fit_of(base(), needs[5]));
  REQUIRE(five.size() >= 2);
  CHECK(five[0].ranks == 5);
  CHECK_THAT(five[0].effect.text, Contains("10 sequences per step instead of 6, summed over 5 ranks"));
  // That changes the batch, so the least that does not is proposed too.
  CHECK(five[1].ranks == 6);
  CHECK_THAT(five[1].effect.text, Contains("the same tokens per step, summed over 6 ranks"));
  REQUIRE(needs[3] < needs[2]);
  const std::vector<eng::Tried> three = with_ranks(fit_of(base(), needs[3]));
  REQUIRE_FALSE(three.empty());
  CHECK(three[0].ranks == 3);
  CHECK_THAT(three[0].effect.text, Contains("the same tokens per step, summed over 3 ranks"));
  // From two ranks on, which have twice the sequences.
  REQUIRE_FALSE(with_ranks(fit_of(base(), needs[5], 2)).empty());
  CHECK(with_ranks(fit_of(base(), needs[5], 2))[0].ranks > 2);
}

TEST_CASE("a number of ranks that is proposed divides the global batch, and fills nodes") {
  const Words batch = {"model.num_hidden_layers=4", "train.micro_batch=1", "train.global_batch=6"};
  const std::vector<eng::Tried> divides = with_ranks(fit_of(batch, least(5)));
  REQUIRE_FALSE(divides.empty());
  CHECK(divides[0].ranks == 6);
  for (const eng::Tried& t : divides) CHECK(6 % t.ranks == 0);
  const std::string nodes_of_four = "comm.describe={bandwidth=\"1GB\", latency=\"5us\", ranks_per_node=4}";
  const uint64_t two_nodes = least(8, {nodes_of_four, card(uint64_t{1} << 40)});
  REQUIRE(two_nodes < least(4, {nodes_of_four, card(uint64_t{1} << 40)}));
  const Words words = base({nodes_of_four, card(two_nodes)});
  const std::vector<eng::Tried> nodes =
      with_ranks(eng::find_fit(config_of("tiny", "none", words), plugins(), {0, 1, 0, 1}));
  REQUIRE_FALSE(nodes.empty());
  CHECK(nodes[0].ranks == 8);
  for (const eng::Tried& t : nodes) CHECK(t.ranks % 4 == 0);
}

TEST_CASE("what is proposed has no edit that could be left out") {
  const Words words = base();
  for (const uint32_t ranks : {3u, 5u}) {
    const uint64_t limit = least(ranks);
    const eng::Fit fit = fit_of(words, limit);
    REQUIRE(fit.remedies.size() >= 2);
    for (const eng::Tried& remedy : fit.remedies)
      for (size_t k = 0; k < remedy.edits.size(); ++k) {
        if (remedy.edits[k].section == "train") continue;  // the batch follows the ranks
        eng::Edits fewer = remedy.edits;
        fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(k));
        INFO(eng::words_of(remedy.edits) << " without " << remedy.edits[k].key);
        CHECK(peak(eng::edited(config_of("tiny", "none", words), plugins(), fewer, remedy.ranks), remedy.ranks) >
              limit);
      }
  }
}

TEST_CASE("another number format is proposed only where it is better, and is named", "[.slow]") {
  size_t told = 0;
  for (const char* own : {"fp32", "fp16"}) {
    const Words words = base({std::string("precision.plugin=") + own});
    const uint64_t here = peak(config_of("tiny", "none", words), 1);
    for (const double share : {1.0, 0.4, 0.1}) {
      const auto limit = static_cast<uint64_t>(share * static_cast<double>(here));
      const eng::Fit fit = fit_of(words, limit);
      INFO(own << " in " << limit);
      std::vector<eng::Tried> all = fit.remedies;
      for (const auto* t : {&fit.same, &fit.best, &fit.second, &fit.own_format})
        if (*t) all.push_back(**t);
      for (const eng::Tried& t : all) {
        const bool named = t.effect.text.find(fmt::format(" instead of {}", own)) != std::string::npos;
        CHECK(has_format(t) == named);
        CHECK((!named || !t.effect.same_numbers));
        told += has_format(t);
      }
      // bf16 and fp16 have the same bytes and nearly the same time. bf16_sr has fewer bytes.
      if (own != std::string("fp32") && fit.best && fit.own_fits)
        CHECK_THAT(eng::words_of(fit.best->edits), !Contains("bf16") || Contains("bf16_sr"));
      // Another format is proposed beside the own one if it needs fewer ranks.
      const std::vector<eng::Tried> ranks = with_ranks(fit);
      for (const eng::Tried& t : ranks)
        if (has_format(t)) CHECK((has_format(ranks[0]) || t.ranks < ranks[0].ranks));
      if (share == 1.0) {
        REQUIRE(fit.same);
        CHECK(fit.remedies.empty());
      }
    }
  }
  CHECK(told > 0);
}

}  // namespace remedies_test
