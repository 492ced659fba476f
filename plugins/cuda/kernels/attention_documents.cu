// SPDX-License-Identifier: Apache-2.0
// Finds what each row of attention sees: where the documents of packed samples begin and end, and the window.
#include "attention.hpp"

namespace cuda {
namespace attention {

constexpr unsigned block = 256;

struct DocumentsRoom {
  int begun[block], next[block];  // of each run
};

// starts (B, T): the first row of each row's document, or of its window of `window` rows; ends (B, T), may be null: the
// row behind the last one of the document, or of the window that begins here. A block for each sequence, a run of rows
// for each thread; segments (B, T), which may be null, differ where a document begins.
__global__ void __launch_bounds__(block)
    find_bounds(const int32_t* segments, int length, int window, int32_t* starts, int32_t* ends) {
  DocumentsRoom& room = shared<DocumentsRoom>();
  const int64_t sequence = static_cast<int64_t>(blockIdx.x) * length;
  if (segments) segments += sequence;
  starts += sequence;
  const int each = (length + static_cast<int>(block) - 1) / static_cast<int>(block);
  const int thread = static_cast<int>(threadIdx.x), first = thread * each < length ? thread * each : length;
  const int end = first + each < length ? first + each : length;
  const auto begins = [&](int t) { return segments && t > 0 && segments[t] != segments[t - 1]; };
  int begun = 0, next = length;  // the last and the first row of the run with which a document begins
  for (int t = first; t < end; ++t)
    if (begins(t)) begun = t, next = next < t ? next : t;
  room.begun[thread] = begun, room.next[thread] = next;
  __syncthreads();
  int before = 0, after = length;  // the same over all earlier runs, and over all later ones
  for (int run = 0; run < static_cast<int>(block); ++run) {
    if (run < thread && room.begun[run] > before) before = room.begun[run];
    if (run > thread && room.next[run] < after) after = room.next[run];
  }
  for (int t = first; t < end; ++t) {
    if (begins(t)) before = t;
    starts[t] = before > t - window ? before : t - window + 1;
  }
  if (!ends) return;
  ends += sequence;
  for (int t = end - 1; t >= first; --t) {
    ends[t] = after - t < window ? after : t + window;
    if (begins(t)) after = t;
  }
}

void find_bounds_of(const Heads& s, const int32_t* segments, int32_t* starts, int32_t* ends, cudaStream_t stream) {
  if (s.length > 0)
    launch<find_bounds>(static_cast<unsigned>(s.batch), block, sizeof(DocumentsRoom), stream, segments,
                        static_cast<int>(s.length), static_cast<int>(s.window ? s.window : s.length), starts, ends);
}

}  // namespace attention
}  // namespace cuda
