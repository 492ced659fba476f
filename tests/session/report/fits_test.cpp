// SPDX-License-Identifier: Apache-2.0
// The needs of a plan beside its arenas, and those of the ranks of a machine together.
#include "session/planning/fits.hpp"

#include <catch2/catch.hpp>

#include "session/planning/bookkeeping.hpp"
#include "session/report/context.hpp"
#include "tests/session/report/planned.hpp"

namespace fits_test {

using namespace planned;

TEST_CASE("ranks of one machine share its memory") {
  const Words more = {"train.micro_batch=4"};
  const uint64_t here = eng::machine_peak(setup_of("tiny", "none", 8, more));
  const eng::Setup together = eng::make_setup(config_of("tiny", "none", more), plugins(), 0, {0, 8, 0, 8});
  constexpr uint64_t shared = 115'000;  // of a rank with each other one of its machine beyond the second
  CHECK(eng::machine_peak(together) == 8 * (here + 6 * shared));
}

TEST_CASE("what a plan needs does not depend on whether it will run") {
  const auto need = [](bool runs, const char* length) {
    const eng::Config config = config_of("tiny", "none", {"train.sequence_length=" + std::string(length)});
    const eng::Setup setup = runs ? eng::make_setup(config, plugins()) : eng::make_plan_only(config, plugins());
    REQUIRE(setup.plan.constant_data.size() == 1);
    CHECK(setup.plan.constant_data[0]->data.empty() == !runs);
    return eng::bookkeeping_bytes(setup.plan, setup.model);
  };
  const uint64_t shorter = need(true, "16"), longer = need(true, "65536");
  CHECK(need(false, "16") == shorter);
  CHECK(need(false, "65536") == longer);
  // The table of rotations (T, 32), once.
  CHECK(longer - shorter == uint64_t{65536 - 16} * 32 * 4);
}

TEST_CASE("fits: the best checkpoint is counted beside the newest") {
  const auto kept = [](Words more) {
    const eng::Config config = config_of("tiny", "none", std::move(more));
    return eng::report_context(eng::make_setup(config, plugins()), config).checkpoints;
  };
  CHECK(kept({"checkpoint.keep=3"}) == 3);
  CHECK(kept({"checkpoint.keep=3", "checkpoint.best=true", "train.eval_every=10"}) == 4);
  CHECK(kept({"checkpoint.keep=0", "checkpoint.best=true", "train.eval_every=10"}) == 0);  // all are kept
}

}  // namespace fits_test
