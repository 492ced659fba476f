// SPDX-License-Identifier: Apache-2.0
#include "session/job/host.hpp"

#include <xxhash.h>

#include <algorithm>
#include <iterator>

#include "session/ranks/common_error.hpp"
#include "session/ranks/exchange.hpp"

namespace eng {
namespace {

// The call that a rank is about to make, exchanged before each call that ranks make together.
struct AtCall {
  uint64_t call, arguments;
  int64_t stop;
};

struct JobStopped {};

uint64_t mixed(std::initializer_list<uint64_t> numbers) {
  return XXH3_64bits(numbers.begin(), numbers.size() * sizeof(uint64_t));
}

const char* name_of(uint64_t call) {
  static const char* names[] = {"?",     "gradient", "losses", "program",         "read",
                                "write", "save",     "file",   "position_losses", "earlier"};
  return names[call < std::size(names) ? call : 0];
}

// The exit code of a job's own failure.
Exit exit_of(eng_status status) {
  switch (status) {
    case ENG_INVALID:
      return Exit::usage;
    case ENG_OUT_OF_RANGE:
    case ENG_DATA_LOSS:
      return Exit::data;
    case ENG_NO_MEMORY:
      return Exit::host_memory;
    default:
      return Exit::environment;
  }
}

}  // namespace

template <class Work>
eng_status JobHost::answer(eng_error* sink, const Work& work) noexcept try {
  if (stopped_) return report(sink, ENG_UNAVAILABLE, "the job was asked to stop");
  if (failure_) return report(sink, ENG_UNAVAILABLE, "an earlier call of the job failed");
  try {
    work();
    return ENG_OK;
  } catch (const JobStopped&) {
    stopped_ = true;
    return report(sink, ENG_UNAVAILABLE, "the job was asked to stop");
  } catch (const JobFault& fault) {
    return report(sink, fault.status, fault.text);
  } catch (const std::exception& e) {
    failure_ = std::current_exception();
    const auto* error = dynamic_cast<const Error*>(&e);
    return report(sink, error && error->exit() == Exit::communication ? ENG_UNAVAILABLE : ENG_INTERNAL, e.what());
  }
} catch (...) {  // no memory for the text
  return ENG_NO_MEMORY;
}

void JobHost::meet(Call call, std::initializer_list<uint64_t> arguments) {
  ends_.begin();
  const AtCall mine{static_cast<uint64_t>(call), mixed(arguments), ends_.stop && ends_.stop()};
  bool stop = mine.stop != 0;
  if (peers_.size > 1) {
    const auto all = exchange_records(peers_.exchange, mine, "the agreement before a call of a job");
    for (size_t r = 0; r < all.size(); ++r) {
      stop = stop || all[r].stop != 0;
      if (all[r].call != all[0].call || all[r].arguments != all[0].arguments)
        throw CommonError(Exit::environment,
                          fmt::format("{}: its ranks do not make the same calls with the same arguments: rank 0 calls "
                                      "`{}` and rank {} `{}`",
                                      made_.who(), name_of(all[0].call), r, name_of(all[r].call)));
    }
  }
  if (stop) throw JobStopped{};
}

struct JobHost::Api {
  static JobHost& of(eng_job_host* host) { return *static_cast<JobHost*>(host); }

  static eng_status parameters(eng_job_host* h, const eng_parameter* const** out, uint32_t* n, eng_error* sink) {
    return of(h).answer(sink, [&] {
      *out = of(h).shown_.parameters.data(), *n = static_cast<uint32_t>(of(h).shown_.parameters.size());
    });
  }
  static eng_status sites(eng_job_host* h, const eng_job_site* const** out, uint32_t* n, eng_error* sink) {
    return of(h).answer(
        sink, [&] { *out = of(h).shown_.sites.data(), *n = static_cast<uint32_t>(of(h).shown_.sites.size()); });
  }
  static eng_status windows(eng_job_host* h, uint32_t split, uint64_t* n, int64_t* length, eng_error* sink) {
    return of(h).answer(sink, [&] {
      const uint64_t all = of(h).passes_.windows(split);
      if (n) *n = all;
      if (length) *length = of(h).data_.length();
    });
  }
  static eng_status gradient(eng_job_host* h, uint32_t split, uint64_t first, double* loss, eng_error* sink) {
    return of(h).answer(sink, [&] {
      of(h).meet(Call::gradient, {split, first});
      const double mean = of(h).passes_.gradient(split, first);
      if (loss) *loss = mean;
    });
  }
  static eng_status losses(eng_job_host* h, uint32_t split, uint64_t first, uint32_t n, int32_t sites, double* sums,
                           int64_t* labels, eng_error* sink) {
    return of(h).answer(sink, [&] {
      of(h).meet(Call::losses, {split, first, n, sites != 0});
      of(h).passes_.losses(split, first, n, sites != 0, sums, labels);
    });
  }
  static eng_status program(eng_job_host* h, uint32_t k, const float* numbers, uint32_t n, int64_t counter,
                            eng_error* sink) {
    return of(h).answer(sink, [&] {
      const uint64_t hash = n <= 16 ? XXH3_64bits(numbers, n * sizeof *numbers) : 0;
      of(h).meet(Call::program, {k, n, hash, static_cast<uint64_t>(counter)});
      of(h).passes_.program(k, numbers, n, counter);
    });
  }
  static eng_status read(eng_job_host* h, uint32_t what, uint32_t state, uint32_t index, uint64_t first, uint64_t count,
                         void* out, eng_error* sink) {
    return of(h).answer(sink, [&] {
      of(h).meet(Call::read, {what, state, index, first, count});
      of(h).passes_.read(what, state, index, first, count, out);
    });
  }
  static eng_status write(eng_job_host* h, uint32_t what, uint32_t state, uint32_t index, uint64_t first,
                          uint64_t count, const void* data, eng_error* sink) {
    return of(h).answer(sink, [&] {
      of(h).meet(Call::write, {what, state, index, first, count});
      of(h).passes_.write(what, state, index, first, count, data);
    });
  }
  static eng_status save(eng_job_host* h, eng_error* sink) {
    return of(h).answer(sink, [&] {
      of(h).meet(Call::save, {});
      of(h).ends_.save();
    });
  }
  static eng_status progress(eng_job_host* h, const char* phase, uint64_t done, uint64_t all, const char* note,
                             eng_error* sink) {
    return of(h).answer(sink, [&] { of(h).ends_.progress(phase ? phase : "", done, all, note ? note : ""); });
  }
  static eng_status file(eng_job_host* h, const char* name, const void* data, uint64_t size, eng_error* sink) {
    return of(h).answer(sink, [&] {
      const std::string text = name ? name : "";
      of(h).meet(Call::file, {XXH3_64bits(text.data(), text.size())});
      of(h).ends_.file(text, data, size);
    });
  }
  static eng_status facts(eng_job_host* h, const char** json, uint64_t* length, eng_error* sink) {
    return of(h).answer(sink, [&] {
      of(h).facts_ = of(h).ends_.facts();
      *json = of(h).facts_.c_str();
      if (length) *length = of(h).facts_.size();
    });
  }

  static eng_status field(eng_job_host* h, uint32_t split, uint64_t window, const char* name, void* out,
                          eng_error* sink) {
    return of(h).answer(sink, [&] { of(h).passes_.field(split, window, name ? name : "", out); });
  }
  static eng_status position_losses(eng_job_host* h, uint32_t split, uint64_t first, uint32_t n, double* losses,
                                    eng_error* sink) {
    return of(h).answer(sink, [&] {
      of(h).meet(Call::position_losses, {split, first, n});
      of(h).passes_.position_losses(split, first, n, losses);
    });
  }

  static eng_status earlier(eng_job_host* h, uint32_t part, const char* name, const void** data, uint64_t* size,
                            eng_error* sink) {
    return of(h).answer(sink, [&] {
      const std::string text = name ? name : "";
      of(h).meet(Call::earlier, {part, XXH3_64bits(text.data(), text.size())});
      of(h).earlier_ = of(h).ends_.earlier(part, text);
      *data = of(h).earlier_.data(), *size = of(h).earlier_.size();
    });
  }

  static constexpr eng_job_api table = {sizeof(eng_job_api),
                                        0,
                                        parameters,
                                        sites,
                                        windows,
                                        gradient,
                                        losses,
                                        program,
                                        read,
                                        write,
                                        save,
                                        progress,
                                        file,
                                        facts,
                                        field,
                                        position_losses,
                                        earlier};
};

JobHost::JobHost(const Setup& setup, const MadeJob& made, const Data& data, Passes& passes, const Peers& peers,
                 JobEnds ends)
    : made_(made),
      data_(data),
      passes_(passes),
      peers_(peers),
      ends_(std::move(ends)),
      shown_(setup.model, setup.plan, made.job) {
  api = &Api::table;
}

bool JobHost::run() {
  Sink sink;
  const eng_status status = made_.job.table.run(made_.job.self.get(), this, sink.get());
  if (failure_) std::rethrow_exception(failure_);
  if (stopped_) {
    if (status == ENG_UNAVAILABLE) return false;
    throw Error(Exit::environment,
                fmt::format("{}: it was asked to stop, and its `run` returned {} instead of ENG_UNAVAILABLE",
                            made_.who(), status == ENG_OK ? "ENG_OK" : fmt::format("status {}", status)));
  }
  sink.check(status, exit_of(status), made_.who());
  return true;
}

}  // namespace eng
