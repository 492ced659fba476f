// SPDX-License-Identifier: Apache-2.0
// Metrics as TensorBoard reads them: one file of events per start of a run.
//
// The format has two layers. A file is a TFRecord: records, each with its length and masked CRC-32C checksums
// (https://www.tensorflow.org/tutorials/load_data/tfrecord, "TFRecords format details"). A record is a protocol buffer
// `Event`, with a `Summary` of scalars (tensorboard/compat/proto/event.proto and summary.proto of TensorBoard 2).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "session/file.hpp"
#include "session/json.hpp"

namespace eng {

// The checksum CRC-32C (Castagnoli) of RFC 3720, appendix B.4.
uint32_t crc32c(std::string_view bytes);

class EventFile {
 public:
  // A new file in `folder`, which is made. Its name is after those of all that are there. `last_step`: the last one
  // that the run has taken; events of later steps in other files no longer hold. Throws Error(Exit::disk), as `append`
  // does.
  EventFile(const std::filesystem::path& folder, int64_t last_step);
  // The scalars of a line of metrics.jsonl, under the names of scalars_of.
  void append(const Json& line);

 private:
  void record(const std::string& event);
  std::filesystem::path path_;
  Fd fd_;
};

}  // namespace eng
