// SPDX-License-Identifier: Apache-2.0
// eng.linear/1 and eng.matmul/1 of cuda.eng.so as it ships, on the software cuBLASLt (emulated), beside the reference
// device: values, the algorithm that is chosen, and the scratch that it gets.
#include <catch2/catch.hpp>

#include "run.hpp"

using namespace cuda_test;
using Catch::Contains;

namespace {

struct Size {
  int64_t m, n, k;
};
constexpr Size sizes[] = {{1, 1, 1}, {5, 7, 3}, {33, 17, 65}, {64, 48, 128}, {2, 130, 200}, {3, 8, 64}};
constexpr int32_t types[] = {ENG_F32, ENG_BF16, ENG_F16};

constexpr uint64_t tf32 = CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32;

}  // namespace

TEST_CASE("products have the values of the reference device") {
  const Machine machine;  // without twins: own kernels would fail
  Random random(1);
  for (const Size& s : sizes)
    for (const int32_t type : types) {
      for (const bool bias : {false, true}) {
        INFO("linear " << s.m << " " << s.n << " " << s.k << ", dtype " << type << ", bias " << bias);
        const Count count;
        check_close(linear(random, type, s.m, s.n, s.k, bias), 2e-6);
        CHECK(count() == 1);
        CHECK(software_blas_last().epilogue == uint32_t(bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT));
      }
      for (const int32_t result : {type, int32_t{ENG_F32}})
        for (const bool ta : {false, true})
          for (const bool tb : {false, true})
            for (const Add add : {Add::no, Add::yes, Add::in_place}) {
              INFO("matmul " << s.m << " " << s.n << " " << s.k << ", dtype " << type << " gives " << result << ", ta "
                             << ta << ", tb " << tb << ", add " << int(add));
              const Count count;
              check_close(matmul(random, type, result, s.m, s.n, s.k, ta, tb, add), 2e-6);
              CHECK(count() == 1);
            }
    }
}

TEST_CASE("leading dimensions of a linear are folded") {
  const Machine machine;
  Random random(2);
  Use use = linear(random, ENG_BF16, 12, 5, 16, true);
  use.in[0].d = desc(ENG_BF16, {3, 4, 16}), use.out[0] = desc(ENG_BF16, {3, 4, 5});
  check_close(use, 0);
}

TEST_CASE("what is chosen: no TF32, no parts of K added in any order or rounded, no more scratch than the plan has") {
  Random random(3);
  constexpr int64_t m = 24, n = 40, k = 512;
  constexpr int64_t need = 4 * m * n * int64_t{sizeof(float)};  // of the software library's four parts
  for (const char* careless : {"0", "1"})                       // 1: the library ignores what it was told
    for (const int32_t type : types)
      for (const int64_t workspace : {int64_t{0}, need - 1, need, cap}) {
        const Machine machine(Variables{{"SOFTCUBLAS_CARELESS", careless}});
        INFO("dtype " << type << ", workspace " << workspace << ", careless " << careless);
        const Use use = linear(random, type, m, n, k, false);
        CHECK(workspace_of(use, describe(with_workspace(workspace))) == uint64_t(workspace));
        const Count count;
        check_close(use, 2e-6, {workspace});
        CHECK(count() == 1);
        const software_blas_use chosen = software_blas_last();
        CHECK((chosen.numbers & tf32) == 0);
        CHECK(chosen.scheme ==
              uint32_t(workspace < need ? CUBLASLT_REDUCTION_SCHEME_NONE : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
        CHECK(chosen.parts == (workspace < need ? 1u : 4u));
        CHECK(chosen.scratch <= uint64_t(workspace));
      }
}

TEST_CASE("products have the same bits in every run, order of streams, and captured") {
  Random random(4);
  const Use use = matmul(random, ENG_BF16, ENG_F32, 40, 24, 300, true, false, Add::yes);
  std::vector<Tensor> first;
  for (int seed = 1; seed <= 4; ++seed) {
    const Machine machine(Variables{{"SOFTCUDA_SEED", std::to_string(seed)}});
    for (const How& how : {How{}, How{cap, 0, 3}, How{cap, 0, 2, true}}) {
      const std::vector<Tensor> again = run(use, how);
      if (first.empty()) first = again;
      CHECK(again[0].same_bits(first[0]));
    }
    CHECK(software_cuda_graphs() == 2);
  }
}

TEST_CASE("the scratch of a product is [device] workspace, with or without a GPU") {
  Random random(5);
  const Use use = linear(random, ENG_BF16, 8, 16, 32, true);
  for (const char* card : {"a100-80g", "h200", "b200", "rtx4090"})
    for (const int64_t workspace : {int64_t{0}, int64_t{12345}, int64_t{64} << 20}) {
      const auto here = [&] {
        const Machine machine(Variables{{"SOFTCUDA_CARD", card}});
        return describe(with_workspace(workspace));
      }();
      const Machine none(Variables{{"SOFTCUDA_DRIVER", "none"}});
      const Options options(card, false, workspace);
      CHECK(workspace_of(use, here) == uint64_t(workspace));
      CHECK(workspace_of(use, describe(options)) == uint64_t(workspace));
    }
  const Machine machine;
  CHECK(workspace_of(use, describe()) == uint64_t{32} << 20);  // the default
  CHECK_THROWS_WITH(describe(with_workspace(-1)), Contains("workspace = -1: give 0 or more bytes"));
}
