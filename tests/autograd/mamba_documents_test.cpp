// SPDX-License-Identifier: Apache-2.0
// The gradient rules of Mamba's ops pass segments on, and a running sequence refuses them.
#include <catch2/catch.hpp>

#include "engine/op.h"
#include "tests/trace/gradient_check.hpp"

using namespace sketch;

namespace mamba_documents_model {
namespace {

constexpr int64_t B = 2, T = 5, E = 3, N = 2, V = 4;

// Convolution and scan in one block. Which of them is told of the documents.
Sketch sketch_of(bool conv, bool scan, bool projected) {
  static const auto ops = [] {
    const auto table = registry().table<eng_ops>(ENG_OPS_KIND, "mamba");
    eng::load_ops(registry());
    return table;
  }();
  (void)ops;
  Sketch s;
  s.param("table", {V, E}), s.param("head", {V, E});
  s.param("conv", {E, 1, 3}), s.param("bias", {E}), s.param("a_log", {E, N}), s.param("bc", {2 * N, E});
  s.param("d", {E}), s.param("dt_bias", {E}), s.param("dt", {2, E}), s.param("w", {E, 2});
  s.blocks = {{"embed", 0, {0}}, {"layer", 1, {2, 3, 4, 5, 6, 7, 8, 9}}, {"head", 2, {1}}};
  s.trace = [=](eng_build* b, uint32_t tmpl, const eng_id* p, const std::vector<eng_id>& in) {
    if (tmpl == 0) return std::vector{eng_embedding(b, batch(b, "tokens"), p[0])};
    if (tmpl == 2) return std::vector{eng_cross_entropy(b, in[0], p[0], batch(b, "labels"))};
    const eng_desc desc = {ENG_I32, 2, {B, T}};
    const int32_t data[B * T] = {4, 1, 1, 1, 4, 0, 0, 0, 1, 1};
    eng_id segments = 0;
    b->api->constant(b, &desc, data, &segments, nullptr);
    const eng_id taps[4] = {in[0], p[0], p[1], segments};
    const eng_id u = eng_emit1(b, "eng.mamba.causal_conv1d/1", taps, conv ? 4 : 3, nullptr, 0);
    const eng_id low = eng_linear(b, u, p[6], 0), delta = eng_linear(b, low, p[7], 0), bc = eng_linear(b, u, p[3], 0);
    const eng_id all[10] = {u, delta, p[2], bc, p[4], p[5], in[0], projected ? low : 0, projected ? p[7] : 0, segments};
    eng_id y[2] = {0, 0};
    b->api->emit(b, "eng.mamba.selective_scan/1", all, scan ? 10 : 9, y, 2, nullptr, 0, nullptr);
    return std::vector{eng_add(b, y[0], in[0])};
  };
  return s;
}

// Drops the last input of the first backward node that runs `op`.
void forget(eng::Model& m, const std::string& op) {
  eng::Template& t = m.templates[1];
  for (size_t n = t.forward; n < t.graph.nodes.size(); ++n)
    if (op == t.graph.nodes[n].op->id) return t.graph.nodes[n].in.pop_back();
  throw std::runtime_error("no such node");
}

}  // namespace

TEST_CASE("gradients of a Mamba with several documents in a sample are those of differences") {
  for (const bool projected : {false, true}) {
    const Sketch sketch = sketch_of(true, true, projected);
    Checked checked(sketch, B, T, V);
    double loss = 0;
    const Values ours = checked.gradients(&loss), theirs = checked.differences();
    CHECK(loss == Approx(checked.loss()).epsilon(1e-12));
    std::string worst;
    const double error = distance(ours, theirs, &worst);
    INFO("worst: " << worst);
    CHECK(error < 1e-6);
    // A gradient rule that does not pass segments on is seen.
    for (const char* op : {"eng.mamba.causal_conv1d_grad/1", "eng.mamba.selective_scan_grad/1"}) {
      INFO(op);
      Checked faulty(sketch, B, T, V, 1, [&](eng::Model& m) { forget(m, op); });
      CHECK(distance(faulty.gradients(), theirs) > 1e-4);
    }
    // Each op does something.
    const double of_all = checked.loss();
    for (const bool conv : {false, true}) {
      const Sketch other = sketch_of(conv, !conv, projected);
      CHECK(std::fabs(Checked(other, B, T, V).loss() - of_all) > 1e-5);
    }
  }
}

TEST_CASE("a Mamba that is told of documents has no next position") {
  const auto generate = [](bool conv, bool scan) {
    const Sketch sketch = sketch_of(conv, scan, true);
    Checked(sketch, B, T, V, 1, {}, true);
  };
  CHECK_NOTHROW(generate(false, false));
  CHECK_THROWS_WITH(generate(true, false), Catch::Contains("eng.mamba.causal_conv1d/1, step") &&
                                               Catch::Contains("a running sequence is one document"));
  CHECK_THROWS_WITH(generate(false, true), Catch::Contains("eng.mamba.selective_scan/1, step") &&
                                               Catch::Contains("a running sequence is one document"));
}

}  // namespace mamba_documents_model
