// SPDX-License-Identifier: Apache-2.0
#include "gemm.hpp"

#include <algorithm>
#include <atomic>
#include <vector>

#include "../common/call.hpp"
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
  std::vector<Primitive> primitives;  // one per distinct tile size: at most four

  size_t primitive_for(const Device& device, int64_t m, int64_t n) {
    for (size_t k = 0; k < primitives.size(); ++k)
      if (primitives[k].shape.m == m && primitives[k].shape.n == n) return k;
    Primitive p;
    p.shape = {m,
               n,
               shape.k,
               shape.ta ? shape.m : shape.k,
               shape.tb ? shape.k : shape.n,
               shape.n,
               shape.ta,
               shape.tb,
               shape.bias,
               shape.accumulate};
    if (device.onednn && shape.k > 0) p.tile = OnednnTile::make(p.shape);
    primitives.push_back(std::move(p));
    return primitives.size() - 1;
  }
};

Gemm::Gemm(const Device& device, const GemmShape& shape, unsigned threads) : plan_(std::make_unique<Plan>()) {
  plan_->isa = device.isa;
  plan_->shape = shape;
  plan_->threads = threads;
  plan_->size = cut(shape, threads);
  const Cut& size = plan_->size;
  for (int64_t m = 0; m < shape.m; m += size.rows)
    for (int64_t n = 0; n < shape.n; n += size.columns)
      plan_->primitive_for(device, std::min(size.rows, shape.m - m), std::min(size.columns, shape.n - n));
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
  std::vector<Tile> tiles;
  char* scratch;
  std::vector<void*> scratch_handles;  // per thread

  ~Tiles() {
    for (void* handle : scratch_handles) onednn_drop_scratch(handle);
  }
  // False if oneDNN failed.
  bool run(unsigned thread, const Tile& t) const noexcept {
    try {
      if (t.call)
        t.call->run(scratch_handles[thread]);
      else
        isa->gemm(t.primitive->shape, t.a, t.b, t.bias, t.c, scratch + thread * gemm_tile_scratch);
      return true;
    } catch (...) {
      return false;
    }
  }
};

GemmCall::GemmCall(const Gemm& gemm, const float* a, const float* b, const float* bias, float* c, void* scratch)
    : tiles_(std::make_unique<Tiles>()) {
  Gemm::Plan& plan = *gemm.plan_;
  const GemmShape& s = plan.shape;
  Tiles& t = *tiles_;
  t.isa = plan.isa, t.threads = plan.threads, t.scratch = static_cast<char*>(scratch);
  bool onednn = false;
  for (int64_t m = 0; m < s.m; m += plan.size.rows)
    for (int64_t n = 0; n < s.n; n += plan.size.columns) {
      const int64_t rows = std::min(plan.size.rows, s.m - m), columns = std::min(plan.size.columns, s.n - n);
      const auto p = std::find_if(plan.primitives.begin(), plan.primitives.end(), [&](const Primitive& have) {
        return have.shape.m == rows && have.shape.n == columns;
      });
      Tiles::Tile tile{
          &*p, a + (s.ta ? m : m * s.k), b + (s.tb ? n * s.k : n), bias ? bias + n : nullptr, c + m * s.n + n, nullptr};
      if (p->tile) {
        tile.call = std::make_unique<OnednnTile::Call>(*p->tile, tile.a, tile.b, tile.bias, tile.c);
        onednn = true;
      }
      t.tiles.push_back(std::move(tile));
    }
  if (onednn)
    for (unsigned thread = 0; thread < t.threads; ++thread)
      t.scratch_handles.push_back(onednn_make_scratch(t.scratch + thread * gemm_tile_scratch));
}
GemmCall::~GemmCall() = default;
GemmCall::GemmCall(GemmCall&&) noexcept = default;

void GemmCall::run() const {
  const Tiles& t = *tiles_;
  std::atomic<bool> failed{false};
  parallel_tasks(t.threads, static_cast<int64_t>(t.tiles.size()), [&](unsigned thread, int64_t task) {
    if (!t.run(thread, t.tiles[static_cast<size_t>(task)])) failed.store(true, std::memory_order_relaxed);
  });
  if (failed.load()) throw Error{ENG_INTERNAL, "oneDNN could not run a product"};
}

}  // namespace cpu
