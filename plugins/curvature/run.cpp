// SPDX-License-Identifier: Apache-2.0
// The work, from the first probe to the files. Every rank does the same.
#include <cmath>
#include <stdexcept>

#include "embedding.hpp"
#include "measure.hpp"
#include "partition.hpp"
#include "parts.hpp"
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
    switch (job_.part) {
      case Part::survey:
        return survey();
      case Part::group:
        return group();
      case Part::join:
        return join();
      default:
        return whole();
    }
  }

 private:
  void whole() {
    start();
    Survey all = sizes();
    host_.progress("probes", static_cast<uint64_t>(progress_.probes), o_.probes, note());
    all.sites = activations();
    std::vector<Tensor> tensors = probed(all);
    finish(all, std::move(tensors));
  }
  void survey() {
    Survey all = sizes();
    all.sites = activations();
    host_.file(survey_file, survey_bytes(all));
    host_.progress("survey", 1, 1, note());
  }
  void group() {
    const Survey all = survey_of(host_.earlier(0, survey_file));
    start();
    host_.progress("probes", static_cast<uint64_t>(progress_.probes), o_.probes);
    host_.file(measures_file, measures_bytes(probed(all)));
  }
  void join() {
    const Survey all = survey_of(host_.earlier(0, survey_file));
    std::vector<Tensor> tensors;
    for (const eng_parameter* p : host_.parameters) tensors.push_back(tensor_of(*p));
    for (uint32_t k = 1; k <= job_.groups; ++k) add_measures(host_.earlier(k, measures_file), tensors);
    for (const Tensor& t : tensors)
      if (std::isnan(t.measures.weight_norm) || (all.rows && t.measured_rows.size() != t.rows) ||
          (o_.by_row && !all.rows))
        throw Error{ENG_DATA_LOSS, "no group has measured " + t.name};
    progress_ = Progress::read(host_);
    if (o_.responds()) host_.program(program_keep);
    finish(all, std::move(tensors));
  }

  void start() {
    progress_ = Progress::read(host_);
    host_.program(program_keep);
  }

  // The step, the share of the parameters, and whether rows are measured.
  Survey sizes() {
    Survey out;
    double expected = 0;
    uint64_t rows = 0;
    for (const eng_parameter* p : host_.parameters) {
      expected += static_cast<double>(elements_of(*p->shape)) * job_.rate_of(*p->shape);
      rows += rows_of(*p->shape);
    }
    out.rows = rows <= o_.max_rows;
    if (o_.by_row && !out.rows)
      refuse("job.partition = \"row\": the model has " + std::to_string(rows) + " rows, and job.max_rows = " +
             std::to_string(o_.max_rows) + ": raise job.max_rows, or set job.partition = \"tensor\"");
    out.step = o_.step * typical_size();
    const auto most = static_cast<double>(o_.max_parameters);
    if (o_.max_parameters > 0 && most < expected) out.share = static_cast<double>(static_cast<float>(most / expected));
    return out;
  }

  std::string note() const {
    return job_.narrow && !o_.fisher
               ? "activations have 16 bits, so differences of gradients carry their rounding; with "
                 "precision.plugin = \"fp32\" the Hessian is more exact"
               : "";
  }

  // The measures of the tensors of this plan, after the probes.
  std::vector<Tensor> probed(const Survey& all) {
    probe(all);
    host_.program(program_restore);
    gradient(0);
    host_.program(program_take);
    return measure_tensors(job_, host_, all.share, all.rows);
  }

  // The root mean square of a tensor, in the middle: half of the parameters are in tensors where it is at most this. A
  // few large tensors, such as norms, do not move it.
  double typical_size() {
    std::vector<std::pair<double, uint64_t>> tensors;
    uint64_t all = 0, before = 0;
    for (const eng_parameter* p : host_.parameters) {
      const uint64_t n = elements_of(*p->shape);
      double squares = 0;
      host_.each_piece(p->number, n, [&](uint64_t, std::span<const float> part) {
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

  void probe(const Survey& all) {
    int64_t length = 0;
    host_.windows(ENG_JOB_TRAIN, &length);
    const auto positions = static_cast<float>(static_cast<double>(length) * o_.windows);
    const auto step = static_cast<float>(all.step), share = static_cast<float>(all.share);
    for (auto k = static_cast<uint32_t>(progress_.probes); k < o_.probes; ++k) {
      const float weight = static_cast<float>(1.0 / (k + 1));
      if (o_.fisher) {
        gradient(uint64_t{k} * o_.windows);
        host_.program(program_add, {positions, 0.0f, weight});
      } else {
        host_.program(program_shift, {step, share}, k);
        gradient(0);
        host_.program(program_take);
        host_.program(program_shift, {-step, share}, k);
        gradient(0);
        host_.program(program_add, {static_cast<float>(1.0 / (2.0 * double{step})), share, weight}, k);
      }
      progress_.probes = k + 1, progress_.write(host_);
      if ((k + 1) % o_.save_every == 0 || k + 1 == o_.probes) host_.save();
      host_.progress("probes", k + 1, o_.probes);
    }
  }

  void finish(Survey all, std::vector<Tensor> tensors);
  void publish(Results& r);

  const Job& job_;
  const Options& o_;
  Host host_;
  Progress progress_;
};

// All that follows from the measures.
void Work::finish(Survey all, std::vector<Tensor> tensors) {
  Results r;
  if (!o_.fisher) r.step = static_cast<double>(static_cast<float>(all.step));
  r.tensors = std::move(tensors), r.sites = std::move(all.sites);
  add_sparsity(job_, r.sites, r.tensors);
  r.partition = make_partition(job_, r.tensors);
  if (o_.responds()) {
    write_classes(job_, host_, r.tensors);
    r.response_map = measure_responses(job_, host_, measure_losses(job_, host_), progress_);
  }
  r.embedding = embed(job_, r.tensors);
  const bool rows =
      std::any_of(r.tensors.begin(), r.tensors.end(), [](const Tensor& t) { return !t.measured_rows.empty(); });
  for (Site& s : r.sites)
    if (!rows) s.units.clear();  // there are as many
  publish(r);
}

void Work::publish(Results& r) {
  r.settings = o_.texts;
  r.method = o_.fisher ? "fisher" : "hutchinson";
  r.probes = o_.probes;
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
