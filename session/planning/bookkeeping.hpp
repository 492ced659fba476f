// SPDX-License-Identifier: Apache-2.0
// Host memory that a process needs for its plan itself: lists, names, the records of kernels, tables of checkpoints.
#pragma once

#include <set>

#include "core/plan/plan.hpp"
#include "core/trace/model.hpp"

namespace eng {

// Elements of a weight that are read at a time for the first lengths of its rows (session/train/lengths.hpp).
constexpr uint64_t lengths_tile = 65536;

// In bytes: what the lists of the plan and the model take, counted; and what the executor, the kernels and a save keep
// of each action and tensor, by sizes that were measured with the device cpu. `stored`: tensors of the checkpoint that
// is read, for a plan that does not train.
uint64_t bookkeeping_bytes(const Plan& plan, const Model& model, uint64_t stored = 0);
// Bytes of the first rank while it copies a checkpoint of so many tensors to a second place: buffers, a thread,
// tables; for one in a store also the libraries that reach it.
uint64_t second_place_bytes(uint64_t tensors, bool store);

// Gives freed memory back to the system. A process that has planned, read or saved a checkpoint keeps what it freed
// otherwise, beside its arenas.
void release_freed_memory();

// The memory that the shared objects at these addresses take when they are used, each once, without the engine's own:
// their code and tables, in steps of 64 KiB, so that not every build has other plans. All of a file of 256 KiB is
// counted, and three fifths of what a larger one has beyond that: a run reads the code of one of its models. The system
// maps the pages around each one that is read, the more the larger the pieces are in which it has cached the file. With
// Linux 6.18, 0.5 to 0.8 of the largest files were in memory.
uint64_t loaded_bytes(const std::set<const void*>& addresses);

// The largest resident size of this process so far.
uint64_t peak_resident_bytes();

}  // namespace eng
