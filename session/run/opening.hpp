// SPDX-License-Identifier: Apache-2.0
// The beginning of a run and of an analysis: from an opened configuration to a trainer with its weights, and to the
// directory that the ranks work in.
#pragma once

#include <optional>

#include "session/ranks/member.hpp"
#include "session/run/open.hpp"
#include "session/run/run_dir.hpp"
#include "session/run/weights.hpp"

namespace eng {

// Called on the thread of the run or the analysis, on rank 0 only.
class OpeningListener {
 public:
  virtual ~OpeningListener() = default;
  virtual void note(const std::string& text) = 0;                 // for example a key without effect
  virtual void passed_over(const CheckpointRow& checkpoint) = 0;  // because it is damaged
  virtual void reading(const std::filesystem::path& weights, uint64_t done, uint64_t all) = 0;  // bytes
};

// Builds the file that the data source needs.
using BuildData = std::function<void(const Config& config, Registry& registry, int64_t vocabulary)>;

struct OpeningOptions {
  // True: steps are counted, and a checkpoint of the place is loaded. False: a job reads weights.
  bool trains = true;
  // True if a configuration without [data] will do: every step is then given its batch.
  bool without_data = false;
  // True: [data] is not opened, and batches are given.
  bool no_data = false;
  // Called before Data is constructed; empty: the file must exist.
  BuildData build_data = {};
};

// A configuration as it is written into a run directory, made once. The hash is of its values, those that all ranks
// must have alike: neither comments nor where a value is from count.
struct ResolvedConfig {
  explicit ResolvedConfig(const Config& config);
  std::string text, hash;
};

struct RunPlace {
  std::optional<RunDir> dir;                  // on rank 0, once it exists
  std::optional<std::filesystem::path> from;  // a checkpoint, on every rank; none: from the first step
};

// All ranks call its functions together, in the order in which they are listed. They throw Error.
class Opening {
 public:
  // Takes an opened configuration. Borrows `member` and `listener`.
  Opening(Opened given, OpeningOptions options, Member& member, OpeningListener& listener)
      : opened(std::move(given)), options_(std::move(options)), member_(member), listener_(listener) {}
  Opening(const Opening&) = delete;
  Opening& operator=(const Opening&) = delete;

  // Joins the other ranks. Afterwards `opened.config` may still be changed.
  void join();
  // Resolves the configuration and makes the plan. `check`: weights that do not fit the model are refused before that.
  void plan(Readable readable, bool check = true);
  // Opens the data, and compares what must be equal on all ranks. Nothing was changed on the disk so far, except by
  // OpeningOptions::build_data.
  void open_data();
  // Sends the checkpoint in `place` from rank 0 to the others.
  void share_place();
  // Makes the trainer, with weights from the checkpoint in `place`, from [model] from, or as the model initialises
  // them.
  void start();
  // Makes `place.dir` on rank 0 unless it is there: `out`, or for "" a new one below [run] out.
  void make_directory(const std::filesystem::path& out);
  // Sets `directory`; from now on the ranks work in it. Returns its folder for checkpoints; "" without `place.dir`.
  std::filesystem::path enter();

  Member& member() const { return member_; }

  // In the order in which they are made; each may use the earlier ones.
  Opened opened;
  std::optional<ResolvedConfig> resolved;
  Setup setup;
  std::optional<Data> data;
  RunPlace place;
  std::optional<double> host_rate;  // of memory, on rank 0, if it was measured: bytes per second
  std::optional<Trainer> trainer;
  std::filesystem::path directory;  // on every rank

 private:
  void tell(const std::vector<std::string>& notes) const;
  void count_epochs();
  void settle_workspace(const World& world, const Readable& readable);
  void build(int64_t vocabulary);

  const OpeningOptions options_;
  Member& member_;
  OpeningListener& listener_;
  bool has_source_ = true;          // [data] is there
  bool built_ = false;              // its file is
  std::optional<HeldFolder> held_;  // on other ranks than the first, which has RunDir
};

}  // namespace eng
