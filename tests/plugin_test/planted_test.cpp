// SPDX-License-Identifier: Apache-2.0
// Faults in copies of shipped plugins: each is found, by its own law.
#include "tried.hpp"

namespace plugin_test {
namespace {

struct Planted {
  const char* name;
  Args more;
  const char* said;
};

}  // namespace

TEST_CASE("each fault planted in a shipped plugin is found", "[plugin_test][.slow]") {
  const Scratch place;
  for (const Planted& p : std::vector<Planted>{
           {"mamba_forgets", {"--kind", "eng.ops/1"}, "the rule gives input 2 no gradient, although"},
           {"mamba_confuses", {"--kind", "eng.ops/1"}, "the gradient of input 4 is wrong where"},
           {"mamba_leaks", {"--kind", "eng.ops/1"}, "the gradient of input 0 is wrong where"},
           {"mamba_overruns",
            {"--kind", "eng.kernels/1", "--name", "cpu"},
            "it wrote byte 1 after its end of output 1"},
           {"muon_never_skips", {"--kind", "eng.optimizer/1"}, "scalars[ENG_S_OK] is 0, but"},
           {"muon_scratch", {"--kind", "eng.kernels/1", "--name", "cpu"}, "of its scratch of"},
           {"adamw_remembers", {"--name", "adamw"}, "depend on what was asked before"},
           {"zero2_neighbour", {"--name", "zero2"}, "other bits than where every rank keeps everything"},
           {"zero2_rounds",
            {"--name", "zero2"},
            "other bits than where every rank keeps everything, and it is not ENG_AXIS_LOSSY"},
           {"precision_narrows", {"--name", "bf16"}, "weights with ENG_PARAM_FP32 become bf16"},
           {"host_not_resident", {}, "is not resident: touch every page"},
           {"opt_counts_traces", {}, "two traces with"},
           {"wsd_remembers", {"--name", "wsd"}, "asked in another order or of another object"},
           {"wsd_exceeds", {"--name", "wsd"}, "it must be from 0 to the peak"},
           {"wsd_divides", {"--name", "wsd"}, "a run of one step: the rate of update 1 is"},
           {"host_misnames", {}, "option 'limit': the name of a tier's option begins with that of the tier: host_"},
           {"lion_without_pairs", {"--name", "lion"}, "in_place of the op must list output 0 and input 0"},
           {"lion_odd_pair",
            {"--kind", "eng.ops/1"},
            "in_place lists output 1 and input 3, which are never of one type and number of elements"},
           {"counting_forgets_order", {}, "is another one"},
           {"counting_mislabels", {}, "sample 3 of split 0: label 0 is 0, but token 1 is"},
           {"reference_kernels", {"--kind", "eng.kernels/1"}, "eng.gated_grad/1: eng.gated_grad/1 in"},
           {"reference_kernels", {"--kind", "eng.kernels/1"}, "although both say ENG_KERNEL_EXACT"},
       }) {
    const Tried tried =
        try_plugin(place, fs::path(PLANTED_DIR) / (std::string("planted_") + p.name + ".eng.so"), p.more);
    INFO(p.name << "\n" << tried.text());
    CHECK(tried.result.exit == 3);
    CHECK(tried.failed(p.said));
    CHECK_FALSE(tried.failed("map::at"));  // what the tester throws itself is no reason
  }
}

TEST_CASE("a tier may have options that begin with its name", "[plugin_test]") {
  const Scratch place;
  const Tried tried = try_plugin(place, fs::path(PLANTED_DIR) / "planted_host_has_options.eng.so", {"host_limit=2GiB"});
  INFO(tried.text());
  CHECK(tried.result.exit == 0);
}

TEST_CASE("a strategy that says that it is lossy is not asked for the bits of plain plans", "[plugin_test][.slow]") {
  const Scratch place;
  const Tried tried =
      try_plugin(place, fs::path(PLANTED_DIR) / "planted_zero2_rounds_lossy.eng.so", {"--name", "zero2"});
  INFO(tried.text());
  CHECK(tried.result.exit == 0);
  size_t compared = 0;
  for (const Json& v : tried.verdicts) compared += has(v.at("text").get<std::string>(), "; lossy: losses within ");
  CHECK(compared == 3);  // on 2, 3 and 4 ranks
}

TEST_CASE("a kernel that ignores segments, positions, loss weights or z_loss is reported", "[plugin_test]") {
  const Scratch place;
  const Tried tried =
      try_plugin(place, fs::path(PLANTED_DIR) / "planted_reference_kernels.eng.so", {"--kind", "eng.kernels/1"});
  INFO(tried.text());
  for (const char* op :
       {"attention", "attention_grad", "rope", "positions", "positions_grad", "cross_entropy", "cross_entropy_grad"})
    CHECK(tried.failed(std::string(", eng.") + op + "/1: eng." + op + "/1 in "));
  CHECK_FALSE(tried.failed("eng.embedding"));
}

TEST_CASE("a failure is there again with its seed, and another seed tries other shapes", "[plugin_test]") {
  const Scratch place;
  const fs::path file = fs::path(PLANTED_DIR) / "planted_reference_kernels.eng.so";
  const auto texts = [&](const char* seed) {
    return try_plugin(place, file, {"--kind", "eng.kernels/1", "--seed", seed, "--rounds", "1"}).failed();
  };
  CHECK(texts("5") == texts("5"));
  CHECK(texts("5") != texts("6"));
}

}  // namespace plugin_test
