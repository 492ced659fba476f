// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <cmath>

#include "engine/ops.h"
#include "engine/optimizer.h"
#include "fake_build.hpp"
#include "plugin_file.hpp"

using namespace models;

namespace {

constexpr eng_id master = 1001;  // the first value of a FakeBuild

const PluginFile& optim() {
  static const PluginFile plugin("optim");
  return plugin;
}

struct Made {
  Made(const std::string& name, const Values& given = {})
      : table(optim().table<eng_optimizer>(ENG_OPTIMIZER_KIND, name)) {
    const FakeOptions options(optim(), name, given);
    if (table.create(&options, &self, &error) != ENG_OK) self = nullptr;
  }
  Made(const Made&) = delete;
  ~Made() {
    if (self) table.destroy(self);
  }
  std::vector<eng_state_rule> states() {
    eng_state_rule out[8];
    uint32_t n = 99;
    REQUIRE(table.states(self, out, 8, &n, nullptr) == ENG_OK);
    return {out, out + n};
  }
  std::vector<float> scalars(uint64_t k) {
    float out[7];
    uint32_t n = 99;
    REQUIRE(table.scalars(self, k, out, 7, &n, nullptr) == ENG_OK);
    return {out, out + n};
  }
  Emitted update(uint32_t flags, const std::vector<eng_id>& states) {
    FakeBuild b;
    b.compute = false;
    REQUIRE(b.add({{ENG_F32, 1, {8}}, {}}) == master);
    const eng_update run = {sizeof(eng_update),
                            flags,
                            master,
                            11,
                            0,
                            12,
                            states.data(),
                            static_cast<uint32_t>(states.size()),
                            0,
                            nullptr,
                            0,
                            0,
                            0};
    REQUIRE(table.update(self, &b, &run, nullptr) == ENG_OK);
    REQUIRE(b.emitted.size() == 1);
    return b.emitted[0];
  }
  const eng_optimizer& table;
  void* self = nullptr;
  ErrorText error;
};

}  // namespace

TEST_CASE("adamw: bias corrections of every update") {
  Made adamw("adamw", {{"beta1", 0.9}, {"beta2", 0.999}});
  REQUIRE(adamw.self);
  // The powers by repeated multiplication in long double.
  long double p1 = 1.0L, p2 = 1.0L;
  for (uint64_t k = 1; k <= 3000; ++k) {
    p1 *= 0.9L, p2 *= 0.999L;
    const std::vector<float> s = adamw.scalars(k);
    REQUIRE(s.size() == 2);
    REQUIRE(std::abs(s[0] - (1.0L - p1)) <= 6.1e-8L * (1.0L - p1));
    REQUIRE(std::abs(s[1] - std::sqrt(1.0L - p2)) <= 6.1e-8L * std::sqrt(1.0L - p2));
  }
  CHECK(adamw.scalars(uint64_t{1} << 40) == std::vector<float>{1.0f, 1.0f});
}

TEST_CASE("adamw: states, operands and hyper-parameters") {
  Made adamw("adamw");
  REQUIRE(adamw.self);
  CHECK(adamw.table.granularity == 1);
  const auto states = adamw.states();
  REQUIRE(states.size() == 2);
  CHECK(std::string(states[0].name) == "exp_avg");
  CHECK(std::string(states[1].name) == "exp_avg_sq");
  CHECK(states[0].dtype == ENG_F32);
  const Emitted op = adamw.update(0, {20, 21});
  CHECK(op.op == ENG_OP_ADAMW);
  CHECK(op.in == std::vector<eng_id>{master, 11, 20, 21, 12});
  CHECK(op.out == std::vector<eng_id>{master, 20, 21});
  CHECK(op.attrs.at("beta1").f == 0.9);
  CHECK(op.attrs.at("beta2").f == 0.95);
  CHECK(op.attrs.at("eps").f == 1e-8);
  CHECK(op.attrs.at("weight_decay").f == 0.1);
  CHECK(adamw.update(ENG_PARAM_NO_DECAY, {20, 21}).attrs.at("weight_decay").f == 0.0);
}

TEST_CASE("sgd: a state only with momentum") {
  Made plain("sgd"), heavy("sgd", {{"momentum", 0.9}, {"nesterov", true}, {"weight_decay", 0.01}});
  REQUIRE(plain.self);
  REQUIRE(heavy.self);
  CHECK(plain.states().empty());
  REQUIRE(heavy.states().size() == 1);
  CHECK(heavy.scalars(1) == std::vector<float>{1.0f});
  CHECK(heavy.scalars(2) == std::vector<float>{0.0f});
  const Emitted a = plain.update(0, {}), b = heavy.update(0, {20});
  CHECK(a.op == ENG_OP_SGD);
  CHECK(a.in == std::vector<eng_id>{master, 11, 0, 12});
  CHECK(a.out == std::vector<eng_id>{master});
  CHECK(b.in == std::vector<eng_id>{master, 11, 20, 12});
  CHECK(b.out == std::vector<eng_id>{master, 20});
  CHECK(b.attrs.at("momentum").f == 0.9);
  CHECK(b.attrs.at("nesterov").i == 1);
  CHECK(b.attrs.at("weight_decay").f == 0.01);
  CHECK(heavy.update(ENG_PARAM_NO_DECAY, {20}).attrs.at("weight_decay").f == 0.0);
}

TEST_CASE("optimizers refuse what they cannot do") {
  const std::tuple<const char*, Values, const char*> cases[] = {
      {"adamw", {{"beta1", 1.0}}, "beta1"},      {"adamw", {{"beta2", -0.1}}, "beta2"},
      {"adamw", {{"eps", std::nan("")}}, "eps"}, {"adamw", {{"weight_decay", HUGE_VAL}}, "weight_decay"},
      {"sgd", {{"momentum", 1.5}}, "momentum"},  {"sgd", {{"nesterov", true}}, "nesterov needs momentum"}};
  for (const auto& [name, options, words] : cases) {
    Made made(name, options);
    INFO(words);
    CHECK_FALSE(made.self);
    CHECK(made.error.code == ENG_INVALID);
    CHECK_THAT(made.error.text, Catch::Contains(words));
  }
  Made adamw("adamw");
  uint32_t n = 99;
  float one[1];
  CHECK(adamw.table.scalars(adamw.self, 1, one, 1, &n, nullptr) == ENG_OUT_OF_RANGE);
  CHECK(adamw.table.scalars(adamw.self, 0, one, 7, &n, nullptr) == ENG_INVALID);
  eng_state_rule room[1];
  CHECK(adamw.table.states(adamw.self, room, 1, &n, nullptr) == ENG_OUT_OF_RANGE);
  CHECK(n == 99);
  FakeBuild b;
  b.compute = false;
  const eng_id states[2] = {20, 21};
  const eng_update bare = {sizeof(eng_update), 0, 10, 11, 0, 12, states, 1, 0, nullptr, 0, 0, 0};
  CHECK(adamw.table.update(adamw.self, &b, &bare, nullptr) == ENG_INVALID);
  CHECK(b.emitted.empty());
}
