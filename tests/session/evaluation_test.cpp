// SPDX-License-Identifier: Apache-2.0
// Setups for different purposes: an evaluation takes less memory than the training of the same model.
#include <algorithm>
#include <catch2/catch.hpp>

#include "session/planning/fits.hpp"
#include "session/planning/setup.hpp"
#include "tests/session/built.hpp"

using namespace eng;
using namespace eng::test;
using Catch::Contains;

namespace {

const char* const bench_model =
    "[model]\nplugin = \"llama\"\npreset = \"bench\"\n[train]\nsequence_length = 64\naccumulate = 8\n"
    "[recompute]\npolicy = \"full\"\n";

bool has_program(const Plan& plan, const std::string& program) {
  return std::any_of(plan.programs.begin(), plan.programs.end(), [&](const Program& p) { return p.name == program; });
}

// Bytes of the buffers of a line of the report that stay.
uint64_t held_bytes(const Plan& plan, Line line) {
  uint64_t out = 0;
  for (const Buffer& b : plan.buffers)
    if (b.persistent && b.line == line) out += b.bytes;
  return out;
}

}  // namespace

TEST_CASE("an evaluation plans neither gradients nor moments", "[evaluation]") {
  const Config config = built_config(bench_model);
  const Setup whole = make_setup(config, built_plugins()), alone = make_evaluation(config, built_plugins());
  CHECK(has_program(alone.plan, "eval"));
  CHECK_FALSE(has_program(alone.plan, "train"));
  CHECK(held_bytes(alone.plan, Line::weights) == held_bytes(whole.plan, Line::weights));
  CHECK(held_bytes(whole.plan, Line::optimizer) == 2 * held_bytes(whole.plan, Line::weights));
  CHECK(held_bytes(alone.plan, Line::optimizer) == 0);
  CHECK(std::none_of(alone.plan.buffers.begin(), alone.plan.buffers.end(),
                     [](const Buffer& b) { return b.line == Line::gradients; }));
  CHECK(alone.plan.accumulate == 1);
  CHECK(parameters(alone.plan).size() == parameters(whole.plan).size());
  CHECK(saved_tensors(alone.plan).size() == parameters(alone.plan).size());
  // Weights, moments and gradients: a machine with a third of it evaluates the model.
  CHECK(3 * planned_peak(alone) < planned_peak(whole));
  CHECK_NOTHROW(check_evaluation_fits(config, built_plugins(), alone));
}

TEST_CASE("a sequence that is longer than the model's positions names their key", "[evaluation]") {
  const std::string opt = "[model]\nplugin = \"opt\"\npreset = \"tiny\"\n[train]\nsequence_length = ";
  CHECK_NOTHROW(make_setup(built_config(opt + "512\n"), built_plugins()));
  try {
    make_setup(built_config(opt + "513\n"), built_plugins());
    FAIL("planned");
  } catch (const Error& e) {
    CHECK(e.exit() == Exit::usage);
    CHECK_THAT(e.what(), Contains("train.sequence_length = 513 is more than the 512 positions of model opt "
                                  "(max_position_embeddings = 512)"));
    CHECK_THAT(e.help(),
               Contains("train.sequence_length = 512 or less") && Contains("model.max_position_embeddings = 513"));
  }
  // Rotary positions continue beyond the maximum, and give bad texts.
  const std::string llama = "[model]\nplugin = \"llama\"\npreset = \"tiny\"\n[train]\nsequence_length = ";
  CHECK(make_setup(built_config(llama + "2048\n"), built_plugins()).notes.empty());
  const auto notes = make_setup(built_config(llama + "6144\n"), built_plugins()).notes;
  REQUIRE(notes.size() == 1);
  CHECK(notes[0] ==
        "train.sequence_length = 6144 is 3 times the 2048 positions of the model "
        "(model.max_position_embeddings)");
  CHECK(make_evaluation(built_config(llama + "6144\n"), built_plugins()).notes == notes);
  CHECK(make_setup(built_config("[model]\nplugin = \"mamba\"\npreset = \"tiny\"\n[train]\nsequence_length = 6144\n"),
                   built_plugins())
            .notes.empty());
}
