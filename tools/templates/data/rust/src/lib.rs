// SPDX-License-Identifier: Apache-2.0
//! A data source: a pure function from (split, position) to one sample. So a run is resumed from its position alone, and
//! nothing is kept from one sample to the next. Every sample counts upwards from another number; now and then it jumps.
use std::os::raw::{c_char, c_void};

use engine_abi::*;

eng_description!(r#"
[plugin]
id = 'org.example.my_thing'
name = 'my_thing'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'a data source'

[[provides]]
kind = 'eng.data/1'
name = 'my_thing'
summary = 'numbers in order, with jumps'

[provides.options]
samples = { type = 'int', default = 4096, min = 1, max = 1e9, help = 'distinct samples of one epoch' }
jumps = { type = 'float', default = 0.05, min = 0, max = 1, help = 'how often the next number is any number' }
"#);

struct Source {
    seed: u64,
    samples: u64,
    vocabulary: u64,
    limit: u64, // a random word below it makes a jump
    length: usize,
}

/// A word that depends on its three arguments alone, well mixed (Steele et al. 2014).
fn mix(a: u64, b: u64, c: u64) -> u64 {
    let b = b.wrapping_add(0xbf58_476d_1ce4_e5b9).wrapping_mul(0x94d0_49bb_1331_11eb);
    let mut z = a.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ b ^ c;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Source {
    fn read(&self, split: i32, position: u64, tokens: &mut [i32], labels: &mut [i32]) {
        // Held-out samples have numbers of their own. In every epoch the training samples are in another order.
        let sample = if split == ENG_SPLIT_TRAIN {
            position.wrapping_add((position / self.samples).wrapping_mul(7919)) % self.samples
        } else {
            1 << 40 | position
        };
        let mut number = mix(self.seed, sample, 0) % self.vocabulary;
        for t in 0..self.length {
            let word = mix(self.seed, sample, t as u64 + 1);
            tokens[t] = number as i32;
            let jumps = word & 0xffff_ffff < self.limit;
            number = if jumps { word >> 32 } else { number + 1 } % self.vocabulary;
            labels[t] = number as i32; // the token after tokens[t]
        }
    }
}

// The options have every key of the description, with its default, so their functions are there.
unsafe extern "C" fn create(
    options: *const eng_options,
    request: *const eng_data_request,
    out: *mut *mut c_void,
    error: *mut eng_error,
) -> eng_status {
    let (mut samples, mut jumps) = (0i64, 0f64);
    let status = (*options).get_int.unwrap()(options, eng_text!("samples"), &mut samples, error);
    if status != ENG_OK {
        return status;
    }
    let status = (*options).get_float.unwrap()(options, eng_text!("jumps"), &mut jumps, error);
    if status != ENG_OK {
        return status;
    }
    let request = &*request;
    *out = Box::into_raw(Box::new(Source {
        seed: request.seed,
        samples: samples as u64,
        vocabulary: request.vocabulary as u64,
        limit: (jumps * 4294967296.0) as u64,
        length: request.sequence_length as usize,
    })) as *mut c_void;
    ENG_OK
}

unsafe extern "C" fn destroy(this: *mut c_void) {
    drop(Box::from_raw(this as *mut Source));
}

// The hash is equal if and only if the data is equal: a run is not resumed with other data.
unsafe extern "C" fn describe_data(this: *mut c_void, out: *mut eng_data_info, _: *mut eng_error) -> eng_status {
    let source = &*(this as *const Source);
    let out = &mut *out;
    out.tokens = source.samples * source.length as u64;
    out.train_samples = source.samples;
    out.validation_samples = 8;
    out.vocabulary = source.vocabulary as i64;
    let hash = format!("{:08x}{:08x}{:016x}", source.vocabulary, source.samples, source.limit);
    for (to, from) in out.content_hash.iter_mut().zip(hash.bytes()) {
        *to = from as c_char;
    }
    ENG_OK
}

// values[0] are T tokens, values[1] T labels: the fields that every run reads.
unsafe extern "C" fn read_sample(
    this: *mut c_void,
    split: i32,
    position: u64,
    values: *const *mut c_void,
    _: *mut eng_error,
) -> eng_status {
    let source = &*(this as *const Source);
    let tokens = std::slice::from_raw_parts_mut(*values as *mut i32, source.length);
    let labels = std::slice::from_raw_parts_mut(*values.add(1) as *mut i32, source.length);
    source.read(split, position, tokens, labels);
    ENG_OK
}

static TABLE: eng_data = eng_data {
    struct_size: std::mem::size_of::<eng_data>() as u32,
    minor: ENG_ABI_MINOR,
    create: Some(create),
    destroy: Some(destroy),
    describe: Some(describe_data),
    read: Some(read_sample),
    ..eng_data::ZERO // the rest: nothing is slow, and there are no files or other fields
};

unsafe extern "C" fn start(_: *const eng_host, _: *mut eng_error) -> eng_status {
    ENG_OK
}

unsafe extern "C" fn stop() {}

unsafe extern "C" fn get_interface(kind: *const c_char, name: *const c_char) -> *const c_void {
    if is(kind, ENG_DATA_KIND) && is(name, "my_thing") {
        return &TABLE as *const eng_data as *const c_void;
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
