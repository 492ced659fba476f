// SPDX-License-Identifier: Apache-2.0
// The work of the software NCCL when a queue comes to it.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "shared.hpp"

namespace softnccl {
namespace {

const char* name_of(Kind kind) {
  static const char* const names[] = {"AllGather", "Broadcast", "AllReduce", "ReduceScatter", "Send/Recv"};
  return names[static_cast<size_t>(kind)];
}

// SOFTNCCL_FAIL = N: the Nth piece of work of this process fails as a lost connection does.
bool fails_now() {
  static std::atomic<int64_t> left{std::getenv("SOFTNCCL_FAIL") ? std::atoll(std::getenv("SOFTNCCL_FAIL")) : 0};
  return left > 0 && --left == 0;
}

float to_f32(uint16_t bf16) {
  const uint32_t bits = static_cast<uint32_t>(bf16) << 16;
  float out;
  std::memcpy(&out, &bits, sizeof out);
  return out;
}
uint16_t to_bf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <class T>
void add(char* to, const char* from, uint64_t count) {
  for (uint64_t k = 0; k < count; ++k) {
    T a, b;
    std::memcpy(&a, to + k * sizeof a, sizeof a), std::memcpy(&b, from + k * sizeof b, sizeof b);
    a += b;
    std::memcpy(to + k * sizeof a, &a, sizeof a);
  }
}
void add_bf16(char* to, const char* from, uint64_t count) {
  for (uint64_t k = 0; k < count; ++k) {
    uint16_t a, b;
    std::memcpy(&a, to + k * 2, 2), std::memcpy(&b, from + k * 2, 2);
    a = to_bf16(to_f32(a) + to_f32(b));
    std::memcpy(to + k * 2, &a, 2);
  }
}

}  // namespace

uint64_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      return 4;
  }
}

// Waits until all ranks have entered the collective of this number, and compares what they have entered. NCCL itself
// would hang, or mix bytes up.
bool Job::enter() {
  Soft& s = *soft;
  const uint64_t number = ++s.number;
  Entered& own = s.shared->entered[s.rank][number % 2];
  own.kind = kind, own.type = type, own.root = static_cast<uint32_t>(root), own.count = count;
  own.number = number;
  Patience patience;
  for (int r = 0; r < s.size; ++r) {
    const Entered& other = s.shared->entered[r][number % 2];
    while (other.number < number) {
      if (!s.goes_on()) return false;
      if (!patience.wait())
        return s.fail(ncclSystemError, "a test waited too long for rank " + std::to_string(r)), false;
    }
    const auto text = [](int rank, const Entered& e) {
      return "rank " + std::to_string(rank) + " called " + name_of(e.kind) + " of " + std::to_string(e.count) +
             " elements of type " + std::to_string(e.type) + ", root " + std::to_string(e.root);
    };
    if (other.kind != own.kind || other.type != own.type || other.root != own.root || other.count != own.count) {
      s.complain("collectives do not match: " + text(s.rank, own) + "; " + text(r, other));
      return s.goes_on(), false;
    }
  }
  return true;
}

void Job::move(std::vector<Message> list) {
  Soft& s = *soft;
  for (Patience patience; !list.empty() && s.goes_on();) {
    bool moved = false;
    for (Message& m : list) {
      if (m.begun && m.at == m.bytes) continue;
      Mailbox& box = m.send ? s.box(s.rank, m.peer) : s.box(m.peer, s.rank);
      if ((box.full != 0) == m.send) continue;
      if (m.send) {
        box.bytes = static_cast<uint32_t>(std::min<uint64_t>(chunk, m.bytes - m.at)), box.total = m.bytes;
        std::memcpy(box.data, m.data + m.at, box.bytes);
      } else if (box.total != m.bytes) {
        return s.complain("messages do not match: rank " + std::to_string(m.peer) + " sends " +
                          std::to_string(box.total) + " bytes, rank " + std::to_string(s.rank) + " expects " +
                          std::to_string(m.bytes)),
               static_cast<void>(s.goes_on());
      } else {
        std::memcpy(m.data + m.at, box.data, box.bytes);
      }
      m.at += box.bytes, m.begun = moved = true;
      box.full = m.send;
    }
    std::erase_if(list, [](const Message& m) { return m.begun && m.at == m.bytes; });
    if (moved)
      patience.moved();
    else if (!patience.wait())
      s.fail(ncclSystemError, "a test waited too long for a message");
  }
}

// Sums what all ranks have, the last rank's first: another order than the engine's own.
void Job::reduce(uint64_t bytes, uint64_t first, bool parts) {
  Soft& s = *soft;
  std::vector<std::vector<char>> came(static_cast<size_t>(s.size));
  std::vector<Message> list;
  for (int r = 0; r < s.size; ++r) {
    auto& mine = came[static_cast<size_t>(r)];
    mine.resize(bytes);
    char* from = const_cast<char*>(in);
    if (r == s.rank) {
      std::memcpy(mine.data(), from + first, bytes);
      continue;
    }
    list.push_back({false, r, mine.data(), bytes});
    list.push_back({true, r, from + (parts ? static_cast<uint64_t>(r) * bytes : 0), bytes});
  }
  move(std::move(list));
  if (!s.goes_on()) return;
  std::memcpy(out, came.back().data(), bytes);
  for (int r = s.size - 2; r >= 0; --r) {
    const char* from = came[static_cast<size_t>(r)].data();
    if (type == ncclFloat32) add<float>(out, from, count);
    if (type == ncclFloat64) add<double>(out, from, count);
    if (type == ncclBfloat16) add_bf16(out, from, count);
  }
}

void Job::run() {
  Soft& s = *soft;
  if (!s.goes_on()) return;
  if (fails_now()) return s.fail(ncclRemoteError, "an error that the test wanted");
  if (!enter()) return;
  const uint64_t bytes = count * size_of(type);
  std::vector<Message> list;
  switch (kind) {
    case Kind::messages:
      return move(messages);
    case Kind::all_gather:
      for (int r = 0; r < s.size; ++r) {
        char* const place = out + static_cast<uint64_t>(r) * bytes;
        if (r == s.rank)
          std::memmove(place, in, bytes);
        else
          list.push_back({true, r, const_cast<char*>(in), bytes}), list.push_back({false, r, place, bytes});
      }
      return move(std::move(list));
    case Kind::broadcast:
      if (s.rank != root) return move({{false, root, out, bytes}});
      for (int r = 0; r < s.size; ++r)
        if (r != root) list.push_back({true, r, const_cast<char*>(in), bytes});
      move(std::move(list));
      std::memmove(out, in, bytes);
      return;
    case Kind::all_reduce:
      return reduce(bytes, 0, false);
    case Kind::reduce_scatter:
      return reduce(bytes, static_cast<uint64_t>(s.rank) * bytes, true);
  }
}

}  // namespace softnccl
