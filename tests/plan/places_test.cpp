// SPDX-License-Identifier: Apache-2.0
// States that live at another place than the device's own memory.
#include <catch2/catch.hpp>

#include "core/plan/moves.hpp"
#include "engine/ops.h"
#include "session/config/config.hpp"
#include "session/config/schemas.hpp"
#include "session/planning/setup.hpp"
#include "sketch.hpp"

using namespace eng;

TEST_CASE("a weight that lives in another memory is copied to the device for a use") {
  const Config config =
      Config::parse("[model]\nplugin = 'llama'\npreset = 'tiny'\n[train]\nmicro_batch = 1\nsequence_length = 8\n",
                    "test.toml", ".", {"device.plugin=reference"}, schemas_of(sketch::registry()));
  const Setup setup = make_setup(config, sketch::registry(), 0, {});
  PlanRequest request{setup.model, setup.precision, nullptr, "reference", [](const Call&) { return uint64_t{0}; }};
  request.traits.discrete = true;
  Plan plan;
  plan.ranks = request.ranks;
  plan.arenas = {{"reference"}, {"reference", "pinned"}};
  plan.labels.push_back({});
  Emitter emitter(plan, request.workspace);
  const Homes homes(request, plan, emitter);
  const OwnTensors own(request, plan, emitter, homes);
  Moves moves(request, plan, emitter, homes, own);
  emitter.begin_program("test");
  emitter.begin_segment("test", 1);
  Leases leases(emitter);
  const eng_desc desc = flat(ENG_F32, homes.unit(0).count);
  Home home{emitter.persistent("elsewhere", Line::weights, desc, true, 1)};
  home.place = 1;
  const View whole = moves.gather(leases, "lease", Line::leases, ENG_ROLE_WEIGHT, 0, home);
  CHECK(plan.buffer(whole.buffer).arena == 0);
  REQUIRE(emitter.segment().actions.size() == 1);
  const Action& copy = emitter.segment().actions[0];
  CHECK(plan.calls[copy.call].op->id == std::string(ENG_OP_COPY));
  CHECK(copy.in[0].buffer == home.view.buffer);
  CHECK(written(emitter.segment(), 0, whole) == Written::all);
  // Narrower than it is used, it is copied first, and then converted by the policy, which here has nothing to convert.
  home.view = emitter.persistent("narrow", Line::weights, flat(ENG_BF16, desc.dims[0]), true, 1);
  leases.release({ENG_ROLE_WEIGHT, 0});
  CHECK_THROWS_WITH(moves.gather(leases, "lease", Line::leases, ENG_ROLE_WEIGHT, 0, home, ENG_F32),
                    Catch::Contains("precision fp32: "));
  CHECK(emitter.segment().actions.size() == 2);
}
