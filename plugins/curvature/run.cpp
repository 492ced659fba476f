// SPDX-License-Identifier: Apache-2.0
// The work, from the first probe to the files. Every rank does the same.
#include <cmath>
#include <stdexcept>

#include "embedding.hpp"
#include "measure.hpp"
#include "partition.hpp"
#include "report/files.hpp"
#include "response.hpp"

namespace curvature {
namespace {

[[noreturn]] void refuse(const std::string& text) {
  throw Error{ENG_INVALID, text};
}

void need_windows(Host& host, const Options& o) {
  const uint64_t held = host.windows(ENG_JOB_HELD), train = host.windows(ENG_JOB_TRAIN);
  if (held == 0 && o.held_windows > 0)
    refuse("job.held_windows = " + std::to_string(o.held_windows) +
           ": there is no held-out text; set data.validation to the share of the text that is held out");
  if (held < o.held_windows)
    refuse("job.held_windows = " + std::to_string(o.held_windows) + ": the held-out text has only " +
           std::to_string(held) + " windows; lower the key, or raise data.validation");
  const uint64_t gradients = o.fisher ? uint64_t{o.windows} * o.probes : o.windows;
  if (train < gradients)
    refuse(std::string(o.fisher ? "job.probes * job.windows" : "job.windows") + " = " + std::to_string(gradients) +
           ": the training text has only " + std::to_string(train) + " windows; lower the key, or give more text");
  if (train < o.train_windows)
    refuse("job.train_windows = " + std::to_string(o.train_windows) + ": the training text has only " +
           std::to_string(train) + " windows; lower the key, or give more text");
}

class Work {
 public:
  Work(const Job& job, eng_job_host* host, eng_error* error) : job_(job), o_(job.options), host_(host, error) {}

  void run() {
    need_windows(host_, o_);
    start();
    std::vector<Site> sites = activations();
    probe();
    Results r;
    host_.program(program_restore);
    gradient(0);
    host_.program(program_take);
    r.tensors = measure_tensors(job_, host_, share_);
    add_sparsity(job_, sites, r.tensors);
    r.partition = make_partition(job_, r.tensors);
    if (o_.responds()) {
      write_classes(job_, host_, r.tensors);
      r.response_map = measure_responses(job_, host_, measure_losses(job_, host_), progress_);
    }
    r.embedding = embed(job_, r.tensors);
    r.sites = std::move(sites);
    const bool rows =
        std::any_of(r.tensors.begin(), r.tensors.end(), [](const Tensor& t) { return !t.measured_rows.empty(); });
    for (Site& s : r.sites)
      if (!rows) s.units.clear();  // there are as many
    finish(r);
  }

 private:
  // Reads the saved progress, and fixes the step and the share of the parameters.
  void start() {
    progress_ = Progress::read(host_);
    host_.program(program_keep);
    double expected = 0;
    for (const eng_parameter* p : host_.parameters)
      expected += static_cast<double>(elements_of(*p->shape)) * job_.rate_of(*p->shape);
    step_ = static_cast<float>(o_.step * typical_size());
    const auto most = static_cast<double>(o_.max_parameters);
    if (o_.max_parameters > 0 && most < expected) share_ = static_cast<double>(static_cast<float>(most / expected));
    int64_t length = 0;
    host_.windows(ENG_JOB_TRAIN, &length);
    positions_ = static_cast<double>(length) * o_.windows;
    host_.progress("probes", static_cast<uint64_t>(progress_.probes), o_.probes,
                   job_.narrow && !o_.fisher
                       ? "activations have 16 bits, so differences of gradients carry their rounding; with "
                         "precision.plugin = \"fp32\" the Hessian is more exact"
                       : "");
  }

  // The root mean square of a tensor, in the middle: half of the parameters are in tensors where it is at most this. A
  // few large tensors, such as norms, do not move it.
  double typical_size() {
    std::vector<std::pair<double, uint64_t>> tensors;
    uint64_t all = 0, before = 0;
    for (const eng_parameter* p : host_.parameters) {
      const uint64_t n = elements_of(*p->shape);
      double squares = 0;
      host_.each_piece(base, p->number, n, [&](uint64_t, std::span<const float> part) {
        for (float w : part) squares += double{w} * double{w};
      });
      if (!std::isfinite(squares)) refuse(std::string("a parameter of ") + p->name + " is not finite");
      if (n) tensors.emplace_back(std::sqrt(squares / static_cast<double>(n)), n);
      all += n;
    }
    std::sort(tensors.begin(), tensors.end());
    for (const auto& [size, n] : tensors)
      if (2 * (before += n) >= all && size > 0) return size;
    refuse("all parameters are 0, or there are none: job.step is relative to their size");
  }

  std::vector<Site> activations() {
    if (host_.sites.empty() || o_.held_windows == 0) return {};
    const uint32_t n = o_.held_windows / o_.micro_batch, at_a_time = 16;
    std::vector<double> sums(n);
    std::vector<int64_t> labels(n);
    int64_t length = 0;
    host_.windows(ENG_JOB_HELD, &length);
    for (uint32_t first = 0; first < n; first += at_a_time) {
      const uint32_t some = std::min(at_a_time, n - first);
      host_.losses(ENG_JOB_HELD, uint64_t{first} * o_.micro_batch, true, std::span(sums).subspan(first, some),
                   std::span(labels).subspan(first, some));
      host_.progress("activations", first + some, n);
    }
    return measure_sites(host_, static_cast<uint64_t>(length) * o_.held_windows);
  }

  void gradient(uint64_t first) {
    if (!std::isfinite(host_.gradient(first)))
      refuse("the loss is not finite: lower job.step, or look at the model with engine eval");
  }

  void probe() {
    for (auto k = static_cast<uint32_t>(progress_.probes); k < o_.probes; ++k) {
      const float weight = static_cast<float>(1.0 / (k + 1)), share = static_cast<float>(share_);
      if (o_.fisher) {
        gradient(uint64_t{k} * o_.windows);
        host_.program(program_add, {static_cast<float>(positions_), 0.0f, weight});
      } else {
        host_.program(program_shift, {step_, share}, k);
        gradient(0);
        host_.program(program_take);
        host_.program(program_shift, {-step_, share}, k);
        gradient(0);
        host_.program(program_add, {static_cast<float>(1.0 / (2.0 * double{step_})), share, weight}, k);
      }
      progress_.probes = k + 1, progress_.write(host_);
      if ((k + 1) % o_.save_every == 0 || k + 1 == o_.probes) host_.save();
      host_.progress("probes", k + 1, o_.probes);
    }
  }

  void finish(Results& r);

  const Job& job_;
  const Options& o_;
  Host host_;
  Progress progress_;
  float step_ = 0;
  double share_ = 1, positions_ = 0;
};

void Work::finish(Results& r) {
  r.settings = o_.texts;
  r.method = o_.fisher ? "fisher" : "hutchinson";
  r.probes = o_.probes;
  if (!o_.fisher) r.step = double{step_};
  r.confidence = o_.confidence, r.activation_threshold = o_.sparsity_threshold;
  uint64_t made = 0;
  const report::Take write = [&](const std::string& name, const std::string& bytes) {
    host_.file(name, bytes);
    ++made;
  };
  // The facts tell the memory that was taken so far. So pictures come before, and the texts are made once before.
  std::string note = report::make_pictures(r, write);
  r.facts = host_.facts();
  report::make_texts(r, [](const std::string&, const std::string&) {});
  r.facts = host_.facts();
  if (r.embedding.method == "pca" && o_.embedding == "auto")
    note += std::string(note.empty() ? "" : "; ") +
            "the map of the weights is a PCA, since this build has no UMAP: run tools/umappp-headers and build again";
  report::make_texts(r, write);
  host_.progress("files", made, made, note);
}

}  // namespace

eng_status run(void* self, eng_job_host* host, eng_error* error) {
  return common::guarded(error, [&] {
    try {
      Work(*static_cast<const Job*>(self), host, error).run();
    } catch (const std::invalid_argument& e) {
      throw Error{ENG_INVALID, e.what()};
    }
  });
}

}  // namespace curvature
