// SPDX-License-Identifier: Apache-2.0
// Products of the cpu device against plain loops in double.
#include <catch2/catch.hpp>

#include "fast_device.hpp"

using fast::Device;
using fast::error_of;
using fast::random_tensor;
using fast::Run;
using fast::Tensor;

namespace {

// op(a) op(b) + bias + acc
std::vector<double> product(const Tensor& a, const Tensor& b, int64_t m, int64_t n, int64_t k, bool ta, bool tb,
                            const Tensor* bias, const Tensor* acc) {
  std::vector<double> c(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = (bias ? (*bias)[j] : 0.0) + (acc ? (*acc)[i * n + j] : 0.0);
      for (int64_t l = 0; l < k; ++l)
        sum += double(ta ? a[l * m + i] : a[i * k + l]) * double(tb ? b[j * k + l] : b[l * n + j]);
      c[static_cast<size_t>(i * n + j)] = sum;
    }
  return c;
}

std::vector<std::string> sets() {
  std::vector<std::string> found;
  for (const char* isa : {"auto", "avx512_bf16", "avx512", "avx2", "portable"})
    if (fast::isa_present(isa)) found.push_back(isa);
  return found;
}

struct Shape {
  int64_t m, n, k;
};
const std::vector<Shape> shapes = {{1, 1, 1},      {5, 1, 9},      {7, 13, 11},     {33, 65, 31},
                                   {100, 48, 300}, {129, 200, 77}, {257, 130, 513}, {6, 900, 40}};

}  // namespace

TEST_CASE("every product agrees with plain loops", "[cpu]") {
  for (const auto& isa : sets())
    for (const uint32_t threads : {1U, 5U}) {
      const Device device(threads, isa);
      for (const auto& s : shapes)
        for (int form = 0; form < 8; ++form) {
          const bool ta = form & 1, tb = form & 2, accumulate = form & 4;
          const Tensor a = ta ? random_tensor({s.k, s.m}, 1) : random_tensor({s.m, s.k}, 1);
          const Tensor b = tb ? random_tensor({s.n, s.k}, 2) : random_tensor({s.k, s.n}, 2);
          const Tensor acc = random_tensor({s.m, s.n}, 3), c({s.m, s.n});
          Run run(device, threads, ENG_OP_MATMUL, {a, b, accumulate ? acc : Tensor()}, {c},
                  {{"ta", ta, 0}, {"tb", tb, 0}});
          run.launch();
          INFO(isa << " threads " << threads << " m " << s.m << " n " << s.n << " k " << s.k << " form " << form);
          REQUIRE(error_of(c, product(a, b, s.m, s.n, s.k, ta, tb, nullptr, accumulate ? &acc : nullptr)) < 2e-6);
          REQUIRE(run.guards_intact());
          const Tensor first = c.clone();
          run.launch();
          REQUIRE(c.same_bits(first));
        }
    }
}

// Long sums, which threads hand to each other, parts of C by rows and by columns, few rows, panels and blocks that do
// not divide.
TEST_CASE("bits of a product depend neither on the number of threads nor on the width of the vectors", "[cpu][.slow]") {
  const Shape cases[] = {{1, 300, 700}, {31, 257, 290}, {33, 95, 1}, {57, 4099, 301}, {515, 33, 5003}, {603, 130, 97}};
  for (const Shape& s : cases)
    for (int form = 0; form < 4; ++form) {
      const bool ta = form & 1, tb = form & 2;
      const Tensor a = ta ? random_tensor({s.k, s.m}, 1) : random_tensor({s.m, s.k}, 1);
      const Tensor b = tb ? random_tensor({s.n, s.k}, 2) : random_tensor({s.k, s.n}, 2);
      const Tensor acc = random_tensor({s.m, s.n}, 3), bias = random_tensor({s.n}, 4);
      const auto want = product(a, b, s.m, s.n, s.k, ta, tb, nullptr, &acc);
      Tensor fused;  // what all sets with fused multiply-adds agree on
      for (const auto& isa : sets()) {
        Tensor first, first_linear;
        for (const uint32_t threads : {1U, 2U, 3U, 16U}) {
          INFO(isa << " threads " << threads << " m " << s.m << " n " << s.n << " k " << s.k << " form " << form);
          const Device device(threads, isa);
          const Tensor c({s.m, s.n});
          Run run(device, threads, ENG_OP_MATMUL, {a, b, acc}, {c}, {{"ta", ta, 0}, {"tb", tb, 0}});
          run.launch();
          REQUIRE(run.guards_intact());
          if (threads == 1) {
            REQUIRE(error_of(c, want) < 2e-6);
            first = c.clone();
          }
          REQUIRE(c.same_bits(first));
          if (form != 2) continue;
          const Tensor y({s.m, s.n});
          Run linear(device, threads, ENG_OP_LINEAR, {a, b, bias}, {y});
          linear.launch();
          REQUIRE(linear.guards_intact());
          if (threads == 1) {
            REQUIRE(error_of(y, product(a, b, s.m, s.n, s.k, false, true, &bias, nullptr)) < 2e-6);
            first_linear = y.clone();
          }
          REQUIRE(y.same_bits(first_linear));
        }
        if (isa == "portable") {
          // Another rounding of the products is another result: the comparison can fail.
          if (fused.count > 1 && s.k > 100) REQUIRE_FALSE(first.same_bits(fused));
          continue;
        }
        if (fused.count <= 1) fused = first;
        REQUIRE(first.same_bits(fused));
      }
    }
}

TEST_CASE("sums longer than one piece", "[cpu]") {
  const int64_t m = 9, n = 20, k = 8192 + 3000;
  const Tensor x = random_tensor({m, k}, 1), w = random_tensor({n, k}, 2), bias = random_tensor({n}, 3, 100.0f),
               y({m, n});
  const Tensor xt = random_tensor({k, m}, 1), c = random_tensor({m, n}, 4, 100.0f), wt = random_tensor({k, n}, 2);
  for (const auto& isa : sets())
    for (const uint32_t threads : {1U, 3U}) {
      const Device device(threads, isa);
      Run linear(device, threads, ENG_OP_LINEAR, {x, w, bias}, {y});
      linear.launch();
      CHECK(error_of(y, product(x, w, m, n, k, false, true, &bias, nullptr)) < 1e-5);
      const Tensor sum = c.clone();
      Run weight(device, threads, ENG_OP_MATMUL, {xt, wt, sum}, {sum}, {{"ta", 1, 0}, {"tb", 0, 0}});
      weight.launch();
      CHECK(error_of(sum, product(xt, wt, m, n, k, true, false, nullptr, &c)) < 1e-5);
      CHECK((linear.guards_intact() && weight.guards_intact()));
    }
}

// Behind the workspace nothing is touched.
TEST_CASE("scratch stays within its bound for any number of threads", "[cpu][.slow]") {
  const Shape large[] = {{2048, 512, 512},  {1376, 512, 2048}, {32000, 64, 512},
                         {256, 1000, 1000}, {64, 32000, 64},   {1000, 16, 9000}};
  for (uint32_t threads : {1, 2, 3, 5, 8}) {
    const Device device(threads);
    for (const auto& s : large)
      for (int form = 0; form < 4; ++form) {
        const bool ta = form & 1, tb = form & 2;
        const Tensor a = ta ? random_tensor({s.k, s.m}, 1) : random_tensor({s.m, s.k}, 1);
        const Tensor b = tb ? random_tensor({s.n, s.k}, 2) : random_tensor({s.k, s.n}, 2), c({s.m, s.n});
        Run run(device, threads, ENG_OP_MATMUL, {a, b, Tensor()}, {c}, {{"ta", ta, 0}, {"tb", tb, 0}});
        INFO("threads " << threads << " m " << s.m << " n " << s.n << " k " << s.k << " form " << form);
        run.launch();
        const Tensor first = c.clone();
        run.launch();
        REQUIRE(c.same_bits(first));
        REQUIRE(run.guards_intact());
      }
  }
}

TEST_CASE("a product in place of its accumulator", "[cpu]") {
  for (const auto& isa : sets()) {
    const Device device(2, isa);
    const Tensor a = random_tensor({70, 90}, 1), b = random_tensor({70, 50}, 2), c = random_tensor({90, 50}, 3);
    const auto want = product(a, b, 90, 50, 70, true, false, nullptr, &c);
    Run run(device, 2, ENG_OP_MATMUL, {a, b, c}, {c}, {{"ta", 1, 0}, {"tb", 0, 0}});
    run.launch();
    REQUIRE(error_of(c, want) < 2e-6);
    run.launch();  // once more on top
    REQUIRE(error_of(c, want) > 1e-2);
  }
}

TEST_CASE("linear folds leading dimensions and adds its bias", "[cpu]") {
  for (const auto& isa : sets())
    for (const bool with_bias : {false, true})
      for (const auto& s : shapes) {
        const Device device(2, isa);
        const Tensor x = random_tensor({2, s.m, s.k}, 1), w = random_tensor({s.n, s.k}, 2), y({2, s.m, s.n});
        const Tensor bias = random_tensor({s.n}, 3);
        Run run(device, 2, ENG_OP_LINEAR, {x, w, with_bias ? bias : Tensor()}, {y});
        run.launch();
        const auto want = product(x, w, 2 * s.m, s.n, s.k, false, true, with_bias ? &bias : nullptr, nullptr);
        REQUIRE(error_of(y, want) < 2e-6);
        REQUIRE(run.guards_intact());
        // A dropped bias would be seen.
        if (with_bias) REQUIRE(error_of(y, product(x, w, 2 * s.m, s.n, s.k, false, true, nullptr, nullptr)) > 1e-3);
      }
}

TEST_CASE("sum_rows does not depend on the number of threads", "[cpu]") {
  for (const Shape s : {Shape{1, 1, 0}, {3, 64, 0}, {1000, 130, 0}, {77, 200, 0}}) {
    const Tensor x = random_tensor({s.m, s.n}, 1), acc = random_tensor({s.n}, 2), y({s.n});
    std::vector<double> want(static_cast<size_t>(s.n));
    for (int64_t j = 0; j < s.n; ++j) {
      want[static_cast<size_t>(j)] = acc[j];
      for (int64_t i = 0; i < s.m; ++i) want[static_cast<size_t>(j)] += x[i * s.n + j];
    }
    Tensor first;
    for (const uint32_t threads : {1U, 2U, 3U}) {
      const Device device(threads);
      Run run(device, threads, ENG_OP_SUM_ROWS, {x, acc}, {y});
      run.launch();
      REQUIRE(error_of(y, want) < 1e-5);
      REQUIRE(run.guards_intact());
      if (threads == 1) first = y.clone();
      REQUIRE(y.same_bits(first));
    }
    const Device device(1);
    Run run(device, 1, ENG_OP_SUM_ROWS, {x, Tensor()}, {y});
    run.launch();
    for (int64_t j = 0; j < s.n; ++j) want[static_cast<size_t>(j)] -= acc[j];
    REQUIRE(error_of(y, want) < 1e-5);
  }
}

TEST_CASE("shapes that do not fit are refused with a reason", "[cpu]") {
  const Device device(1);
  const Tensor x({4, 8}), w({6, 7}), y({4, 6});
  REQUIRE_THROWS_WITH(Run(device, 1, ENG_OP_LINEAR, {x, w, Tensor()}, {y}),
                      Catch::Contains("columns of w is 7, not 8"));
  Tensor half({4, 8});
  half.desc.dtype = ENG_BF16;
  REQUIRE_THROWS_WITH(Run(device, 1, ENG_OP_LINEAR, {half, Tensor({6, 8}), Tensor()}, {y}), Catch::Contains("type"));
}

TEST_CASE("the device describes itself without being created", "[cpu]") {
  const fast::DeviceOptions options(3, "auto");
  eng_device_info info{};
  info.struct_size = sizeof info;
  REQUIRE(fast::device_table().describe(&options.table, &info, nullptr) == ENG_OK);
  REQUIRE(info.parallel == 3);
  REQUIRE(info.parallel_beside == 1);
  REQUIRE(info.flags == ENG_DEVICE_HOST_MEMORY);
  REQUIRE(info.dl_device_type == kDLCPU);
  REQUIRE(info.total_bytes > 0);
  REQUIRE(std::strlen(info.name) > 0);

  const fast::DeviceOptions automatic(0, "auto");
  REQUIRE(fast::device_table().describe(&automatic.table, &info, nullptr) == ENG_OK);
  REQUIRE(info.parallel >= 1);
  fast::TextError error;
  const fast::DeviceOptions negative(-1, "auto");
  REQUIRE(fast::device_table().describe(&negative.table, &info, &error.sink) == ENG_INVALID);
  REQUIRE_THAT(error.text, Catch::Contains("threads = -1"));
  REQUIRE_THROWS_WITH(Device(1, "vax"), Catch::Contains("vax"));
}

TEST_CASE("an arena is zeroed and page-aligned", "[cpu]") {
  const Device device(2);
  const auto& table = fast::device_table();
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{4096}, uint64_t{1234567}}) {
    void* arena = nullptr;
    REQUIRE(table.alloc(device.self, ENG_MEMORY_DEVICE, bytes, &arena, nullptr) == ENG_OK);
    REQUIRE(reinterpret_cast<uintptr_t>(arena) % 4096 == 0);
    for (uint64_t k = 0; k < bytes; ++k)
      if (static_cast<char*>(arena)[k] != 0) FAIL("byte " << k << " is not zero");
    table.free(device.self, ENG_MEMORY_DEVICE, arena, bytes);
  }
  void* arena = nullptr;
  fast::TextError error;
  REQUIRE(table.alloc(device.self, ENG_MEMORY_DEVICE, uint64_t{1} << 62, &arena, &error.sink) == ENG_NO_MEMORY);
  REQUIRE(arena == nullptr);
  REQUIRE_THAT(error.text, Catch::Contains("4611686018427387904 bytes"));
}
