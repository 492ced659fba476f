// SPDX-License-Identifier: Apache-2.0
// [checkpoint] memory_every: the parts of a checkpoint in the memory of hosts, between those on the disk. A rank writes
// its part into a folder of a file system in memory, which a killed process leaves behind, and sends it to a rank of
// the next host, which a lost host leaves behind. When the run begins again, all parts of the newest step that is whole
// are written to the disk as a checkpoint, which is loaded like any other.
//
//   FOLDER/step-00000012/model-00003.safetensors  as in a checkpoint
//                        optim-00003.safetensors
//                        part-00003-of-00008.json  the manifest of this rank's part; written last
#pragma once

#include <memory>

#include "core/trace/builder.hpp"
#include "session/checkpoint/peer_link.hpp"
#include "session/checkpoint/share.hpp"

namespace eng {

// The folder for the parts of one attempt of a run in `memory`, a file system in memory. It has the same name on all
// hosts that see the run's directory at the same path. Parts of an earlier attempt are of no use: a later one may have
// made other steps of the same numbers.
std::filesystem::path copies_folder(const std::filesystem::path& memory, const std::filesystem::path& run,
                                    int64_t attempt);

// Bytes of memory that this takes for one rank, at most: two steps, of its own part and, with `hosts`, of another
// one's.
uint64_t memory_copy_bytes(const std::vector<TensorShare>& tensors, bool hosts);

// All ranks call the functions in the same order, between steps. A failure here never ends the run.
class MemoryCopies {
 public:
  // Makes the folder, and removes those of other attempts. With ranks on several hosts it connects them, and throws
  // Error(Exit::communication) where that fails; Error(Exit::host_memory) where the folder cannot hold `bytes` for each
  // rank of this host.
  MemoryCopies(std::filesystem::path folder, Peers peers, const World& world, uint64_t bytes);
  ~MemoryCopies();

  // Writes this rank's part of a step, and begins to send it. A step is left out while the one before is still being
  // sent. Returns a text to tell if something failed, or "".
  std::string take(const RunPoint& point, std::vector<TensorShare> tensors, const Read& read,
                   std::span<char> staging = {});
  // At the end of a run that needs no copy any more.
  void remove();
  // True while the last part is on its way to another host.
  bool sending() const { return link_ && link_->busy(); }
  // "rank 2 on node7", or "" on one host: who has a second copy of this rank's part.
  std::string kept_by() const { return link_ ? link_->kept_by() : ""; }

 private:
  std::string settle(bool& busy);
  void write(int64_t step, const RunPoint& point, const std::vector<TensorShare>& tensors, const Read& read,
             std::span<char> staging);

  const std::filesystem::path folder_;
  const Peers peers_;
  std::unique_ptr<PeerLink> link_;  // null on one host
  int64_t whole_ = -1, last_ = -1;  // the step that all ranks have; the one that was written last
  std::string failed_;              // why the last one is not
  bool told_busy_ = false;
};

// The newest step of which all parts are in the memory of the hosts, if it is above `above`; -1: there is none. Without
// peers, on this host alone. `first`: this rank is the first one of its host.
int64_t newest_in_memory(const std::filesystem::path& folder, int64_t above, const Peers& peers = {},
                         bool first = true);

// Writes that step to the disk, as a checkpoint in this folder, which all ranks see. All ranks call it. Throws
// Error(Exit::disk, Exit::checkpoint) on all.
void save_from_memory(const std::filesystem::path& folder, int64_t step, const std::filesystem::path& checkpoints,
                      const Peers& peers, bool first);

}  // namespace eng
