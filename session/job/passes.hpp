// SPDX-License-Identifier: Apache-2.0
// Computations for a job: gradients, losses, programs; and its tensors, whichever rank holds them.
#pragma once

#include "session/job/made_job.hpp"
#include "session/train/trainer.hpp"

namespace eng {

// A request of a job that cannot be met. The job is told and may go on.
struct JobFault {
  eng_status status;
  std::string text;
};

// All ranks call its functions together, with the same arguments. They throw JobFault on all ranks or none, and Error
// for what failed.
class Passes {
 public:
  Passes(const Setup& setup, const Data& data, Trainer& trainer, const MadeJob& made);

  uint64_t windows(uint32_t split) const;
  // See engine/job.h.
  double gradient(uint32_t split, uint64_t first);
  void losses(uint32_t split, uint64_t first, uint32_t n, bool sites, double* sums, int64_t* labels);
  void field(uint32_t split, uint64_t window, const std::string& name, void* out);  // not together
  void position_losses(uint32_t split, uint64_t first, uint32_t n, double* losses);
  void program(uint32_t k, const float* numbers, uint32_t n, int64_t counter);
  void read(uint32_t what, uint32_t state, uint32_t index, uint64_t first, uint64_t count, void* out) const;
  // Hash of the bytes of all parameters, in their order.
  std::string parameters_hash() const;
  void write(uint32_t what, uint32_t state, uint32_t index, uint64_t first, uint64_t count, const void* data);

 private:
  const Tensor& tensor(uint32_t what, uint32_t state, uint32_t index) const;
  void read_held(const Tensor& tensor, uint64_t first, uint64_t count, char* out) const;
  void read_parts(const Tensor& tensor, uint64_t first, uint64_t count, char* out) const;
  void read_sum(const Tensor& tensor, uint64_t first, uint64_t count, char* out) const;
  void read_rows(uint32_t split, uint64_t first, int64_t rows);
  std::string losses_by_position();
  void publish();
  const Plan& plan() const { return setup_.plan; }
  const Setup& setup_;
  const Data& data_;
  Trainer& trainer_;
  const MadeJob& made_;
  const Peers peers_;
  Batch batch_;
  bool changed_ = false;  // masters were written since the weights were made from them
};

}  // namespace eng
