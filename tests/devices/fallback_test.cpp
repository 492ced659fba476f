// SPDX-License-Identifier: Apache-2.0
// A device that leaves the ops it has no kernel for to the cpu: the one that `engine plugins new --kind device` writes.
#include <catch2/catch.hpp>

#include "engine/ops.h"
#include "session/plugins/search.hpp"
#include "train.hpp"

using Catch::Contains;

namespace {

std::unique_ptr<eng::Registry> found(const std::vector<std::string>& files) {
  eng::PluginSearch search;
  for (const std::string& file : files) search.extra.push_back(file);
  search.environment = false;
  return eng::find_plugins(search);
}

const std::string the_cpu = std::string(ENGINE_PLUGIN_DIR) + "/cpu/cpu.eng.so";

eng::Call added(int32_t dtype) {
  const eng_desc d = eng::make_desc(dtype, {3});
  return {&eng::op(ENG_OP_ADD), {d, d}, {d}, {}};
}

}  // namespace

TEST_CASE("what a device has no kernel for is served by its fallback") {
  const auto registry = found({MY_THING, the_cpu});
  const eng::Kernels kernels(*registry, "my_thing", eng::Section());
  REQUIRE(kernels.fallback());
  CHECK(kernels.fallback()->device() == "cpu");
  const eng::Call f32 = added(ENG_F32), bf16 = added(ENG_BF16);
  CHECK(&kernels.serving(f32) == &kernels);
  CHECK(&kernels.serving(bf16) == kernels.fallback());  // its own kernel refuses the type
  CHECK(kernels.find(bf16).launch == kernels.fallback()->find(bf16).launch);
  CHECK(kernels.find(f32).launch != kernels.fallback()->find(f32).launch);
  CHECK(kernels.info().overhead_bytes == kernels.fallback()->info().overhead_bytes);
  eng::Call unknown = f32;
  const eng::Op op{"org.example.nothing/1", 1, 1, {}};
  unknown.op = &op;
  CHECK_THROWS_WITH(kernels.find(unknown), Contains("device cpu has no kernel for org.example.nothing/1"));
  // The number of threads is that of the device itself.
  const eng::Section three("device", {{"threads", {int64_t{3}, "command line", true}}});
  CHECK(eng::Kernels(*registry, "my_thing", three).fallback()->info().parallel == 3);
}

TEST_CASE("a fallback that cannot be is refused with its reason") {
  const auto alone = found({MY_THING}), leaves = found({LEAVES, the_cpu});
  CHECK_THROWS_WITH(eng::Kernels(*alone, "my_thing", eng::Section()),
                    Contains("device my_thing leaves ops to device cpu, which no plugin provides"));
  CHECK_THROWS_WITH(eng::Kernels(*leaves, "ring", eng::Section()),
                    Contains("device ring leaves ops to device chain, which leaves ops to another"));
  CHECK_THROWS_WITH(eng::Kernels(*leaves, "apart", eng::Section()),
                    Contains("device apart leaves ops to cpu: both need memory of the host"));
}

TEST_CASE("a run on a device with a fallback has the bits of a run on that") {
  for (const devices::Model& model :
       {devices::Model{"llama", 1, 2}, devices::Model{"opt", 2, 1}, devices::Model{"mamba", 1, 1}}) {
    devices::On cpu, mine;
    mine.device = "my_thing";
    if (model.ranks > 1) cpu.strategy = mine.strategy = "zero3";
    if (model.name == "llama") mine.offload = "optimizer = 'host'\n";
    INFO(devices::describe(model, mine));
    CHECK(devices::difference(devices::Training(model, cpu).run(), devices::Training(model, mine).run()) == "");
  }
}

TEST_CASE("a plan says which ops are left to another device") {
  devices::On mine;
  mine.device = "my_thing";
  const devices::Model model;
  const auto notes = [&](const devices::On& on) {
    std::string all;
    for (const std::string& note :
         eng::make_setup(devices::config(model, on), devices::registry(), 0, {0, 1, 0, 1}).notes)
      all += note + "\n";
    return all;
  };
  CHECK_THAT(notes(mine), Contains("device my_thing leaves ") && Contains(" ops to device cpu: ") &&
                              Contains("eng.attention/1") && !Contains("eng.add/1"));
  CHECK_THAT(notes({}), !Contains("leaves"));
}
