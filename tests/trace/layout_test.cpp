// SPDX-License-Identifier: Apache-2.0
// Ops that move values, and matmul in models: gradients against differences, running sequences, what is refused.
#include <catch2/catch.hpp>

#include "core/trace/op.hpp"
#include "gradient_check.hpp"

using namespace sketch;
using Catch::Contains;

namespace layout_test {
namespace {

constexpr int64_t B = 2, T = 3, H = 4, V = 5;

// A layer between an embedding and a head. `layer` gives its output from its input.
struct Layered : Sketch {
  std::function<eng_id(eng_build*, const eng_id* p, eng_id x)> layer;
  explicit Layered(const std::vector<std::vector<int64_t>>& params) {
    const uint32_t table = param("table", {V, H});
    Block block{"layer", 1, {}};
    for (const auto& dims : params) block.params.push_back(param("p" + std::to_string(block.params.size()), dims));
    blocks = {{"embed", 0, {table}}, block, {"head", 2, {param("head", {V, H})}}};
    trace = [this](eng_build* b, uint32_t tmpl, const eng_id* p, const std::vector<eng_id>& in) {
      if (tmpl == 0) return std::vector{eng_embedding(b, batch(b, "tokens"), p[0])};
      if (tmpl == 2) return std::vector{eng_cross_entropy(b, in[0], p[0], batch(b, "labels"))};
      return std::vector{eng_add(b, layer(b, p, in[0]), in[0])};
    };
  }
  Layered(const Layered&) = delete;
  std::string fault(bool generate = false) {
    try {
      Checked(*this, B, T, V, 1, {}, generate);
      return "";
    } catch (const eng::Error& e) {
      return e.what();
    }
  }
};

void check_gradients(const Layered& model) {
  Checked checked(model, B, T, V, 2);
  std::string worst;
  const Values ours = checked.gradients();
  const double error = distance(ours, checked.differences(), &worst, 1e-7);
  INFO("worst: " << worst);
  CHECK(error < 1e-6);
  CHECK(ours == checked.gradients());
}

// As GPT-2 has it: weights (in, out), one product for queries, keys and values; and a norm of each head.
void fuse(Layered& model) {
  model.layer = [](eng_build* b, const eng_id* p, eng_id x) {
    const int64_t sizes[] = {H, 2, 2}, heads[] = {2, 2}, joined[] = {-1};
    const eng_id w = eng_transpose(b, p[0], 0, 1);
    eng_id qkv[3];
    eng_split(b, eng_linear(b, x, w, p[1]), 2, 3, sizes, qkv);
    const eng_id attended = eng_attention(b, qkv[0], qkv[1], qkv[2], 2, 1, 0.7);
    const eng_id projected = eng_matmul(b, attended, p[2], 0, 0);
    const eng_id normed = eng_rms_norm(b, eng_reshape(b, projected, 2, heads, 2), p[3], 1e-3);
    const eng_id both[] = {eng_reshape(b, normed, 2, joined, 1), x};
    return eng_linear(b, eng_concat(b, both, 2, 2), p[4], 0);
  };
}
const std::vector<std::vector<int64_t>> fused_params = {{H, 2 * H}, {2 * H}, {H, H}, {2}, {H, 2 * H}};

}  // namespace

TEST_CASE("a layer with fused projections: gradients, and the same one position after the other") {
  Layered model(fused_params);
  fuse(model);
  check_gradients(model);
  CHECK(Checked(model, B, T, V, 1, {}, true).first_difference(1e-11) == T);
}

TEST_CASE("a reshape of what nobody else reads moves nothing") {
  Layered model(fused_params);
  fuse(model);
  const Checked checked(model, B, T, V);
  size_t reshapes = 0;
  for (const eng::Segment& segment : checked.plan().program("eval").segments)
    for (const eng::Action& action : segment.actions)
      if (checked.plan().calls[action.call].op->id == std::string(ENG_OP_RESHAPE)) {
        ++reshapes;
        CHECK(action.in.at(0).buffer == action.out.at(0).buffer);
        CHECK(action.in.at(0).offset == action.out.at(0).offset);
      }
  CHECK(reshapes == 2);
}

TEST_CASE("gradients of products of all kinds") {
  for (const int64_t ta : {0, 1})
    for (const int64_t tb : {0, 1}) {
      INFO("ta " << ta << ", tb " << tb);
      Layered model({{H, H}, {H, B * T}});
      model.layer = [ta, tb](eng_build* b, const eng_id* p, eng_id x) {
        if (!ta) return eng_matmul(b, x, p[0], 0, tb);
        // (H, H), from all positions
        const eng_id square = tb ? eng_matmul(b, x, p[1], 1, 1) : eng_matmul(b, x, eng_linear(b, x, p[0], 0), 1, 0);
        return eng_matmul(b, x, square, 0, tb);
      };
      check_gradients(model);
      if (ta) CHECK_THAT(model.fault(true), Contains("only its first input may have positions"));
    }
  // A second factor whose rows are folded.
  Layered folded({{2, 2, H}});
  folded.layer = [](eng_build* b, const eng_id* p, eng_id x) { return eng_matmul(b, x, p[0], 0, 0); };
  check_gradients(folded);
  CHECK(Checked(folded, B, T, V, 1, {}, true).first_difference(1e-11) == T);
}

TEST_CASE("a part that nothing reads has a gradient of zero") {
  Layered model({{H, H}});
  model.layer = [](eng_build* b, const eng_id* p, eng_id x) {
    eng_id half[2];
    eng_split(b, eng_linear(b, x, p[0], 0), 2, 2, nullptr, half);
    const eng_id twice[] = {half[1], half[1]};
    return eng_concat(b, twice, 2, 2);
  };
  check_gradients(model);
  const Values gradients = Checked(model, B, T, V).gradients();
  for (size_t k = 0; k < H * H / 2; ++k) CHECK(gradients.at("p0")[k] == 0);
}

TEST_CASE("what exchanges positions trains, but cannot generate") {
  Layered model({{T, T}});
  model.layer = [](eng_build* b, const eng_id* p, eng_id x) {
    return eng_transpose(b, eng_linear(b, eng_transpose(b, x, 1, 2), p[0], 0), 2, 1);
  };
  check_gradients(model);
  CHECK_THAT(model.fault(true), Contains("block layer: eng.transpose/1 moves the positions"));
}

TEST_CASE("shapes that do not fit are refused when the model is traced") {
  Layered model({{H, H}});
  const auto says = [&](const std::function<eng_id(eng_build*, eng_id)>& emit, const char* text) {
    model.layer = [&](eng_build* b, const eng_id*, eng_id x) { return emit(b, x); };
    CHECK_THAT(model.fault(), Contains(text));
  };
  const auto reshaped = [](uint32_t keep, std::vector<int64_t> dims) {
    return [=](eng_build* b, eng_id x) {
      return eng_reshape(b, x, keep, dims.data(), static_cast<uint32_t>(dims.size()));
    };
  };
  says(reshaped(2, {3}), "eng.reshape/1: x has 24 elements, y would have 18");
  says(reshaped(2, {3, -1}), "x has 24 elements, y would have 18");
  says(reshaped(2, {-1, -1}), "each dimension must be positive, or one of them -1");
  says(reshaped(2, {0}), "each dimension must be positive");
  says(reshaped(4, {1}), "`keep` must be at most the number of dimensions of x");
  says(reshaped(3, {1, 1, 1, 1}), "y may have 6 dimensions");
  says([](eng_build* b, eng_id x) { return eng_transpose(b, x, 0, 3); }, "a and b must be dimensions of x");
  const auto split = [](int64_t axis, std::vector<int64_t> sizes, uint32_t parts) {
    return [=](eng_build* b, eng_id x) {
      eng_id out[ENG_MAX_PARTS];
      eng_split(b, x, axis, parts, sizes.empty() ? nullptr : sizes.data(), out);
      return out[0];
    };
  };
  says(split(3, {}, 2), "`axis` must be a dimension of x");
  says(split(2, {}, 3), "the parts are shorter than x by 1");
  says(split(2, {}, 5), "part 0 must have a length of 1 to 4");
  says(split(2, {3, 2}, 2), "part 1 must have a length of 1 to 1");
  says(split(2, {1, 2}, 2), "the parts are shorter than x by 1");
  const auto joined = [](int64_t axis, bool turned) {
    return [=](eng_build* b, eng_id x) {
      const eng_id in[] = {x, turned ? eng_transpose(b, x, 0, 1) : 0};
      return eng_concat(b, in, 2, axis);
    };
  };
  says(joined(2, true), "the parts must agree in all dimensions but that of `axis`");
  says(joined(3, true), "`axis` must be a dimension of the parts");
  says(joined(2, false), "part 1 is absent: attribute size1 must be its length");
}

}  // namespace layout_test
