// SPDX-License-Identifier: Apache-2.0
// The scan of Mamba-2 on the cpu device, beside the same recurrence token by token, in f32.
//   bench-ssd THREADS [B T H P N G]   sequences, tokens, heads, their channels, states, groups (1 2048 24 64 128 1)
// Prints the milliseconds of the best of 5 launches of the forward and of the gradient, and of the plain loop forward.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "engine/kernel.h"
#include "engine/plugin.h"

namespace {

struct Sizes {
  int64_t B = 1, T = 2048, H = 24, P = 64, N = 128, G = 1;
  int64_t row() const { return H * P + 2 * G * N; }
};
using Tensor = std::vector<float>;

Tensor random_tensor(int64_t n, uint32_t seed) {
  Tensor out(static_cast<size_t>(n));
  for (float& x : out) x = static_cast<float>((seed = seed * 1664525 + 1013904223) >> 8) / 8388608.0f - 1.0f;
  return out;
}

eng_desc desc(std::initializer_list<int64_t> dims) {
  eng_desc d{};
  d.dtype = ENG_F32;
  for (const int64_t n : dims) d.dims[d.ndim++] = n;
  return d;
}

// The milliseconds of the best of 5 calls.
template <class F>
double best(F&& f) {
  double least = INFINITY;
  for (int k = 0; k < 5; ++k) {
    const auto start = std::chrono::steady_clock::now();
    f();
    least =
        std::min(least, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  return least;
}

double measure(const eng_kernels& kernels, const std::string& op, const Sizes& s, uint32_t threads,
               const std::vector<eng_desc>& in, const std::vector<eng_desc>& out, std::vector<Tensor>& data) {
  const eng_kernel* kernel = nullptr;
  for (uint32_t k = 0; k < kernels.count; ++k)
    if (op == kernels.kernels[k]->op) kernel = kernels.kernels[k];
  if (!kernel) throw std::runtime_error("no kernel for " + op);
  const eng_attr attrs[] = {{"groups", s.G, 0}, {"states", s.N, 0}, {"low", 0, 0}, {"high", 0, INFINITY}};
  eng_call call{};
  call.in = in.data(), call.n_in = static_cast<uint32_t>(in.size());
  call.out = out.data(), call.n_out = static_cast<uint32_t>(out.size());
  call.attrs = attrs, call.n_attrs = 4, call.parallel = threads;
  uint64_t bytes = 0;
  void *state = nullptr, *record = nullptr;
  if (kernel->workspace(&call, &bytes, nullptr) || kernel->prepare(nullptr, &call, &state, nullptr))
    throw std::runtime_error(op + " refuses the call");
  std::vector<char> scratch(bytes);
  std::vector<DLTensor> tensors(data.size());
  std::vector<const DLTensor*> args;
  for (size_t k = 0; k < data.size(); ++k) tensors[k].data = data[k].data(), args.push_back(&tensors[k]);
  if (kernel->bind(state, args.data(), static_cast<uint32_t>(args.size()), scratch.data(), &record, nullptr))
    throw std::runtime_error(op + " cannot be bound");
  const eng_exec exec{};
  const double time = best([&] { kernel->launch(record, &exec, nullptr); });
  kernel->drop_record(record), kernel->drop_state(state);
  return time;
}

// One head of one sequence, token by token; the compiler vectorises over the channels.
void plain_head(const Sizes& s, const Tensor& xbc, const Tensor& dt, const Tensor* vectors, int64_t b, int64_t j,
                Tensor& y) {
  std::vector<float> h(static_cast<size_t>(s.N * s.P));
  const float rate = -std::exp(vectors[0][static_cast<size_t>(j)]);
  for (int64_t t = b * s.T; t < (b + 1) * s.T; ++t) {
    const float* row = xbc.data() + t * s.row();
    const float *x = row + j * s.P, *B = row + s.H * s.P + j / (s.H / s.G) * s.N, *C = B + s.G * s.N;
    const float raw = dt[static_cast<size_t>(t * s.H + j)] + vectors[2][static_cast<size_t>(j)];
    const float step = std::log1p(std::exp(raw)), decay = std::exp(step * rate);
    float* out = y.data() + (t * s.H + j) * s.P;
    for (int64_t p = 0; p < s.P; ++p) out[p] = vectors[1][static_cast<size_t>(j)] * x[p];
    for (int64_t n = 0; n < s.N; ++n) {
      float* state = h.data() + n * s.P;
      const float in = step * B[n], c = C[n];
      for (int64_t p = 0; p < s.P; ++p) state[p] = decay * state[p] + in * x[p], out[p] += c * state[p];
    }
  }
}

double plain(const Sizes& s, uint32_t threads, const Tensor& xbc, const Tensor& dt, const Tensor* vectors, Tensor& y) {
  return best([&] {
    std::vector<std::thread> all;
    for (uint32_t k = 0; k < threads; ++k)
      all.emplace_back([&, k] {
        for (int64_t task = k; task < s.B * s.H; task += threads)
          plain_head(s, xbc, dt, vectors, task / s.H, task % s.H, y);
      });
    for (std::thread& one : all) one.join();
  });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 8) return std::fprintf(stderr, "bench-ssd THREADS [B T H P N G]\n"), 2;
  Sizes s;
  const auto threads = static_cast<uint32_t>(std::atoi(argv[1]));
  int64_t* const sizes[] = {&s.B, &s.T, &s.H, &s.P, &s.N, &s.G};
  for (int k = 2; k < argc; ++k) *sizes[k - 2] = std::atoll(argv[k]);
  try {
    void* library = dlopen(ENGINE_PLUGIN_DIR "/mamba/mamba.eng.so", RTLD_NOW | RTLD_LOCAL);
    if (!library) throw std::runtime_error(dlerror());
    const auto* plugin = reinterpret_cast<eng_plugin_query_fn>(dlsym(library, "eng_plugin_query_1"))(ENG_ABI_MINOR);
    const auto* kernels = static_cast<const eng_kernels*>(plugin->get_interface(ENG_KERNELS_KIND, "cpu"));
    const eng_desc xbc = desc({s.B, s.T, s.row()}), dt = desc({s.B, s.T, s.H}), y = desc({s.B, s.T, s.H * s.P}),
                   vector = desc({s.H});
    const int64_t tokens = s.B * s.T;
    const Tensor in[] = {random_tensor(tokens * s.row(), 1), random_tensor(tokens * s.H, 2), random_tensor(s.H, 3),
                         random_tensor(s.H, 4), random_tensor(s.H, 5)};
    Tensor out(static_cast<size_t>(tokens * s.H * s.P));
    std::vector<Tensor> forward(in, in + 5), backward = {random_tensor(tokens * s.H * s.P, 6)};
    forward.push_back(out);
    backward.insert(backward.end(), in, in + 5);
    backward.insert(backward.end(), in, in + 5);  // the outputs are shaped as the inputs
    const double ms = measure(*kernels, "eng.mamba.ssd/1", s, threads, {xbc, dt, vector, vector, vector}, {y}, forward);
    const double grad = measure(*kernels, "eng.mamba.ssd_grad/1", s, threads, {y, xbc, dt, vector, vector, vector},
                                {xbc, dt, vector, vector, vector}, backward);
    const double loop = plain(s, threads, in[0], in[1], in + 2, out);
    double error = 0, size = 0;
    for (size_t i = 0; i < out.size(); ++i)
      error = std::max<double>(error, std::abs(out[i] - forward[5][i])),
      size = std::max<double>(size, std::abs(out[i]));
    std::printf("forward %.2f ms, gradient %.2f ms, plain loop forward %.2f ms; largest difference %.1e\n", ms, grad,
                loop, error / size);
  } catch (const std::exception& e) {
    return std::fprintf(stderr, "%s\n", e.what()), 1;
  }
  return 0;
}
