// SPDX-License-Identifier: Apache-2.0
// The states of delayed scaling (engine/ops_fp8.h), with the bits of the CPU.
#include "fp8.cuh"

namespace fp8 {
namespace on_cuda {

__global__ void raise_largest(const float* parts, int count, float* to) {
  const float most = max_of_block(largest_of_thread(parts, count), shared<Warps>().at);
  if (threadIdx.x == 0) *to = fmaxf(*to, most);
}
struct Largest : Exact {
  static constexpr const char* op = ENG_OP_FP8_LARGEST;
  static void check(const Call& c) {
    need_counts(c, 1, 4, 1, 1), need(c.has(0), "there must be a state"), need_state(c, 0);
    need_tensor(c.out[0], ENG_F32, elements(c.in[0]), "the output");
    for (size_t k = 1; k < c.in.size(); ++k)
      if (c.has(k)) need_float(c.in[k], "x, w and dy");
  }
  static uint64_t workspace(const Call&) { return sizeof(float) * 3 * most_parts; }
  static void run(const Call& c, const Args& a, cudaStream_t stream) {
    for (size_t k = 1; k < c.in.size(); ++k)
      if (c.has(k))
        by_type(c.in[k].dtype, [&]<class T>(T) {
          float* const parts = a.scratch<float>() + static_cast<int64_t>(k - 1) * most_parts;
          const int count = largest(a.in<T>(k), elements(c.in[k]), nullptr, parts, stream);
          launch<raise_largest>(1, block, sizeof(Warps), stream, static_cast<const float*>(parts), count,
                                a.out<float>(0) + static_cast<int64_t>(k - 1) * columns(c.in[0]) + 1);
        });
  }
};

// Rows of states behind each other: the scale, the largest value of the step, and those of the last `history` steps.
struct States {
  int64_t history, rows;
  explicit States(const Call& c) : history(c.integer("history")) {
    need(history > 0 && c.has(0) && c.in[0].dtype == ENG_F32 && elements(c.in[0]) % (3 * (2 + history)) == 0,
         "states must be f32 (M * 3 * (2 + H))");
    rows = elements(c.in[0]) / (2 + history);
  }
};

struct Column {
  static constexpr int width = 1;
  const float* states;
  float* out;
  int64_t stride;
  template <int>
  __device__ void at(int64_t row) const {
    out[row] = states[row * stride + 1];
  }
};
struct Collect : Exact {
  static constexpr const char* op = ENG_OP_FP8_COLLECT;
  static void check(const Call& c) {
    need_counts(c, 1, 1, 1, 1), need_tensor(c.out[0], ENG_F32, States(c).rows, "the output");
  }
  static void run(const Call& c, const Args& a, cudaStream_t stream) {
    const States s(c);
    launch_each(s.rows, stream, Column{a.in<float>(0), a.out<float>(0), 2 + s.history});
  }
};

struct Rolling {
  float* states;
  const float* all;  // of `ranks` ranks; null: there is one
  int64_t history, rows, ranks;
  bool recent, gradients_e4m3;
  int margin;
};
// A block for each row. The history moves by one, its last part first.
__global__ void roll(Rolling r) {
  float* const scratch = shared<Warps>().at;
  for (int64_t row = blockIdx.x; row < r.rows; row += gridDim.x) {
    float* const at = r.states + row * (2 + r.history);
    float latest = r.all ? 0.0f : at[1], most = 0;
    for (int64_t k = 0; r.all && k < r.ranks; ++k) latest = fmaxf(latest, r.all[k * r.rows + row]);
    for (int64_t from = (r.history - 1) / block * block; from >= 0; from -= block) {
      const int64_t i = from + threadIdx.x;
      const float next = i >= r.history ? 0.0f : i == 0 ? latest : at[1 + i];
      most = fmaxf(most, next);
      __syncthreads();
      if (i < r.history) at[2 + i] = next;
    }
    most = max_of_block(most, scratch);
    const float decides = r.recent ? latest : most;
    if (threadIdx.x == 0) {
      at[1] = 0;
      at[0] = decides > 0 ? scale_of(row % 3 != 2 || r.gradients_e4m3, decides, r.margin) : 0.0f;
    }
  }
}
struct Roll : Exact {
  static constexpr const char* op = ENG_OP_FP8_ROLL;
  static void check(const Call& c) {
    const States s(c);
    need_counts(c, 1, 2, 1, 1), need_tensor(c.out[0], ENG_F32, elements(c.in[0]), "the output");
    need(!c.has(1) || (c.in[1].dtype == ENG_F32 && elements(c.in[1]) % s.rows == 0),
         "what the ranks have must be f32 (R * M * 3)");
    need_format(c.integer("gradients")), need_margin(c);
  }
  static void run(const Call& c, const Args& a, cudaStream_t stream) {
    const States s(c);
    const int64_t most = int64_t{1} << 30;
    launch<roll>(static_cast<unsigned>(s.rows < most ? s.rows : most), block, sizeof(Warps), stream,
                 Rolling{a.out<float>(0), c.has(1) ? a.in<float>(1) : nullptr, s.history, s.rows,
                         c.has(1) ? elements(c.in[1]) / s.rows : 0, c.integer("recent") != 0,
                         c.integer("gradients") == ENG_FP8_E4M3, static_cast<int>(c.integer("margin"))});
  }
};

}  // namespace on_cuda

void add_state(std::vector<const eng_kernel*>& list) {
  using namespace on_cuda;
  list.insert(list.end(), {&kernel<Largest>, &kernel<Collect>, &kernel<Roll>});
}

}  // namespace fp8
