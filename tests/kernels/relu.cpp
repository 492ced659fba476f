// SPDX-License-Identifier: Apache-2.0
// eng.linear_relu/1 and eng.matmul_relu_grad/1: the same bits as the ops that they stand for, and gradients.
#include "fast_elem.hpp"
#include "gradient_case.hpp"

using namespace gradients;

namespace {

constexpr eng_attr relu = {"act", ENG_ACT_RELU, 0};

eng_desc mask_of(const Dims& y) {
  Dims dims = y;
  dims.back() = eng_relu_mask_bytes(y.back());
  return desc(ENG_U8, dims);
}

// linear, then activation; the mask is made of its result.
Device::Outputs apart(const Device& device, const Tensor& x, const Tensor& w, const Tensor& bias, const eng_desc& y) {
  const Tensor sum = device.run(ENG_OP_LINEAR, {x, w, bias}, {y})[0];
  Device::Outputs out = device.run(ENG_OP_ACTIVATION, {sum}, {y}, {relu});
  const int64_t n = y.dims[y.ndim - 1], bytes = eng_relu_mask_bytes(n);
  out.emplace_back(mask_of(Dims(y.dims, y.dims + y.ndim)));
  for (int64_t k = 0; k < out[0].size(); ++k)
    if (out[0].at(k) > 0) out[1].as<uint8_t>()[k / n * bytes + k % n / 8] |= uint8_t(1 << k % n % 8);
  return out;
}

// matmul, then activation_grad with y, then sum_rows.
Device::Outputs grad_apart(const Device& device, const Tensor& dy, const Tensor& w, const Tensor& y, const Tensor& acc,
                           const eng_desc& sums) {
  const Tensor product = device.run(ENG_OP_MATMUL, {dy, w, Tensor()}, {y.d}, {whole("ta", 0), whole("tb", 0)})[0];
  Device::Outputs out = device.run(ENG_OP_ACTIVATION_GRAD, {product, y}, {y.d}, {relu});
  out.push_back(device.run(ENG_OP_SUM_ROWS, {out[0], acc}, {sums}, {},
                           acc.d.dtype ? Device::InPlace{{0, 1}} : Device::InPlace{})[0]);
  return out;
}

void check_bits(const Device& device, int32_t dtype, int64_t rows, int64_t K, int64_t N) {
  Random random{uint64_t(rows * 1000 + N)};
  Tensor x = random_normal(random, dtype, {rows, K}), w = random_normal(random, dtype, {N, K});
  const Tensor bias = random_normal(random, dtype, {N}), w2 = random_normal(random, dtype, {7, N});
  x.put(0, NAN);                                   // a row of them
  for (int64_t k = 0; k < K; ++k) w.put(k, -0.0);  // zeros of either sign
  Tensor dy = random_normal(random, dtype, {rows, 7});
  if (rows > 1) dy.put(7, INFINITY);
  for (const bool with_bias : {false, true}) {
    const Tensor b = with_bias ? bias : Tensor();
    const eng_desc y = desc(dtype, {rows, N});
    const auto want = apart(device, x, w, b, y);
    CHECK(same(device.run(ENG_OP_LINEAR_RELU, {x, w, b}, {y, mask_of({rows, N})}), want));
    for (const int32_t wide : {dtype, int32_t{dtype == ENG_F64 ? ENG_F64 : ENG_F32}})
      for (const bool add : {false, true}) {
        const eng_desc sums = desc(wide, {N});
        const Tensor acc = add ? random_normal(random, wide, {N}) : Tensor();
        const auto grads = grad_apart(device, dy, w2, want[0], acc, sums);
        const auto got = device.run(ENG_OP_MATMUL_RELU_GRAD, {dy, w2, want[1], acc}, {y, sums}, {whole("sums", 1)},
                                    add ? Device::InPlace{{1, 3}} : Device::InPlace{});
        CHECK(same(got, grads));
        CHECK(device.run(ENG_OP_MATMUL_RELU_GRAD, {dy, w2, want[1]}, {y}, {whole("sums", 0)})[0].same_bits(grads[0]));
      }
  }
}

}  // namespace

TEST_CASE("a product with relu has the bits of linear and activation, its gradient those of three ops") {
  const std::pair<int64_t, int64_t> shapes[] = {{1, 1}, {2, 130}, {3, 128}, {5, 7}, {70, 520}, {9, 1030}};
  for (const auto& [rows, N] : shapes) {
    INFO(rows << " rows of " << N);
    for (const int32_t dtype : {ENG_F32, ENG_F64, ENG_BF16, ENG_F16}) check_bits(reference(), dtype, rows, 33, N);
    for (const Fast& f : product_devices()) {
      INFO(f.isa << ", threads " << f.threads);
      for (const int32_t dtype : {ENG_F32, ENG_BF16, ENG_F16}) check_bits(*f.device, dtype, rows, 33, N);
    }
  }
}

TEST_CASE("gradient of a product with relu, through the next product") {
  repeat(31, [](Random& random, int round) {
    const int64_t B = pick(random, 1, 3), T = pick(random, 1, 4), K = pick(random, 2, 6), F = pick(random, 5, 9), N = 3;
    const bool bias = round % 2 == 0, accumulate = bias && round % 4 == 0;
    const Tensor r = normal(random, {B, T, N}), w2 = normal(random, {N, F}), acc = normal(random, {F});
    const eng_desc y = desc(ENG_F64, {B, T, F});
    Tensors inputs = {normal(random, {B, T, K}), normal(random, {F, K})};
    if (bias) inputs.push_back(normal(random, {F}));
    const auto forward = [=](const Tensors& in) {
      return reference().run(ENG_OP_LINEAR_RELU, {in[0], in[1], bias ? in[2] : Tensor()}, {y, mask_of({B, T, F})});
    };
    const auto value = [=](const Tensors& in) {
      const double extra = accumulate ? inner(acc, in[2]) : 0.0;
      return inner(r, reference().run(ENG_OP_LINEAR, {forward(in)[0], w2, Tensor()}, {r.d})[0]) + extra;
    };
    const auto gradients = [=](const Tensors& in) {
      std::vector<eng_desc> out = {y};
      if (bias) out.push_back(acc.d);
      const auto d = reference().run(ENG_OP_MATMUL_RELU_GRAD, {r, w2, forward(in)[1], accumulate ? acc : Tensor()}, out,
                                     {whole("sums", bias)}, accumulate ? Device::InPlace{{1, 3}} : Device::InPlace{});
      Tensors g;
      g.push_back(reference().run(ENG_OP_MATMUL, {d[0], in[1]}, {in[0].d}, {whole("ta", 0), whole("tb", 0)})[0]);
      g.push_back(reference().run(ENG_OP_MATMUL, {d[0], in[0]}, {in[1].d}, {whole("ta", 1), whole("tb", 0)})[0]);
      if (bias) g.push_back(d[1]);
      return g;
    };
    return GradientCase{inputs, value, gradients};
  });
}

TEST_CASE("products with relu refuse what does not fit") {
  const Tensor x(ENG_F32, {4, 8}), w(ENG_F32, {6, 8}), mask(ENG_U8, {4, 16}), dy(ENG_F32, {4, 6});
  const eng_desc y = desc(ENG_F32, {4, 6}), dz = desc(ENG_F32, {4, 8});
  for (const Device* device : {&reference(), static_cast<const Device*>(fast_devices()[0].device.get())}) {
    const auto refused = [&](const char* op, const std::vector<Tensor>& in, const std::vector<eng_desc>& out,
                             const std::vector<eng_attr>& attrs) {
      CHECK_THROWS_AS(device->run(op, in, out, attrs), Failure);
    };
    CHECK_NOTHROW(device->run(ENG_OP_LINEAR_RELU, {x, w}, {y, mask.d}));
    refused(ENG_OP_LINEAR_RELU, {x, w}, {y}, {});
    refused(ENG_OP_LINEAR_RELU, {x, w}, {y, desc(ENG_U8, {4, 1})}, {});
    refused(ENG_OP_LINEAR_RELU, {x, w}, {y, desc(ENG_I32, {4, 16})}, {});
    CHECK_NOTHROW(device->run(ENG_OP_MATMUL_RELU_GRAD, {dy, w, mask}, {dz}, {whole("sums", 0)}));
    refused(ENG_OP_MATMUL_RELU_GRAD, {dy, w, Tensor(ENG_U8, {3, 16})}, {dz}, {whole("sums", 0)});
    refused(ENG_OP_MATMUL_RELU_GRAD, {dy, w, mask}, {dz}, {whole("sums", 1)});
    refused(ENG_OP_MATMUL_RELU_GRAD, {dy, w, mask}, {dz, desc(ENG_F32, {6})}, {whole("sums", 1)});
    refused(ENG_OP_MATMUL_RELU_GRAD, {dy, w, mask, Tensor(ENG_F32, {8})}, {dz}, {whole("sums", 0)});
  }
}
