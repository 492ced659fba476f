// SPDX-License-Identifier: Apache-2.0
#include "core/trace/builder.hpp"

#include <algorithm>

#include "core/base/text.hpp"

namespace eng {
namespace {

Builder& self(eng_build* b) {
  return *static_cast<Builder*>(b);
}

eng_status get_status(eng_build* b, eng_error* sink) {
  return self(b).status == ENG_OK ? ENG_OK : report(sink, self(b).status, self(b).error);
}

// Runs `call` unless an earlier one failed; exceptions become the sticky error.
template <class F>
eng_status guarded(eng_build* b, eng_error* sink, F call) {
  Builder& builder = self(b);
  if (builder.status == ENG_OK) try {
      call(builder);
    } catch (const Error& e) {
      builder.status = ENG_INVALID, builder.error = e.what(), builder.help = e.help();
      if (e.exit() == Exit::usage) builder.exit = e.exit();
    } catch (const std::exception& e) {
      builder.status = ENG_INVALID, builder.error = e.what();
    }
  return get_status(b, sink);
}

// Refuses a NULL pointer; `what` names it.
void there(const void* pointer, const char* what) {
  need(pointer, "{} is NULL", what);
}

// Runs a call that gives one value.
template <class Out, class F>
eng_status given(eng_build* b, Out* out, eng_error* sink, F call) {
  return guarded(b, sink, [&](Builder& builder) {
    there(out, "out");
    *out = call(builder);
  });
}

eng_status get_shape(eng_build* b, eng_id value, eng_desc* out, eng_error* sink) {
  return given(b, out, sink, [&](Builder& builder) { return builder.shape(value); });
}

eng_status add_param(eng_build* b, const eng_param* p, eng_id* out, eng_error* sink) {
  return given(b, out, sink, [&](Builder& builder) {
    there(p, "the parameter");
    check_size("eng_param", p->struct_size, sizeof(*p));
    Parameter parameter{p->name ? p->name : "", {}, p->flags & ~of_reference, p->init_op ? p->init_op : "", {}};
    check_name("the name of a parameter", parameter.name);
    parameter.init.list = list_of<Attr>(p->init, p->n_init, "its attributes");
    const auto dims = list_of<int64_t>(p->dims, std::min<uint32_t>(p->ndim, ENG_MAX_DIMS), "its dims");
    parameter.desc.dtype = ENG_F32;
    parameter.desc.ndim = p->ndim;
    std::copy(dims.begin(), dims.end(), parameter.desc.dims);
    if (const std::string wrong = wrong_with(parameter.desc); !wrong.empty())
      throw fault("parameter {} {}", parameter.name, wrong);
    return builder.param(std::move(parameter));
  });
}

eng_status add_block(eng_build* b, const char* name, uint32_t tmpl, const eng_id* params, uint32_t n, eng_error* sink) {
  return guarded(b, sink, [&](Builder& builder) {
    check_name("the name of a block", name ? name : "");
    builder.block(name, tmpl, list_of<Id>(params, n, "the list of its parameters"));
  });
}

eng_status get_batch(eng_build* b, const char* name, eng_id* out, eng_error* sink) {
  return given(b, out, sink, [&](Builder& builder) { return builder.batch(name ? name : ""); });
}

eng_status get_offers(eng_build* b, const char* name, int32_t* out, eng_error* sink) {
  return given(b, out, sink, [&](Builder& builder) { return builder.offers(name ? name : ""); });
}

eng_status add_constant(eng_build* b, const eng_desc* desc, const void* data, eng_id* out, eng_error* sink) {
  return given(b, out, sink, [&](Builder& builder) {
    there(desc, "the description of a constant");
    there(data, "its data");
    if (const std::string wrong = wrong_with(*desc); !wrong.empty())
      throw Error(Exit::environment, "a constant " + wrong);
    if (desc->dtype != ENG_F32 && desc->dtype != ENG_I32) throw fault("constants are f32 or i32");
    return builder.constant(*desc, data);
  });
}

eng_status emit_op(eng_build* b, const char* name, const eng_id* in, uint32_t n_in, eng_id* out, uint32_t n_out,
                   const eng_attr* attrs, uint32_t n_attrs, eng_error* sink) {
  return guarded(b, sink, [&](Builder& builder) {
    const Op* found = find_op(name ? name : "");
    if (!found) throw Error(Exit::environment, std::string("unknown op ") + (name ? name : "(null)"));
    auto made = builder.emit(*found, list_of<Id>(in, n_in, "the list of inputs"),
                             list_of<Id>(out, n_out, "the list of outputs"),
                             {list_of<Attr>(attrs, n_attrs, "the list of attributes")});
    if (made.size() < n_out)
      throw fault("{} has {} outputs for these inputs, {} were asked for", name, made.size(), n_out);
    for (uint32_t k = 0; k < n_out; ++k) out[k] = made[k];
  });
}

eng_status get_world(eng_build* b, uint32_t* rank, uint32_t* size, eng_error* sink) {
  return guarded(b, sink, [&](Builder& builder) {
    there(rank, "rank");
    there(size, "size");
    const World world = builder.world();
    *rank = world.rank, *size = world.size;
  });
}

eng_status add_group(eng_build* b, const uint32_t* ranks, uint32_t n, eng_id* out, eng_error* sink) {
  return given(b, out, sink,
               [&](Builder& builder) { return builder.group(list_of<uint32_t>(ranks, n, "the list of ranks")); });
}

eng_status add_part(eng_build* b, const eng_part* part, eng_id* out, eng_error* sink) {
  return given(b, out, sink, [&](Builder& builder) {
    there(part, "the part");
    check_size("eng_part", part->struct_size, sizeof(*part));
    return builder.part(*part);
  });
}

eng_status get_slice(eng_build* b, eng_id value, uint64_t first, uint64_t count, eng_id* out, eng_error* sink) {
  return given(b, out, sink, [&](Builder& builder) { return builder.slice(value, first, count); });
}

eng_status add_term(eng_build* b, eng_id value, const char* name, double weight, eng_error* sink) {
  return guarded(b, sink, [&](Builder& builder) { builder.term(value, name ? name : "", weight, ENG_PER_LABEL); });
}

eng_status add_term_per(eng_build* b, eng_id value, const char* name, double weight, uint32_t per, eng_error* sink) {
  return guarded(b, sink, [&](Builder& builder) { builder.term(value, name ? name : "", weight, per); });
}

eng_status get_loss(eng_build* b, eng_id hidden, eng_id weight, eng_id* out, eng_error* sink) {
  return given(b, out, sink, [&](Builder& builder) { return builder.loss(hidden, weight); });
}

const eng_build_api api = {sizeof(eng_build_api),
                           ENG_ABI_MINOR,
                           get_status,
                           get_shape,
                           add_param,
                           add_block,
                           get_batch,
                           add_constant,
                           emit_op,
                           get_world,
                           add_group,
                           add_part,
                           get_slice,
                           add_term,
                           get_offers,
                           get_loss,
                           add_term_per};

}  // namespace

void Builder::refuse(const char* what) {
  throw Error(Exit::environment, std::string(what) + " is not allowed in this phase");
}

Builder::Builder() : eng_build{&eng::api} {}

void Builder::check(const std::string& where) const {
  if (status != ENG_OK) throw Error(exit, where + ": " + error, help);
}

}  // namespace eng
