// SPDX-License-Identifier: Apache-2.0
// Where the documents of packed samples begin and end, for the kernels of attention.
#include "attention.hpp"

namespace cuda {
namespace attention {

constexpr unsigned block = 256;

struct DocumentsRoom {
  int begun[block / warp], next[block / warp];  // of each warp
};

// starts (B, T): the first row of each row's document; ends (B, T), may be null: the row behind its last one. A block
// for each sequence, a run of rows for each thread; segments (B, T) differ where a document begins.
__global__ void __launch_bounds__(block)
    find_documents(const int32_t* segments, int length, int32_t* starts, int32_t* ends) {
  DocumentsRoom& room = shared<DocumentsRoom>();
  const int64_t sequence = static_cast<int64_t>(blockIdx.x) * length;
  segments += sequence, starts += sequence;
  const int each = (length + static_cast<int>(block) - 1) / static_cast<int>(block);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, own = thread / 32;
  const int first = thread * each < length ? thread * each : length;
  const int end = first + each < length ? first + each : length;
  const auto begins = [&](int t) { return t > 0 && segments[t] != segments[t - 1]; };
  int begun = 0, next = length;  // the last and the first row of the run with which a document begins
  for (int t = first; t < end; ++t)
    if (begins(t)) begun = t, next = next < t ? next : t;
  // The same over all earlier runs, and over all later ones.
  int before = __shfl_up_sync(0xffffffffu, begun, 1), after = __shfl_down_sync(0xffffffffu, next, 1);
  if (lane == 0) before = 0;
  if (lane == 31) after = length;
  for (int by = 1; by < 32; by *= 2) {
    const int earlier = __shfl_up_sync(0xffffffffu, before, by), later = __shfl_down_sync(0xffffffffu, after, by);
    if (lane >= by && earlier > before) before = earlier;
    if (lane + by < 32 && later < after) after = later;
  }
  if (lane == 31) room.begun[own] = before > begun ? before : begun;
  if (lane == 0) room.next[own] = after < next ? after : next;
  __syncthreads();
  for (int w = 0; w < static_cast<int>(block / warp); ++w) {
    if (w < own && room.begun[w] > before) before = room.begun[w];
    if (w > own && room.next[w] < after) after = room.next[w];
  }
  for (int t = first; t < end; ++t) {
    if (begins(t)) before = t;
    starts[t] = before;
  }
  if (!ends) return;
  ends += sequence;
  for (int t = end - 1; t >= first; --t) {
    ends[t] = after;
    if (begins(t)) after = t;
  }
}

void find_documents_of(const Heads& s, const int32_t* segments, int32_t* starts, int32_t* ends, cudaStream_t stream) {
  if (s.length > 0)
    launch<find_documents>(static_cast<unsigned>(s.batch), block, sizeof(DocumentsRoom), stream, segments,
                           static_cast<int>(s.length), starts, ends);
}

}  // namespace attention
}  // namespace cuda
