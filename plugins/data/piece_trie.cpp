// SPDX-License-Identifier: Apache-2.0
#include "piece_trie.hpp"

#include <bit>

namespace text_data {
namespace {

uint64_t spread_key(uint64_t key) {
  key *= 0x9e3779b97f4a7c15u;
  return key ^ key >> 29;
}

uint64_t edge_key(uint32_t node, unsigned char byte) {
  return uint64_t{node} << 8 | byte;
}

}  // namespace

PieceTrie::PieceTrie(std::size_t bytes) : edges_(std::bit_ceil(2 * bytes + 2)) {}

uint32_t PieceTrie::follow(uint32_t node, unsigned char byte) const {
  const uint64_t key = edge_key(node, byte), mask = edges_.size() - 1;
  for (uint64_t at = spread_key(key) & mask; edges_[at].to != 0; at = (at + 1) & mask)
    if (edges_[at].key == key) return edges_[at].to;
  return 0;
}

uint32_t PieceTrie::follow(uint32_t node, std::string_view text) const {
  for (const char c : text)
    if ((node = follow(node, static_cast<unsigned char>(c))) == 0) return 0;
  return node;
}

void PieceTrie::add(std::string_view piece, int32_t id) {
  const uint64_t mask = edges_.size() - 1;
  uint32_t node = root;
  for (const char c : piece) {
    const uint64_t key = edge_key(node, static_cast<unsigned char>(c));
    uint64_t at = spread_key(key) & mask;
    while (edges_[at].to != 0 && edges_[at].key != key) at = (at + 1) & mask;
    if (edges_[at].to == 0) {
      edges_[at] = {key, static_cast<uint32_t>(ids_.size())};
      ids_.push_back(-1);
    }
    node = edges_[at].to;
  }
  if (node != root) ids_[node] = id;
}

}  // namespace text_data
