// SPDX-License-Identifier: Apache-2.0
#include "session/job/analysis.hpp"

#include <cmath>
#include <set>

#include "session/config/schemas.hpp"
#include "session/job/facts.hpp"
#include "session/job/host.hpp"
#include "session/job/part.hpp"
#include "session/job/part_place.hpp"
#include "session/planning/bookkeeping.hpp"
#include "session/planning/fits.hpp"
#include "session/plugins/usual.hpp"
#include "session/ranks/common_error.hpp"
#include "session/run/changes.hpp"
#include "session/run/record.hpp"
#include "session/run/run_place.hpp"
#include "session/run/run_record.hpp"
#include "session/shell.hpp"

namespace eng {
namespace {

namespace fs = std::filesystem;

constexpr const char* model_hash_key = "model_hash";  // of a checkpoint's further facts

// Names in the directory that are the engine's own.
bool is_own_file(const std::string& name) {
  static const std::set<std::string> own = {"LOCK",          "checkpoints",        "config.resolved.toml",
                                            "config.toml",   "device_choices.txt", "logs",
                                            "metrics.jsonl", "part.json",          "parts",
                                            "plan.txt",      "run.json",           "state.json",
                                            "tensorboard"};
  return own.count(name) > 0;
}

// Bits follow from these; everything else may change between two attempts.
bool is_fixed(const Change& change) {
  static const std::set<std::string> of_train = {"train.accumulate", "train.freeze", "train.micro_batch",
                                                 "train.sequence_length", "train.seed"};
  const std::string section = change.key.substr(0, change.key.find('.'));
  if (section == "job" || section == "precision") return true;
  if (section == "model" || section == "data") return change.rule == OnChange::refuse;
  return of_train.count(change.key) > 0;
}

class Analysis {
 public:
  // `as`: a part, whose configuration is complete, and whose ranks have met.
  Analysis(const AnalysisRequest& request, Member& member, AnalysisListener& listener, Opened opened, AsPart as = {})
      : request_(request),
        member_(member),
        listener_(listener),
        opening_(std::move(opened), {.trains = false, .build_data = request.build_data}, member, listener),
        as_(std::move(as)) {}
  AnalysisEnd run();

 private:
  void prepare();
  void divide();
  bool do_parts();
  AnalysisEnd do_part(uint32_t part, const fs::path& folder);
  std::string earlier(uint32_t part, const std::string& name) const;
  void make_place();
  void take_weights();
  void find_place();
  void check_resumed();
  void start();
  void load();
  void begin();
  AnalysisEnd work();
  void save();
  void finish_save();
  Peers peers() const { return opening_.trainer->peers(); }
  bool saves_beside() const { return config_.section("checkpoint").boolean("asynchronous"); }
  void wrote(const std::string& name, const void* data, uint64_t size);
  void state(const char* status, int exit_code) const;
  bool stop_asked() const {
    return (request_.stop && request_.stop()) || (request_.max_seconds && since(started_) > *request_.max_seconds);
  }
  template <class Work>
  auto guarded(const Work& work);

  const AnalysisRequest& request_;
  Member& member_;
  AnalysisListener& listener_;
  const SteadyClock::time_point started_ = SteadyClock::now();
  const std::string began_ = utc_now(true);
  Opening opening_;  // its checkpoint is what the analysis saved before
  AsPart as_;        // of a part, and of the last one, which is done here
  JobParts parts_;
  bool is_part() const { return as_.part.count && !as_.part.last(); }
  const Config& config_ = opening_.opened.config;
  const Setup& setup_ = opening_.setup;
  const std::optional<RunDir>& dir_ = opening_.place.dir;
  const std::optional<fs::path>& from_ = opening_.place.from;
  std::optional<MadeJob> made_;
  std::vector<Change> changes_;
  bool again_ = false;  // the analysis existed before
  std::optional<Passes> passes_;
  std::optional<Saver> saver_;
  std::string model_hash_, last_;
  int64_t saves_ = 0;
  std::vector<std::string> files_;
  struct Told {
    std::string phase;
    uint64_t done, all;
    std::string note;
  };
  void progress(const Told& told);
  bool begun_ = false, placed_ = false;
  fs::path checkpoints_;
  std::vector<Told> early_;  // before it had a directory
  std::string phase_;        // the last one that was reported
};

// The newest checkpoint of a run that is analysed is where its weights come from, now and when this is resumed.
void Analysis::take_weights() {
  const fs::path& target = request_.open.target;
  if (!RunDir::is_run(target) || is_analysis(target)) return;
  std::string found;
  if (member_.first()) found = fs::absolute(find_weights(target)).lexically_normal().string();
  opening_.opened.config.section("model").set("from", member_.from_first(found), target.string());
}

void Analysis::prepare() {
  again_ = is_analysis(request_.open.target) || (!request_.out.empty() && is_analysis(request_.out));
  if (!is_part()) divide();
  made_.emplace(make_job(config_, *opening_.opened.registry, as_.part));
  take_batch(opening_.opened.config, *made_, member_.size());
  opening_.plan({.job = &made_->job, .resting = as_.resting});
  count_job(opening_.setup, *made_, saves_beside());
  count_part(opening_.setup, as_.part);
  check_job_fits(setup_, made_->job.name);
  opening_.open_data();
}

// Divides the job into parts, if [job] groups says so. This object then does the last one.
void Analysis::divide() {
  if (again_) refuse_part(is_analysis(request_.open.target) ? request_.open.target : request_.out);
  opening_.join();
  take_weights();
  Config& config = opening_.opened.config;
  Section& job = config.section("job");
  if (const fs::path file = request_.out / "config.resolved.toml";
      job.integer("groups") == 0 && !request_.out.empty() && again_ && fs::exists(file))
    if (const int64_t* before = read_resolved(file).value<int64_t>("job", "groups"))
      job.set("groups", *before, file.string());
  if (job.integer("groups") == 1) return;
  Registry& registry = *opening_.opened.registry;
  take_batch(config, make_job(config, registry), member_.size());
  Communicator* comm = member_.communicator();
  parts_ = divide_job(config, registry, comm ? comm->world() : World{});
  job.set("groups", static_cast<int64_t>(std::max<size_t>(parts_.groups.size(), 1)), "the plan");
  if (!parts_.count()) return;
  as_.part = {parts_.count() - 1, parts_.count()};
  as_.earlier = [this](uint32_t part, const std::string& name) { return earlier(part, name); };
}

void Analysis::find_place() {
  if (member_.first() && again_) {
    const fs::path& target = request_.open.target;
    if (is_analysis(target) && !request_.out.empty())
      throw Error(Exit::usage, "--out is for a new analysis", "remove it: an analysis is resumed in its own directory");
    opening_.place.dir.emplace(is_analysis(target) ? RunDir::open(target) : RunDir::at(request_.out));
    remove_leftovers(dir_->checkpoints().inside());
    opening_.place.from =
        usable_checkpoint(*dir_, "analysis", [this](const CheckpointRow& row) { listener_.passed_over(row); });
  } else if (member_.first()) {
    if (RunDir::is_run(request_.out))
      throw Error(Exit::usage, request_.out.string() + " is a run, not an analysis", "give another --out");
  }
  opening_.share_place();
}

void Analysis::check_resumed() {
  if (!again_ || !dir_) return;
  const uint32_t ranks = read_record(dir_->path()).ranks;
  if (ranks && ranks != member_.size())
    throw Error(
        Exit::usage,
        fmt::format("{} began with {} rank{}, now there are {}: sums over windows would be made in another order",
                    dir_->path().string(), ranks, ranks == 1 ? "" : "s", member_.size()),
        fmt::format("resume it with {} rank{}, or begin a new one", ranks, ranks == 1 ? "" : "s"));
  const fs::path file = dir_->path() / "config.resolved.toml";
  if (!fs::exists(file)) return;  // it ended while it was being made
  changes_ = changes(read_resolved(file), config_, schemas_of(*opening_.opened.registry));
  std::string list;
  for (const Change& c : changes_)
    if (is_fixed(c)) list += fmt::format("\n  {} = {} before, now {}", c.key, c.before, c.now);
  if (!list.empty())
    throw Error(Exit::usage, "an analysis is resumed with what its numbers follow from, but these differ:" + list,
                "give the values of before, or begin a new analysis");
}

void Analysis::start() {
  opening_.start();
  passes_.emplace(setup_, *opening_.data, *opening_.trainer, *made_);
  model_hash_ = passes_->parameters_hash();
  if (parts_.count() && dir_)
    if (const auto survey = read_part(part_folder(dir_->folder(), 0)); survey && survey->model_hash != model_hash_)
      throw Error(Exit::checkpoint,
                  fmt::format("the parts of {} were done with other weights than those of {}", dir_->path().string(),
                              weights_source(config_).string()),
                  "point model.from at the same weights, or begin a new analysis");
  if (from_) load();
  if (from_ && dir_) set_aside_newer(dir_->checkpoints().inside(), saves_);
}

// Makes the directory.
void Analysis::make_place() {
  if (std::exchange(placed_, true)) return;
  opening_.make_directory(request_.out);
  if (dir_) {
    write_identity(opening_, {dir_->path(), config_, setup_, *opening_.data, from_, saves_, made_->job.name}, changes_);
    listener_.started({dir_->path(), config_, setup_, *opening_.data, *made_, from_});
    state("running", 0);
  }
  checkpoints_ = opening_.enter();
  for (const Told& told : std::exchange(early_, {})) progress(told);
}

// When the job first has something computed or read: one that it refuses leaves no directory.
void Analysis::begin() {
  if (std::exchange(begun_, true)) return;
  make_place();
  saver_.emplace(checkpoints_, 1, saves_beside(), peers());
}

AnalysisEnd Analysis::do_part(uint32_t part, const fs::path& folder) {
  AnalysisRequest mine = request_;
  mine.open.target = folder, mine.out = is_analysis(folder) ? fs::path() : folder;
  Opened opened = open_for_job(request_.open, request_.job);
  opened.config = config_;
  const std::string name = parts_.planned[part].name;
  PartListener told(listener_, [&](const std::string& phase, uint64_t done, uint64_t all, const std::string& note) {
    progress({phase == name ? name : name + ": " + phase, done, all, note});
  });
  AsPart as{{part, parts_.count()}, parts_.resting(part), as_.earlier};
  return Analysis(mine, member_, told, std::move(opened), std::move(as)).run();
}

// False: it was asked to stop.
bool Analysis::do_parts() {
  make_place();
  for (uint32_t k = 0; k + 1 < parts_.count(); ++k) {
    std::string told;  // the folder, and a mark if the part is done
    if (dir_) {
      const fs::path folder = part_folder(dir_->folder(), k);
      const std::optional<PartRecord> record = read_part(folder);
      if (record && record->data_hash != opening_.data->info().content_hash)
        throw Error(Exit::data, fmt::format("{} was done with other data", folder.string()),
                    "point [data] paths at the same files, or begin a new analysis");
      told = (record ? "+" : "-") + folder.string();
    }
    told = member_.from_first(told);
    const fs::path folder = told.substr(1);
    if (told[0] == '-' && do_part(k, folder).exit != Exit::done) return false;
    if (dir_) parts_.planned[k].measured_device = read_part(folder).value_or(PartRecord{}).device_bytes;
  }
  release_freed_memory();
  return true;
}

// A file that a part wrote, the same on all ranks.
std::string Analysis::earlier(uint32_t part, const std::string& name) const {
  constexpr uint64_t most = uint64_t{1} << 32;
  const fs::path file = opening_.directory / "parts" / std::to_string(part) / name;
  if (part + 1 >= as_.part.count || !is_plain_name(name) || member_.from_first(fs::exists(file) ? "+" : "-") != "+")
    throw JobFault{ENG_NOT_FOUND, fmt::format("part {} wrote no file `{}`", part, printable(name))};
  return member_.from_first(member_.first() ? read_text(file, most, Exit::checkpoint) : "");
}

void Analysis::progress(const Told& told) {
  if (!member_.first()) return;
  if (!placed_) return early_.push_back(told);
  if (told.phase != phase_) dir_->log("phase " + told.phase);
  phase_ = told.phase;
  if (!told.note.empty()) dir_->log(told.note);
  listener_.progress(told.phase, told.done, told.all, told.note);
}

// Loads the saved analysis, if it is of this model and these data.
void Analysis::load() {
  const RunPoint point =
      load_checkpoint(*from_, kept_tensors(setup_.plan, *made_), opening_.trainer->fill(), {}, "", peers());
  const auto hash = point.extra.find(model_hash_key);
  if (point.data_hash != opening_.data->info().content_hash)
    throw CommonError(Exit::data,
                      fmt::format("{} was written with other data (hash {}, now {})", from_->string(), point.data_hash,
                                  opening_.data->info().content_hash),
                      "point [data] paths at the same files, or begin a new analysis");
  if (hash == point.extra.end() || hash->second != model_hash_)
    throw CommonError(Exit::checkpoint,
                      fmt::format("{} was written with other weights than those of {}", from_->string(),
                                  weights_source(config_).string()),
                      "point model.from at the same weights, or begin a new analysis");
  saves_ = point.step;
  last_ = from_->filename().string();
}

// Waits for a save that is being written.
void Analysis::finish_save() {
  const std::optional<Saved> saved = saver_->finish();
  if (!saved) return;
  last_ = saved->path.filename().string();
  state("running", 0);
}

void Analysis::save() {
  finish_save();
  RunPoint point;
  point.step = ++saves_;
  point.seeds["seed"] = static_cast<uint64_t>(config_.section("train").integer("seed"));
  point.data["train"] = 0;
  point.data_hash = opening_.data->info().content_hash;
  point.config_hash = opening_.resolved->hash;
  point.extra[model_hash_key] = model_hash_;
  for (const auto& p : opening_.opened.registry->loaded()) point.plugins.push_back({p.id, p.version, p.sha256});
  saver_->begin(point, kept_tensors(setup_.plan, *made_), opening_.trainer->reader());
  if (!saves_beside()) finish_save();
}

void Analysis::wrote(const std::string& name, const void* data, uint64_t size) {
  if (name.empty() || name.size() > 200 || name[0] == '.' || name.find_first_of("/\\\n\r\t") != std::string::npos ||
      name.find('\0') != std::string::npos || is_own_file(name))
    throw JobFault{ENG_INVALID, fmt::format("`{}` is no name for a result: it must be a file name of its own in the "
                                            "directory",
                                            name)};
  peers().lead([&] {
    dir_->write(name.c_str(), {static_cast<const char*>(data), size});
    return "";
  });
  if (std::find(files_.begin(), files_.end(), name) == files_.end()) files_.push_back(name);
}

void Analysis::state(const char* status, int exit_code) const {
  if (dir_) dir_->write_state(status, saves_, last_, exit_code);
}

AnalysisEnd Analysis::work() {
  const AnalysisStart start{opening_.directory, config_, setup_, *opening_.data, *made_, from_};
  const fs::path weights = weights_source(config_);
  const FactsOf facts{start,
                      model_hash_,
                      opening_.resolved->hash,
                      weights.empty() ? "" : fs::absolute(weights).lexically_normal().string(),
                      began_,
                      0,
                      member_.size(),
                      &parts_};
  JobEnds ends;
  ends.begin = [this] { begin(); };
  ends.stop = [this] { return stop_asked(); };
  ends.save = [this] { save(); };
  ends.progress = [&](const std::string& now, uint64_t done, uint64_t all, const std::string& note) {
    progress({now, done, all, note});
  };
  ends.file = [this](const std::string& name, const void* data, uint64_t size) { wrote(name, data, size); };
  ends.facts = [&] {
    begin();
    FactsOf mine = facts;
    mine.attempt = dir_ ? dir_->attempt() : 0;
    return peers().lead([&] { return facts_json(mine); });  // one text for all ranks
  };
  ends.earlier = [this](uint32_t part, const std::string& name) {
    if (!as_.earlier) throw JobFault{ENG_NOT_FOUND, "the job is not in parts"};
    return as_.earlier(part, name);
  };
  JobHost host(setup_, *made_, *opening_.data, *passes_, peers(), std::move(ends));
  AnalysisEnd end;
  end.exit = host.run() ? Exit::done : Exit::stopped;
  begin();
  finish_save();
  if (is_part() && dir_ && end.exit == Exit::done)
    write_part(dir_->folder().inside(), {opening_.data->info().content_hash, model_hash_, device_bytes(setup_)});
  state(end.exit == Exit::done ? "done" : "stopped", static_cast<int>(end.exit));
  if (dir_) end.directory = dir_->path();
  end.files = files_;
  return end;
}

// Records a failure.
template <class Work>
auto Analysis::guarded(const Work& work) {
  try {
    return work();
  } catch (...) {
    const Failure why = failure(std::current_exception());
    try {
      if (dir_ && !opening_.directory.empty()) state("failed", why.exit);
    } catch (const std::exception&) {  // the disk failed, and only the first error is reported
    }
    member_.failed(std::current_exception());
    if (dir_ && !member_.many()) dir_->log("error: " + why.text);
    throw;
  }
}

AnalysisEnd Analysis::run() {
  prepare();
  find_place();
  guarded([this] { check_resumed(); });
  if (parts_.count() && !guarded([this] { return do_parts(); })) {
    state("stopped", static_cast<int>(Exit::stopped));
    return {Exit::stopped, dir_ ? dir_->path() : fs::path()};
  }
  guarded([this] { start(); });
  return guarded([this] { return work(); });
}

}  // namespace

// True if the target or an override names the job. An unreadable target is reported when it is opened.
static bool names_job(const OpenRequest& request) try {
  for (const std::string& given : request.overrides)
    if (given.starts_with("job.plugin=")) return true;
  const fs::path& target = request.target;
  if (weights_kind(target) == WeightsKind::hugging_face) return false;
  return read_document(RunDir::is_run(target) ? target / "config.resolved.toml" : target)
             .value<std::string>("job", "plugin") != nullptr;
} catch (const Error&) {
  return false;
}

Opened open_for_job(OpenRequest request, const std::string& job) {
  if (!job.empty())
    request.overrides.push_back("job.plugin=" + toml_text(job));
  else if (!names_job(request))
    request.overrides.push_back("job.plugin=" + toml_text(usual(*scan_plugins(request.plugin_paths), ENG_JOB_KIND,
                                                                "done if neither [job] nor --job names one")));
  return open_config(request);
}

AnalysisEnd run_analysis(const AnalysisRequest& request, Member& member, AnalysisListener& listener) {
  return Analysis(request, member, listener, open_for_job(request.open, request.job)).run();
}

}  // namespace eng
