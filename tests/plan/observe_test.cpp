// SPDX-License-Identifier: Apache-2.0
// Observers in a plan: which sites they are shown, where their results go, and their faults by name.
#include <catch2/catch.hpp>

#include "core/plan/plan.hpp"
#include "core/program/program.hpp"
#include "sketch.hpp"

using namespace sketch;
using Catch::Contains;

namespace observe_test {
namespace {

constexpr int64_t B = 2, T = 3, H = 4, V = 8;

// An observer as two functions.
struct Probe {
  std::function<std::vector<eng_result>(const eng_site&)> results = [](const eng_site&) {
    return std::vector<eng_result>{{"x", ENG_COMBINE_SUM, 0}};
  };
  std::function<void(eng_build*, const eng_site&, eng_id* out)> observe;
  eng_status status = ENG_OK;

  eng::Observer observer() {
    eng_observer table{};
    table.struct_size = sizeof table;
    table.results = [](void* self, const eng_site* site, eng_result* out, uint32_t cap, uint32_t* n, eng_error*) {
      const auto all = static_cast<Probe*>(self)->results(*site);
      for (size_t k = 0; k < all.size() && k < cap; ++k) out[k] = all[k];
      *n = static_cast<uint32_t>(all.size());
      return eng_status{ENG_OK};
    };
    table.observe = [](void* self, eng_build* b, const eng_site* site, eng_id* out, uint32_t, eng_error* error) {
      Probe& probe = *static_cast<Probe*>(self);
      if (probe.status != ENG_OK) return eng::report(error, probe.status, "not on Sundays");
      probe.observe(b, *site, out);
      return eng_status{ENG_OK};  // whatever the builder says
    };
    return {"probe", table, std::shared_ptr<void>(this, [](void*) {})};
  }
};

struct Chain : Sketch {
  Chain() {
    param("table", {V, H}), param("w", {H, H}), param("head", {V, H});
    blocks = {{"embed", 0, {0}}, {"layer", 1, {1}}, {"head", 2, {2}}};
    trace = [](eng_build* b, uint32_t tmpl, const eng_id* p, const std::vector<eng_id>& in) {
      if (tmpl == 0) return std::vector{eng_embedding(b, batch(b, "tokens"), p[0])};
      if (tmpl == 1) return std::vector{eng_linear(b, in[0], p[0], 0)};
      return std::vector{eng_cross_entropy(b, in[0], p[0], batch(b, "labels"))};
    };
  }
};

eng::Plan plan(const std::vector<eng::Observer>& observers, uint32_t accumulate = 1) {
  const Chain chain;
  const eng::Model model = chain.model(B, T, ENG_F32);
  const eng::Precision precision = OneDtype{ENG_F32}.policy();
  eng::PlanRequest request{model, precision, nullptr, "cpu", {}};
  request.accumulate = accumulate;
  request.observers = observers;
  return eng::make_plan(request);
}

std::string fault(Probe& probe) {
  try {
    plan({probe.observer()});
    return "";
  } catch (const eng::Error& e) {
    return e.what();
  }
}

// A sum of some element, as a sound observer gives it.
void first_element(eng_build* b, const eng_site& site, eng_id* out) {
  b->api->slice(b, site.value, 0, 1, out, nullptr);
}

}  // namespace

TEST_CASE("an observer is shown every site of a step, and its results have a place each") {
  Probe probe;
  std::vector<std::string> shown;
  probe.results = [](const eng_site& site) {
    CHECK((site.value == 0 && site.n_ranges == 0));
    static std::string name;
    name = std::to_string(site.what) + "." + site.block;
    return std::vector<eng_result>{{name.c_str(), ENG_COMBINE_SUM, 0}};
  };
  probe.observe = [&](eng_build* b, const eng_site& site, eng_id* out) {
    eng_desc desc{};
    b->api->shape(b, site.value, &desc, nullptr);
    std::string parameters;
    for (uint32_t k = 0; k < site.n_ranges; ++k) parameters += std::string(" ") + site.ranges[k].name;
    shown.push_back(std::to_string(site.what) + " " + site.block + " " + eng::describe(desc) + parameters);
    first_element(b, site, out);
  };
  const eng::Plan watched = plan({probe.observer()}, 2);
  CHECK(shown == std::vector<std::string>{"1 embed f32 (2, 3, 4)", "1 layer f32 (2, 3, 4)",  // the first micro-batch
                                          "1 embed f32 (2, 3, 4)", "1 layer f32 (2, 3, 4)",  // the rest
                                          "2 embed f32 (4096) table", "2 layer f32 (4096) w", "2 head f32 (4096) head",
                                          "5  f32 (32)"});
  CHECK((watched.row == 3 && watched.once == 4));  // the loss, two blocks; three gradients, the scalars
  REQUIRE(watched.observed.size() == 6);
  CHECK(watched.observed[0].name == "probe.1.embed");
  CHECK(watched.observed[0].rows == std::vector<uint32_t>{1});
  CHECK(watched.observed[5].once == std::vector<uint32_t>{3});
  CHECK(eng::count(watched.losses.desc) == 2 * 3 + 4);
}

TEST_CASE("an observer that wants nothing leaves the program as it is") {
  Probe probe;
  probe.results = [](const eng_site&) { return std::vector<eng_result>(); };
  const auto ops = [](const eng::Plan& plan) {
    std::vector<std::string> out;
    for (const auto& program : plan.programs)
      for (const auto& segment : program.segments)
        for (const auto& action : segment.actions) out.push_back(plan.calls[action.call].op->id);
    return out;
  };
  CHECK(ops(plan({probe.observer()})) == ops(plan({})));
}

TEST_CASE("the faults of observers are told by name") {
  Probe probe;
  probe.observe = first_element;
  CHECK(fault(probe) == "");
  const auto says = [&](auto observe, const char* text) {
    probe.observe = observe;
    CHECK_THAT(fault(probe), Contains(text));
  };
  using Site = const eng_site&;
  const eng_attr zero = {"factor", 0, 0};
  says(
      [&](eng_build* b, Site site, eng_id*) {
        eng_id out = site.value;
        b->api->emit(b, ENG_OP_SCALE, &site.value, 1, &out, 1, &zero, 1, nullptr);
      },
      "observer probe, an activation of embed: eng.scale/1: output 0 is a value that may only be read");
  says(
      [&](eng_build* b, Site site, eng_id*) {
        eng_id out = site.scalars;
        b->api->emit(b, ENG_OP_SCALE, &site.scalars, 1, &out, 1, &zero, 1, nullptr);
      },
      "output 0 is a value that may only be read");
  says(
      [&](eng_build* b, Site site, eng_id* out) {  // a part of it is no more its own
        eng_id part = 0;
        b->api->slice(b, site.value, 0, 1, &part, nullptr);
        *out = part;
        b->api->emit(b, ENG_OP_SCALE, &part, 1, out, 1, &zero, 1, nullptr);
      },
      "output 0 is a value that may only be read");
  says([](eng_build*, Site, eng_id*) {}, "observer probe, an activation of embed: it gives no result x");
  says([](eng_build*, Site site, eng_id* out) { *out = site.value; },
       "its result x is f32 (2, 3, 4), it must be f32 (1)");
  says([](eng_build*, Site, eng_id* out) { *out = 99; }, "no such value");
  says(
      [](eng_build* b, Site site, eng_id* out) {
        const eng_attr group = {"group", 1, 0};
        b->api->emit(b, ENG_OP_ALL_REDUCE, &site.value, 1, out, 1, &group, 1, nullptr);
      },
      "eng.all_reduce/1: there is one rank");
  says([](eng_build* b, Site, eng_id* out) { b->api->group(b, nullptr, 0, out, nullptr); },
       "making a group is not allowed in this phase");
  says([](eng_build* b, Site site,
          eng_id* out) { b->api->emit(b, "org.example.nothing/1", &site.value, 1, out, 1, nullptr, 0, nullptr); },
       "observer probe, an activation of embed: unknown op org.example.nothing/1");
  probe.status = ENG_UNSUPPORTED;
  CHECK_THAT(fault(probe), Contains("observer probe, an activation of embed: not on Sundays"));
  probe.status = ENG_OK, probe.observe = first_element;

  const auto gives = [&](std::vector<eng_result> results, const char* text) {
    probe.results = [results](const eng_site&) { return results; };
    CHECK_THAT(fault(probe), Contains(text));
  };
  gives({{"", ENG_COMBINE_SUM, 0}}, "the name of result 0 is ``");
  gives({{nullptr, ENG_COMBINE_SUM, 0}}, "the name of result 0 is ``");
  gives({{"a\"b", ENG_COMBINE_SUM, 0}}, "not 1 to 200 characters without quotes");
  gives({{"a", 0, 0}}, "result a is combined in the unknown way 0");
  gives({{"a", ENG_COMBINE_SUM, 0}, {"a", ENG_COMBINE_MAX, 0}}, "it combines the results probe.a in two ways");
  gives(std::vector<eng_result>(17, {"a", ENG_COMBINE_SUM, 0}), "it has 17 results; the limit is 16");
}

}  // namespace observe_test
