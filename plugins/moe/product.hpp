// SPDX-License-Identifier: Apache-2.0
// Products of the rows of each expert, over all threads: C[e] = A[e] B[e] + plus[e].
//
// Each product is cut into parts of C, each of which one thread computes. Sums are cut into blocks by their length
// alone, and are not split between threads: the bits of an element depend neither on the number of threads nor on
// which other rows its expert has.
#pragma once

#include <cstdint>

#include "loops.hpp"

namespace moe {

// The sizes that all experts share. Element (row, k) of A is at row * a_row + k * a_k, element (k, column) of B at
// k * b_k + column * b_column; of each two strides one is 1.
struct ProductShape {
  int64_t experts, most_rows, columns;  // of C; most_rows: of one expert
  cpu::Stored in, out, plus;            // types of A and B, of C, of what is added, which is f32 if C is
  int64_t a_row, a_k, b_k, b_column;
};

// The product of one expert; plus may be null, or c, as it must be where the depth is 0.
struct Part {
  const void *a, *b, *plus;
  void* c;
  int64_t rows, depth;
};

class Product {
 public:
  Product(const ProductShape& shape, const Tiles& tiles, unsigned threads)
      : shape_(shape), tiles_(tiles), threads_(threads) {}
  static uint64_t scratch(const ProductShape& shape, unsigned threads);  // bytes, aligned to 64
  // The place where the parts of all experts are written before `run`, which then needs the rest of the scratch memory.
  Part* parts(void* scratch) const { return static_cast<Part*>(scratch); }
  void run(void* scratch) const;

 private:
  void multiply(const Part& part, int64_t rows, int64_t columns, float* scratch) const;
  ProductShape shape_;
  const Tiles& tiles_;
  unsigned threads_;
};

}  // namespace moe
