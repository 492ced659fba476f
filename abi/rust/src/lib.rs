// SPDX-License-Identifier: Apache-2.0
//! The engine's C headers for plugins written in Rust. `abi` is made from the headers by tools/abi-golden; its names are
//! those of the headers, whose comments are the contract. This file adds what the headers have as macros.
//!
//! A function of a table must not unwind: compile plugins with `-C panic=abort`.

mod abi;
pub use abi::*;

use std::os::raw::c_char;

/// A text as C expects it: `eng_text!("momentum")`.
#[macro_export]
macro_rules! eng_text {
    ($text:literal) => {
        concat!($text, "\0").as_ptr() as *const ::std::os::raw::c_char
    };
}

/// Puts the description into the file, as ENG_DESCRIPTION of engine/plugin.h does, and defines the function `describe`.
/// The texts are joined: `eng_description!("[plugin]... kind = '", eng_draft!(optimizer), "'...")`.
#[macro_export]
macro_rules! eng_description {
    ($($text:expr),+ $(,)?) => {
        const ENG_TEXT: &str = concat!($($text,)+ "\0");
        #[link_section = ".eng_plugin"]
        #[used]
        static ENG_DESCRIPTION: [u8; ENG_TEXT.len()] = $crate::bytes_of(ENG_TEXT);
        unsafe extern "C" fn describe() -> *const ::std::os::raw::c_char {
            ENG_DESCRIPTION.as_ptr() as *const ::std::os::raw::c_char
        }
    };
}

/// The bytes of a text whose length is N.
pub const fn bytes_of<const N: usize>(text: &str) -> [u8; N] {
    let mut out = [0; N];
    let mut k = 0;
    while k < N {
        out[k] = text.as_bytes()[k];
        k += 1;
    }
    out
}

/// True if the C string `text` is `expected`.
///
/// # Safety
/// `text` is a string that ends in NUL.
pub unsafe fn is(text: *const c_char, expected: &str) -> bool {
    std::ffi::CStr::from_ptr(text).to_bytes() == expected.as_bytes()
}

/// Gives the sink, which may be NULL, its text, and returns the status.
///
/// # Safety
/// `error` is the sink of the call that is running.
pub unsafe fn fail(error: *mut eng_error, status: eng_status, text: &str) -> eng_status {
    if let Some(sink) = error.as_ref() {
        if let Some(set) = sink.set {
            set(error, status, text.as_ptr() as *const c_char, text.len() as u64);
        }
    }
    status
}
