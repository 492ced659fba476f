// SPDX-License-Identifier: Apache-2.0
// The situations of docs/situations.md: what each card of the described machines needs. Plans only.
#include <iterator>
#include <sstream>

#include "harness.hpp"

namespace situations {

using namespace cli;

namespace {

std::string file(const std::string& name) {
  return std::string(ENGINE_SOURCE_DIR) + "/examples/situations/" + name + ".toml";
}

const std::string a = file("a-mamba-7b-one-a800"), b = file("b-mamba-7b-24g"), c = file("c-mamba-7b-6x32g"),
                  d = file("d-llama-7b-4x40g"), e = file("e-opt-one-a800");

constexpr uint64_t mamba_7b = 6'922'702'592, llama_7b = 6'738'415'616, opt_6_7b = 6'658'473'984;

struct Planned {
  bool fits = false;
  uint64_t parameters = 0, ranks = 0;
  double persistent = 0, peak = 0, step = 0, flops = 0, recomputed = 0, host = 0;  // bytes, seconds, FLOPs
  double per_parameter() const { return persistent / static_cast<double>(parameters); }
};

Planned plan(const std::string& config, Args more = {}) {
  Scratch scratch;
  more.insert(more.begin(), {"plan", config, "--json"});
  const Result result = engine(scratch, more);
  INFO(result.err);
  REQUIRE((result.exit == 0 || result.exit == 5 || result.exit == 6));
  CHECK((result.exit == 0) == Json::parse(result.out).at("fits").get<bool>());
  const Json json = Json::parse(result.out), &rank = json.at("ranks").at(0), &card = rank.at("arenas").at(0);
  CHECK(card.at("kind") == "device");
  return {json.at("fits"),           json.at("parameters"),        json.at("world_size"),
          card.at("persistent"),     rank.at("device_peak_bytes"), json.at("step_seconds_estimate"),
          json.at("flops_per_step"), json.at("recomputed_flops"),  rank.at("host_peak_bytes")};
}

// The bytes that N ranks keep of a parameter from step to step, and of its summed gradient in f32, which lives through
// a step: `whole` bytes on each, `shared` bytes divided among them. The card needs `gigabytes`, as docs/situations.md
// says. Half a percent is for padding, and for parameters that have no 16-bit copy. Kernels may change what is left by
// a bit.
Planned needs(const std::string& config, const Args& more, double whole, double shared, double gigabytes, bool fits) {
  INFO(config << [&] {
    std::string words;
    for (const std::string& word : more) words += " " + word;
    return words;
  }());
  const Planned p = plan(config, more);
  const auto ranks = static_cast<double>(p.ranks), parameters = static_cast<double>(p.parameters);
  CHECK(p.per_parameter() == Approx(whole + shared / ranks).epsilon(0.005).margin(0.002));
  CHECK(p.peak > p.persistent + 4 * parameters / ranks);
  CHECK(p.peak == Approx(1e9 * gigabytes).epsilon(0.02));
  CHECK(p.fits == fits);
  return p;
}

// The needs with states on the host: what is left on the card keeps `kept` bytes of a parameter, and the host needs
// `host` gigabytes for each card.
Planned offloads(const std::string& config, Args more, double kept, double gigabytes, double host, bool fits) {
  const Planned p = plan(config, more);
  CHECK(p.per_parameter() == Approx(kept).epsilon(0.005).margin(0.002));
  CHECK(p.peak == Approx(1e9 * gigabytes).epsilon(0.02));
  CHECK(p.host == Approx(1e9 * host).epsilon(0.02));
  CHECK(p.fits == fits);
  return p;
}

// AdamW in 16 bits: the weight has 2 bytes, its master 4, its moments 8. In fp32 there is no master.
constexpr double weight = 2, states = 12;

// The words of the first proposal: all before its effect, which is in parentheses.
Args first_proposal(const std::string& text, const std::string& before) {
  const size_t from = text.find(before);
  REQUIRE(from != std::string::npos);
  std::istringstream words(text.substr(from + before.size(), text.find(" (", from) - from - before.size()));
  return {std::istream_iterator<std::string>(words), {}};
}

void proposal_fits(const std::string& config, Args more) {
  Scratch scratch;
  Args all{"plan", config};
  all.insert(all.end(), more.begin(), more.end());
  const Result result = engine(scratch, all);
  INFO(result.out);
  REQUIRE(has(result.out, "DOES NOT FIT"));
  CHECK_FALSE(plan(config, more).fits);
  // The last word for a key counts, and so does the last --ranks, but the option can be given only once.
  const Args words = first_proposal(result.out, "  would fit: ");
  if (words.front() == "--ranks") std::erase_if(more, [](const std::string& w) { return w.find('=') == w.npos; });
  more.insert(more.end(), words.begin(), words.end());
  CHECK(plan(config, more).fits);
}

// One card: `check` ends with the code for device memory, and its first proposal fits.
void refused(const std::string& config) {
  Scratch scratch;
  const Result result = engine(scratch, {"check", config});
  INFO(result.err);
  REQUIRE(result.exit == 5);
  CHECK(has(result.err, "device cuda has 79.1 GiB"));
  CHECK_FALSE(plan(config).fits);
  CHECK(plan(config, first_proposal(result.err, "any one of these fits:\n  ")).fits);
}

}  // namespace

TEST_CASE("situation A: Mamba 7B on one card of 80 GB", "[cli][situations]") {
  const Planned p = needs(a, {}, weight + states, 0, 132.5, false);
  CHECK(p.parameters == mamba_7b);
  needs(a, {"precision.plugin=fp16"}, weight + states, 0, 132.5, false);
  needs(a, {"precision.plugin=fp32"}, states, 0, 121.9, false);
  needs(a, {"train.micro_batch=8", "train.accumulate=2", "recompute.blocks=2"}, weight + states, 0, 145.2, false);
  needs(a,
        {"train.micro_batch=12", "train.accumulate=1", "train.sequence_length=2048", "recompute.blocks=2",
         "zero.plugin=zero1"},
        weight + states, 0, 165.4, false);
  needs(a, {"--ranks", "2", "train.accumulate=2"}, weight, states, 77.3, true);
  // Moments of 2.03 bytes, but for the embedding, which is 3.5 % of the parameters.
  needs(a, {"optimizer.plugin=adamw8bit"}, weight + 4 + 2.24, 0, 92.7, false);
  needs(a, {"optimizer.plugin=adamw8bit", "precision.plugin=fp32"}, 4 + 2.24, 0, 82.0, true);
}

TEST_CASE("situation A: with the optimizer on the host, as asked, it fits on one card", "[cli][situations]") {
  const std::string host = "offload.optimizer=host";
  offloads(a, {host}, weight, 49.5, 83.3, true);
  offloads(a, {host, "train.micro_batch=8", "train.accumulate=2", "recompute.blocks=2"}, weight, 62.2, 83.3, true);
  offloads(a,
           {host, "train.micro_batch=12", "train.accumulate=1", "train.sequence_length=2048", "recompute.blocks=2",
            "zero.plugin=zero1"},
           weight, 82.4, 83.3, true);
}

TEST_CASE("situation A: the first proposal fits", "[cli][situations][.slow]") {
  refused(a);
}

TEST_CASE("situation B: Mamba 7B with ZeRO-2 on cards of 24 and 32 GB", "[cli][situations]") {
  const Planned four = needs(b, {"--ranks", "4"}, weight, states, 49.3, false);
  CHECK(four.parameters == mamba_7b);
  // 0.8 steps per second would be several times what the card can compute at most, even without recomputation.
  CHECK(0.8 * (four.flops - four.recomputed) > 6 * 165.2e12);
  needs(b, {"--ranks", "6"}, weight, states, 40.1, false);
  needs(b, {"--ranks", "8"}, weight, states, 35.5, false);
  needs(b, {"--ranks", "4", "device.describe=rtx5090"}, weight, states, 49.3, false);
}

TEST_CASE("situation B: ZeRO-3 and smaller models", "[cli][situations][.slow]") {
  const std::string zero3 = "zero.plugin=zero3", small = "optimizer.plugin=adamw8bit";
  needs(b, {"--ranks", "4", zero3}, 0, weight + states, 39.2, false);
  needs(b, {"--ranks", "6", zero3}, 0, weight + states, 28.8, false);
  needs(b, {"--ranks", "8", zero3}, 0, weight + states, 23.6, true);
  needs(b, {"--ranks", "6", zero3, small}, 0, weight + 4 + 2.24, 22.1, true);
  needs(b, {"--ranks", "4", zero3, small, "recompute.blocks=7", "device.describe=rtx5090"}, 0, weight + 4 + 2.24, 27.5,
        true);
  CHECK(needs(b, {"--ranks", "4", "model.preset=3b_mamba"}, weight, states, 22.3, true).parameters == 2'768'286'720);
  needs(b, {"--ranks", "6", "model.preset=3b_mamba"}, weight, states, 18.6, true);
  needs(b, {"--ranks", "8", "model.preset=3b_mamba"}, weight, states, 16.8, true);
  CHECK(needs(b, {"--ranks", "4", "model.preset=1b_mamba"}, weight, states, 9.8, true).parameters == 1'001'947'136);
}

TEST_CASE("situation B: states on the host", "[cli][situations]") {
  const std::string host = "offload.optimizer=host";
  offloads(b, {"--ranks", "4", host}, weight, 28.5, 20.8, false);
  offloads(b, {"--ranks", "6", host}, weight, 26.2, 13.9, false);
  offloads(b, {"--ranks", "8", host}, weight, 25.1, 10.4, true);
  offloads(b, {"--ranks", "4", host, "zero.plugin=zero3"}, weight / 4, 18.4, 20.8, true);
}

TEST_CASE("situation B: the first proposal fits", "[cli][situations][.slow]") {
  for (const char* ranks : {"4", "6", "8"}) proposal_fits(b, {"--ranks", ranks});
  proposal_fits(b, {"--ranks", "4", "device.describe=rtx5090"});
}

TEST_CASE("situation C: Mamba 7B with ZeRO-3 on 6 cards of 32 GB needs no offloading", "[cli][situations]") {
  const Args six{"--ranks", "6"};
  const auto with = [&](Args more) {
    more.insert(more.begin(), six.begin(), six.end());
    return more;
  };
  needs(c, six, 0, weight + states, 23.9, true);
  needs(c, with({"--unset", "recompute.blocks"}), 0, weight + states, 23.9, true);
  const Planned eight = needs(c, with({"train.accumulate=8"}), 0, weight + states, 24.8, true);
  const Planned two = needs(c, with({"train.micro_batch=4", "train.accumulate=2"}), 0, weight + states, 26.0, true);
  CHECK(eight.flops == Approx(two.flops).epsilon(0.001));
  CHECK(two.step < eight.step / 2);  // weights are gathered for 2 micro-batches, not for 8
  needs(c, with({"train.accumulate=8", "train.sequence_length=256"}), 0, weight + states, 24.6, true);
  needs(c, with({"optimizer.plugin=adamw8bit"}), 0, weight + 4 + 2.24, 17.3, true);
  const Planned lite =
      needs(c, with({"model.preset=3b_mamba_lite", "recompute.blocks=24"}), 0, weight + states, 4.9, true);
  CHECK(lite.parameters == 868'858'880);
  const Planned narrow =
      needs(c, with({"model.hidden_size=4096", "model.num_hidden_layers=32"}), 0, weight + states, 13.6, true);
  CHECK(narrow.parameters == 3'575'848'960);
}

TEST_CASE("situations C and D: everything on the host", "[cli][situations]") {
  offloads(c, {"--ranks", "6", "offload.optimizer=host", "offload.gradients=host", "offload.parameters=host"}, 0, 4.1,
           20.8, true);
  offloads(d, {"--ranks", "4", "offload.optimizer=host", "offload.parameters=host"}, 0, 22.8, 23.6, true);
}

TEST_CASE("situation D: LLaMA-7B with ZeRO-3 on 4 cards of 40 GB", "[cli][situations]") {
  const Args four{"--ranks", "4"};
  CHECK(needs(d, four, 0, weight + states, 46.0, false).parameters == llama_7b);
  needs(d, {"--ranks", "4", "recompute.policy=full"}, 0, weight + states, 35.7, true);
  needs(d, {"--ranks", "4", "train.sequence_length=512"}, 0, weight + states, 37.1, true);
}

TEST_CASE("situation D: the first proposal fits", "[cli][situations][.slow]") {
  proposal_fits(d, {"--ranks", "4"});
}

TEST_CASE("situation E: every size of OPT on one card of 80 GB", "[cli][situations]") {
  struct Row {
    const char* preset;
    uint64_t parameters;
    double gigabytes;
    bool fits;
  };
  for (const Row& row : {Row{"125m", 125'239'296, 3.9, true}, Row{"350m", 331'196'416, 7.6, true},
                         Row{"1.3b", 1'315'758'080, 25.3, true}, Row{"2.7b", 2'651'596'800, 49.4, true},
                         Row{"6.7b", opt_6_7b, 121.5, false}, Row{"13b", 12'853'473'280, 233.1, false},
                         Row{"30b", 29'974'540'288, 541.3, false}}) {
    const Planned p =
        needs(e, {std::string("model.preset=") + row.preset}, weight + states, 0, row.gigabytes, row.fits);
    CHECK(p.parameters == row.parameters);
  }
}

TEST_CASE("situation E: what makes 6.7B, 13B and 30B fit", "[cli][situations]") {
  needs(e, {"optimizer.plugin=adamw8bit"}, weight + 4 + 2.22, 0, 83.1, true);
  needs(e, {"--ranks", "2", "zero.plugin=zero2", "train.micro_batch=2"}, weight, states, 69.2, true);
  needs(e, {"--ranks", "4", "model.preset=13b", "zero.plugin=zero3", "train.micro_batch=1"}, 0, weight + states, 62.2,
        true);
  needs(e, {"--ranks", "8", "model.preset=30b", "zero.plugin=zero3", "train.micro_batch=1"}, 0, weight + states, 74.5,
        true);
}

TEST_CASE("situation E: 6.7B, 13B and 30B on one card, with states on the host", "[cli][situations]") {
  const std::string host = "offload.optimizer=host", gradients = "offload.gradients=host";
  offloads(e, {host}, weight, 41.6, 80.1, true);
  offloads(e, {"model.preset=13b", host}, weight, 78.8, 154.5, true);
  offloads(e, {"model.preset=30b", host, gradients}, weight, 68.4, 479.6, true);
}

TEST_CASE("situation E: the first proposal fits", "[cli][situations]") {
  refused(e);
  // A size that fits, whose checkpoints fit on any disk.
  Scratch scratch;
  const Result small = engine(scratch, {"check", e, "model.preset=tiny"});
  INFO(small.err);
  CHECK(small.exit == 0);
}

}  // namespace situations
