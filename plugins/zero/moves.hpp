// SPDX-License-Identifier: Apache-2.0
// The ops of sums and gathers, over one level of ranks or two.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "engine/ops.h"
#include "engine/policy.h"

namespace zero {

// The form in which values cross: as they are, or narrower.
enum class Form : uint8_t { exact, bf16, int8 };

// Ranks that communicate, in the order of their parts.
struct Level {
  uint32_t members = 1;
  uint32_t index = 0;  // this rank's among them
  eng_id group = 0;
};

// The emission of one move. Every function writes `out`, or makes it a new value where it is 0. The first error stays.
class Ops {
 public:
  Ops(eng_build* b, eng_error* error) : b_(b), error_(error) {}
  eng_status status() const { return status_; }
  // The range of this rank of the sum of x over a level, folded in the order of the members in the type `dtype`.
  // `fast`: by the communicator's own sum, in the type of x.
  void sum(const Level& level, bool fast, eng_id x, int32_t from, int32_t dtype, eng_id* out);
  // A sum of which every rank sends narrower summands. `residual`: what this rank has left out of earlier sums, f32 and
  // as long as x. It is added to x, and what this sum leaves out takes its place. 0: there is none.
  void narrow_sum(const Level& level, Form form, eng_id x, int32_t from, eng_id residual, int32_t dtype, eng_id* out);
  // The parts of all members, one after the other. Where the members' part lies in `out`, it may lie in its place.
  void gather(const Level& level, eng_id x, eng_id* out);
  // Such parts through 8 bits: all members get equal values, which are not those of x, in the type of x.
  void gather_int8(const Level& level, eng_id x, int32_t dtype, eng_id* out);
  // Parts of an outer level within those of an inner level.
  void gather(const Level& outer, const Level& inner, eng_id x, eng_id* out);

 private:
  void emit(const char* op, std::initializer_list<eng_id> in, eng_id* out, std::initializer_list<eng_attr> attrs);
  void collect(const char* op, const Level& level, eng_id x, eng_id* out);
  void fold(const Level& level, eng_id rows, int32_t dtype, eng_id* out);
  void cast(eng_id x, int32_t dtype, eng_id* out) { emit(ENG_OP_CAST, {x}, out, {{"dtype", dtype, 0}}); }
  // x in the form, and back in `dtype`.
  void encode(Form form, eng_id x, eng_id* out);
  void decode(Form form, eng_id x, int32_t dtype, eng_id* out);
  eng_build* b_;
  eng_error* error_;
  eng_status status_ = ENG_OK;
};

}  // namespace zero
