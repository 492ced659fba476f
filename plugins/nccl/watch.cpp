// SPDX-License-Identifier: Apache-2.0
// The thread that reads what other ranks say, and sees to deadlines.
#include <unistd.h>

#include <algorithm>

#include "../common/comm/thread.hpp"
#include "comm.hpp"

namespace nccl {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds time_to_answer(3000), most_of_a_look(1000), time_to_launch(1000), time_to_leave(2000);

}  // namespace

void Comm::start_watching() {
  looked_ = Clock::now();
  thread_ = std::thread([this] {
    common::leave_signals_to_host();
    std::unique_lock lock(state_);
    while (!stop_by_ || (!idle(met_.wires) && Clock::now() < *stop_by_)) turn(lock);
  });
}

void Comm::silence() {
  {
    const std::lock_guard lock(state_);
    stop_by_ = Clock::now() + time_to_leave;
  }
  wake();
  if (thread_.joinable()) thread_.join();
}

void Comm::wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(wake_, &one, sizeof one);
}

void Comm::turn(std::unique_lock<std::mutex>& lock) {
  const std::vector<pollfd> fds = polled(wake_, met_.wires);
  lock.unlock();
  wait_for(fds);
  lock.lock();
  uint64_t drained = 0;
  [[maybe_unused]] const ssize_t n = ::read(wake_, &drained, sizeof drained);
  try {
    for (uint32_t rank = 0; rank < groups_.size; ++rank)
      if (met_.wires[rank]) read(rank);
    look_at_library();
    look_at_time();
  } catch (const Error& e) {
    fail(e.text);
  } catch (const std::exception& e) {
    fail(e.what());
  }
  changed_.notify_all();
}

void Comm::read(uint32_t rank) {
  const bool open = met_.wires[rank]->pump();
  Frame frame;
  std::string bytes;
  while (met_.wires[rank]->next(frame, bytes)) {
    if (frame.from >= groups_.size) throw Error{ENG_UNAVAILABLE, "what came is not from a rank of this run"};
    if (groups_.rank == 0) pass(frame, bytes);
    if (frame.to == groups_.rank || frame.to == everyone) take(frame, bytes);
  }
  if (open) return;
  met_.wires[rank].reset();
  if (!leaving_)
    fail("rank " + std::to_string(rank) + " (" + met_.peers[rank].text() + ") ended without an error message",
         Kind::lost);
}

void Comm::take(const Frame& frame, const std::string& bytes) {
  switch (frame.kind) {
    case Kind::part:
      return take_part(frame.from, bytes);
    case Kind::all:
      result_ = bytes;
      return;
    case Kind::ask:
      if (const auto about = value_of<eng_id>(bytes))
        send(Kind::answer, frame.from, frame.tag, bytes_of(groups_.answer(*about)));
      return;
    case Kind::answer:
      if (const auto answer = value_of<Answer>(bytes); answer && frame.tag == groups_.question)
        groups_.answers[frame.from] = *answer;
      return;
    case Kind::gone:
      known_ = true;
      return fail("rank " + std::to_string(frame.from) + ": " + bytes);
    case Kind::lost:
      known_ = true;
      return fail(bytes);
    case Kind::bye:
      leaving_ = true;
      return;
    default:
      return;
  }
}

// On rank 0. When the last one has come, all get all.
void Comm::take_part(uint32_t rank, std::string_view bytes) {
  parts_[rank] = bytes;
  if (parts_.size() < groups_.size) return;
  std::string all;
  for (const auto& [r, part] : parts_) {
    if (part.size() != parts_[0].size())
      return fail("exchange number " + std::to_string(groups_.host.place.number) + ": rank " + std::to_string(r) +
                  " gave " + std::to_string(part.size()) + " bytes, rank 0 gave " + std::to_string(parts_[0].size()));
    all += part;
  }
  parts_.clear();
  send(Kind::all, everyone, 0, all);
  result_ = std::move(all);
  changed_.notify_all();
}

void Comm::look_at_library() {
  for (auto& [id, group] : groups_.all) {
    if (failed_ || !group.library || group.library->ended) continue;
    ncclResult_t error = ncclSuccess;
    ncclComm_t comm = group.library->comm;
    if (ncclCommGetAsyncError(comm, &error) != ncclSuccess || error == ncclSuccess || error == ncclInProgress) continue;
    fail(common::place_text(group.place.what, group.place.number, id) + " (" + ranks_text(group.ranks) +
         "): NCCL reports: " + text_of(error, comm));
  }
}

// For a time in which this process could not look, because it was stopped or got no core, no other rank is to blame.
void Comm::look_at_time() {
  const auto now = Clock::now();
  const auto passed = std::min<Clock::duration>(now - looked_, most_of_a_look);
  looked_ = now;
  if (failed_) return;
  if (asked_) {
    asked_->for_answers += passed;
    return look_at_answers();
  }
  const auto look = [&](Group& group) {
    const common::Place& place = group.place;
    if (!place.waiting || place.number != group.seen)
      group.seen = place.number, group.waited = {};
    else
      group.waited += passed;
    if (!place.waiting || group.waited <= deadline_ || asked_) return;
    asked_ = Asked{&group, common::seconds_since(place.since)};
    groups_.ask(group, [&](uint32_t rank) { send(Kind::ask, rank, groups_.question, bytes_of(group.id)); });
  };
  look(groups_.host);
  for (auto& [id, group] : groups_.all) look(group);
}

void Comm::look_at_answers() {
  const Group& group = *asked_->group;
  if (!group.place.waiting || group.place.number != group.seen) return asked_.reset();  // they came after all
  if (groups_.answered(group) || asked_->for_answers >= time_to_answer)
    fail(groups_.late_text(group, asked_->waited, {"all ranks have entered it, but it has not ended"}));
}

void Comm::fail(const std::string& reason, Kind tell) {
  const bool first = !failed_;
  failed_.set(reason);
  if (!known_) send(tell, everyone, 0, failed_.reason());
  known_ = true;
  changed_.notify_all();
  if (first) end_library();
}

// The queues go on. NCCL waits in ncclCommAbort until graphs with its work are gone, which may be never: so each has a
// thread that nobody waits for.
void Comm::end_library() {
  for (auto& [id, group] : groups_.all) {
    if (!group.library || group.library->ended) continue;
    std::thread([library = group.library] {
      // A launch that does not come back waits for other ranks, and ends by the abort.
      const bool alone = library->busy.try_lock_for(time_to_launch);
      library->ended = true;
      ncclCommAbort(library->comm);
      if (alone) library->busy.unlock();
    }).detach();
  }
}

void Comm::send(Kind kind, uint32_t to, uint32_t tag, std::string_view bytes) {
  pass({kind, groups_.rank, to, tag}, bytes);
  wake();
}

void Comm::pass(const Frame& frame, std::string_view bytes) {
  for (uint32_t rank = 0; rank < groups_.size; ++rank) {
    const bool meant = groups_.rank != 0 || frame.to == rank || frame.to == everyone;
    if (met_.wires[rank] && meant && rank != frame.from) met_.wires[rank]->put(frame, bytes);
  }
}

}  // namespace nccl
