// SPDX-License-Identifier: Apache-2.0
// Finds out where each rank is when a wait has taken too long, and ends all waits.
#include <poll.h>

#include <algorithm>
#include <cstring>

#include "../common/comm/thread.hpp"
#include "comm.hpp"

namespace mpi {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds between_looks(100);
// A rank answers the next time it looks. Where the machine is busy this rank's own looks take long too, and the others
// get more time: from two seconds up to ten times that.
constexpr milliseconds between_questions(5), most_to_answer(20000);
constexpr int looks_to_answer = 400;
constexpr milliseconds time_to_tell(1000);
constexpr milliseconds time_to_be_told(500);  // by a rank that ended, or by who started it

}  // namespace

void Comm::start_listening() {
  listener_ = std::thread([this] {
    common::leave_signals_to_host();
    std::unique_lock lock(state_);
    while (!wake_.wait_for(lock, between_looks, [this] { return leave_; })) {
      lock.unlock();
      look();
      look_around();
      lock.lock();
    }
  });
}

void Comm::silence() {
  {
    const std::lock_guard lock(state_);
    leave_ = true;
  }
  wake_.notify_all();
  if (listener_.joinable()) listener_.join();
}

bool Comm::look() {
  const std::lock_guard lock(mpi_);
  try {
    if (!silent_) return read_notes();
  } catch (const Error& e) {
    failed_.set("the control channel: " + e.text);
  } catch (...) {  // no memory: the next look may have more
  }
  return true;
}

// Ranks end together, so one that has ended while this thread runs did not say goodbye. Notes that it sent before are
// read first.
void Comm::look_around() {
  for (const Neighbour& one : all_.neighbours) {
    if (failed_) return;
    pollfd end = {one.fd, POLLIN, 0};
    if (::poll(&end, 1, 0) <= 0 || !(end.revents & POLLIN)) continue;
    const auto now = Clock::now();
    if (ended_ == Clock::time_point{}) ended_ = now;
    if (now - ended_ >= time_to_be_told)
      failed_.set("rank " + std::to_string(one.rank) + " (process " + std::to_string(one.pid) +
                  ") ended without an error message");
    return;
  }
}

// True if nothing is left to be sent.
bool Comm::read_notes() {
  for (int came = 1; came;) {
    check(MPI_Test(&listening_, &came, MPI_STATUS_IGNORE), "MPI_Test");
    if (!came) break;
    const Note note = incoming_;
    check(MPI_Start(&listening_), "MPI_Start");
    take(note);
  }
  std::erase_if(posted_, [](Posted& p) {
    int done = 0;
    check(MPI_Test(&p.request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    return done != 0;
  });
  return posted_.empty();
}

void Comm::take(const Note& note) {
  if (note.from >= all_.size) return;
  switch (note.kind) {
    case Note::ask: {
      Note answer;
      answer.kind = Note::answer, answer.question = note.question, answer.group = note.group;
      answer.where = groups_.answer(note.group);
      return post(answer, note.from);
    }
    case Note::answer:
      if (note.question == groups_.question) groups_.answers[note.from] = note.where;
      return;
    case Note::gone:
      failed_.set("rank " + std::to_string(note.from) + ": " +
                  std::string(note.text, strnlen(note.text, sizeof(note.text))));
      return;
    default:
      return;
  }
}

void Comm::post(const Note& note, uint32_t to) {
  Posted& p = posted_.emplace_back();
  p.note = note;
  p.note.from = all_.rank;
  const int code = MPI_Isend(&p.note, sizeof(Note), MPI_BYTE, static_cast<int>(to), 0, all_.control, &p.request);
  if (code == MPI_SUCCESS) return;
  posted_.pop_back();
  check(code, "MPI_Isend");
}

void Comm::give_up(const Group& group, const Messages* messages) {
  const std::lock_guard one(asking_);
  failed_.check();
  const double waited = common::seconds_since(group.place.since);
  {
    const std::lock_guard lock(mpi_);
    groups_.ask(group, [&](uint32_t rank) {
      Note ask;
      ask.question = groups_.question, ask.group = group.id;
      post(ask, rank);
    });
  }
  const auto answered = [&] {
    const std::lock_guard lock(mpi_);
    return groups_.answered(group);
  };
  const auto end = Clock::now() + most_to_answer;
  for (int k = 0; k < looks_to_answer && Clock::now() < end && !answered() && !failed_; ++k) {
    look();
    std::this_thread::sleep_for(between_questions);
  }
  failed_.check();
  {
    const std::lock_guard lock(mpi_);
    failed_.set(groups_.late_text(group, waited, missing(messages)));
  }
  failed_.raise();
}

std::vector<std::string> Comm::missing(const Messages* messages) {
  std::vector<uint32_t> late;
  for (size_t k = 0; messages && k < messages->requests.size(); ++k) {
    int done = 1;
    if (messages->from[k] != Messages::nobody) MPI_Request_get_status(messages->requests[k], &done, MPI_STATUS_IGNORE);
    if (!done && (late.empty() || late.back() != messages->from[k])) late.push_back(messages->from[k]);
  }
  std::vector<std::string> said;
  for (uint32_t rank : late) said.push_back("the bytes of rank " + std::to_string(rank) + " have not arrived");
  if (said.empty()) said.push_back("all ranks have entered it, but their bytes have not arrived");
  return said;
}

void Comm::poll() {
  failed_.check();
}

void Comm::abort(const std::string& reason) noexcept {
  failed_.set(reason);
  try {
    const std::lock_guard lock(mpi_);
    if (told_ || silent_) return;
    told_ = true;
    Note gone;
    gone.kind = Note::gone;
    std::strncpy(gone.text, reason.c_str(), sizeof(gone.text) - 1);
    for (uint32_t rank = 0; rank < all_.size; ++rank)
      if (rank != all_.rank) post(gone, rank);
  } catch (...) {  // ranks that do not get this note find out by their own deadline
  }
  for (const auto end = Clock::now() + time_to_tell; Clock::now() < end && !look();)
    std::this_thread::sleep_for(milliseconds(1));
}

}  // namespace mpi
