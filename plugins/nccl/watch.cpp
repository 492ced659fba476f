// SPDX-License-Identifier: Apache-2.0
// The thread that reads what other ranks say, and sees to deadlines.
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "comm.hpp"

namespace nccl {
namespace {

using std::chrono::milliseconds;

constexpr int between_looks = 50;  // milliseconds
constexpr milliseconds time_to_answer(3000), most_of_a_look(1000), time_to_launch(1000), time_to_leave(2000);

template <class T>
bool read_into(T& value, const std::string& bytes) {
  if (bytes.size() != sizeof value) return false;
  std::memcpy(&value, bytes.data(), sizeof value);
  return true;
}

}  // namespace

void Comm::start_watching() {
  looked_ = Clock::now();
  thread_ = std::thread([this] {
    common::leave_signals_to_host();
    std::unique_lock lock(state_);
    Clock::time_point end{};
    for (;;) {
      const bool idle =
          std::all_of(met_.wires.begin(), met_.wires.end(), [](const auto& one) { return !one || one->idle(); });
      if (stop_ && end == Clock::time_point{}) end = Clock::now() + time_to_leave;
      if (stop_ && (idle || Clock::now() > end)) return;
      turn(lock);
    }
  });
}

void Comm::silence() {
  {
    const std::lock_guard lock(state_);
    stop_ = true;
  }
  wake();
  if (thread_.joinable()) thread_.join();
}

void Comm::wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(wake_, &one, sizeof one);
}

void Comm::turn(std::unique_lock<std::mutex>& lock) {
  std::vector<pollfd> fds = {{wake_, POLLIN, 0}};
  for (const auto& wire : met_.wires)
    if (wire) fds.push_back({wire->fd(), static_cast<short>(POLLIN | (wire->idle() ? 0 : POLLOUT)), 0});
  lock.unlock();
  ::poll(fds.data(), fds.size(), between_looks);
  lock.lock();
  uint64_t drained = 0;
  [[maybe_unused]] const ssize_t n = ::read(wake_, &drained, sizeof drained);
  try {
    for (uint32_t k = 0; k < met_.wires.size(); ++k)
      if (met_.wires[k]) read(*met_.wires[k], met_.rank == 0 ? k : 0);
    std::erase_if(met_.wires, [&](const auto& one) { return met_.rank != 0 && !one; });
    look_at_library();
    look_at_time();
  } catch (const Error& e) {
    fail(e.text);
  } catch (const std::exception& e) {
    fail(e.what());
  }
  if (failed_) end_library();
  changed_.notify_all();
}

void Comm::read(Wire& wire, uint32_t rank) {
  const bool open = wire.pump();
  Frame frame;
  std::string bytes;
  while (wire.next(frame, bytes)) {
    if (frame.from >= met_.size) throw Error{ENG_UNAVAILABLE, "what came is not from a rank of this run"};
    // Rank 0 passes on what is for others.
    if (met_.rank == 0)
      for (uint32_t r = 1; r < met_.size; ++r)
        if (r != frame.from && (frame.to == r || frame.to == everyone) && met_.wires[r])
          met_.wires[r]->put(frame, bytes);
    if (frame.to == met_.rank || frame.to == everyone) take(frame, bytes);
  }
  if (open) return;
  for (auto& one : met_.wires)
    if (one.get() == &wire) one.reset();
  if (!gone_[rank]) lose(rank);
}

void Comm::lose(uint32_t rank) {
  gone_[rank] = 1;
  if (leaving_) return;
  const Peer& peer = met_.peers[rank];
  fail("rank " + std::to_string(rank) + " (process " + std::to_string(peer.pid) + " on " + peer.host +
           ") ended without an error message",
       false);
  if (met_.rank == 0) send(Kind::lost, everyone, 0, reason_);
}

void Comm::take(const Frame& frame, const std::string& bytes) {
  switch (frame.kind) {
    case Kind::part:
      return take_part(frame.from, frame.tag, bytes);
    case Kind::all:
      if (frame.tag == static_cast<uint32_t>(host_.place.number)) result_ = bytes;
      return;
    case Kind::ask: {
      uint32_t about = 0;
      if (read_into(about, bytes))
        send(Kind::answer, frame.from, frame.tag, bytes_of(answer_about(about, host_, groups_)));
      return;
    }
    case Kind::answer:
      if (Answer answer; read_into(answer, bytes) && asked_ && frame.tag == asked_->number)
        answer.there = 1, answers_[frame.from] = answer;
      return;
    case Kind::gone:
      gone_[frame.from] = 1;
      return fail("rank " + std::to_string(frame.from) + ": " + bytes, false);
    case Kind::lost:
      return fail(bytes, false);
    case Kind::bye:
      gone_[frame.from] = 1;
      return;
    default:
      return;
  }
}

// On rank 0. When the last one has come, all get all.
void Comm::take_part(uint32_t rank, uint32_t number, const std::string& bytes) {
  auto& parts = came_[number].parts;
  parts[rank] = bytes;
  if (parts.size() < met_.size) return;
  std::string all;
  for (const auto& [r, part] : parts) {
    if (part.size() != parts[0].size())
      return fail("exchange number " + std::to_string(number) + ": rank " + std::to_string(r) + " gave " +
                  std::to_string(part.size()) + " bytes, rank 0 gave " + std::to_string(parts[0].size()));
    all += part;
  }
  came_.erase(number);
  send(Kind::all, everyone, number, all);
  result_ = std::move(all);
  changed_.notify_all();
}

void Comm::look_at_library() {
  for (auto& [id, group] : groups_) {
    if (failed_ || !group.library || !group.library->comm || group.library->ended) continue;
    ncclResult_t error = ncclSuccess;
    ncclComm_t comm = group.library->comm;
    if (ncclCommGetAsyncError(comm, &error) != ncclSuccess || error == ncclSuccess || error == ncclInProgress) continue;
    const char* last = ncclGetLastError(comm);
    fail(common::place_text(group.place.what, group.place.number, id) + " (" + ranks_text(group.ranks) +
         "): NCCL reports: " + ncclGetErrorString(error) + (last && *last ? std::string(" (") + last + ")" : ""));
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
    if (place.waiting && group.waited > deadline_ && !asked_) ask(group);
  };
  look(host_);
  for (auto& [id, group] : groups_)
    if (group.member) look(group);
}

void Comm::ask(Group& group) {
  asked_ = Asked{group.id, ++questions_, common::seconds_since(group.place.since), {}};
  for (Answer& answer : answers_) answer = Answer();
  for (const uint32_t rank : group.ranks)
    if (rank != met_.rank) send(Kind::ask, rank, questions_, bytes_of(group.id));
}

void Comm::look_at_answers() {
  Group& group = asked_->group ? groups_.at(asked_->group) : host_;
  if (!group.place.waiting || group.place.number != group.seen) return asked_.reset();  // they came after all
  const bool all = std::all_of(group.ranks.begin(), group.ranks.end(),
                               [&](uint32_t r) { return r == met_.rank || answers_[r].there; });
  if (!all && asked_->for_answers < time_to_answer) return;
  fail(common::waited_text(group, asked_->waited, met_.size) + missing(group));
}

std::string Comm::missing(const Group& group) {
  std::vector<std::string> said = common::elsewhere(group, met_.rank, answers_);
  if (said.empty()) said.push_back("all ranks have entered it, but it has not ended");
  return common::listed(said);
}

void Comm::fail(const std::string& reason, bool tell) {
  if (!failed_) reason_ = reason, failed_ = true;
  if (tell && !told_) send(Kind::gone, everyone, 0, reason_);
  told_ = true;
  changed_.notify_all();
}

// The queues go on. NCCL waits in ncclCommAbort until graphs with its work are gone, which may be never: so each has a
// thread that nobody waits for.
void Comm::end_library() {
  if (aborted_) return;
  aborted_ = true;
  for (auto& [id, group] : groups_) {
    if (!group.library || !group.library->comm || group.library->ended) continue;
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
  const Frame frame{kind, met_.rank, to, tag, bytes.size()};
  if (met_.rank != 0) {
    if (!met_.wires.empty() && met_.wires[0]) met_.wires[0]->put(frame, bytes);
  } else {
    for (uint32_t r = 1; r < met_.size; ++r)
      if ((to == r || to == everyone) && met_.wires[r]) met_.wires[r]->put(frame, bytes);
  }
  wake();
}

}  // namespace nccl
