// SPDX-License-Identifier: Apache-2.0
// Settings that must not change a number change none if documents are packed and their losses weighted.
#include <catch2/catch.hpp>

#include "draw.hpp"

using namespace equality;

TEST_CASE("packed documents give the same bits under every strategy, recomputed or not", "[packed][.slow]") {
  for (const char* model : {"llama", "opt", "mamba", "mamba2", "hybrid"})
    for (const bool per_step : {false, true}) {
      Group g{.model = model, .accumulate = 2, .reduce_per_step = per_step, .packed = true};
      CAPTURE(describe(g));
      const Result none = train(g, plan(g, {}), {});
      REQUIRE(none.complaint == "");
      for (const char* strategy : {"zero1", "zero2", "zero3", "two_level"})
        for (const char* recompute : {"", "policy = 'full'"}) {
          Draw d{.strategy = strategy, .recompute = recompute};
          if (*recompute) d.offload = "activations = 'host'\n";
          CAPTURE(describe(d));
          const Result same = train(g, plan(g, d), {.seed = 3});
          CHECK(same.complaint == "");
          CHECK(difference(none, same) == "");
        }
      // The numbers are not those of one document in each sample, with losses of equal weight.
      Group whole = g;
      whole.packed = false;
      CHECK(difference(none, train(whole, plan(whole, {}), {})) != "");
    }
}
