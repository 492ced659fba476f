// SPDX-License-Identifier: Apache-2.0
// The values that [recompute] keeps, and their cost, on a model whose every byte can be counted by hand.
#include <catch2/catch.hpp>

#include "core/base/error.hpp"
#include "session/model/recompute.hpp"
#include "tests/trace/gradient_check.hpp"

using namespace sketch;

namespace recompute_test {
namespace {

using Kind = eng::Recompute::Kind;
constexpr int64_t B = 2, T = 8, H = 4, F = 16, V = 5;
constexpr uint64_t wide = B * T * F * 8, narrow = B * T * H * 8,
                   row = B * T * 8;         // bytes in f64: (B, T, F), (B, T, H), (B, T)
constexpr double up = 2.0 * B * T * H * F;  // FLOPs of a product

// Five layers h + down(silu(up(norm(h)))): kept are h, the norm's statistics, and what the activation takes.
Sketch sketch_of() {
  Sketch s;
  const uint32_t table = s.param("table", {V, H});
  s.blocks.push_back({"embed", 0, {table}});
  for (int k = 0; k < 5; ++k) {
    const std::string n = std::to_string(k);
    s.blocks.push_back(
        {"layer." + n, 1, {s.param("norm" + n, {H}), s.param("up" + n, {F, H}), s.param("down" + n, {H, F})}});
  }
  s.blocks.push_back({"head", 2, {s.param("norm", {H}), s.param("head", {V, H})}});
  s.trace = [](eng_build* b, uint32_t tmpl, const eng_id* p, const std::vector<eng_id>& in) {
    if (tmpl == 0) return std::vector<eng_id>{eng_embedding(b, batch(b, "tokens"), p[0])};
    if (tmpl == 2)
      return std::vector<eng_id>{eng_cross_entropy(b, eng_rms_norm(b, in[0], p[0], 1e-5), p[1], batch(b, "labels"))};
    const eng_id x = eng_activation(b, eng_linear(b, eng_rms_norm(b, in[0], p[0], 1e-5), p[1], 0), ENG_ACT_SILU);
    return std::vector<eng_id>{eng_add(b, in[0], eng_linear(b, x, p[2], 0))};
  };
  return s;
}

eng::Model model_with(const eng::Recompute& how) {
  eng::Model model = sketch_of().model(B, T, ENG_F64);
  eng::recompute(model, how);
  return model;
}

std::string refusal(const eng::Recompute& how) {
  try {
    model_with(how);
  } catch (const eng::Error& e) {
    CHECK(e.exit() == eng::Exit::usage);
    return e.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("what is kept, and what is made again, is what the layers' values take") {
  const uint64_t layer = narrow + row + wide, head = 2 * narrow + row;  // the loss takes the norm as it is
  const eng::Kept all = eng::kept(model_with({}));
  CHECK(all.bytes == 5 * layer + head);
  CHECK(all.again == 0);
  const auto same = [](const eng::Recompute& how, uint64_t bytes, double again) {
    const eng::Kept k = eng::kept(model_with(how));
    INFO("kind " << static_cast<int>(how.kind) << ", n " << how.n);
    CHECK(k.bytes == bytes);
    CHECK(k.again == again);
  };
  // The statistics come with the norm that is run again.
  const double norm = eng::kept(model_with({Kind::full})).again / 5 - up;
  CHECK(norm >= 0);
  CHECK(norm < up / 4);
  same({Kind::full}, 5 * narrow + head, 5 * (up + norm));
  same({Kind::every, 2}, 3 * layer + 2 * narrow + head, 2 * (up + norm));
  same({Kind::every, 6}, 5 * layer + head, 0);
  same({Kind::blocks, 5}, 5 * narrow + head, 5 * (up + norm));
  // Runs of three and two layers: all but the last one of each run are gone through again whole.
  const double whole = eng::kept(model_with({Kind::blocks, 2})).again - 2 * (up + norm);
  CHECK(whole >= 3 * 2 * up);
  CHECK(whole < 3 * 2.5 * up);
  CHECK(eng::kept(model_with({Kind::blocks, 2})).bytes == 2 * narrow + head);
  CHECK(eng::kept(model_with({Kind::blocks, 1})).bytes == narrow + head);
  // A budget drops the wide values of as many layers as it takes, not one more.
  same({Kind::budget, all.bytes}, all.bytes, 0);
  CHECK(eng::kept(model_with({Kind::budget, all.bytes - 1})).bytes >= all.bytes - wide - row);
  CHECK(eng::kept(model_with({Kind::budget, all.bytes - 1})).again <= up + norm);
  CHECK(eng::kept(model_with({Kind::budget, all.bytes - 3 * wide})).bytes <= all.bytes - 3 * wide);
  CHECK(eng::kept(model_with({Kind::budget, 5 * narrow + head})).bytes == 5 * narrow + head);
}

TEST_CASE("memory falls by what is no longer kept, and numbers stay") {
  Checked plain(sketch_of(), B, T, V),
      full(sketch_of(), B, T, V, 1, [](eng::Model&m) { eng::recompute(m, {Kind::full}); }),
      runs(sketch_of(), B, T, V, 1, [](eng::Model&m) {
        eng::recompute(m, {Kind::blocks, 2});
      });
  const Values gradients = plain.gradients();
  CHECK((full.gradients() == gradients));
  CHECK((runs.gradients() == gradients));
  // At the peak one layer's values are there: of five, four are saved.
  CHECK(full.plan().arenas[0].total() + 4 * wide <= plain.plan().arenas[0].total());
  CHECK(runs.plan().arenas[0].total() < plain.plan().arenas[0].total());
  CHECK(full.loss() == plain.loss());
  // A wrong value made again is seen.
  for (const char* key : {"eps", "act"}) {
    Checked faulty(sketch_of(), B, T, V, 1, [&](eng::Model& m) {
      eng::recompute(m, {Kind::full});
      eng::Template& t = m.templates.rbegin()->second;
      bool done = false;
      for (size_t n = t.forward; n < t.graph.nodes.size(); ++n)
        for (auto& a : t.graph.nodes[n].attrs.list)
          if (a.key == key && !std::exchange(done, true)) a.i = ENG_ACT_RELU, a.f = 0.1;
      REQUIRE(done);
    });
    CHECK((faulty.gradients() != gradients));
  }
}

TEST_CASE("what cannot be is refused") {
  CHECK(refusal({Kind::blocks, 6}) == "recompute.blocks = 6, but the model has 5 layers");
  CHECK(refusal({Kind::blocks, 5}) == "accepted");
  const uint64_t least = 7 * narrow + row;
  CHECK(refusal({Kind::budget, least}) == "accepted");
  CHECK_THAT(refusal({Kind::budget, least - 1}), Catch::Contains("cannot be met"));
}

}  // namespace recompute_test
