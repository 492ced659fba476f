// SPDX-License-Identifier: Apache-2.0
// The tensors of a model's files beside those of the model: split, joined and transposed, as `split`, `join` and
// `transpose` of its plugin's description say.
#pragma once

#include <functional>
#include <optional>

#include "session/plugins/pretrained.hpp"

namespace eng {

std::string shape_text(const std::vector<int64_t>& shape);  // "[3, 4]"

// The texts in the places of `*`, each of which stands for one part of a name between dots; none if it does not match.
std::optional<std::vector<std::string>> texts_at_stars(const std::string& pattern, const std::string& name);
// A pattern with these texts in the places of `*`.
std::string with_texts(const std::string& pattern, const std::vector<std::string>& texts);

struct TensorShape {
  std::string name;
  std::vector<int64_t> shape;
  bool optional = false;
};

// A tensor made of others, which lie in it one after the other along an axis. Lengths and offsets count along that
// axis, seen in the shape of what is made.
struct Arranged {
  struct Part {
    size_t source;
    uint64_t at, length;    // its place in what is made
    uint64_t from, extent;  // its place in the source, and the whole length of that
  };
  std::vector<int64_t> shape;
  size_t axis = 0;
  bool transposed = false;  // the two dimensions of every source are exchanged
  std::vector<Part> parts;  // without holes

  bool plain() const { return parts.size() == 1 && !transposed && parts[0].length == parts[0].extent; }
};

struct Arrangement {
  std::vector<TensorShape> files;    // the tensors of the files, in the order of the model
  std::vector<Arranged> from_model;  // each of `files`, made of the model's tensors
  std::vector<Arranged> from_files;  // each tensor of the model, made of `files`
  bool plain() const;                // both are the same tensors
};

// Throws Error(Exit::checkpoint), prefixed with `where`, if the description does not fit the model: a pattern that
// matches nothing, shapes that cannot be joined or divided, a tensor in two groups. `table`: of the description.
Arrangement arrange(const std::vector<TensorShape>& model, const Pretrained& pretrained, const std::string& where,
                    const std::string& table = "provides.pretrained");

// Elements [first, first + count) of a source, in its own order.
using ReadSource = std::function<void(size_t source, uint64_t first, uint64_t count, void* out)>;

// Writes elements [first, first + count) of `made` to `out`; each has `size` bytes: 2 or 4. A transposed one is read in
// runs of about count / columns elements.
void gather(const Arranged& made, uint64_t first, uint64_t count, uint64_t size, const ReadSource& read, void* out);

// The elements that one call of `gather` should make.
uint64_t gather_tile(const Arranged& made);

}  // namespace eng
