// SPDX-License-Identifier: Apache-2.0
// eng.pack/1 and eng.unpack/1: frozen weights in 8 or 4 bits. They have no gradient: what is frozen needs none.
#include "engine/packed.h"
#include "op.hpp"
#include "ops.hpp"

namespace ops {
namespace {

// Bytes of a chunk; 0 if the attribute is wrong.
int64_t chunk_bytes(const Call& c) {
  return static_cast<int64_t>(eng_packed_bytes(static_cast<int32_t>(c.i("packed"))));
}

std::string pack(const Call& c, Descs& out) {
  const int64_t bytes = chunk_bytes(c), n = count(c.in(0));
  if (!bytes) return "the attribute packed must be a packed type";
  if (c.in(0).dtype != ENG_F32 || n % ENG_PACKED_CHUNK) return "x must be f32, a multiple of 4,096 elements";
  out.push_back(make_desc(ENG_U8, {n / ENG_PACKED_CHUNK * bytes}));
  return "";
}

std::string unpack(const Call& c, Descs& out) {
  const int64_t bytes = chunk_bytes(c), n = count(c.in(0)), dtype = c.i("dtype");
  if (!bytes) return "the attribute packed must be a packed type";
  if (c.in(0).dtype != ENG_U8 || n % bytes)
    return "x must be u8, " + std::to_string(bytes) + " bytes for each 4,096 elements";
  if (dtype != ENG_F32 && dtype != ENG_BF16 && dtype != ENG_F16) return "y must be f32, bf16 or f16 (attribute dtype)";
  out.push_back(make_desc(dtype, {n / bytes * ENG_PACKED_CHUNK}));
  return "";
}

}  // namespace

Family packed_ops() {
  static const eng_op all[] = {
      {.struct_size = sizeof(eng_op), .id = ENG_OP_PACK, .min_in = 1, .max_in = 1, .infer = infer<pack>},
      {.struct_size = sizeof(eng_op), .id = ENG_OP_UNPACK, .min_in = 1, .max_in = 1, .infer = infer<unpack>},
  };
  return all;
}

}  // namespace ops
