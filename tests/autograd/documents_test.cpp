// SPDX-License-Identifier: Apache-2.0
// A model whose samples hold several documents: its gradients against differences, and what has no next position.
#include <catch2/catch.hpp>

#include "tests/trace/gradient_check.hpp"

using namespace sketch;

namespace documents {
namespace {

constexpr int64_t B = 2, T = 4, H = 4, V = 5;

enum class Numbered { rope, attention, positions };

eng_id numbers(eng_build* b, const std::vector<int32_t>& data) {
  const eng_desc desc = {ENG_I32, 2, {B, T}};
  eng_id id = 0;
  b->api->constant(b, &desc, data.data(), &id, nullptr);
  return id;
}
eng_id segments(eng_build* b) {
  return numbers(b, {4, 1, 1, 4, 0, 0, 0, 1});
}
eng_id positions(eng_build* b) {
  return numbers(b, {0, 0, 1, 0, 0, 1, 2, 0});
}
eng_id angles(eng_build* b) {
  std::vector<float> data;
  for (int64_t t = 0; t < T + 1; ++t)  // one row more than needed
    for (const double phase : {0.0, 1.5707963})
      data.push_back(static_cast<float>(std::cos(0.4 * static_cast<double>(t + 1) - phase)));
  const eng_desc desc = {ENG_F32, 2, {T + 1, 2}};
  eng_id id = 0;
  b->api->constant(b, &desc, data.data(), &id, nullptr);
  return id;
}

// The ops that are told of the documents.
Sketch sketch_of(const std::vector<Numbered>& told) {
  const auto tell = [told](Numbered n) { return std::count(told.begin(), told.end(), n) > 0; };
  Sketch s;
  for (const char* name : {"table", "places", "head"}) s.param(name, {V, H});
  for (const char* name : {"q", "k", "v"}) s.param(name, {H, H});
  s.blocks = {{"embed", 0, {0, 1}}, {"layer", 1, {3, 4, 5}}, {"head", 2, {2}}};
  s.trace = [tell](eng_build* b, uint32_t tmpl, const eng_id* p, const std::vector<eng_id>& in) {
    if (tmpl == 0) {
      const eng_id x = eng_embedding(b, batch(b, "tokens"), p[0]);
      return std::vector{eng_positions_at(b, x, p[1], tell(Numbered::positions) ? positions(b) : 0, 1)};
    }
    if (tmpl == 2) return std::vector{eng_cross_entropy(b, in[0], p[0], batch(b, "labels"))};
    const eng_id at = tell(Numbered::rope) ? positions(b) : 0;
    const eng_id q = eng_rope_at(b, eng_linear(b, in[0], p[0], 0), angles(b), at, 2),
                 k = eng_rope_at(b, eng_linear(b, in[0], p[1], 0), angles(b), at, 2);
    const eng_id in_documents = tell(Numbered::attention) ? segments(b) : 0;
    const eng_id o = eng_attention_in(b, q, k, eng_linear(b, in[0], p[2], 0), in_documents, 2, 2, 0.7);
    return std::vector{eng_add(b, o, in[0])};
  };
  return s;
}

const std::vector<Numbered> all = {Numbered::rope, Numbered::attention, Numbered::positions};

// Drops the last input of the first backward node that runs `op`.
void forget(eng::Model& m, const std::string& op) {
  for (auto& [tmpl, t] : m.templates)
    for (size_t n = t.forward; n < t.graph.nodes.size(); ++n)
      if (op == t.graph.nodes[n].op->id) return t.graph.nodes[n].in.pop_back();
  throw std::runtime_error("no such node");
}

}  // namespace

TEST_CASE("gradients of a model with several documents in a sample are those of differences") {
  const Sketch sketch = sketch_of(all);
  Checked checked(sketch, B, T, V);
  double loss = 0;
  const Values ours = checked.gradients(&loss), theirs = checked.differences();
  CHECK(loss == Approx(checked.loss()).epsilon(1e-12));
  std::string worst;
  const double error = distance(ours, theirs, &worst);
  INFO("worst: " << worst);
  CHECK(error < 1e-6);
  // A gradient rule that does not pass the input on is seen.
  for (const char* op : {ENG_OP_ROPE, ENG_OP_ATTENTION_GRAD, ENG_OP_POSITIONS_GRAD}) {
    INFO(op);
    Checked faulty(sketch, B, T, V, 1, [&](eng::Model& m) { forget(m, op); });
    CHECK(distance(faulty.gradients(), theirs) > 1e-3);
  }
}

TEST_CASE("the losses of the documents of a sample do not depend on each other") {
  const Sketch packed = sketch_of(all);
  Checked whole(packed, B, T, V);
  const auto loss_of = [&](const std::vector<Numbered>& told) {
    const Sketch sketch = sketch_of(told);
    return Checked(sketch, B, T, V).loss();
  };
  const double loss = whole.loss();
  // Tokens of one document change the loss of no other: labels outside of it do not count.
  const std::vector<int32_t> labels = whole.labels(), tokens = whole.tokens();
  const size_t document[] = {1, 2};
  for (size_t k = 0; k < labels.size(); ++k)
    whole.labels()[k] = k == document[0] || k == document[1] ? labels[k] : -100;
  const double inside = whole.loss();
  for (size_t k = 0; k < labels.size(); ++k)
    if (k != document[0] && k != document[1]) whole.tokens()[k] = (tokens[k] + 1) % static_cast<int32_t>(V);
  CHECK(whole.loss() == inside);
  whole.tokens() = tokens;
  for (size_t k = 0; k < labels.size(); ++k)
    whole.labels()[k] = k == document[0] || k == document[1] ? -100 : labels[k];
  CHECK(inside + whole.loss() == Approx(loss).epsilon(1e-12));
  // Each op does something. Rope tells distances, which are the same from wherever a document is counted; it matters
  // where attention crosses borders.
  CHECK(std::fabs(loss_of({Numbered::rope, Numbered::positions}) - loss) > 1e-4);
  CHECK(std::fabs(loss_of({Numbered::rope, Numbered::attention}) - loss) > 1e-4);
  CHECK(loss_of({Numbered::attention, Numbered::positions}) == Approx(loss).epsilon(1e-8));
  CHECK(std::fabs(loss_of({Numbered::rope}) - loss_of({})) > 1e-4);
}

TEST_CASE("a model that is told of documents has no next position") {
  const auto generate = [](const std::vector<Numbered>& told) {
    const Sketch sketch = sketch_of(told);
    Checked(sketch, B, T, V, 1, {}, true);
  };
  CHECK_NOTHROW(generate({}));
  for (const auto& [one, text] : {std::pair{Numbered::rope, "block layer: eng.rope/1: input 2 divides samples"},
                                  {Numbered::attention, "block layer: eng.attention/1: input 3 divides samples"},
                                  {Numbered::positions, "block embed: eng.positions/1: input 3 divides samples"}})
    CHECK_THROWS_WITH(generate({one}), Catch::Contains(text));
}

TEST_CASE("numbers of another shape are refused when the model is traced") {
  const auto traced = [](const auto& emit) {
    Sketch s = sketch_of({});
    s.trace = [emit, before = s.trace](eng_build* b, uint32_t tmpl, const eng_id* p, const std::vector<eng_id>& in) {
      if (tmpl == 1) emit(b, in[0]);
      return before(b, tmpl, p, in);
    };
    s.model(B, T, ENG_F64);
  };
  const auto flat = [](eng_build* b) {
    const eng_desc desc = {ENG_I32, 1, {B * T}};
    const int32_t data[B * T] = {};
    eng_id id = 0;
    b->api->constant(b, &desc, data, &id, nullptr);
    return id;
  };
  CHECK_THROWS_WITH(traced([&](eng_build* b, eng_id x) { eng_rope_at(b, x, angles(b), flat(b), 2); }),
                    Catch::Contains("eng.rope/1: positions must be (B, T) i32"));
  CHECK_THROWS_WITH(traced([&](eng_build* b, eng_id x) { eng_attention_in(b, x, x, x, flat(b), 2, 2, 1.0); }),
                    Catch::Contains("eng.attention/1: segments must be (B, T) i32"));
  CHECK_THROWS_WITH(traced([&](eng_build* b, eng_id x) { eng_positions_at(b, x, x, flat(b), 0); }),
                    Catch::Contains("eng.positions/1: "));
}

}  // namespace documents
