// SPDX-License-Identifier: Apache-2.0
// A model that leaves its loss to the run: the cross-entropy, a z loss, a loss of a plugin, and their faults.
#include <catch2/catch.hpp>

#include "engine/loss.h"
#include "gradient_check.hpp"

using namespace sketch;
using Catch::Contains;

namespace loss_test {
namespace {

constexpr int64_t B = 2, T = 3, H = 4, V = 8;

using Head = std::function<eng_id(eng_build*, eng_id hidden, eng_id weight)>;

eng_id by_hand(eng_build* b, eng_id hidden, eng_id weight) {
  return eng_language_loss(b, hidden, weight, batch(b, "labels"), 0, 0.0);
}

struct Trained : Sketch {
  explicit Trained(Head head = eng_head_loss) {
    param("table", {V, H}), param("w", {H, H}), param("head", {V, H});
    blocks = {{"embed", 0, {0}}, {"layer", 1, {1}}, {"head", 2, {2}}};
    trace = [head = std::move(head)](eng_build* b, uint32_t tmpl, const eng_id* p, const std::vector<eng_id>& in) {
      if (tmpl == 0) return std::vector{eng_embedding(b, batch(b, "tokens"), p[0])};
      if (tmpl == 1) return std::vector{eng_linear(b, in[0], p[0], 0)};
      return std::vector{head(b, in[0], p[0])};
    };
  }
  eng::Error fault() {
    try {
      model(B, T, ENG_F64);
    } catch (const eng::Error& e) {
      return e;
    }
    return {eng::Exit::bug, "no fault"};
  }
};

// A loss as a function.
eng::Loss loss_of(Head head) {
  eng::Loss out;
  out.name = "own", out.self = std::make_shared<Head>(std::move(head));
  out.table.struct_size = sizeof(eng_loss);
  out.table.trace = [](void* self, eng_build* b, eng_id hidden, eng_id weight, eng_id* loss, eng_error* error) {
    *loss = (*static_cast<Head*>(self))(b, hidden, weight);
    return *loss ? eng_status(ENG_OK) : eng::report(error, ENG_INVALID, "the loss gave up");
  };
  return out;
}

// Two cross-entropies of different parts of the logits' slope, one of them a term of weight 0.25.
eng_id two_terms(eng_build* b, eng_id hidden, eng_id weight) {
  const eng_id labels = batch(b, "labels"), loss = eng_cross_entropy(b, hidden, weight, labels);
  b->api->term(b, loss, "plain", 1.0, nullptr);
  b->api->term(b, eng_cross_entropy(b, eng_scale(b, hidden, 0.5), weight, labels), "flat", 0.25, nullptr);
  return loss;
}

}  // namespace

TEST_CASE("the loss of a run without a plugin is the fused cross-entropy") {
  const Trained given, own(by_hand);
  Checked a(given, B, T, V, 2), c(own, B, T, V, 2);
  CHECK(a.gradients() == c.gradients());
  CHECK(a.results() == c.results());
  CHECK(a.plan().terms.empty());
  Checked running(given, B, T, V, 1, {}, true);
  CHECK(running.first_difference(1e-12) == T);
}

TEST_CASE("a model's own term beside the loss of the run: that is a term, too") {
  const Head head = [](eng_build* b, eng_id hidden, eng_id weight) {
    const eng_id loss = eng_head_loss(b, hidden, weight), labels = batch(b, "labels");
    b->api->term(b, eng_cross_entropy(b, eng_scale(b, hidden, 0.5), weight, labels), "mine", 0.25, nullptr);
    return loss;
  };
  const auto names = [](const Checked& checked) {
    std::string out;
    for (const auto& term : checked.plan().terms) out += term.name + " ";
    return out;
  };
  const Trained given(head), two(two_terms);
  Checked a(given, B, T, V, 2), c(two, B, T, V, 2);
  CHECK(names(a) == "cross_entropy mine ");
  CHECK(a.gradients() == c.gradients());
  CHECK(a.results() == c.results());
  Trained plugin(head);
  plugin.loss = loss_of(by_hand);
  CHECK(names(Checked(plugin, B, T, V)) == "loss mine ");
  plugin.loss = loss_of(two_terms);
  CHECK(names(Checked(plugin, B, T, V)) == "plain flat mine ");
}

TEST_CASE("loss.z_loss is the z loss that a model makes itself") {
  Trained given,
      own([](eng_build*b, eng_id x, eng_id w) { return eng_language_loss(b, x, w, batch(b, "labels"), 0, 0.125); });
  given.loss.z_loss = 0.125;
  Checked a(given, B, T, V, 2), c(own, B, T, V, 2);
  CHECK(a.gradients() == c.gradients());
  CHECK(a.results() == c.results());
  REQUIRE(a.plan().terms.size() == 2);
  CHECK(a.plan().terms[1].name == "z_loss");
}

TEST_CASE("a loss of a plugin has the gradient of its differences") {
  Trained given;
  given.loss = loss_of(two_terms);
  Checked checked(given, B, T, V, 2);
  CHECK(distance(checked.gradients(), checked.differences(), nullptr, 1e-9) < 1e-6);
  REQUIRE(checked.plan().terms.size() == 2);
  CHECK((checked.plan().terms[0].name == "plain" && checked.plan().terms[0].cross_entropy));
  CHECK(checked.plan().terms[1].weight == 0.25);
  const Trained own(two_terms);
  Checked same(own, B, T, V, 2);
  CHECK(checked.gradients() == same.gradients());
}

TEST_CASE("log-probabilities of labels have the gradient of their differences") {
  Trained given;
  given.loss = loss_of([](eng_build* b, eng_id hidden, eng_id weight) {
    const eng_id y = eng_label_logprob(b, hidden, weight, batch(b, "labels"));
    const int64_t row[] = {1, B * T}, column[] = {B * T, 1}, one[] = {1};
    const eng_id product = eng_matmul(b, eng_reshape(b, y, 0, row, 2), eng_reshape(b, y, 0, column, 2), 0, 0);
    const eng_id squares = eng_reshape(b, product, 0, one, 1);
    b->api->term(b, squares, "squares", 0.5, nullptr);
    return squares;
  });
  for (const uint32_t accumulate : {1, 2}) {
    Checked checked(given, B, T, V, accumulate);
    const Values theirs = checked.differences();
    CHECK(distance(checked.gradients(), theirs, nullptr, 1e-9) < 1e-6);
    for (const char* name : {"table", "w", "head"}) CHECK(std::abs(theirs.at(name)[1]) > 1e-6);
  }
}

TEST_CASE("the faults of losses are told by name") {
  const auto says = [](Trained& of, const char* text) {
    const eng::Error e = of.fault();
    CHECK_THAT(e.what(), Contains(text));
    return e.exit();
  };
  Trained own(by_hand);
  own.loss.z_loss = 0.5;
  CHECK(says(own, "model sketch has a loss of its own, which [loss] cannot change") == eng::Exit::usage);
  own.loss = loss_of(two_terms);
  CHECK(says(own, "has a loss of its own") == eng::Exit::usage);

  Trained given;
  given.loss = loss_of([](eng_build*, eng_id, eng_id) { return eng_id{0}; });
  CHECK(says(given, "block head: loss own: the loss gave up") == eng::Exit::usage);
  given.loss = loss_of([](eng_build*, eng_id, eng_id) { return eng_id{999}; });
  CHECK(says(given, "loss own: its output is no value of the block") == eng::Exit::environment);
  given.loss = loss_of([](eng_build* b, eng_id, eng_id) { return batch(b, "chosen"); });
  CHECK(says(given, "block head: loss own: the batch has no `chosen`") == eng::Exit::usage);
  given.loss = loss_of(eng_head_loss);
  says(given, "the loss is asked for twice");
  given.loss = loss_of([](eng_build* b, eng_id x, eng_id) { return eng_scale(b, x, 2); });
  says(given, "eng.cross_entropy/1, not eng.scale/1");

  Trained wrong([](eng_build* b, eng_id x, eng_id w) { return eng_head_loss(b, w, x); });
  wrong.loss = loss_of(two_terms);
  says(wrong, "the loss needs hidden states (B, T, H) and a weight (V, H), not ");
  Trained early;
  early.trace = [](eng_build* b, uint32_t, const eng_id* p, const std::vector<eng_id>&) {
    return std::vector{eng_head_loss(b, eng_embedding(b, batch(b, "tokens"), p[0]), p[0])};
  };
  says(early, "block embed: only the last block has a loss");
}

}  // namespace loss_test
