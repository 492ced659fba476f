// SPDX-License-Identifier: Apache-2.0
// reshape, transpose, split and concat: bytes are moved, whatever their type, in the widest units that divide all
// offsets.
#include "../../common/layout.hpp"

#include "../../common/cuda/glue.hpp"
#include "list.hpp"

namespace cuda {
namespace layout {

// f(T{}) with the widest unit that divides `bytes`. To ask for several numbers of bytes, join them with |.
template <class F>
void by_unit(int64_t bytes, F&& f) {
  if (bytes % 16 == 0)
    f(Pack<uint32_t, 4>{});
  else if (bytes % 8 == 0)
    f(uint64_t{});
  else if (bytes % 4 == 0)
    f(uint32_t{});
  else if (bytes % 2 == 0)
    f(uint16_t{});
  else
    f(uint8_t{});
}
template <class T>
int64_t units(int64_t bytes) {
  return bytes / static_cast<int64_t>(sizeof(T));
}

template <class T>
struct CopyOf {
  const T* x;
  T* y;
  static constexpr int width = 1;
  template <int W>
  __device__ void at(int64_t i) const {
    store_pack(y + i, load_pack<W>(x + i));
  }
};

constexpr int block = 256, depth = 8;  // depth: rows of one thread, all read before any is written

// Moves `lines` times `rows` rows of `columns` units. Line (o, i, m) of (outer, a, between) goes to the rows
// (o, 0 .. rows - 1, m, i) of (outer, rows, between, a).
template <class T>
struct Rows {
  const T* from;  // null: zeros
  T* to;
  int64_t lines, rows, columns;
  int64_t from_row, to_row;  // units from one row to the next
  int64_t a = 1, between = 1;
  int64_t chunks = 0, tiles = 0;  // parts of rows and of columns, each of them for a block
  int lanes_log = 0;              // threads beside each other, as a power of two; the others are below them
};
template <class T>
__global__ void move(Rows<T> r) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread & ((1 << r.lanes_log) - 1);
  const int below = block >> r.lanes_log;
  for (int64_t n = blockIdx.x; n < r.lines * r.chunks * r.tiles; n += gridDim.x) {
    const int64_t column = (n % r.tiles << r.lanes_log) + lane, chunk = n / r.tiles % r.chunks,
                  line = n / r.tiles / r.chunks;
    if (column >= r.columns) continue;
    const int64_t first = chunk * below * depth + (thread >> r.lanes_log), m = line % r.between,
                  i = line / r.between % r.a, o = line / r.between / r.a;
    const T* const from = r.from ? r.from + line * r.rows * r.from_row + column : nullptr;
    T* const to = r.to + ((o * r.rows * r.between + m) * r.a + i) * r.columns + column;
    Pack<T, 1> near[depth] = {};
    ENG_UNROLL
    for (int k = 0; k < depth; ++k)
      if (const int64_t row = first + k * below; from && row < r.rows) near[k] = load_pack<1>(from + row * r.from_row);
    ENG_UNROLL
    for (int k = 0; k < depth; ++k)
      if (const int64_t row = first + k * below; row < r.rows) store_pack(to + row * r.to_row, near[k]);
  }
}
template <class T>
void move_rows(Rows<T> r, cudaStream_t stream) {
  if (r.lines == 1 && r.rows == 1 && r.from) return launch_each(r.columns, stream, CopyOf<T>{r.from, r.to});
  while (1 << r.lanes_log < block && int64_t{1} << r.lanes_log < r.columns) ++r.lanes_log;
  const int64_t lanes = int64_t{1} << r.lanes_log, of_chunk = block / lanes * depth;
  r.tiles = (r.columns + lanes - 1) / lanes, r.chunks = (r.rows + of_chunk - 1) / of_chunk;
  launch<move<T>>(blocks_for(r.lines * r.chunks * r.tiles, 1), block, 0, stream, r);
}
void copy(const Args& args, int64_t bytes, cudaStream_t stream) {
  by_unit(bytes, [&]<class T>(T) { launch_each(units<T>(bytes), stream, CopyOf<T>{args.in<T>(0), args.out<T>(0)}); });
}

// x (outer, a, between, b) becomes y (outer, b, between, a), a tile of a and b at a time.
template <class T>
struct Turn {
  const T* x;
  T* y;
  int64_t a, between, b, tiles_a, tiles_b;
};
template <class T>
constexpr int edge = sizeof(T) > 4 ? 32 : 64;
template <class T>
struct Tile {  // rows lie an odd number of banks apart
  T at[edge<T>][edge<T> + (sizeof(T) < 4 ? 4 / sizeof(T) : 1)];
};
// W: elements that are read and written at once, a divisor of a and b.
template <class T, int W>
__global__ void turn(Turn<T> r) {
  Tile<T>& tile = shared<Tile<T>>();
  const int lane = static_cast<int>(threadIdx.x % warp) * W, first = static_cast<int>(threadIdx.x / warp);
  constexpr int warps = block / static_cast<int>(warp), step = static_cast<int>(warp) * W;
  const int64_t n = blockIdx.x, i = n / r.tiles_b % r.tiles_a * edge<T>, j = n % r.tiles_b * edge<T>;
  const int64_t m = n / r.tiles_b / r.tiles_a % r.between, o = n / r.tiles_b / r.tiles_a / r.between;
  const T* const x = r.x + (o * r.a * r.between + m) * r.b;
  T* const y = r.y + (o * r.b * r.between + m) * r.a;
  for (int k = first; k < edge<T>; k += warps)
    for (int c = lane; c < edge<T>; c += step) {
      if (i + k >= r.a || j + c >= r.b) continue;
      const Pack<T, W> near = load_pack<W>(x + (i + k) * r.between * r.b + j + c);
      for (int e = 0; e < W; ++e) tile.at[k][c + e] = near.at[e];
    }
  __syncthreads();
  for (int k = first; k < edge<T>; k += warps)
    for (int c = lane; c < edge<T>; c += step) {
      if (j + k >= r.b || i + c >= r.a) continue;
      Pack<T, W> near;
      for (int e = 0; e < W; ++e) near.at[e] = tile.at[c + e][k];
      store_pack(y + (j + k) * r.between * r.a + i + c, near);
    }
}

// ---- ops -------------------------------------------------------------------------------------------------------

struct Reshape : common::ReshapeKernel<common::OneThread> {
  using ReshapeKernel::ReshapeKernel;
  void run(const Args& args, cudaStream_t stream) const {
    if (args.in<void>(0) != args.out<void>(0)) copy(args, bytes, stream);
  }
};

struct Transpose : common::TransposeKernel<common::OneThread> {
  explicit Transpose(const Call& c) : TransposeKernel(c) {
    // A dimension of 1 moves nothing: the one beside it takes its place.
    if (a == 1) a = between, between = 1;
    if (b == 1) b = between, between = 1;
  }
  void run(const Args& args, cudaStream_t stream) const {
    if (a == 1 || b == 1) return copy(args, outer * a * between * b * inner, stream);
    by_unit(inner, [&]<class T>(T) {
      const T* const x = args.in<T>(0);
      T* const y = args.out<T>(0);
      if (const int64_t n = units<T>(inner); n == 1)
        turned(x, y, stream);
      else
        move_rows(Rows<T>{x, y, outer * a * between, b, n, n, between * a * n, a, between}, stream);
    });
  }
  template <class T>
  void turned(const T* x, T* y, cudaStream_t stream) const {
    const Turn<T> r{x, y, a, between, b, (a + edge<T> - 1) / edge<T>, (b + edge<T> - 1) / edge<T>};
    const int64_t tiles = outer * between * r.tiles_a * r.tiles_b;
    if (tiles >= int64_t{1} << 31) throw Error{ENG_UNSUPPORTED, "x has too many tiles for one grid"};
    const auto go = [&]<int W>() {
      launch<turn<T, W>>(static_cast<unsigned>(tiles), block, sizeof(Tile<T>), stream, r);
    };
    if constexpr (sizeof(T) == 2)
      if (a % 2 == 0 && b % 2 == 0) return go.template operator()<2>();
    go.template operator()<1>();
  }
};

struct Split : common::SplitKernel<common::OneThread> {
  using SplitKernel::SplitKernel;
  void run(const Args& args, cudaStream_t stream) const {
    int64_t from = 0;
    for (size_t k = 0; k < parts.bytes.size(); from += parts.bytes[k++])
      by_unit(parts.row | parts.bytes[k] | from, [&]<class T>(T) {
        const int64_t n = units<T>(parts.bytes[k]);
        move_rows(Rows<T>{args.in<T>(0) + units<T>(from), args.out<T>(k), 1, parts.rows, n, units<T>(parts.row), n},
                  stream);
      });
  }
};

struct Concat : common::ConcatKernel<common::OneThread> {
  using ConcatKernel::ConcatKernel;
  void run(const Args& args, cudaStream_t stream) const {
    int64_t to = 0;
    for (size_t k = 0; k < parts.bytes.size(); to += parts.bytes[k++])
      by_unit(parts.row | parts.bytes[k] | to, [&]<class T>(T) {
        const int64_t n = units<T>(parts.bytes[k]);
        move_rows(Rows<T>{args.in<T>(k), args.out<T>(0) + units<T>(to), 1, parts.rows, n, n, units<T>(parts.row)},
                  stream);
      });
  }
};

}  // namespace layout

void add_layout(List& list) {
  using namespace layout;
  list.insert(list.end(), {&kernel<Reshape>, &kernel<Transpose>, &kernel<Split>, &kernel<Concat>});
}

}  // namespace cuda
