// SPDX-License-Identifier: Apache-2.0
// AdamW of the cpu device, and a pass over memory with the same streams: the engine's side of benchmarks/adamw.py.
//   bench-adamw N          N elements; first prints the processor's name
//   adamw COUNT            prints the seconds of one of COUNT updates
//   written COUNT          the same of an update that also writes the weight in bf16
//   cast COUNT             the same of an update, and then a cast of p to bf16
//   streams COUNT          the same of a pass that reads p, grad, m and v, and writes p, m and v, as an update does
#include <chrono>
#include <cstdio>
#include <iostream>
#include <thread>

#include "tests/kernels/fast_device.hpp"

namespace {

using fast::random_tensor;
using fast::Run;
using fast::Tensor;

struct Streams {
  float *p, *m, *v;
  const float* grad;
};

void pass(const Streams& s, int64_t first, int64_t last) {
  float* __restrict p = s.p, * __restrict m = s.m, * __restrict v = s.v;
  const float* __restrict grad = s.grad;
  for (int64_t i = first; i < last; ++i) {
    const float g = grad[i];
    p[i] += g, m[i] -= g, v[i] += g;
  }
}

void pass(const Streams& s, int64_t n, uint32_t threads) {
  std::vector<std::thread> others;
  const int64_t each = (n + threads - 1) / threads;
  for (uint32_t k = 1; k < threads; ++k)
    others.emplace_back([&s, n, each, k] { pass(s, std::min(n, each * k), std::min(n, each * (k + 1))); });
  pass(s, 0, std::min(n, each));
  for (std::thread& t : others) t.join();
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "bench-adamw N\n"), 2;
  try {
    const int64_t n = std::atoll(argv[1]);
    eng_device_info info{};
    info.struct_size = sizeof info;
    const fast::DeviceOptions options(0, "auto");
    if (fast::device_table().describe(&options.table, &info, nullptr) != ENG_OK) throw std::runtime_error("describe");
    const fast::Device device(0, "auto");
    const Tensor p = random_tensor({n}, 1), grad = random_tensor({n}, 2), m = random_tensor({n}, 3);
    Tensor v = random_tensor({n}, 4), scalars({ENG_S_COUNT});
    for (int64_t i = 0; i < n; ++i) v.data()[i] *= v.data()[i];
    for (int64_t i = 0; i < ENG_S_COUNT; ++i) scalars.data()[i] = 0;
    scalars.data()[ENG_S_CLIP] = scalars.data()[ENG_S_OK] = 1;
    scalars.data()[ENG_S_LR] = 1e-4f, scalars.data()[ENG_S_LR + 1] = 0.5f, scalars.data()[ENG_S_LR + 2] = 0.5f;
    const Tensor weight({n}, ENG_BF16);
    const std::vector<eng_attr> numbers = {
        {"beta1", 0, 0.9}, {"beta2", 0, 0.95}, {"eps", 0, 1e-8}, {"weight_decay", 0, 0.1}};
    std::vector<eng_attr> writes = numbers;
    writes.push_back({"weight", ENG_BF16, 0});
    Run update(device, info.parallel, ENG_OP_ADAMW, {p, grad, m, v, scalars}, {p, m, v}, numbers);
    Run written(device, info.parallel, ENG_OP_ADAMW, {p, grad, m, v, scalars}, {p, m, v, weight}, writes);
    Run cast(device, info.parallel, ENG_OP_CAST, {p}, {weight}, {{"dtype", ENG_BF16, 0}});
    const Tensor a(p.clone()), b(m.clone()), c(v.clone());
    const Streams streams = {a.data(), b.data(), c.data(), grad.data()};
    std::printf("\"%s\"\n", info.name), std::fflush(stdout);
    std::string kind;
    for (int64_t count = 0; std::cin >> kind >> count; std::fflush(stdout)) {
      const double start = now();
      for (int64_t r = 0; r < count; ++r)
        if (kind == "adamw")
          update.launch();
        else if (kind == "written")
          written.launch();
        else if (kind == "cast")
          update.launch(), cast.launch();
        else
          pass(streams, n, info.parallel);
      std::printf("%.9f\n", (now() - start) / static_cast<double>(count));
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
