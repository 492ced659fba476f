// SPDX-License-Identifier: Apache-2.0
//! An observer: it reads values of a step and makes numbers of them, which go to metrics.jsonl. Its ops are part of the
//! plan, it changes nothing, and none of its functions runs during a step. Here: how large the updates of each block
//! are, and how large the weights of the whole model.
use std::ffi::{CStr, CString};
use std::os::raw::{c_char, c_void};

use engine_abi::*;

eng_description!(r#"
[plugin]
id = 'org.example.my_thing'
name = 'my_thing'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'an observer'

[[provides]]
kind = '"#, eng_draft!(observer), r#"'
name = 'my_thing'
summary = 'norms of updates, by block, and of the weights'

[provides.options]
weights = { type = 'bool', default = true, help = 'the norm of all weights as well' }
"#);

struct Observer {
    weights: bool,
    name: CString, // of the last result; the host reads it until the next call
}

unsafe extern "C" fn create(options: *const eng_options, out: *mut *mut c_void, error: *mut eng_error) -> eng_status {
    let mut weights = 0;
    let status = (*options).get_bool.unwrap()(options, eng_text!("weights"), &mut weights, error);
    if status == ENG_OK {
        let made = Observer { weights: weights != 0, name: CString::default() };
        *out = Box::into_raw(Box::new(made)) as *mut c_void;
    }
    status
}

unsafe extern "C" fn destroy(this: *mut c_void) {
    drop(Box::from_raw(this as *mut Observer));
}

// Called for every site of a step. Results of one name are combined: over sites, micro-batches and ranks. A norm is a sum
// of squares until then, and the host shows its root.
unsafe extern "C" fn results(
    this: *mut c_void,
    site: *const eng_site,
    out: *mut eng_result,
    _: u32,
    n: *mut u32,
    _: *mut eng_error,
) -> eng_status {
    let (me, site) = (&mut *(this as *mut Observer), &*site);
    let text = match site.what as i32 {
        ENG_SITE_UPDATE => [b"update_norm.".as_ref(), CStr::from_ptr(site.block).to_bytes()].concat(),
        ENG_SITE_PARAMETER if me.weights => b"weight_norm".to_vec(),
        _ => return ENG_OK, // *n is 0: not observed
    };
    me.name = CString::new(text).unwrap(); // a C string has no NUL inside
    *out = eng_result { name: me.name.as_ptr(), combine: ENG_COMBINE_SUM as u32, flags: ENG_RESULT_SQRT };
    *n = 1;
    ENG_OK
}

/// Emits an op with one input and one output; 0 after an error, which sticks to the builder.
unsafe fn emit(build: *mut eng_build, op: *const c_char, input: eng_id, attrs: &[eng_attr]) -> eng_id {
    let mut out = 0;
    let emit = (*(*build).api).emit.unwrap();
    emit(build, op, &input, 1, &mut out, 1, attrs.as_ptr(), attrs.len() as u32, std::ptr::null_mut());
    out
}

// (n) -> (n / 4096) sums of squares -> their sum (1)
unsafe extern "C" fn observe(
    _: *mut c_void,
    build: *mut eng_build,
    site: *const eng_site,
    out: *mut eng_id,
    _: u32,
    error: *mut eng_error,
) -> eng_status {
    let api = &*(*build).api;
    let mut sums = eng_desc::ZERO;
    let squares = emit(build, eng_text!("eng.sum_squares/1"), (*site).value, &[]);
    api.shape.unwrap()(build, squares, &mut sums, std::ptr::null_mut());
    let rows = eng_attr { key: eng_text!("rows"), i: sums.dims[0], f: 0.0 };
    *out = emit(build, eng_text!("eng.fold/1"), squares, &[rows]);
    api.status.unwrap()(build, error)
}

static TABLE: eng_observer = eng_observer {
    struct_size: std::mem::size_of::<eng_observer>() as u32,
    minor: ENG_ABI_MINOR,
    create: Some(create),
    destroy: Some(destroy),
    results: Some(results),
    observe: Some(observe),
    ..eng_observer::ZERO
};

unsafe extern "C" fn start(_: *const eng_host, _: *mut eng_error) -> eng_status {
    ENG_OK
}

unsafe extern "C" fn stop() {}

unsafe extern "C" fn get_interface(kind: *const c_char, name: *const c_char) -> *const c_void {
    if is(kind, ENG_OBSERVER_KIND) && is(name, "my_thing") {
        return &TABLE as *const eng_observer as *const c_void;
    }
    std::ptr::null()
}

static PLUGIN: eng_plugin = eng_plugin {
    struct_size: std::mem::size_of::<eng_plugin>() as u32,
    abi_minor: ENG_ABI_MINOR,
    draft_id: ENG_ABI_DRAFT,
    describe: Some(describe),
    start: Some(start),
    stop: Some(stop),
    get_interface: Some(get_interface),
    ..eng_plugin::ZERO
};

/// The one symbol that leaves the file.
#[no_mangle]
pub extern "C" fn eng_plugin_query_1(_host_minor: u32) -> *const eng_plugin {
    &PLUGIN
}
