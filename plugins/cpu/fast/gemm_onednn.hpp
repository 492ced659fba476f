// SPDX-License-Identifier: Apache-2.0
// One tile of a product by oneDNN, single-threaded. Without oneDNN `make` always returns nothing.
#pragma once

#include <memory>

#include "isa.hpp"

namespace cpu {

class OnednnTile {
 public:
  // Nothing if oneDNN has no fast code for it, would allocate in the step, or wants more than gemm_tile_scratch.
  static std::unique_ptr<OnednnTile> make(const TileShape&);
  ~OnednnTile();

  // The tile at fixed addresses; it owns oneDNN's memory objects.
  class Call {
   public:
    Call(const OnednnTile&, const float* a, const float* b, const float* bias, float* c);
    ~Call();
    Call(Call&&) noexcept;
    void run(void* scratch_handle) const;  // from make_scratch

   private:
    struct Memory;
    std::unique_ptr<Memory> memory_;
  };

 private:
  struct Primitive;
  OnednnTile();
  std::unique_ptr<Primitive> primitive_;
};

// A scratch handle for one thread over gemm_tile_scratch bytes that the caller keeps.
void* onednn_make_scratch(void* bytes);
void onednn_drop_scratch(void* handle);

}  // namespace cpu
