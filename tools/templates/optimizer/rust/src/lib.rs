// SPDX-License-Identifier: Apache-2.0
//! An optimizer. It says which states a parameter has, and emits the ops that update a run of elements. It never sees
//! memory, devices or ranks.
use std::os::raw::{c_char, c_void};

use engine_abi::*;

eng_description!(r#"
[plugin]
id = 'org.example.my_thing'
name = 'my_thing'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'an optimizer'

[[provides]]
kind = '"#, eng_draft!(optimizer), r#"'
name = 'my_thing'
summary = 'Adam with decoupled weight decay'

[provides.options]
beta1 = { type = 'float', default = 0.9, min = 0, max = 0.9999, help = 'what is kept of the first moment' }
beta2 = { type = 'float', default = 0.999, min = 0, max = 0.9999, help = 'what is kept of the second moment' }
eps = { type = 'float', default = 1e-8, above = 0, help = 'added to the root of the second moment' }
weight_decay = { type = 'float', default = 0.0, min = 0, help = 'decoupled; not for norms and biases', per_group = true }
"#);

struct Adam {
    beta1: f64,
    beta2: f64,
    eps: f64,
}

/// The value of a key of the description, or the status of the call that failed.
unsafe fn number(options: *const eng_options, key: *const c_char, error: *mut eng_error) -> Result<f64, eng_status> {
    let mut value = 0.0;
    match (*options).get_float.unwrap()(options, key, &mut value, error) {
        ENG_OK => Ok(value),
        status => Err(status),
    }
}

unsafe fn read(options: *const eng_options, error: *mut eng_error) -> Result<Adam, eng_status> {
    let adam = Adam {
        beta1: number(options, eng_text!("beta1"), error)?,
        beta2: number(options, eng_text!("beta2"), error)?,
        eps: number(options, eng_text!("eps"), error)?,
    };
    // This checks what the description cannot say.
    if adam.beta1 * adam.beta1 > adam.beta2 {
        let text = "beta1 squared is above beta2: Adam then diverges; raise beta2 or lower beta1";
        return Err(fail(error, ENG_INVALID, text));
    }
    Ok(adam)
}

unsafe extern "C" fn create(options: *const eng_options, out: *mut *mut c_void, error: *mut eng_error) -> eng_status {
    match read(options, error) {
        Ok(adam) => {
            *out = Box::into_raw(Box::new(adam)) as *mut c_void;
            ENG_OK
        }
        Err(status) => status,
    }
}

unsafe extern "C" fn destroy(this: *mut c_void) {
    drop(Box::from_raw(this as *mut Adam));
}

// One value per element each. Checkpoints store them as PARAMETER.exp_avg and PARAMETER.exp_avg_sq.
unsafe extern "C" fn states(
    _: *mut c_void,
    out: *mut eng_state_rule,
    cap: u32,
    n: *mut u32,
    error: *mut eng_error,
) -> eng_status {
    if cap < 2 {
        return fail(error, ENG_OUT_OF_RANGE, "there is no room for two states");
    }
    *out = eng_state_rule { name: eng_text!("exp_avg"), dtype: ENG_F32, ..eng_state_rule::ZERO };
    *out.add(1) = eng_state_rule { name: eng_text!("exp_avg_sq"), dtype: ENG_F32, ..eng_state_rule::ZERO };
    *n = 2;
    ENG_OK
}

// The scalars that eng.adamw/1 reads for update k beside the learning rate: engine/ops.h.
unsafe extern "C" fn scalars(
    this: *mut c_void,
    k: u64,
    out: *mut f32,
    cap: u32,
    n: *mut u32,
    error: *mut eng_error,
) -> eng_status {
    let adam = &*(this as *const Adam);
    if cap < 2 {
        return fail(error, ENG_OUT_OF_RANGE, "there is no room for two scalars");
    }
    *out = (1.0 - adam.beta1.powf(k as f64)) as f32;
    *out.add(1) = (1.0 - adam.beta2.powf(k as f64)).sqrt() as f32;
    *n = 2;
    ENG_OK
}

unsafe extern "C" fn update(
    this: *mut c_void,
    build: *mut eng_build,
    run: *const eng_update,
    error: *mut eng_error,
) -> eng_status {
    let (adam, run) = (&*(this as *const Adam), &*run);
    let mut decay = 0.0;
    // The parameters of a run have equal options, so those of the first one count.
    if run.n_ranges > 0 && run.flags & ENG_PARAM_NO_DECAY == 0 {
        let own = (*(*run.ranges).parameter).options;
        decay = match number(own, eng_text!("weight_decay"), error) {
            Ok(value) => value,
            Err(status) => return status,
        };
    }
    let attr = |key, f| eng_attr { key, i: 0, f };
    let attrs = [
        attr(eng_text!("beta1"), adam.beta1),
        attr(eng_text!("beta2"), adam.beta2),
        attr(eng_text!("eps"), adam.eps),
        attr(eng_text!("weight_decay"), decay),
    ];
    let (m, v) = (*run.states, *run.states.add(1));
    let inputs = [run.master, run.grad, m, v, run.scalars];
    let mut outputs = [run.master, m, v]; // in place
    let emit = (*(*build).api).emit.unwrap();
    let op = eng_text!("eng.adamw/1"); // ENG_OP_ADAMW
    emit(build, op, inputs.as_ptr(), 5, outputs.as_mut_ptr(), 3, attrs.as_ptr(), 4, error)
}

static TABLE: eng_optimizer = eng_optimizer {
    struct_size: std::mem::size_of::<eng_optimizer>() as u32,
    granularity: 1, // each element by itself
    create: Some(create),
    destroy: Some(destroy),
    states: Some(states),
    scalars: Some(scalars),
    update: Some(update),
    ..eng_optimizer::ZERO
};

unsafe extern "C" fn start(_: *const eng_host, _: *mut eng_error) -> eng_status {
    ENG_OK
}

unsafe extern "C" fn stop() {}

unsafe extern "C" fn get_interface(kind: *const c_char, name: *const c_char) -> *const c_void {
    if is(kind, ENG_OPTIMIZER_KIND) && is(name, "my_thing") {
        return &TABLE as *const eng_optimizer as *const c_void;
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
