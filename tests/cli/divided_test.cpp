// SPDX-License-Identifier: Apache-2.0
// [parallel] tensor beside what does not go with it.
#include "harness.hpp"

using namespace cli;

TEST_CASE("divided layers refuse sums that keep what they leave out", "[cli]") {
  Scratch scratch;
  scratch.config();
  const Args words = {"plan", "config.toml", "--ranks", "4", "parallel.tensor=2"};
  Args narrow = words;
  narrow.push_back("zero.sum=bf16");
  CHECK(engine(scratch, words).exit == 0);
  const Result refused = engine(scratch, narrow);
  INFO(refused.err);
  CHECK(refused.exit == 2);
  CHECK(has(refused.err, "ranks that divide a layer (parallel.tensor = 2)"));
  CHECK(has(refused.err, "leave zero.sum out"));
  narrow[4] = "parallel.tensor=1";
  CHECK(engine(scratch, narrow).exit == 0);
}
