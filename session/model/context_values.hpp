// SPDX-License-Identifier: Apache-2.0
// The values of a template whose positions ranks divide, in the forms in which ops read them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/trace/model.hpp"
#include "core/trace/ranks.hpp"

namespace eng {

// The part of a value that a rank has.
enum class OwnPart : uint8_t {
  whole,      // all of it: parameters, constants, and what is computed from them alone
  field,      // all of it, of which ops read this rank's positions
  positions,  // this rank's positions; or, made on demand, all positions of this rank's channels
  share,      // this rank's summand of a value without positions
  local,      // a value without positions that belongs to this rank's positions
  sum,        // this rank's summand of the loss
  hidden,     // nothing that other ops may read
};

// Makes a template from one that has whole sequences. Ids of the old one are called `id`, those of the new one `x`.
class ContextValues {
 protected:
  // Takes over parameters, inputs and fields. The model outlives it.
  ContextValues(const Model& model, const Ranks& ranks, uint32_t tmpl);
  // Throws Error(Exit::usage) with the model, the block and `what`.
  [[noreturn]] void refuse(const std::string& what) const;
  void need_parts(int64_t number, const char* of_what) const;

  const eng_desc& desc(Id id) const { return from_.graph.value(id).desc; }
  int64_t own_length() const { return model_.sequence_length / n_; }
  bool has_positions(const eng_desc& d) const {
    return d.ndim >= 2 && d.dims[0] == model_.micro_batch && d.dims[1] == model_.sequence_length;
  }
  Id made(const char* op, std::vector<Id> in, Attrs attrs) { return all_made(op, std::move(in), std::move(attrs))[0]; }
  std::vector<Id> all_made(const char* op, std::vector<Id> in, Attrs attrs);
  Id reshaped(Id x, uint32_t keep, std::initializer_list<int64_t> dims);
  Id constant(std::shared_ptr<const Constant> data);

  // The value as it is: this rank's positions, or all of it.
  Id of(Id id);
  // That, without positions of other ranks.
  Id own(Id id);
  // All positions of this rank's channels.
  Id channels(Id id);
  // All positions of this rank's part of `count` equal groups of channels of x, each of which comes `copies` times.
  Id groups(Id x, int64_t count, int64_t copies);
  // This rank's summand of a value without positions; and the sum over the ranks.
  Id share(Id id);
  Id total(Id id);
  // This rank's positions x (B, T/N, ...) among zeros in place of all others; `sizes` gets the positions before them,
  // theirs, and those behind, without those that are none.
  Id among_all(Id x, std::vector<int64_t>& sizes);
  // All positions of a value on every rank.
  Id whole(Id id);
  // The number of copies that makes a number of groups a multiple of the ranks.
  int64_t copies_of(int64_t count) const;
  // x divided along a dimension.
  std::vector<Id> pieces(Id x, uint32_t axis, const std::vector<int64_t>& sizes);
  // This rank's rows of a whole value. `count`, `copies`: as of `groups`, with rows in place of channels.
  Id rows(Id x, int64_t count = 0, int64_t copies = 1);

  const Model& model_;
  const Template from_;
  const uint32_t n_, index_;
  const Attrs group_;
  std::string block_;
  Template to_;
  std::vector<OwnPart> held_;      // per id
  std::vector<Id> of_, channels_;  // per id; 0: not made yet

 private:
  std::map<Id, Id> own_fields_, whole_;
};

}  // namespace eng
