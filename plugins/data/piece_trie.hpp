// SPDX-License-Identifier: Apache-2.0
// Pieces of a vocabulary, found byte by byte.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace text_data {

class PieceTrie {
 public:
  // `bytes`: of all pieces that will be added.
  explicit PieceTrie(std::size_t bytes = 0);
  // The last one of equal pieces counts. An empty piece is never found.
  void add(std::string_view piece, int32_t id);
  static constexpr uint32_t root = 0;
  uint32_t follow(uint32_t node, unsigned char byte) const;  // 0: no piece goes on there
  // The node that a text leads to from another one; 0: there is none.
  uint32_t follow(uint32_t node, std::string_view text) const;
  int32_t id(uint32_t node) const { return ids_[node]; }  // of the piece that ends at a node, or -1
  int32_t find(std::string_view piece) const {
    const uint32_t node = follow(root, piece);
    return node == 0 ? -1 : ids_[node];
  }

 private:
  struct Edge {
    uint64_t key = ~uint64_t{0};  // a node and a byte
    uint32_t to = 0;
  };
  std::vector<Edge> edges_;  // open addressing, at most half full
  std::vector<int32_t> ids_ = std::vector<int32_t>(1, -1);
};

}  // namespace text_data
