// SPDX-License-Identifier: Apache-2.0
// Losses of several terms, of ops of strangers, and metrics beside them: against differences, and their faults by name.
#include <catch2/catch.hpp>

#include "core/trace/op.hpp"
#include "engine/op.h"
#include "gradient_check.hpp"

using namespace sketch;
using Catch::Contains;

namespace terms_test {
namespace {

constexpr int64_t B = 2, T = 3, H = 4, V = 8;

void use_ops() {
  static const bool once = [] {
    registry().table<eng_ops>("org.example.anchor/1", "cube");
    eng::load_ops(registry());
    return true;
  }();
  (void)once;
}

eng_id apart(eng_build* b, eng_id x, eng_id y) {
  const eng_id in[2] = {x, y};
  return eng_emit1(b, "org.example.cube.distance/1", in, 2, nullptr, 0);
}

// Two embeddings: one is the student, the other the teacher, whose rule gives no gradient. `head` makes the loss of
// the student's output and the teacher's.
struct Pupil : Sketch {
  std::function<eng_id(eng_build*, const eng_id* p, eng_id student, eng_id teacher)> head;
  Pupil() {
    use_ops();
    param("student", {V, H}), param("teacher", {V, H}), param("w", {H, H}), param("head", {V, H});
    blocks = {{"embed", 0, {0, 1}}, {"layer", 1, {2}}, {"head", 2, {3}}};
    trace = [this](eng_build* b, uint32_t tmpl, const eng_id* p, const std::vector<eng_id>& in) {
      if (tmpl == 0) {
        const eng_id tokens = batch(b, "tokens"), student = eng_embedding(b, tokens, p[0]);
        return std::vector{student, eng_embedding(b, tokens, p[1])};
      }
      if (tmpl == 1) return std::vector{eng_linear(b, in[0], p[0], 0), in[1]};
      return std::vector{head(b, p, in[0], in[1])};
    };
  }
  Pupil(const Pupil&) = delete;
  std::string fault() {
    try {
      model(B, T, ENG_F64);
      return "";
    } catch (const eng::Error& e) {
      CHECK(e.exit() == eng::Exit::environment);
      return e.what();
    }
  }
};

eng_id add_term(eng_build* b, eng_id value, const char* name, double weight) {
  b->api->term(b, value, name, weight, nullptr);
  return value;
}

eng_id cross_entropy(eng_build* b, const eng_id* p, eng_id x) {
  return eng_cross_entropy(b, x, p[0], batch(b, "labels"));
}

// The teacher's and, where nothing trains it, the head's gradient is zero although the loss depends on the former.
void check_gradients(Pupil& pupil, uint32_t accumulate = 1) {
  Checked checked(pupil, B, T, V, accumulate);
  Values ours = checked.gradients(), theirs = checked.differences();
  for (double x : ours.at("teacher")) CHECK(x == 0.0);
  ours.erase("teacher"), theirs.erase("teacher");
  CHECK(distance(ours, theirs, nullptr, 1e-9) < 1e-6);
  Values wrong = ours;
  for (double& x : wrong.at("student")) x *= 1.01;
  CHECK(distance(wrong, theirs, nullptr, 1e-9) > 1e-6);
}

}  // namespace

TEST_CASE("a loss that is a stranger's op") {
  Pupil pupil;
  pupil.head = [](eng_build* b, const eng_id*, eng_id x, eng_id y) { return add_term(b, apart(b, x, y), "kd", 1); };
  check_gradients(pupil);
  check_gradients(pupil, 3);
}

TEST_CASE("a stranger's loss whose gradient computes it, too") {
  for (const bool given : {false, true})
    for (const bool named : {false, true}) {
      Pupil pupil;
      pupil.head = [given, named](eng_build* b, const eng_id*, eng_id x, eng_id y) {
        const eng_id in[3] = {x, given ? eng_scale(b, y, 0.5) : 0, y};
        const eng_id loss = eng_emit1(b, "org.example.cube.closeness/1", in, 3, nullptr, 0);
        return named ? add_term(b, loss, "near", 0.75) : loss;
      };
      check_gradients(pupil);
      check_gradients(pupil, 3);
      const Checked checked(pupil, B, T, V);
      for (const eng::Program& program : checked.plan().programs)
        for (const eng::Segment& segment : program.segments)
          for (const eng::Action& action : segment.actions)
            if (checked.plan().calls[action.call].op->id == std::string("org.example.cube.closeness/1"))
              CHECK(program.name == "eval");
    }
}

TEST_CASE("terms with weights, one of them the fused cross-entropy") {
  for (const double weight : {1.0, 0.25}) {
    Pupil pupil;
    pupil.head = [weight](eng_build* b, const eng_id* p, eng_id x, eng_id y) {
      const eng_id loss = cross_entropy(b, p, x);
      add_term(b, loss, "ce", weight), add_term(b, apart(b, x, y), "kd", -0.375);
      return loss;
    };
    check_gradients(pupil, 2);
  }
}

TEST_CASE("a z loss and loss of two heads") {
  Pupil pupil;
  pupil.head = [](eng_build* b, const eng_id* p, eng_id x, eng_id) {
    const eng_id loss = eng_language_loss(b, x, p[0], batch(b, "labels"), 0, 0.125);
    add_term(b, cross_entropy(b, p, eng_scale(b, x, 0.5)), "second", 0.5);
    return loss;
  };
  Checked checked(pupil, B, T, V);
  Values ours = checked.gradients(), theirs = checked.differences();
  CHECK(distance(ours, theirs, nullptr, 1e-9) < 1e-6);
  const auto& terms = checked.plan().terms;
  REQUIRE(terms.size() == 3);
  CHECK((terms[0].name == "cross_entropy" && terms[1].name == "z_loss" && terms[2].name == "second"));
  CHECK((terms[0].cross_entropy && !terms[1].cross_entropy && terms[2].cross_entropy));
  // Position after position the same logits: terms are no part of a running sequence.
  Checked running(pupil, B, T, V, 1, {}, true);
  CHECK(running.first_difference(1e-12) == T);
}

TEST_CASE("terms that are means over sequences or pairs") {
  const auto per = [](uint32_t first, uint32_t second) {
    auto pupil = std::make_unique<Pupil>();
    pupil->head = [first, second](eng_build* b, const eng_id* p, eng_id x, eng_id y) {
      const eng_id near = apart(b, x, y);
      b->api->term_per(b, near, "near", 0.75, first, nullptr);
      b->api->term_per(b, apart(b, eng_scale(b, x, 0.5), y), "half", 0.5, second, nullptr);
      add_term(b, cross_entropy(b, p, x), "ce", 0.25);
      return near;
    };
    return pupil;
  };
  for (const auto& [first, second] : {std::pair(ENG_PER_SEQUENCE, ENG_PER_PAIR), {ENG_PER_PAIR, ENG_PER_LABEL}}) {
    const auto pupil = per(first, second);
    pupil->loss.sequences = 6 * B;
    check_gradients(*pupil), check_gradients(*pupil, 3);
  }
  const auto text = [](auto head) {
    Pupil pupil;
    pupil.head = head;
    return pupil.fault();
  };
  CHECK_THAT(text([](eng_build* b, const eng_id* p, eng_id x, eng_id) {
               const eng_id loss = cross_entropy(b, p, x);
               b->api->term_per(b, loss, "ce", 1, ENG_PER_PAIR, nullptr);
               return loss;
             }),
             Contains("term `ce` of the loss: an op with a fused gradient is divided by the labels that count"));
  CHECK_THAT(text([](eng_build* b, const eng_id*, eng_id x, eng_id y) {
               const eng_id near = add_term(b, apart(b, x, y), "near", 1);
               b->api->term_per(b, near, "again", 1, ENG_PER_SEQUENCE, nullptr);
               return near;
             }),
             Contains("term `again` of the loss: another term of the same value has another divisor"));
  CHECK_THAT(text([](eng_build* b, const eng_id*, eng_id x, eng_id y) {
               const eng_id near = apart(b, x, y);
               b->api->term_per(b, near, "near", 1, 7, nullptr);
               return near;
             }),
             Contains("term `near` of the loss: its divisor is 7"));
}

TEST_CASE("a value of an earlier block is a term") {
  Pupil pupil;
  pupil.trace = [](eng_build* b, uint32_t tmpl, const eng_id* p, const std::vector<eng_id>& in) {
    if (tmpl == 0) {
      const eng_id tokens = batch(b, "tokens");
      return std::vector{eng_embedding(b, tokens, p[0]), eng_embedding(b, tokens, p[1])};
    }
    if (tmpl == 1) return std::vector{eng_linear(b, in[0], p[0], 0), apart(b, in[0], in[1])};
    const eng_id loss = cross_entropy(b, p, in[0]);
    add_term(b, loss, "ce", 1), add_term(b, in[1], "balance", 0.5);
    return std::vector{loss};
  };
  check_gradients(pupil);
}

TEST_CASE("a metric has a number and no gradient") {
  const auto with = [](bool metric) {
    auto pupil = std::make_unique<Pupil>();
    pupil->head = [metric](eng_build* b, const eng_id* p, eng_id x, eng_id y) {
      const eng_id loss = add_term(b, cross_entropy(b, p, x), "ce", 1);
      if (metric) add_term(b, apart(b, x, y), "kd", 0);
      return loss;
    };
    return pupil;
  };
  const auto plain = with(false), watched = with(true);
  Checked a(*plain, B, T, V, 2), c(*watched, B, T, V, 2);
  CHECK(a.gradients() == c.gradients());
  const auto rows = c.results(), alone = a.results();
  REQUIRE((rows.size() == 4 && alone.size() == 2));
  CHECK((rows[0] == alone[0] && rows[2] == alone[1]));
  CHECK((rows[1] > 0.01 && rows[3] > 0.01 && rows[1] != rows[3]));
}

TEST_CASE("a model that names its cross-entropy has the bits of one that does not") {
  const auto with = [](bool named) {
    auto pupil = std::make_unique<Pupil>();
    pupil->head = [named](eng_build* b, const eng_id* p, eng_id x, eng_id) {
      const eng_id loss = cross_entropy(b, p, x);
      return named ? add_term(b, loss, "ce", 1) : loss;
    };
    return pupil;
  };
  const auto plain = with(false), named = with(true);
  Checked a(*plain, B, T, V), c(*named, B, T, V);
  CHECK(a.gradients() == c.gradients());
  CHECK(a.results() == c.results());
}

TEST_CASE("the faults of terms are told by name") {
  Pupil pupil;
  const auto says = [&](auto head, const char* text) {
    pupil.head = head;
    CHECK_THAT(pupil.fault(), Contains(text));
  };
  using B_ = eng_build*;
  using P = const eng_id*;
  const auto named = [](const char* name, double weight) {
    return [=](B_ b, P p, eng_id x, eng_id) { return add_term(b, cross_entropy(b, p, x), name, weight); };
  };
  says(named("", 1), "block head: term `` of the loss: a name has 1 to 40 characters a-z, 0-9, _ and dot");
  says(named("A", 1), "term `A` of the loss");
  says(named("a23456789b123456789c123456789d123456789e1", 1), "a name has 1 to 40 characters");
  says(named("ce", NAN), "term `ce` of the loss: its weight is not a finite number");
  says(named("ce", 0), "no term of the loss with a weight depends on a parameter");
  says([](B_ b, P, eng_id x, eng_id) { return add_term(b, x, "all", 1); },
       "term `all` of the loss: its value is f64 (2, 3, 4), it must be f64 (1)");
  says([](B_ b, P p, eng_id x, eng_id) { return add_term(b, add_term(b, cross_entropy(b, p, x), "ce", 1), "ce", 1); },
       "term `ce` of the loss: another term has this name");
  says(
      [](B_ b, P p, eng_id x, eng_id) {
        const eng_id loss = cross_entropy(b, p, x);
        for (int k = 0; k < 65; ++k) add_term(b, loss, ("t" + std::to_string(k)).c_str(), 0.1);
        return loss;
      },
      "term `t64` of the loss: there are 64 terms already, the limit");
  says(
      [](B_ b, P p, eng_id x, eng_id y) {
        add_term(b, apart(b, x, y), "kd", 1);
        return cross_entropy(b, p, x);
      },
      "block head: its output must be one of the terms that it names");
  says(
      [](B_ b, P p, eng_id x, eng_id) {
        const eng_id loss = cross_entropy(b, p, x);
        add_term(b, loss, "ce", 1);
        return add_term(b, eng_scale(b, loss, 2), "twice", 1);
      },
      "eng.cross_entropy/1 must be the loss of the last block, or a term of it, and nothing else");
  says(
      [](B_ b, P p, eng_id x, eng_id) {
        const eng_id loss = cross_entropy(b, p, x);
        add_term(b, loss, "ce", 1);
        return add_term(b, eng_scale(b, loss, 2), "twice", 0);
      },
      "eng.scale/1 reads an output of eng.cross_entropy/1, which can only be a term of the loss");
  says(
      [](B_ b, P p, eng_id x, eng_id) {
        const eng_attr z = {"z_loss", 0, 0.5};
        const eng_id in[3] = {x, p[0], batch(b, "labels")};
        eng_id out[2] = {0, 0};
        b->api->emit(b, ENG_OP_CROSS_ENTROPY, in, 3, out, 2, &z, 1, nullptr);
        add_term(b, out[1], "z", 0.25);
        return add_term(b, out[0], "ce", 1);
      },
      "its second output must be a term of the loss of weight z_loss = 0.5, not 0.25");
  pupil.trace = [](eng_build* b, uint32_t, const eng_id* p, const std::vector<eng_id>&) {
    return std::vector{add_term(b, eng_embedding(b, batch(b, "tokens"), p[0]), "early", 1)};
  };
  CHECK_THAT(pupil.fault(), Contains("block embed: term `early` of the loss: only the last block may name terms"));
}

}  // namespace terms_test
