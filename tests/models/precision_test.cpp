// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "engine/policy.h"
#include "plugin_file.hpp"

using namespace models;

TEST_CASE("fp32 places every role but the optimizer's states and touches nothing else") {
  const PluginFile plugin("precision");
  const eng_axis& fp32 = plugin.table<eng_axis>(ENG_PRECISION_KIND, "fp32");
  const FakeOptions options(plugin, "fp32", {});
  void* self = nullptr;
  REQUIRE(fp32.create(&options, nullptr, &self, nullptr) == ENG_OK);
  const eng_unit unit = {sizeof(eng_unit), 1, 0, 0, 4096};
  for (int32_t role :
       {ENG_ROLE_WEIGHT, ENG_ROLE_MASTER, ENG_ROLE_STATE, ENG_ROLE_PARTIAL, ENG_ROLE_GRAD, ENG_ROLE_ACT}) {
    eng_view view = {sizeof(eng_view), ENG_U8, 5, 0, 4096};
    REQUIRE(fp32.place(self, role == ENG_ROLE_ACT ? nullptr : &unit, role, &view, nullptr) == ENG_OK);
    CHECK(view.dtype == (role == ENG_ROLE_STATE ? ENG_U8 : ENG_F32));
    CHECK(view.part == 5);
    CHECK(view.count == 4096);
  }
  ErrorText error;
  const eng_move move = {sizeof(eng_move), ENG_ROLE_WEIGHT, 1, 0, 2, 3, nullptr, nullptr, nullptr, 0, 0};
  CHECK(fp32.move(self, nullptr, &move, &error) == ENG_UNSUPPORTED);
  CHECK_THAT(error.text, Catch::Contains("nothing to convert"));
  fp32.destroy(self);
}

TEST_CASE("a plugin has no table for another kind or name") {
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"llama", "eng.model/1", "llama"}, {"optim", "eng.optimizer/1", "sgd"}, {"precision", "eng.precision/1", "fp32"}};
  for (const auto& [file, kind, name] : cases) {
    const PluginFile plugin(file);
    CHECK(plugin.root().get_interface(kind, name) != nullptr);
    CHECK(plugin.root().get_interface("eng.model/2", name) == nullptr);
    CHECK(plugin.root().get_interface(kind, "other") == nullptr);
  }
}
