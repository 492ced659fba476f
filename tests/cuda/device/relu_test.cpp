// SPDX-License-Identifier: Apache-2.0
// eng.linear_relu/1 and eng.matmul_relu_grad/1 of cuda.eng.so as it ships, on the software cuBLASLt (emulated), beside
// the reference device: what the library's epilogues give, and what is done where it has none.
#include <catch2/catch.hpp>

#include "run.hpp"

using namespace cuda_test;

namespace {

constexpr int32_t formats[] = {ENG_F32, ENG_BF16, ENG_F16};

eng_desc mask_of(int64_t rows, int64_t n) {
  return desc(ENG_U8, {rows, eng_relu_mask_bytes(n)});
}

// Whole numbers, whose sums are exact: every device has the same values and the same mask.
Tensor wholes(Random& random, int32_t type, const kernels_test::Dims& dims) {
  Tensor out(type, dims);
  for (int64_t k = 0; k < out.size(); ++k) out.put(k, double(kernels_test::pick(random, -2, 2)));
  return out;
}

Use linear_relu(Random& random, int32_t type, int64_t m, int64_t n, int64_t k, bool bias) {
  Use use{ENG_OP_LINEAR_RELU, {wholes(random, type, {m, k}), wholes(random, type, {n, k})}, {}};
  if (bias) use.in.push_back(wholes(random, type, {n}));
  use.out = {desc(type, {m, n}), mask_of(m, n)};
  return use;
}

// dz (m, n) = dy (m, k) w (k, n); `sums`: the type of dbias, 0: there is none.
Use relu_grad(Random& random, int32_t type, int32_t sums, int64_t m, int64_t n, int64_t k, Add add = Add::no) {
  Tensor mask(mask_of(m, n));
  for (int64_t i = 0; i < mask.size(); ++i) mask.put(i, double(random() % 256));
  Use use{ENG_OP_MATMUL_RELU_GRAD, {wholes(random, type, {m, k}), wholes(random, type, {k, n}), mask}, {}};
  use.out = {desc(type, {m, n})};
  use.attrs = {whole("sums", sums != 0)};
  if (sums) use.out.push_back(desc(sums, {n}));
  if (add != Add::no) use.in.push_back(wholes(random, sums, {n}));
  if (add == Add::in_place) use.in_place = {{1, 3}};
  return use;
}

constexpr uint32_t none = 0;  // by own kernels
// The last product of the library had this epilogue, and the values are right.
void check_by(const Use& use, uint32_t epilogue, const How& how = {}) {
  INFO("epilogue " << epilogue);
  const Count count;
  const std::vector<Tensor> got = run(use, how),
                            want = reference().run(use.op, use.in, use.out, use.attrs, use.in_place);
  CHECK(count() == (epilogue == none ? 0 : 1));
  if (epilogue != none) CHECK(software_blas_last().epilogue == epilogue);
  for (size_t k = 0; k < want.size(); ++k) {
    INFO(use.op << ", output " << k);
    CHECK(error_of(got[k], want[k]) == 0);
  }
}

}  // namespace

TEST_CASE("the library computes relu, its mask, its gradient and the sums for a bias") {
  const Machine machine;  // without twins: own kernels would fail
  Random random(1);
  for (const int32_t type : formats) {
    for (const auto& [m, n, k] : {std::array<int64_t, 3>{1, 128, 3}, {33, 256, 65}, {5, 384, 128}}) {
      INFO("dtype " << type << ", " << m << " " << n << " " << k);
      check_by(linear_relu(random, type, m, n, k, true), CUBLASLT_EPILOGUE_RELU_AUX_BIAS);
      check_by(linear_relu(random, type, m, n, k, false), CUBLASLT_EPILOGUE_RELU_AUX);
    }
    // The gradient only reads the mask: its rows need not be full.
    for (const auto& [m, n, k] : {std::array<int64_t, 3>{1, 1, 1}, {33, 17, 65}, {5, 130, 128}, {9, 256, 40}}) {
      INFO("dtype " << type << ", " << m << " " << n << " " << k);
      check_by(relu_grad(random, type, type, m, n, k), CUBLASLT_EPILOGUE_DRELU_BGRAD);
      check_by(relu_grad(random, type, 0, m, n, k), CUBLASLT_EPILOGUE_DRELU);
    }
  }
}

TEST_CASE("what the library does not sum is summed behind it: other types, sums on top of others, and many rows") {
  const Machine machine(with_twins());
  Random random(2);
  for (const int32_t type : formats)
    for (const int64_t m : {7, 300}) {
      INFO("dtype " << type << ", rows " << m);
      if (type != ENG_F32) check_by(relu_grad(random, type, ENG_F32, m, 130, 64), CUBLASLT_EPILOGUE_DRELU);
      for (const Add add : {Add::yes, Add::in_place})
        check_by(relu_grad(random, type, ENG_F32, m, 130, 64, add), CUBLASLT_EPILOGUE_DRELU);
      // The sums' scratch is the plan's, whatever the library's is.
      check_by(relu_grad(random, type, ENG_F32, m, 130, 64, Add::yes), CUBLASLT_EPILOGUE_DRELU, {0});
    }
}

TEST_CASE("a mask whose rows are not full is made behind the product") {
  const Machine machine(with_twins());
  Random random(3);
  for (const int32_t type : formats)
    for (const int64_t n : {1, 7, 8, 127, 130, 200}) {
      INFO("dtype " << type << ", " << n);
      check_by(linear_relu(random, type, 9, n, 33, true), CUBLASLT_EPILOGUE_BIAS);
      check_by(linear_relu(random, type, 9, n, 33, false), CUBLASLT_EPILOGUE_DEFAULT);
    }
}

TEST_CASE("each epilogue that the library refuses has its replacement") {
  Random random(4);
  for (const int32_t type : formats) {
    INFO("dtype " << type);
    const Use forward = linear_relu(random, type, 9, 256, 40, true),
              plain = linear_relu(random, type, 9, 256, 40, false), grad = relu_grad(random, type, type, 9, 250, 40),
              alone = relu_grad(random, type, 0, 9, 256, 40);
    {
      const Machine machine(with_twins({{"SOFTCUBLAS_REFUSE", "sums"}}));
      check_by(forward, CUBLASLT_EPILOGUE_RELU_AUX_BIAS), check_by(grad, CUBLASLT_EPILOGUE_DRELU);
    }
    {
      const Machine machine(with_twins({{"SOFTCUBLAS_REFUSE", "relu"}}));
      check_by(forward, CUBLASLT_EPILOGUE_BIAS), check_by(plain, CUBLASLT_EPILOGUE_DEFAULT);
      check_by(grad, CUBLASLT_EPILOGUE_DEFAULT), check_by(alone, CUBLASLT_EPILOGUE_DEFAULT);
    }
    {
      const Machine machine(with_twins({{"SOFTCUBLAS_REFUSE", "all"}}));
      for (const Use* use : {&forward, &plain, &grad, &alone}) check_by(*use, none);
    }
    const Machine machine(with_twins());
    for (const Use* use : {&forward, &grad, &alone}) check_by(*use, none, {cap, 128});  // less aligned than promised
  }
}

TEST_CASE("measured algorithms of products with an epilogue are kept under names of their own") {
  const Machine machine;
  Random random(5);
  for (const auto& [use, name] : {std::pair(linear_relu(random, ENG_BF16, 8, 128, 64, true), " tb bias relu,"),
                                  {relu_grad(random, ENG_BF16, ENG_BF16, 8, 128, 64), " relu_grad sums bf16,"},
                                  {relu_grad(random, ENG_BF16, 0, 8, 128, 64), " relu_grad,"}}) {
    std::string choices;
    How how;
    how.choices = &choices;
    const std::vector<Tensor> first = run(use, how);
    CHECK(choices.find(name) != std::string::npos);
    const std::string kept = choices;
    CHECK(run(use, how)[0].same_bits(first[0]));
    CHECK(choices == kept);
  }
}
