// SPDX-License-Identifier: Apache-2.0
// [parallel] tensor beside sums that keep what they leave out.
#include "harness.hpp"

using namespace cli;

TEST_CASE("a plan counts what sums of divided layers leave out", "[cli]") {
  Scratch scratch;
  scratch.config();
  const auto residuals = [&](const char* tensor) {
    const Result result = engine(scratch, {"plan", "config.toml", "--ranks", "4", "zero.sum=bf16", tensor});
    INFO(result.err);
    REQUIRE(result.exit == 0);
    const size_t at = result.out.find("residuals");
    REQUIRE(at != std::string::npos);
    return std::stoull(result.out.substr(at + 9));
  };
  const auto whole = residuals("parallel.tensor=1"), half = residuals("parallel.tensor=2");
  CHECK(half < whole);  // norms and padding are no less
  CHECK(2 * half > whole);
}
