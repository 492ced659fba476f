// SPDX-License-Identifier: Apache-2.0
// [device] tune of cuda.eng.so as it ships, on the software cuBLASLt (emulated): the fastest allowed algorithm is
// taken, and what was chosen is taken again without measuring.
#include <catch2/catch.hpp>

#include "run.hpp"

using namespace cuda_test;
using Catch::Contains;

namespace {

// The product of all cases: cuBLASLt proposes first to divide K into parts, then not to.
Use product() {
  Random random(1);
  return linear(random, ENG_BF16, 24, 40, 512, true);
}

// Runs it tuned. `choices`: given to the device if not empty, then what the device says.
uint32_t parts(const std::string& slow, std::string& choices) {
  const Machine machine(Variables{{"SOFTCUBLAS_SLOW", slow}});
  How how;
  how.choices = &choices;
  check_close(product(), 2e-6, how);
  return software_blas_last().parts;
}

}  // namespace

TEST_CASE("tune: the fastest of the allowed algorithms is taken") {
  std::string slow_parts, slow_whole;
  CHECK(parts("parts", slow_parts) == 1);
  CHECK(parts("whole", slow_whole) == 4);
  CHECK(slow_parts != slow_whole);
  CHECK_THAT(slow_parts, Contains("cuBLASLt ") && Contains("24 x 40 x 512 tb bias, a bf16 aligned to 256"));
}

TEST_CASE("tune: what was chosen is taken again, and nothing is measured") {
  std::string choices;
  REQUIRE(parts("parts", choices) == 1);
  const std::string first = choices;
  const Count count;
  CHECK(parts("whole", choices) == 1);
  CHECK(choices == first);
  CHECK(count() == 1);  // the product itself
}

TEST_CASE("tune: a call that the choices do not name is decided from the call alone") {
  std::string choices;
  REQUIRE(parts("parts", choices) == 1);
  Random random(2);
  How how;
  how.choices = &choices;
  const Machine machine(Variables{{"SOFTCUBLAS_SLOW", "parts"}});
  const Count count;
  check_close(linear(random, ENG_BF16, 32, 40, 512, true), 2e-6, how);
  CHECK(count() == 1);
  CHECK(software_blas_last().parts == 4);
}

TEST_CASE("tune: measuring leaves no memory, stream or event behind") {
  const Machine machine;
  std::string choices;
  How how;
  how.choices = &choices;
  run(product(), how);
  CHECK(software_cuda_bytes(0) == 0);
}

TEST_CASE("tune: choices of another GPU, of another cuBLASLt, or damaged ones are refused by name") {
  std::string choices;
  REQUIRE(parts("parts", choices) == 1);
  const auto refused = [](std::string text, const std::string& card = "a100-80g") {
    const Machine machine(Variables{{"SOFTCUDA_CARD", card}});
    How how;
    how.choices = &text;
    try {
      run(product(), how);
    } catch (const std::runtime_error& e) {
      return std::string(e.what());
    }
    return std::string("taken");
  };
  const std::string there = [] {
    const Machine machine(Variables{{"SOFTCUDA_CARD", "a100-80g"}});
    std::string text;
    How how;
    how.choices = &text;
    run(product(), how);
    return text;
  }();
  CHECK(refused(there) == "taken");
  CHECK_THAT(refused(there, "h200"), Contains("were measured by cuBLASLt") && Contains("sm_80") &&
                                         Contains("here is") && Contains("set device.tune = false"));
  std::string other = there;
  other.replace(0, other.find(" on "), "cuBLASLt 1");
  CHECK_THAT(refused(other), Contains("were measured by cuBLASLt 1 on"));
  CHECK_THAT(refused(there.substr(0, there.size() - 5) + "\n"), Contains("is not one of this cuBLASLt"));
  std::string flipped = there;
  flipped[flipped.rfind('=') + 3] ^= 1;
  CHECK_THAT(refused(flipped), Contains("the measured algorithm of product 24 x 40 x 512"));
  CHECK_THAT(refused(there + "nonsense\n"), Contains("lacks ` = `: nonsense"));
}
