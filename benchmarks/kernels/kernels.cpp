// SPDX-License-Identifier: Apache-2.0
// Rates of the cpu device's heavy kernels at the sizes of a LLaMA with d_model 512, 8 heads, ffn 1376, vocab 32000.
//   kernels [--threads N] [--isa auto|avx512_bf16|avx512|avx2|portable] [--batch B] [--tokens T] [--seconds S]
//           [--only gemm|formats|attention|head|stream|update] [--clock wall|processor]
// `attention` and the rows "packed" have samples of several documents, whose lengths differ; the name says their mean
// length. `formats` has each product in f32 and in bf16, one after the other.
// --clock processor counts this process's own time: with one thread a fair figure on a busy machine too.
// Prints the best of the repetitions; anything else running on the machine makes it slower, never faster.
#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>

#include "engine/ops_attention.h"
#include "engine/ops_fp8.h"
#include "engine/ops_parallel.h"
#include "engine/packed.h"
#include "tests/kernels/fast_device.hpp"

namespace {

using fast::random_tensor;
using fast::Run;
using fast::Tensor;

bool processor_time = false;
double now() {
  if (processor_time) return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Bench {
  fast::Device device;
  uint32_t threads;
  double seconds;
  Bench(int64_t asked, const std::string& isa, uint32_t used, double time)
      : device(asked, isa), threads(used), seconds(time) {}

  void row(const char* name, double flops, const char* op, const std::vector<Tensor>& in,
           const std::vector<Tensor>& out, const std::vector<eng_attr>& attrs = {}) {
    Run run(device, threads, op, in, out, attrs);
    run.launch();
    double best = 1e30;
    int count = 0;
    for (const double end = now() + seconds; now() < end || count < 3; ++count) {
      const double start = now();
      run.launch();
      best = std::min(best, now() - start);
    }
    std::printf("%-48s %9.3f ms %8.1f G/s   workspace %7.2f MiB\n", name, best * 1e3, flops / best * 1e-9,
                static_cast<double>(run.workspace_bytes) / 1048576.0);
    std::fflush(stdout);
  }
};

// The tensor's values in bf16, rounded towards zero.
Tensor in_bf16(const Tensor& t) {
  Tensor out({(t.count + 1) / 2});
  out.desc = t.desc, out.desc.dtype = ENG_BF16;
  const auto* from = reinterpret_cast<const uint16_t*>(t.data());
  auto* to = reinterpret_cast<uint16_t*>(out.data());
  for (int64_t i = 0; i < t.count; ++i) to[i] = from[2 * i + 1];
  return out;
}

// Samples of documents whose lengths are uneven, `mean` tokens on average.
struct Packed {
  Tensor segments, positions;
  double squares = 0;  // the sum over the documents of the square of their length
  Packed(int64_t batch, int64_t tokens, int64_t mean)
      : segments({batch, tokens}, ENG_I32), positions({batch, tokens}, ENG_I32) {
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t first = 0, number = b; first < tokens; ++number) {
        const int64_t n = std::min(std::max<int64_t>(mean * (1 + number * 7 % 13) / 7, 1), tokens - first);
        for (int64_t t = 0; t < n; ++t) {
          segments.ints()[b * tokens + first + t] = static_cast<int32_t>(number);
          positions.ints()[b * tokens + first + t] = static_cast<int32_t>(t);
        }
        squares += double(n) * double(n), first += n;
      }
  }
};

}  // namespace

int main(int argc, char** argv) {
  int64_t threads = 0, batch = 8, tokens = 256;
  double seconds = 1.0;
  std::string isa = "auto", only;
  for (int k = 1; k + 1 < argc; k += 2) {
    const std::string key = argv[k];
    if (key == "--threads")
      threads = std::atoll(argv[k + 1]);
    else if (key == "--isa")
      isa = argv[k + 1];
    else if (key == "--batch")
      batch = std::atoll(argv[k + 1]);
    else if (key == "--tokens")
      tokens = std::atoll(argv[k + 1]);
    else if (key == "--seconds")
      seconds = std::atof(argv[k + 1]);
    else if (key == "--clock")
      processor_time = std::string(argv[k + 1]) == "processor";
    else if (key == "--only")
      only = argv[k + 1];
    else
      return std::fprintf(stderr, "unknown option %s\n", key.c_str()), 2;
  }
  try {
    eng_device_info info{};
    info.struct_size = sizeof info;
    const fast::DeviceOptions options(threads, isa);
    if (fast::device_table().describe(&options.table, &info, nullptr) != ENG_OK) throw std::runtime_error("describe");
    std::printf("%s, %u threads, isa %s, B %ld, T %ld\n", info.name, info.parallel, isa.c_str(), long(batch),
                long(tokens));
    Bench bench(threads, isa, info.parallel, seconds);
    const int64_t h = 512, ffn = 1376, vocab = 32000, n = batch * tokens;
    const auto wanted = [&](const char* group) { return only.empty() || only == group; };

    const auto layer = [&](const char* name, int64_t out, int64_t in) {
      const Tensor x = random_tensor({n, in}, 1), w = random_tensor({out, in}, 2, 0.05f),
                   y = random_tensor({n, out}, 3);
      const double flops = 2.0 * double(n) * double(in) * double(out);
      bench.row((std::string(name) + " forward").c_str(), flops, ENG_OP_LINEAR, {x, w, Tensor()}, {y});
      bench.row((std::string(name) + " dX").c_str(), flops, ENG_OP_MATMUL, {y, w}, {x}, {{"ta", 0, 0}, {"tb", 0, 0}});
      bench.row((std::string(name) + " dW").c_str(), flops, ENG_OP_MATMUL, {y, x}, {w}, {{"ta", 1, 0}, {"tb", 0, 0}});
      bench.row((std::string(name) + " dW += ").c_str(), flops, ENG_OP_MATMUL, {y, x, w}, {w},
                {{"ta", 1, 0}, {"tb", 0, 0}});
    };
    const auto layer_relu = [&](const char* name, int64_t out, int64_t in) {
      const Tensor x = random_tensor({n, in}, 1), w = random_tensor({out, in}, 2, 0.05f),
                   bias = random_tensor({out}, 3);
      const Tensor y({n, out}), mask({n, eng_relu_mask_bytes(out)}, ENG_U8), next = random_tensor({in, out}, 4, 0.05f);
      const double flops = 2.0 * double(n) * double(in) * double(out);
      bench.row((std::string(name) + " relu").c_str(), flops, ENG_OP_LINEAR_RELU, {x, w, bias}, {y, mask});
      bench.row((std::string(name) + " relu dZ").c_str(), flops, ENG_OP_MATMUL_RELU_GRAD, {x, next, mask}, {y, bias},
                {{"sums", 1, 0}});
    };
    if (wanted("gemm")) {
      layer("512 -> 512", h, h), layer("512 -> 1376", ffn, h), layer("1376 -> 512", h, ffn);
      layer("512 -> 32000", vocab, h), layer_relu("512 -> 2048", 4 * h, h);
    }
    if (wanted("formats"))
      for (const auto& [out, in] : {std::array<int64_t, 2>{h, h}, {ffn, h}, {h, ffn}}) {
        const Tensor x = random_tensor({n, in}, 1), w = random_tensor({out, in}, 2, 0.05f),
                     y = random_tensor({n, out}, 3), x16 = in_bf16(x), w16 = in_bf16(w), y16 = in_bf16(y);
        const double flops = 2.0 * double(n) * double(in) * double(out);
        const std::string name = std::to_string(in) + " -> " + std::to_string(out);
        const std::vector<eng_attr> plain = {{"ta", 0, 0}, {"tb", 0, 0}}, turned = {{"ta", 1, 0}, {"tb", 0, 0}};
        bench.row((name + " forward").c_str(), flops, ENG_OP_LINEAR, {x, w, Tensor()}, {y});
        bench.row((name + " forward in bf16").c_str(), flops, ENG_OP_LINEAR, {x16, w16, Tensor()}, {y16});
        bench.row((name + " forward of bf16 in fp8").c_str(), flops, ENG_OP_FP8_LINEAR, {x16, w16, Tensor()}, {y16},
                  {{"gradients", ENG_FP8_E5M2, 0}, {"margin", 0, 0}});
        const Tensor state({3, 18});
        bench.row((name + " largest values of bf16").c_str(), 2.0 * double(n) * double(in), ENG_OP_FP8_LARGEST,
                  {state, x16, Tensor(), Tensor()}, {state});
        bench.row((name + " dX").c_str(), flops, ENG_OP_MATMUL, {y, w}, {x}, plain);
        bench.row((name + " dX in bf16").c_str(), flops, ENG_OP_MATMUL, {y16, w16}, {x16}, plain);
        bench.row((name + " dW").c_str(), flops, ENG_OP_MATMUL, {y, x}, {w}, turned);
        bench.row((name + " dW of bf16, in f32").c_str(), flops, ENG_OP_MATMUL, {y16, x16}, {w}, turned);
      }
    if (wanted("attention"))
      for (const auto& [heads, kv, d] : {std::array<int64_t, 3>{8, 8, 64}, {8, 2, 64}, {4, 4, 128}}) {
        const std::vector<eng_attr> attrs = {{"heads", heads, 0}, {"kv_heads", kv, 0}, {"scale", 0, 0.125}};
        const Tensor q = random_tensor({batch, tokens, heads * d}, 1), k = random_tensor({batch, tokens, kv * d}, 2),
                     v = random_tensor({batch, tokens, kv * d}, 3), grad = random_tensor({batch, tokens, heads * d}, 4);
        const Tensor o(q.clone()), lse({batch, heads, tokens}), dq(q.clone()), dk(k.clone()), dv(v.clone());
        const double flops =
            2.0 * double(batch * heads * d) * double(tokens) * double(tokens);  // causal half of two products
        const std::string name =
            "attention h " + std::to_string(heads) + "/" + std::to_string(kv) + " D " + std::to_string(d);
        bench.row((name + " forward").c_str(), flops, ENG_OP_ATTENTION, {q, k, v}, {o, lse}, attrs);
        bench.row((name + " backward").c_str(), 2.5 * flops, ENG_OP_ATTENTION_GRAD, {grad, q, k, v, o, lse},
                  {dq, dk, dv}, attrs);
        for (const int64_t window : {tokens / 4, int64_t{64}}) {
          std::vector<eng_attr> within = attrs;
          within.push_back({"window", window, 0});
          const double less = flops * double(window) * (2.0 - double(window) / double(tokens)) / double(tokens);
          const std::string of = " window " + std::to_string(window);
          bench.row((name + of + " forward").c_str(), less, ENG_OP_ATTENTION_WINDOW, {q, k, v}, {o, lse}, within);
          bench.row((name + of + " backward").c_str(), 2.5 * less, ENG_OP_ATTENTION_WINDOW_GRAD,
                    {grad, q, k, v, o, lse}, {dq, dk, dv}, within);
        }
        for (const int64_t mean : {tokens / 4, int64_t{8}, int64_t{1}}) {
          const Packed packed(batch, tokens, mean);
          const double less = flops * packed.squares / (double(batch) * double(tokens) * double(tokens));
          const std::string of = " packed " + std::to_string(mean);
          bench.row((name + of + " forward").c_str(), less, ENG_OP_ATTENTION, {q, k, v, packed.segments}, {o, lse},
                    attrs);
          bench.row((name + of + " backward").c_str(), 2.5 * less, ENG_OP_ATTENTION_GRAD,
                    {grad, q, k, v, o, lse, packed.segments}, {dq, dk, dv}, attrs);
        }
      }
    if (wanted("stream")) {  // bound by memory: G/s are bytes, each tensor read or written once
      const int64_t wide = 768;
      const Tensor x = random_tensor({batch, tokens, wide}, 1), y(x.clone()), s(x.clone()), dy(x.clone());
      const Tensor w = random_tensor({wide}, 2), bias = random_tensor({wide}, 3), dw({wide}), dbias({wide});
      const Tensor stats({batch, tokens, 2}), table = random_tensor({tokens + 2, wide}, 4), none;
      Tensor counters({ENG_C_COUNT * 2});
      counters.desc.dtype = ENG_I64, counters.desc.dims[0] = ENG_C_COUNT;
      std::memset(counters.data(), 0, ENG_C_COUNT * sizeof(int64_t));
      const double bytes = double(x.count) * 4;
      bench.row("layer_norm", 2 * bytes, ENG_OP_LAYER_NORM, {x, w, bias, none}, {y, stats}, {{"eps", 0, 1e-5}});
      bench.row("layer_norm of a sum", 4 * bytes, ENG_OP_LAYER_NORM, {x, w, bias, dy}, {y, stats, s},
                {{"eps", 0, 1e-5}});
      bench.row("layer_norm_grad", 3 * bytes, ENG_OP_LAYER_NORM_GRAD, {dy, x, w, stats, none, none, none},
                {y, dw, dbias}, {{"bias", 1, 0}});
      bench.row("activation relu", 2 * bytes, ENG_OP_ACTIVATION, {x}, {y}, {{"act", ENG_ACT_RELU, 0}});
      bench.row("activation gelu", 2 * bytes, ENG_OP_ACTIVATION, {x}, {y}, {{"act", ENG_ACT_GELU, 0}});
      bench.row("activation_grad gelu", 3 * bytes, ENG_OP_ACTIVATION_GRAD, {dy, x}, {y}, {{"act", ENG_ACT_GELU, 0}});
      bench.row("scale", 2 * bytes, ENG_OP_SCALE, {x}, {y}, {{"factor", 0, 0.3}});
      bench.row("positions", 2 * bytes, ENG_OP_POSITIONS, {x, table}, {y}, {{"offset", 2, 0}});
      bench.row("positions_grad", bytes, ENG_OP_POSITIONS_GRAD, {dy, none}, {table},
                {{"offset", 2, 0}, {"rows", tokens + 2, 0}});
      const Packed packed(batch, tokens, tokens / 4);
      const Tensor angles = random_tensor({tokens, 64}, 5);
      const std::vector<eng_attr> turn = {{"heads", wide / 64, 0}, {"inverse", 0, 0}};
      bench.row("positions packed", 2 * bytes, ENG_OP_POSITIONS, {x, table, none, packed.positions}, {y},
                {{"offset", 2, 0}});
      bench.row("positions_grad packed", bytes, ENG_OP_POSITIONS_GRAD, {dy, none, packed.positions}, {table},
                {{"offset", 2, 0}, {"rows", tokens + 2, 0}});
      bench.row("rope", 2 * bytes, ENG_OP_ROPE, {x, angles}, {y}, turn);
      bench.row("rope packed", 2 * bytes, ENG_OP_ROPE, {x, angles, packed.positions}, {y}, turn);
      const Tensor turned({batch, wide, tokens}), third({batch, tokens, wide / 3});
      const std::vector<Tensor> thirds = {third, third.clone(), third.clone()};
      bench.row("transpose", 2 * bytes, ENG_OP_TRANSPOSE, {x}, {turned}, {{"a", 1, 0}, {"b", 2, 0}});
      bench.row("reshape, not in place", 2 * bytes, ENG_OP_RESHAPE, {x}, {y}, {{"keep", 3, 0}, {"ndim", 0, 0}});
      bench.row("split into three", 2 * bytes, ENG_OP_SPLIT, {x}, thirds, {{"axis", 2, 0}, {"parts", 3, 0}});
      bench.row("concat of three", 2 * bytes, ENG_OP_CONCAT, thirds, {x}, {{"axis", 2, 0}});
      bench.row("dropout", 2 * bytes, ENG_OP_DROPOUT, {x, counters}, {y},
                {{"p", 0, 0.1}, {"seed", 1, 0}, {"stream", 1, 0}});
    }
    if (wanted("update")) {  // bound by memory as well, in place
      const int64_t count = 16 << 20, blocks = count / 256;
      const Tensor p = random_tensor({count}, 1), grad = random_tensor({count}, 2), m(grad.clone()), none;
      const Tensor weight({count}, ENG_BF16), m_codes({count}, ENG_U8), v_codes({count}, ENG_U8),
          scalars({ENG_S_COUNT});
      Tensor v(grad.clone()), m_scales({blocks}), v_scales({blocks});
      for (int64_t k = 0; k < count; ++k) v[k] *= v[k];
      for (int64_t k = 0; k < blocks; ++k) m_scales[k] = v_scales[k] = 0.0f;
      std::fill_n(scalars.data(), scalars.count, 1.0f);
      std::memset(m_codes.data(), 0, static_cast<size_t>(count)),
          std::memset(v_codes.data(), 0, static_cast<size_t>(count));
      const double n4 = double(count) * 4;
      std::vector<eng_attr> attrs = {{"beta1", 0, 0.9}, {"beta2", 0, 0.95}, {"eps", 0, 1e-8}, {"weight_decay", 0, 0.1}};
      bench.row("adamw", 7 * n4, ENG_OP_ADAMW, {p, grad, m, v, scalars}, {p, m, v}, attrs);
      const std::vector<Tensor> in = {p, grad, m_codes, m_scales, v_codes, v_scales, scalars},
                                out = {p, m_codes, m_scales, v_codes, v_scales};
      bench.row("adamw8bit", 4 * n4 + 4 * double(blocks) * 4, "eng.adamw8bit.update/1", in, out, attrs);
      bench.row("cast to bf16", 1.5 * n4, ENG_OP_CAST, {p}, {weight}, {{"dtype", ENG_BF16, 0}});
      struct PackedRows {
        const char *pack, *unpack;
        int32_t packed;
      };
      for (const PackedRows& rows : {PackedRows{"pack as int8", "unpack int8 to bf16", ENG_PACKED_INT8},
                                     PackedRows{"pack as nf4", "unpack nf4 to bf16", ENG_PACKED_NF4}}) {
        const auto bytes = static_cast<int64_t>(eng_packed_bytes(rows.packed)) * (count / ENG_PACKED_CHUNK);
        const Tensor codes({bytes}, ENG_U8);
        bench.row(rows.pack, n4 + double(bytes), ENG_OP_PACK, {p}, {codes}, {{"packed", rows.packed, 0}});
        bench.row(rows.unpack, n4 / 2 + double(bytes), ENG_OP_UNPACK, {codes}, {weight},
                  {{"packed", rows.packed, 0}, {"dtype", ENG_BF16, 0}});
      }
      Tensor counters({ENG_C_COUNT * 2});  // i64 (8)
      counters.desc.dtype = ENG_I64, counters.desc.dims[0] = ENG_C_COUNT;
      std::vector<eng_attr> rounding = attrs;
      for (const char* key : {"seed", "stream", "first"}) rounding.push_back({key, 0, 0});
      const Tensor m16(weight.clone()), v16(weight.clone());
      bench.row("adamw in bf16, rounded at random", 4 * n4, ENG_OP_ADAMW, {weight, grad, m16, v16, scalars, counters},
                {weight, m16, v16}, rounding);
      attrs.push_back({"weight", ENG_BF16, 0});
      bench.row("adamw with a bf16 weight", 7.5 * n4, ENG_OP_ADAMW, {p, grad, m, v, scalars}, {p, m, v, weight}, attrs);
      bench.row("sgd with momentum", 5 * n4, ENG_OP_SGD, {p, grad, m, scalars}, {p, m},
                {{"momentum", 0, 0.9}, {"weight_decay", 0, 0.1}, {"nesterov", 0, 0}});
    }
    if (wanted("head")) {
      const Tensor x = random_tensor({batch, tokens, h}, 1), w = random_tensor({vocab, h}, 2, 0.05f), loss({1});
      const Tensor labels({batch, tokens}, ENG_I32), scalars = random_tensor({ENG_S_COUNT}, 3), dx(x.clone()),
                                                     dw(w.clone());
      for (int64_t k = 0; k < labels.count; ++k) labels.ints()[k] = static_cast<int32_t>(k * 7919 % vocab);
      const double flops = 2.0 * double(n) * double(h) * double(vocab);
      bench.row("cross_entropy", flops, ENG_OP_CROSS_ENTROPY, {x, w, labels}, {loss});
      bench.row("cross_entropy_grad", 3 * flops, ENG_OP_CROSS_ENTROPY_GRAD, {x, w, labels, scalars, Tensor()},
                {loss, dx, dw});
      const std::vector<eng_attr> part = {{"first", 0, 0}, {"whole", vocab, 0}};
      bench.row("vocabulary_scores", flops, ENG_OP_VOCABULARY_SCORES, {x, w, labels}, {Tensor({2 * n})}, part);
      bench.row("vocabulary_grad", 3 * flops, ENG_OP_VOCABULARY_GRAD,
                {x, w, labels, random_tensor({batch, tokens}, 4), scalars, Tensor()}, {dx, dw}, part);
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
