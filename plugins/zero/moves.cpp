// SPDX-License-Identifier: Apache-2.0
#include "moves.hpp"

namespace zero {

void Ops::emit(const char* op, std::initializer_list<eng_id> in, eng_id* out, std::initializer_list<eng_attr> attrs) {
  if (status_ == ENG_OK)
    status_ = b_->api->emit(b_, op, in.begin(), static_cast<uint32_t>(in.size()), out, 1, attrs.begin(),
                            static_cast<uint32_t>(attrs.size()), error_);
}

void Ops::collect(const char* op, const Level& level, eng_id x, eng_id* out) {
  emit(op, {x}, out, {{"group", level.group, 0}});
}

void Ops::fold(const Level& level, eng_id rows, int32_t dtype, eng_id* out) {
  emit(ENG_OP_FOLD, {rows}, out, {{"rows", level.members, 0}, {"dtype", dtype, 0}});
}

// Every rank sends each other rank that rank's range; then each adds up the ranges it received.
void Ops::sum(const Level& level, bool fast, eng_id x, int32_t from, int32_t dtype, eng_id* out) {
  eng_id moved = 0;
  if (fast && from == dtype) return collect(ENG_OP_REDUCE_SCATTER, level, x, out);
  collect(fast ? ENG_OP_REDUCE_SCATTER : ENG_OP_ALL_TO_ALL, level, x, &moved);
  if (fast) return cast(moved, dtype, out);
  fold(level, moved, dtype, out);
}

void Ops::narrow_sum(const Level& level, Form form, eng_id x, int32_t from, eng_id residual, int32_t dtype,
                     eng_id* out) {
  eng_id whole = 0, sent = 0, received = 0, rows = 0, minus = 0;
  if (residual) {
    whole = residual;
    emit(ENG_OP_ADD, {x, residual}, &whole, {});
  } else if (from == ENG_F32) {
    whole = x;
  } else {
    cast(x, ENG_F32, &whole);
  }
  encode(form, whole, &sent);
  if (residual) {
    eng_id left = residual;
    decode(form, sent, ENG_F32, &minus);
    emit(ENG_OP_SCALE, {minus}, &minus, {{"factor", 0, -1.0}});
    emit(ENG_OP_ADD, {residual, minus}, &left, {});
  }
  collect(ENG_OP_ALL_TO_ALL, level, sent, &received);
  if (form == Form::bf16) return fold(level, received, dtype, out);  // which reads bf16
  decode(form, received, ENG_F32, &rows);
  fold(level, rows, dtype, out);
}

void Ops::gather(const Level& level, eng_id x, eng_id* out) {
  collect(ENG_OP_ALL_GATHER, level, x, out);
}

void Ops::gather_int8(const Level& level, eng_id x, int32_t dtype, eng_id* out) {
  eng_id wide = x, sent = 0, received = 0;
  if (dtype != ENG_F32) wide = 0, cast(x, ENG_F32, &wide);
  encode(Form::int8, wide, &sent);
  collect(ENG_OP_ALL_GATHER, level, sent, &received);
  decode(Form::int8, received, dtype, out);
}

// The first step writes where the second one reads in place.
void Ops::gather(const Level& outer, const Level& inner, eng_id x, eng_id* out) {
  eng_desc whole{};
  eng_id half = 0;
  if (status_ == ENG_OK) status_ = b_->api->shape(b_, *out, &whole, error_);
  const uint64_t count = status_ == ENG_OK ? static_cast<uint64_t>(whole.dims[0]) / inner.members : 0;
  if (status_ == ENG_OK) status_ = b_->api->slice(b_, *out, inner.index * count, count, &half, error_);
  gather(outer, x, &half);
  gather(inner, half, out);
}

void Ops::encode(Form form, eng_id x, eng_id* out) {
  if (form == Form::bf16) return cast(x, ENG_BF16, out);
  emit(ENG_OP_PACK, {x}, out, {{"packed", ENG_PACKED_INT8, 0}});
}

void Ops::decode(Form form, eng_id x, int32_t dtype, eng_id* out) {
  if (form == Form::bf16) return cast(x, dtype, out);
  emit(ENG_OP_UNPACK, {x}, out, {{"packed", ENG_PACKED_INT8, 0}, {"dtype", dtype, 0}});
}

}  // namespace zero
