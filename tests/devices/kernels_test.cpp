// SPDX-License-Identifier: Apache-2.0
// The plugin whose kernel serves a call of a device.
#include <catch2/catch.hpp>

#include "engine/ops.h"
#include "session/plugins/search.hpp"
#include "train.hpp"

using Catch::Contains;

namespace {

std::unique_ptr<eng::Registry> scan(bool stranger) {
  eng::PluginSearch search;
  search.extra.push_back(std::string(ENGINE_PLUGIN_DIR) + "/cpu/cpu.eng.so");
  if (stranger) search.extra.push_back(F64);
  search.environment = false;
  return eng::find_plugins(search);
}

// The stranger's file is loaded: the run uses it.
void use(eng::Registry& registry) {
  const auto all = registry.providers(ENG_KERNELS_KIND, "cpu");
  REQUIRE(all.size() == 2);
  registry.table_of<eng_kernels>(*all[1], ENG_KERNELS_KIND, "cpu");
}

eng::Call sum(int32_t dtype) {
  const eng_desc d = eng::make_desc(dtype, {3});
  return {&eng::op(ENG_OP_ADD), {d, d}, {d}, {}};
}

}  // namespace

TEST_CASE("what the device's own kernel does not serve is asked of the run's other plugins") {
  const auto registry = scan(true);
  use(*registry);
  const eng::Kernels kernels(*registry, "cpu", eng::Section());
  const eng::Call f32 = sum(ENG_F32), f64 = sum(ENG_F64);
  // Its own comes first.
  CHECK(kernels.find(f32).launch != kernels.find(f64).launch);
  CHECK(kernels.workspace(f64) == 0);
  // And the one that was found computes.
  const eng_kernel& kernel = kernels.find(f64);
  const eng::CallArgs args(f64, 1, &kernels.info());
  void *state = nullptr, *record = nullptr;
  REQUIRE(kernel.prepare(nullptr, args.get(), &state, nullptr) == ENG_OK);
  double a[3] = {1, 2, -1}, b[3] = {1, 1, 1}, out[3] = {};
  DLTensor tensors[3] = {};
  const DLTensor* list[3] = {&tensors[0], &tensors[1], &tensors[2]};
  tensors[0].data = a, tensors[1].data = b, tensors[2].data = out;
  REQUIRE(kernel.bind(state, list, 3, nullptr, &record, nullptr) == ENG_OK);
  const eng_exec exec = {sizeof(eng_exec), 0, nullptr};
  REQUIRE(kernel.launch(record, &exec, nullptr) == ENG_OK);
  CHECK(out[0] == 2);
  CHECK(out[1] == 3);
  CHECK(out[2] == 0);
  kernel.drop_record(record), kernel.drop_state(state);
}

TEST_CASE("who was asked for a kernel in vain is named") {
  const auto both = scan(true), own = scan(false);
  {
    // A plugin that the run does not use is not asked because another one cannot serve.
    const eng::Kernels kernels(*both, "cpu", eng::Section());
    CHECK_THROWS_WITH(kernels.find(sum(ENG_F64)),
                      Contains("device cpu, eng.add/1: ") && !Contains("org.engine.test.f64"));
  }
  use(*both);
  const eng::Kernels kernels(*both, "cpu", eng::Section()), alone(*own, "cpu", eng::Section());
  CHECK_THROWS_WITH(kernels.find(sum(ENG_I64)), Contains("device cpu, eng.add/1: plugin eng.cpu: ") &&
                                                    Contains("; plugin org.engine.test.f64: sums f64 alone"));
  CHECK_THROWS_WITH(alone.find(sum(ENG_I64)), Contains("device cpu, eng.add/1: ") && !Contains("plugin eng.cpu"));
  eng::Call unknown = sum(ENG_F32);
  const eng::Op op{"org.example.nothing/1", 1, 1, {}};
  unknown.op = &op;
  CHECK_THROWS_WITH(kernels.find(unknown), Contains("device cpu has no kernel for org.example.nothing/1"));
}
