// SPDX-License-Identifier: Apache-2.0
// The scan of Mamba-2 and its step.
#include "ssd.cuh"

namespace mamba {
namespace on_cuda {

// y of a chunk of a head, columns of one tile. blockIdx.y: sequences.
template <class T>
__global__ void __launch_bounds__(tile_block, 2) ssd_outputs(SsdOf<T> p, T* y) {
  Room<T>& room = shared<Room<T>>();
  const SsdSizes& s = p.s;
  const int64_t of_chunk = s.heads * s.tiles(s.width), c = blockIdx.x / of_chunk,
                head = blockIdx.x % of_chunk / s.tiles(s.width), p0 = blockIdx.x % s.tiles(s.width) * tile,
                group = head / (s.heads / s.groups);
  for (int64_t b = blockIdx.y; b < s.batch; b += gridDim.y) {
    const Pieces pieces(s, b, c);
    for (int begin = 0; begin < pieces.count;) {
      const Piece piece = pieces.piece(begin);
      begin = piece.end;
      find_steps(p, piece, head, room.steps);
      Sums<T> scores, sums;
      ENG_ROLL
      for (int64_t n = 0; n < s.states; n += tile) {
        const Part<T> of_c = p.bc(piece, group, 1, n);
        product<true, true>(room, scores, of_c, p.bc(piece, group, 0, n));
        if (piece.first && (c > 0 || p.begun))
          product<true, false>(room, sums, of_c, p.states(p.kept + s.kept_at(b, c, head), n, p0));
      }
      sums.each([&](int t, int, float& sum) { sum *= room.steps.from_start[t]; });
      scores.each([&](int t, int r, float score) {
        put(score * room.steps.decay(t, r) * room.steps.step[r], room.kept.at[t][r]);
      });
      const Part<T> out = p.y(y, piece, head, p0);
      T* const to = y + (out.at - y);
      product<true, false>(room, sums, Kept{}, p.x(piece, head, p0));
      sums.each([&](int t, int j, float sum) {
        if (out.has(t, j)) put(fmaf(p.d[head], value(room.right.at[t][j]), sum), to[out.index(t, j)]);
      });
    }
  }
}

template <bool step>
struct Ssd {
  static constexpr const char* op = step ? MAMBA_OP_SSD_STEP : MAMBA_OP_SSD;
  static constexpr size_t segments = step ? SIZE_MAX : 5;
  int32_t type;
  SsdSizes s;
  static void check(const Call& c) {
    need_counts(c, step ? 6 : 5, 6, step ? 2 : 1, step ? 2 : 1);
    need_ssd(c, 0, segments);
    if (step) need_types(c, ENG_F32, {5}, {1}, "h");
  }
  static uint64_t workspace(const Call& c) { return sizeof(float) * static_cast<uint64_t>(ssd_sizes(c, 0).kept()); }
  explicit Ssd(const Call& c) : type(c.in[0].dtype), s(ssd_sizes(c, 0)) {}
  void run(const Args& a, cudaStream_t stream) const {
    by_type(type, [&]<class T>(T) {
      each_slice<T>(a, 0, s, step ? nullptr : a.in<int32_t>(segments), [&](int64_t b, SsdOf<T> p) {
        p.begun = step;
        launch_walk<false, T>(p, nullptr, step ? a.out<float>(1) + b * s.heads * s.state() : nullptr, stream);
        launch<ssd_outputs<T>>(grid_of(s.chunks * s.heads * s.tiles(s.width), 1, p.s.batch), tile_block,
                               sizeof(Room<T>), stream, p, a.out<T>(0) + b * s.tokens * s.channels);
      });
    });
  }
};

}  // namespace on_cuda

void add_ssd(std::vector<const eng_kernel*>& list) {
  using namespace on_cuda;
  list.insert(list.end(), {&kernel<Ssd<false>>, &kernel<Ssd<true>>});
}

}  // namespace mamba
