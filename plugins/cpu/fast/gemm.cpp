// SPDX-License-Identifier: Apache-2.0
#include "gemm.hpp"

#include <algorithm>
#include <atomic>
#include <vector>

#include "../../common/call.hpp"
#include "gemm_onednn.hpp"
#include "isa.hpp"
#include "threads.hpp"

namespace cpu {
namespace {

int64_t pieces(int64_t n, int64_t size) {
  return (n + size - 1) / size;
}
int64_t round_up(int64_t n, int64_t unit) {
  return pieces(n, unit) * unit;
}

struct Cut {
  int64_t rows, columns;
};

// Two tiles per thread leave room for a thread that is held up. Rows are cut first: every tile then reads all of
// B, which is the weight in most products and stays in the cache.
Cut cut(const GemmShape& s, unsigned threads) {
  if (threads <= 1) return {s.m, s.n};
  const int64_t want = int64_t{2} * threads;
  Cut c{std::max<int64_t>(round_up(pieces(s.m, want), 32), 96), s.n};
  c.rows = std::min(c.rows, s.m);
  const int64_t bands = pieces(s.m, c.rows);
  if (bands < want) c.columns = std::min(s.n, std::max<int64_t>(round_up(pieces(s.n, pieces(want, bands)), 64), 128));
  return c;
}

// Very long sums go in pieces that are added to C: a tile's share of A and B then stays in the cache (measured:
// 32,000 products per sum run 14 % faster in pieces of 4,000 to 8,000). From the shape alone.
int64_t depth_of(const GemmShape& s) {
  constexpr int64_t most = 8192;
  return s.k <= most ? s.k : round_up(pieces(s.k, pieces(s.k, most)), 64);
}

struct Primitive {
  TileShape shape;
  std::unique_ptr<OnednnTile> tile;  // none: the own kernel
};

}  // namespace

struct Gemm::Plan {
  const Isa* isa;
  GemmShape shape;
  unsigned threads;
  Cut size;
  int64_t depth;
  std::vector<Primitive> primitives;  // one per distinct tile: a few

  // f(m, n, k, TileShape): the pieces of a tile follow each other.
  template <class F>
  void each_piece(F&& f) const {
    const GemmShape& s = shape;
    const int64_t lda = s.ta ? s.m : s.k, ldb = s.tb ? s.k : s.n;
    for (int64_t m = 0; m < s.m; m += size.rows)
      for (int64_t n = 0; n < s.n; n += size.columns)
        for (int64_t k = 0; k == 0 || k < s.k; k += depth)
          f(m, n, k,
            TileShape{std::min(size.rows, s.m - m), std::min(size.columns, s.n - n), std::min(depth, s.k - k), lda, ldb,
                      s.n, s.ta, s.tb, s.bias && k == 0, s.accumulate || k > 0});
  }
  const Primitive* find(const TileShape& t) const {
    for (const Primitive& p : primitives)
      if (p.shape.m == t.m && p.shape.n == t.n && p.shape.k == t.k && p.shape.accumulate == t.accumulate) return &p;
    return nullptr;
  }
};

Gemm::Gemm(const Device& device, const GemmShape& shape, unsigned threads) : plan_(std::make_unique<Plan>()) {
  Plan& p = *plan_;
  p.isa = device.isa, p.shape = shape, p.threads = threads, p.size = cut(shape, threads), p.depth = depth_of(shape);
  if (p.depth < 1) p.depth = 1;
  p.each_piece([&](int64_t, int64_t, int64_t, const TileShape& t) {
    if (p.find(t)) return;
    p.primitives.push_back({t, device.onednn && t.k > 0 ? OnednnTile::make(t) : nullptr});
  });
}
Gemm::~Gemm() = default;
Gemm::Gemm(Gemm&&) noexcept = default;

struct GemmCall::Tiles {
  struct Tile {
    const Primitive* primitive;
    const float *a, *b, *bias;
    float* c;
    std::unique_ptr<OnednnTile::Call> call;
  };
  const Isa* isa;
  unsigned threads;
  std::vector<Tile> pieces;   // a tile's pieces follow each other
  std::vector<size_t> first;  // piece of each tile, and the end
  char* scratch;
  std::vector<void*> scratch_handles;  // per thread

  ~Tiles() {
    for (void* handle : scratch_handles) onednn_drop_scratch(handle);
  }
  // False if oneDNN failed.
  bool run(unsigned thread, size_t tile) const noexcept {
    try {
      for (size_t k = first[tile]; k < first[tile + 1]; ++k) {
        const Tile& t = pieces[k];
        if (t.call)
          t.call->run(scratch_handles[thread]);
        else
          isa->gemm(t.primitive->shape, t.a, t.b, t.bias, t.c, scratch + thread * gemm_tile_scratch);
      }
      return true;
    } catch (...) {
      return false;
    }
  }
};

GemmCall::GemmCall(const Gemm& gemm, const float* a, const float* b, const float* bias, float* c, void* scratch)
    : tiles_(std::make_unique<Tiles>()) {
  const Gemm::Plan& plan = *gemm.plan_;
  const GemmShape& s = plan.shape;
  Tiles& t = *tiles_;
  t.isa = plan.isa, t.threads = plan.threads, t.scratch = static_cast<char*>(scratch);
  bool onednn = false;
  plan.each_piece([&](int64_t m, int64_t n, int64_t k, const TileShape& shape) {
    const Primitive* p = plan.find(shape);
    Tiles::Tile piece{p,
                      a + (s.ta ? k * s.m + m : m * s.k + k),
                      b + (s.tb ? n * s.k + k : k * s.n + n),
                      bias ? bias + n : nullptr,
                      c + m * s.n + n,
                      nullptr};
    if (p->tile) {
      piece.call = std::make_unique<OnednnTile::Call>(*p->tile, piece.a, piece.b, piece.bias, piece.c);
      onednn = true;
    }
    if (k == 0) t.first.push_back(t.pieces.size());
    t.pieces.push_back(std::move(piece));
  });
  t.first.push_back(t.pieces.size());
  if (onednn)
    for (unsigned thread = 0; thread < t.threads; ++thread)
      t.scratch_handles.push_back(onednn_make_scratch(t.scratch + thread * gemm_tile_scratch));
}
GemmCall::~GemmCall() = default;
GemmCall::GemmCall(GemmCall&&) noexcept = default;

void GemmCall::run() const {
  const Tiles& t = *tiles_;
  std::atomic<bool> failed{false};
  parallel_tasks(t.threads, static_cast<int64_t>(t.first.size()) - 1, [&](unsigned thread, int64_t task) {
    if (!t.run(thread, static_cast<size_t>(task))) failed.store(true, std::memory_order_relaxed);
  });
  if (failed.load()) throw Error{ENG_INTERNAL, "oneDNN could not run a product"};
}

}  // namespace cpu
