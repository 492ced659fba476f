// SPDX-License-Identifier: Apache-2.0
// Made by tools/abi-golden --write from the headers in abi/engine/. Do not edit.
#![allow(non_camel_case_types, non_upper_case_globals, clippy::all)]

use std::os::raw::{c_char, c_void};

/// For eng_plugin.draft_id.
pub const ENG_ABI_DRAFT: *const c_char = "1.0\0".as_ptr() as *const c_char;
pub const ENG_ABI_MINOR: u32 = 0;
pub const ENG_ABI_DRAFT_ID: &str = "1.0";

#[repr(C)]
#[derive(Clone, Copy)]
pub struct DLDataType {
    pub code: u8,
    pub bits: u8,
    pub lanes: u16,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for DLDataType {}
impl DLDataType {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 4]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct DLDevice {
    pub device_type: DLDeviceType,
    pub device_id: i32,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for DLDevice {}
impl DLDevice {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 8]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct DLManagedTensor {
    pub dl_tensor: DLTensor,
    pub manager_ctx: *mut c_void,
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for DLManagedTensor {}
impl DLManagedTensor {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 64]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct DLManagedTensorVersioned {
    pub version: DLPackVersion,
    pub manager_ctx: *mut c_void,
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned)>,
    pub flags: u64,
    pub dl_tensor: DLTensor,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for DLManagedTensorVersioned {}
impl DLManagedTensorVersioned {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 80]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct DLPackVersion {
    pub major: u32,
    pub minor: u32,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for DLPackVersion {}
impl DLPackVersion {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 8]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct DLTensor {
    pub data: *mut c_void,
    pub device: DLDevice,
    pub ndim: i32,
    pub dtype: DLDataType,
    pub shape: *mut i64,
    pub strides: *mut i64,
    pub byte_offset: u64,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for DLTensor {}
impl DLTensor {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 48]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_attr {
    pub key: *const c_char,
    pub i: i64,
    pub f: f64,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_attr {}
impl eng_attr {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 24]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_axis {
    pub struct_size: u32,
    pub minor: u32,
    pub create: Option<unsafe extern "C" fn(*const eng_options, *mut eng_build, *mut *mut c_void, *mut eng_error) -> eng_status>,
    pub destroy: Option<unsafe extern "C" fn(*mut c_void)>,
    pub place: Option<unsafe extern "C" fn(*mut c_void, *const eng_unit, i32, *mut eng_view, *mut eng_error) -> eng_status>,
    pub r#move: Option<unsafe extern "C" fn(*mut c_void, *mut eng_build, *const eng_move, *mut eng_error) -> eng_status>,
    pub states: Option<unsafe extern "C" fn(*mut c_void, *mut eng_policy_state, u32, *mut u32, *mut eng_error) -> eng_status>,
    pub update: Option<unsafe extern "C" fn(*mut c_void, *mut eng_build, *const eng_policy_update, *mut eng_error) -> eng_status>,
    pub flags: u32,
    pub reserved: u32,
    pub begin: Option<unsafe extern "C" fn(*mut c_void, *mut eng_build, *const eng_policy_update, *mut eng_error) -> eng_status>,
    pub flags_of: Option<unsafe extern "C" fn(*mut c_void, *mut u32, *mut eng_error) -> eng_status>,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_axis {}
impl eng_axis {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 80]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_build {
    pub api: *const eng_build_api,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_build {}
impl eng_build {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 8]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_build_api {
    pub struct_size: u32,
    pub minor: u32,
    pub status: Option<unsafe extern "C" fn(*mut eng_build, *mut eng_error) -> eng_status>,
    pub shape: Option<unsafe extern "C" fn(*mut eng_build, eng_id, *mut eng_desc, *mut eng_error) -> eng_status>,
    pub param: Option<unsafe extern "C" fn(*mut eng_build, *const eng_param, *mut eng_id, *mut eng_error) -> eng_status>,
    pub block: Option<unsafe extern "C" fn(*mut eng_build, *const c_char, u32, *const eng_id, u32, *mut eng_error) -> eng_status>,
    pub batch: Option<unsafe extern "C" fn(*mut eng_build, *const c_char, *mut eng_id, *mut eng_error) -> eng_status>,
    pub constant: Option<unsafe extern "C" fn(*mut eng_build, *const eng_desc, *const c_void, *mut eng_id, *mut eng_error) -> eng_status>,
    pub emit: Option<unsafe extern "C" fn(*mut eng_build, *const c_char, *const eng_id, u32, *mut eng_id, u32, *const eng_attr, u32, *mut eng_error) -> eng_status>,
    pub world: Option<unsafe extern "C" fn(*mut eng_build, *mut u32, *mut u32, *mut eng_error) -> eng_status>,
    pub group: Option<unsafe extern "C" fn(*mut eng_build, *const u32, u32, *mut eng_id, *mut eng_error) -> eng_status>,
    pub part: Option<unsafe extern "C" fn(*mut eng_build, *const eng_part, *mut eng_id, *mut eng_error) -> eng_status>,
    pub slice: Option<unsafe extern "C" fn(*mut eng_build, eng_id, u64, u64, *mut eng_id, *mut eng_error) -> eng_status>,
    pub term: Option<unsafe extern "C" fn(*mut eng_build, eng_id, *const c_char, f64, *mut eng_error) -> eng_status>,
    pub offers: Option<unsafe extern "C" fn(*mut eng_build, *const c_char, *mut i32, *mut eng_error) -> eng_status>,
    pub loss: Option<unsafe extern "C" fn(*mut eng_build, eng_id, eng_id, *mut eng_id, *mut eng_error) -> eng_status>,
    pub term_per: Option<unsafe extern "C" fn(*mut eng_build, eng_id, *const c_char, f64, u32, *mut eng_error) -> eng_status>,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_build_api {}
impl eng_build_api {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 128]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_call {
    pub struct_size: u32,
    pub parallel: u32,
    pub n_in: u32,
    pub n_out: u32,
    pub r#in: *const eng_desc,
    pub out: *const eng_desc,
    pub attrs: *const eng_attr,
    pub n_attrs: u32,
    pub reserved: u32,
    pub device: *const eng_device_info,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_call {}
impl eng_call {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 56]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_chat {
    pub struct_size: u32,
    pub minor: u32,
    pub create: Option<unsafe extern "C" fn(*const eng_chat_request, *mut *mut c_void, *mut eng_error) -> eng_status>,
    pub destroy: Option<unsafe extern "C" fn(*mut c_void)>,
    pub render: Option<unsafe extern "C" fn(*mut c_void, *const c_char, u64, u32, *mut i32, u64, *mut u64, *mut eng_error) -> eng_status>,
    pub ends: Option<unsafe extern "C" fn(*mut c_void, *mut i32, u64, *mut u64, *mut eng_error) -> eng_status>,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_chat {}
impl eng_chat {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 40]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_chat_request {
    pub struct_size: u32,
    pub reserved: u32,
    pub tokenizer: *const c_char,
    pub folder: *const c_char,
    pub template_file: *const c_char,
    pub date: *const c_char,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_chat_request {}
impl eng_chat_request {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 40]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_comm {
    pub struct_size: u32,
    pub flags: u32,
    pub create: Option<unsafe extern "C" fn(*const eng_options, f64, *mut eng_world, *mut *mut c_void, *mut eng_error) -> eng_status>,
    pub destroy: Option<unsafe extern "C" fn(*mut c_void)>,
    pub group: Option<unsafe extern "C" fn(*mut c_void, eng_id, *const u32, u32, *mut eng_error) -> eng_status>,
    pub exchange: Option<unsafe extern "C" fn(*mut c_void, *const c_void, u64, *mut c_void, *mut eng_error) -> eng_status>,
    pub poll: Option<unsafe extern "C" fn(*mut c_void, *mut eng_error) -> eng_status>,
    pub abort: Option<unsafe extern "C" fn(*mut c_void, *const c_char)>,
    pub overhead_bytes: u64,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_comm {}
impl eng_comm {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 64]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_data {
    pub struct_size: u32,
    pub minor: u32,
    pub create: Option<unsafe extern "C" fn(*const eng_options, *const eng_data_request, *mut *mut c_void, *mut eng_error) -> eng_status>,
    pub destroy: Option<unsafe extern "C" fn(*mut c_void)>,
    pub describe: Option<unsafe extern "C" fn(*mut c_void, *mut eng_data_info, *mut eng_error) -> eng_status>,
    pub read: Option<unsafe extern "C" fn(*mut c_void, i32, u64, *const *mut c_void, *mut eng_error) -> eng_status>,
    pub build: Option<unsafe extern "C" fn(*const eng_options, *const eng_data_request, *const eng_data_watch, *mut eng_data_built, *mut eng_error) -> eng_status>,
    pub inspect: Option<unsafe extern "C" fn(*const c_char, u32, *mut c_char, u64, *mut u64, *mut eng_error) -> eng_status>,
    pub fields: Option<unsafe extern "C" fn(*const eng_options, *mut eng_field, u32, *mut u32, *mut eng_error) -> eng_status>,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_data {}
impl eng_data {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 64]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_data_built {
    pub struct_size: u32,
    pub reused: i32,
    pub tokens: u64,
    pub documents: u64,
    pub path: [c_char; 4096],
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_data_built {}
impl eng_data_built {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 4120]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_data_info {
    pub struct_size: u32,
    pub files: u32,
    pub tokens: u64,
    pub train_samples: u64,
    pub validation_samples: u64,
    pub vocabulary: i64,
    pub content_hash: [c_char; 40],
    pub host_bytes: u64,
    pub documents: u64,
    pub padding: u64,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_data_info {}
impl eng_data_info {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 104]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_data_request {
    pub struct_size: u32,
    pub n_fields: u32,
    pub seed: u64,
    pub sequence_length: i64,
    pub vocabulary: i64,
    pub base_dir: *const c_char,
    pub fields: *const eng_field,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_data_request {}
impl eng_data_request {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 48]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_data_watch {
    pub struct_size: u32,
    pub threads: u32,
    pub data: *mut c_void,
    pub report: Option<unsafe extern "C" fn(*const eng_data_watch, u64, u64, u64) -> i32>,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_data_watch {}
impl eng_data_watch {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 24]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_desc {
    pub dtype: i32,
    pub ndim: u32,
    pub dims: [i64; 6],
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_desc {}
impl eng_desc {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 56]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_device {
    pub struct_size: u32,
    pub minor: u32,
    pub describe: Option<unsafe extern "C" fn(*const eng_options, *mut eng_device_info, *mut eng_error) -> eng_status>,
    pub create: Option<unsafe extern "C" fn(*const eng_options, u32, *mut *mut c_void, *mut eng_error) -> eng_status>,
    pub destroy: Option<unsafe extern "C" fn(*mut c_void)>,
    pub alloc: Option<unsafe extern "C" fn(*mut c_void, i32, u64, *mut *mut c_void, *mut eng_error) -> eng_status>,
    pub free: Option<unsafe extern "C" fn(*mut c_void, i32, *mut c_void, u64)>,
    pub upload: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, *const c_void, u64, *mut eng_error) -> eng_status>,
    pub download: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, *const c_void, u64, *mut eng_error) -> eng_status>,
    pub sync: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, *mut eng_error) -> eng_status>,
    pub queue_create: Option<unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *mut eng_error) -> eng_status>,
    pub queue_destroy: Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
    pub event_create: Option<unsafe extern "C" fn(*mut c_void, i32, *mut *mut c_void, *mut eng_error) -> eng_status>,
    pub event_destroy: Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
    pub event_record: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void, *mut eng_error) -> eng_status>,
    pub event_wait: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void, *mut eng_error) -> eng_status>,
    pub event_sync: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, *mut eng_error) -> eng_status>,
    pub event_elapsed: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void, *mut f64, *mut eng_error) -> eng_status>,
    pub capture_begin: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, *mut eng_error) -> eng_status>,
    pub capture_end: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, *mut *mut c_void, *mut eng_error) -> eng_status>,
    pub graph_launch: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void, *mut eng_error) -> eng_status>,
    pub graph_destroy: Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
    pub pin: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, u64, *mut eng_error) -> eng_status>,
    pub unpin: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, u64)>,
    pub inspect: Option<unsafe extern "C" fn(*const eng_options, *mut c_char, u64, *mut u64, *mut eng_error) -> eng_status>,
    pub choices: Option<unsafe extern "C" fn(*mut c_void, *mut c_char, u64, *mut u64, *mut eng_error) -> eng_status>,
    pub choose: Option<unsafe extern "C" fn(*mut c_void, *const c_char, u64, *mut eng_error) -> eng_status>,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_device {}
impl eng_device {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 208]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_device_info {
    pub struct_size: u32,
    pub flags: u32,
    pub parallel: u32,
    pub parallel_beside: u32,
    pub dl_device_type: i32,
    pub dl_device_id: i32,
    pub arch: u32,
    pub reserved: u32,
    pub total_bytes: u64,
    pub overhead_bytes: u64,
    pub device_overhead_bytes: u64,
    pub peak_f32: f64,
    pub peak_bf16: f64,
    pub memory_bandwidth: f64,
    pub to_device: f64,
    pub to_host: f64,
    pub name: [c_char; 64],
    pub settings: [u64; 4],
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_device_info {}
impl eng_device_info {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 192]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_documents {
    pub struct_size: u32,
    pub minor: u32,
    pub create: Option<unsafe extern "C" fn(*const eng_options, *mut *mut c_void, *mut eng_error) -> eng_status>,
    pub destroy: Option<unsafe extern "C" fn(*mut c_void)>,
    pub read: Option<unsafe extern "C" fn(*mut c_void, *const eng_documents_in, *const eng_documents_out, *mut eng_documents_seen, *mut eng_error) -> eng_status>,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_documents {}
impl eng_documents {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 32]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_documents_in {
    pub struct_size: u32,
    pub reserved: u32,
    pub data: *mut c_void,
    pub path: *const c_char,
    pub size: u64,
    pub read: Option<unsafe extern "C" fn(*const eng_documents_in, *mut c_void, u64, *mut u64, *mut eng_error) -> eng_status>,
    pub seek: Option<unsafe extern "C" fn(*const eng_documents_in, u64, *mut eng_error) -> eng_status>,
    pub first_part: u64,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_documents_in {}
impl eng_documents_in {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 56]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_documents_out {
    pub struct_size: u32,
    pub reserved: u32,
    pub data: *mut c_void,
    pub put: Option<unsafe extern "C" fn(*const eng_documents_out, *const c_char, u64, u32, *mut eng_error) -> eng_status>,
    pub part: Option<unsafe extern "C" fn(*const eng_documents_out, u64, *mut eng_error) -> eng_status>,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_documents_out {}
impl eng_documents_out {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 32]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_documents_seen {
    pub struct_size: u32,
    pub reserved: u32,
    pub left_out: u64,
    pub wrong: u64,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_documents_seen {}
impl eng_documents_seen {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 24]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_error {
    pub struct_size: u32,
    pub code: i32,
    pub data: *mut c_void,
    pub set: Option<unsafe extern "C" fn(*mut eng_error, eng_status, *const c_char, u64)>,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_error {}
impl eng_error {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 24]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_eval_result {
    pub struct_size: u32,
    pub reserved: u32,
    pub loss: f64,
    pub tokens: u64,
    pub seconds: f64,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_eval_result {}
impl eng_eval_result {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 32]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_exec {
    pub struct_size: u32,
    pub flags: u32,
    pub queue: *mut c_void,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_exec {}
impl eng_exec {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 16]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_field {
    pub name: *const c_char,
    pub dtype: i32,
    pub reserved: u32,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_field {}
impl eng_field {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 16]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_format {
    pub struct_size: u32,
    pub reserved: u32,
    pub name: *const c_char,
    pub table: *const eng_documents,
    pub options: *const eng_options,
    pub identity: *const c_char,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_format {}
impl eng_format {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 40]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_formats {
    pub struct_size: u32,
    pub reserved: u32,
    pub find: Option<unsafe extern "C" fn(*const eng_formats, *const c_char, *mut eng_format, *mut eng_error) -> eng_status>,
    pub recognise: Option<unsafe extern "C" fn(*const eng_formats, *const c_char, *const c_void, u64, *mut eng_format, *mut eng_error) -> eng_status>,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_formats {}
impl eng_formats {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 24]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_gauges {
    pub struct_size: u32,
    pub reserved: u32,
    pub used_bytes: u64,
    pub utilisation: f64,
    pub celsius: f64,
    pub watts: f64,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_gauges {}
impl eng_gauges {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 40]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_generate_request {
    pub struct_size: u32,
    pub n_ids: u32,
    pub prompt: *const c_char,
    pub ids: *const i32,
    pub tokens: i64,
    pub top_k: i64,
    pub temperature: f64,
    pub top_p: f64,
    pub seed: u64,
    pub tokenizer: *const c_char,
    pub data: *mut c_void,
    pub token: Option<unsafe extern "C" fn(*mut c_void, i32, *const c_char, u64) -> i32>,
    pub max_length: i64,
    pub n_prompts: u64,
    pub ends: *const u64,
    pub token_of: Option<unsafe extern "C" fn(*mut c_void, u64, i32, *const c_char, u64) -> i32>,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_generate_request {}
impl eng_generate_request {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 120]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_gradient {
    pub api: *const eng_gradient_api,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_gradient {}
impl eng_gradient {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 8]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_gradient_api {
    pub struct_size: u32,
    pub minor: u32,
    pub status: Option<unsafe extern "C" fn(*mut eng_gradient, *mut eng_error) -> eng_status>,
    pub r#in: Option<unsafe extern "C" fn(*mut eng_gradient, u32) -> eng_id>,
    pub out: Option<unsafe extern "C" fn(*mut eng_gradient, u32) -> eng_id>,
    pub d_out: Option<unsafe extern "C" fn(*mut eng_gradient, u32) -> eng_id>,
    pub own_d_out: Option<unsafe extern "C" fn(*mut eng_gradient, u32) -> eng_id>,
    pub wants: Option<unsafe extern "C" fn(*mut eng_gradient, u32) -> i32>,
    pub take: Option<unsafe extern "C" fn(*mut eng_gradient, u32) -> eng_id>,
    pub give: Option<unsafe extern "C" fn(*mut eng_gradient, u32, eng_id)>,
    pub shape: Option<unsafe extern "C" fn(*mut eng_gradient, eng_id, *mut eng_desc, *mut eng_error) -> eng_status>,
    pub attrs: Option<unsafe extern "C" fn(*mut eng_gradient, *mut u32) -> *const eng_attr>,
    pub emit: Option<unsafe extern "C" fn(*mut eng_gradient, *const c_char, *const eng_id, u32, *mut eng_id, u32, *const eng_attr, u32, *mut eng_error) -> eng_status>,
    pub wanted: Option<unsafe extern "C" fn(*mut eng_gradient, eng_id) -> i32>,
    pub so_far: Option<unsafe extern "C" fn(*mut eng_gradient, eng_id) -> eng_id>,
    pub maker: Option<unsafe extern "C" fn(*mut eng_gradient, eng_id, *mut eng_node) -> i32>,
    pub scalars: Option<unsafe extern "C" fn(*mut eng_gradient) -> eng_id>,
    pub weight: Option<unsafe extern "C" fn(*mut eng_gradient, u32) -> f64>,
    pub replaces: Option<unsafe extern "C" fn(*mut eng_gradient, u32, eng_id)>,
    pub inputs: Option<unsafe extern "C" fn(*mut eng_gradient) -> u32>,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_gradient_api {}
impl eng_gradient_api {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 152]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_host {
    pub struct_size: u32,
    pub minor: u32,
    pub data: *mut c_void,
    pub log: Option<unsafe extern "C" fn(*const eng_host, i32, *const c_char, u64)>,
    pub get_extension: Option<unsafe extern "C" fn(*const eng_host, *const c_char) -> *const c_void>,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_host {}
impl eng_host {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 32]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_in_place {
    pub out: u32,
    pub r#in: u32,
    pub must: u32,
    pub reserved: u32,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_in_place {}
impl eng_in_place {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 16]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_index {
    pub ids: u32,
    pub table: u32,
    pub flags: u32,
    pub reserved: u32,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_index {}
impl eng_index {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 16]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_job {
    pub struct_size: u32,
    pub minor: u32,
    pub create: Option<unsafe extern "C" fn(*const eng_options, *mut *mut c_void, *mut eng_error) -> eng_status>,
    pub destroy: Option<unsafe extern "C" fn(*mut c_void)>,
    pub describe: Option<unsafe extern "C" fn(*mut c_void, *mut eng_job_info, *mut eng_error) -> eng_status>,
    pub states: Option<unsafe extern "C" fn(*mut c_void, *mut eng_state_rule, u32, *mut u32, *mut eng_error) -> eng_status>,
    pub values: Option<unsafe extern "C" fn(*mut c_void, *mut eng_job_value, u32, *mut u32, *mut eng_error) -> eng_status>,
    pub emit: Option<unsafe extern "C" fn(*mut c_void, *mut eng_build, *const eng_update, *mut eng_error) -> eng_status>,
    pub host_bytes: Option<unsafe extern "C" fn(*mut c_void, *const *const eng_parameter, u32, *const *const eng_job_site, u32, *mut u64, *mut eng_error) -> eng_status>,
    pub run: Option<unsafe extern "C" fn(*mut c_void, *mut eng_job_host, *mut eng_error) -> eng_status>,
    pub site: Option<unsafe extern "C" fn(*mut c_void, *const eng_job_site, *mut eng_desc, *mut eng_error) -> eng_status>,
    pub observe: Option<unsafe extern "C" fn(*mut c_void, *mut eng_build, *const eng_job_site, eng_id, eng_id, *mut eng_error) -> eng_status>,
    pub part: Option<unsafe extern "C" fn(*mut c_void, u32, u32, *mut eng_error) -> eng_status>,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_job {}
impl eng_job {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 96]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_job_api {
    pub struct_size: u32,
    pub minor: u32,
    pub parameters: Option<unsafe extern "C" fn(*mut eng_job_host, *mut *const *const eng_parameter, *mut u32, *mut eng_error) -> eng_status>,
    pub sites: Option<unsafe extern "C" fn(*mut eng_job_host, *mut *const *const eng_job_site, *mut u32, *mut eng_error) -> eng_status>,
    pub windows: Option<unsafe extern "C" fn(*mut eng_job_host, u32, *mut u64, *mut i64, *mut eng_error) -> eng_status>,
    pub gradient: Option<unsafe extern "C" fn(*mut eng_job_host, u32, u64, *mut f64, *mut eng_error) -> eng_status>,
    pub losses: Option<unsafe extern "C" fn(*mut eng_job_host, u32, u64, u32, i32, *mut f64, *mut i64, *mut eng_error) -> eng_status>,
    pub program: Option<unsafe extern "C" fn(*mut eng_job_host, u32, *const f32, u32, i64, *mut eng_error) -> eng_status>,
    pub read: Option<unsafe extern "C" fn(*mut eng_job_host, u32, u32, u32, u64, u64, *mut c_void, *mut eng_error) -> eng_status>,
    pub write: Option<unsafe extern "C" fn(*mut eng_job_host, u32, u32, u32, u64, u64, *const c_void, *mut eng_error) -> eng_status>,
    pub save: Option<unsafe extern "C" fn(*mut eng_job_host, *mut eng_error) -> eng_status>,
    pub progress: Option<unsafe extern "C" fn(*mut eng_job_host, *const c_char, u64, u64, *const c_char, *mut eng_error) -> eng_status>,
    pub file: Option<unsafe extern "C" fn(*mut eng_job_host, *const c_char, *const c_void, u64, *mut eng_error) -> eng_status>,
    pub facts: Option<unsafe extern "C" fn(*mut eng_job_host, *mut *const c_char, *mut u64, *mut eng_error) -> eng_status>,
    pub field: Option<unsafe extern "C" fn(*mut eng_job_host, u32, u64, *const c_char, *mut c_void, *mut eng_error) -> eng_status>,
    pub position_losses: Option<unsafe extern "C" fn(*mut eng_job_host, u32, u64, u32, *mut f64, *mut eng_error) -> eng_status>,
    pub earlier: Option<unsafe extern "C" fn(*mut eng_job_host, u32, *const c_char, *mut *const c_void, *mut u64, *mut eng_error) -> eng_status>,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_job_api {}
impl eng_job_api {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 128]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_job_host {
    pub api: *const eng_job_api,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_job_host {}
impl eng_job_host {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 8]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_job_info {
    pub struct_size: u32,
    pub programs: u32,
    pub micro_batch: u32,
    pub windows: u32,
    pub kept: u64,
    pub writes: u64,
    pub flags: u32,
    pub reserved: u32,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_job_info {}
impl eng_job_info {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 40]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_job_site {
    pub struct_size: u32,
    pub block_number: u32,
    pub block: *const c_char,
    pub op: *const c_char,
    pub output: u32,
    pub node: u32,
    pub attrs: *const eng_attr,
    pub n_attrs: u32,
    pub number: u32,
    pub shape: *const eng_desc,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_job_site {}
impl eng_job_site {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 56]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_job_value {
    pub name: *const c_char,
    pub shape: eng_desc,
    pub flags: u32,
    pub reserved: u32,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_job_value {}
impl eng_job_value {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 72]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_kernel {
    pub struct_size: u32,
    pub flags: u32,
    pub op: *const c_char,
    pub workspace: Option<unsafe extern "C" fn(*const eng_call, *mut u64, *mut eng_error) -> eng_status>,
    pub prepare: Option<unsafe extern "C" fn(*mut c_void, *const eng_call, *mut *mut c_void, *mut eng_error) -> eng_status>,
    pub bind: Option<unsafe extern "C" fn(*mut c_void, *const *const DLTensor, u32, *mut c_void, *mut *mut c_void, *mut eng_error) -> eng_status>,
    pub launch: Option<unsafe extern "C" fn(*mut c_void, *const eng_exec, *mut eng_error) -> eng_status>,
    pub drop_record: Option<unsafe extern "C" fn(*mut c_void)>,
    pub drop_state: Option<unsafe extern "C" fn(*mut c_void)>,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_kernel {}
impl eng_kernel {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 64]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_kernels {
    pub struct_size: u32,
    pub count: u32,
    pub kernels: *const *const eng_kernel,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_kernels {}
impl eng_kernels {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 16]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_loss {
    pub struct_size: u32,
    pub minor: u32,
    pub create: Option<unsafe extern "C" fn(*const eng_options, *mut *mut c_void, *mut eng_error) -> eng_status>,
    pub destroy: Option<unsafe extern "C" fn(*mut c_void)>,
    pub trace: Option<unsafe extern "C" fn(*mut c_void, *mut eng_build, eng_id, eng_id, *mut eng_id, *mut eng_error) -> eng_status>,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_loss {}
impl eng_loss {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 32]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_model {
    pub struct_size: u32,
    pub minor: u32,
    pub create: Option<unsafe extern "C" fn(*const eng_options, *mut *mut c_void, *mut eng_error) -> eng_status>,
    pub destroy: Option<unsafe extern "C" fn(*mut c_void)>,
    pub describe: Option<unsafe extern "C" fn(*mut c_void, *mut eng_model_info, *mut eng_error) -> eng_status>,
    pub declare: Option<unsafe extern "C" fn(*mut c_void, *mut eng_build, *mut eng_error) -> eng_status>,
    pub trace: Option<unsafe extern "C" fn(*mut c_void, *mut eng_build, u32, *const eng_id, u32, *const eng_id, u32, *mut eng_id, u32, *mut u32, *mut eng_error) -> eng_status>,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_model {}
impl eng_model {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 48]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_model_info {
    pub struct_size: u32,
    pub reserved: u32,
    pub vocabulary: i64,
    pub attention_width: i64,
    pub layers: i64,
    pub max_length: i64,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_model_info {}
impl eng_model_info {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 40]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_monitor {
    pub struct_size: u32,
    pub reserved: u32,
    pub open: Option<unsafe extern "C" fn(u32, *mut *mut c_void, *mut eng_error) -> eng_status>,
    pub close: Option<unsafe extern "C" fn(*mut c_void)>,
    pub read: Option<unsafe extern "C" fn(*mut c_void, *mut eng_gauges, *mut eng_error) -> eng_status>,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_monitor {}
impl eng_monitor {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 32]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_move {
    pub struct_size: u32,
    pub role: i32,
    pub unit: eng_id,
    pub piece: u32,
    pub src: eng_id,
    pub dst: eng_id,
    pub from: *const eng_view,
    pub to: *const eng_view,
    pub states: *const eng_id,
    pub n_states: u32,
    pub residual: eng_id,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_move {}
impl eng_move {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 56]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_node {
    pub op: *const c_char,
    pub r#in: *const eng_id,
    pub out: *const eng_id,
    pub n_in: u32,
    pub n_out: u32,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_node {}
impl eng_node {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 32]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_observed {
    pub name: *const c_char,
    pub value: f64,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_observed {}
impl eng_observed {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 16]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_observer {
    pub struct_size: u32,
    pub minor: u32,
    pub create: Option<unsafe extern "C" fn(*const eng_options, *mut *mut c_void, *mut eng_error) -> eng_status>,
    pub destroy: Option<unsafe extern "C" fn(*mut c_void)>,
    pub results: Option<unsafe extern "C" fn(*mut c_void, *const eng_site, *mut eng_result, u32, *mut u32, *mut eng_error) -> eng_status>,
    pub observe: Option<unsafe extern "C" fn(*mut c_void, *mut eng_build, *const eng_site, *mut eng_id, u32, *mut eng_error) -> eng_status>,
    pub after_step: Option<unsafe extern "C" fn(*mut c_void, *const eng_step_done, *mut eng_step_reply, *mut eng_error) -> eng_status>,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_observer {}
impl eng_observer {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 48]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_op {
    pub struct_size: u32,
    pub flags: u32,
    pub id: *const c_char,
    pub min_in: u32,
    pub max_in: u32,
    pub infer: Option<unsafe extern "C" fn(*const eng_call, *mut eng_desc, u32, *mut u32, *mut eng_error) -> eng_status>,
    pub flops: Option<unsafe extern "C" fn(*const eng_call) -> f64>,
    pub grad: Option<unsafe extern "C" fn(*mut eng_gradient, *mut eng_error) -> eng_status>,
    pub in_place: *const eng_in_place,
    pub n_in_place: u32,
    pub sums: u32,
    pub step: Option<unsafe extern "C" fn(*mut eng_stepping, *mut eng_error) -> eng_status>,
    pub optional: u32,
    pub counts_as: u32,
    pub rebuild: Option<unsafe extern "C" fn(*const eng_call, *mut u32, u32) -> u32>,
    pub indexes: *const eng_index,
    pub n_indexes: u32,
    pub reserved: u32,
    pub expand: Option<unsafe extern "C" fn(*mut eng_build, *const eng_call, *const eng_id, *mut eng_id, *mut eng_error) -> eng_status>,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_op {}
impl eng_op {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 112]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_ops {
    pub struct_size: u32,
    pub count: u32,
    pub ops: *const *const eng_op,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_ops {}
impl eng_ops {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 16]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_optimizer {
    pub struct_size: u32,
    pub granularity: u32,
    pub create: Option<unsafe extern "C" fn(*const eng_options, *mut *mut c_void, *mut eng_error) -> eng_status>,
    pub destroy: Option<unsafe extern "C" fn(*mut c_void)>,
    pub states: Option<unsafe extern "C" fn(*mut c_void, *mut eng_state_rule, u32, *mut u32, *mut eng_error) -> eng_status>,
    pub scalars: Option<unsafe extern "C" fn(*mut c_void, u64, *mut f32, u32, *mut u32, *mut eng_error) -> eng_status>,
    pub update: Option<unsafe extern "C" fn(*mut c_void, *mut eng_build, *const eng_update, *mut eng_error) -> eng_status>,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_optimizer {}
impl eng_optimizer {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 48]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_options {
    pub struct_size: u32,
    pub minor: u32,
    pub data: *mut c_void,
    pub get_bool: Option<unsafe extern "C" fn(*const eng_options, *const c_char, *mut i32, *mut eng_error) -> eng_status>,
    pub get_int: Option<unsafe extern "C" fn(*const eng_options, *const c_char, *mut i64, *mut eng_error) -> eng_status>,
    pub get_float: Option<unsafe extern "C" fn(*const eng_options, *const c_char, *mut f64, *mut eng_error) -> eng_status>,
    pub get_string: Option<unsafe extern "C" fn(*const eng_options, *const c_char, *mut *const c_char, *mut eng_error) -> eng_status>,
    pub get_count: Option<unsafe extern "C" fn(*const eng_options, *const c_char, *mut u32, *mut eng_error) -> eng_status>,
    pub get_float_at: Option<unsafe extern "C" fn(*const eng_options, *const c_char, u32, *mut f64, *mut eng_error) -> eng_status>,
    pub get_string_at: Option<unsafe extern "C" fn(*const eng_options, *const c_char, u32, *mut *const c_char, *mut eng_error) -> eng_status>,
    pub is_set: Option<unsafe extern "C" fn(*const eng_options, *const c_char) -> i32>,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_options {}
impl eng_options {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 80]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_own_loss {
    pub struct_size: u32,
    pub n: u32,
    pub gradients: *const eng_tensor_in,
    pub loss: f64,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_own_loss {}
impl eng_own_loss {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 24]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_param {
    pub struct_size: u32,
    pub flags: u32,
    pub name: *const c_char,
    pub init_op: *const c_char,
    pub init: *const eng_attr,
    pub dims: *const i64,
    pub n_init: u32,
    pub ndim: u32,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_param {}
impl eng_param {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 48]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_parameter {
    pub struct_size: u32,
    pub flags: u32,
    pub name: *const c_char,
    pub shape: *const eng_desc,
    pub options: *const eng_options,
    pub block: u32,
    pub blocks: u32,
    pub number: u32,
    pub reserved: u32,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_parameter {}
impl eng_parameter {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 48]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_part {
    pub struct_size: u32,
    pub count: u32,
    pub index: u32,
    pub group: eng_id,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_part {}
impl eng_part {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 16]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_plugin {
    pub struct_size: u32,
    pub abi_minor: u32,
    pub draft_id: *const c_char,
    pub describe: Option<unsafe extern "C" fn() -> *const c_char>,
    pub start: Option<unsafe extern "C" fn(*const eng_host, *mut eng_error) -> eng_status>,
    pub stop: Option<unsafe extern "C" fn()>,
    pub get_interface: Option<unsafe extern "C" fn(*const c_char, *const c_char) -> *const c_void>,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_plugin {}
impl eng_plugin {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 48]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_policy_state {
    pub name: *const c_char,
    pub shape: eng_desc,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_policy_state {}
impl eng_policy_state {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 64]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_policy_update {
    pub struct_size: u32,
    pub n_states: u32,
    pub states: *const eng_id,
    pub scalars: eng_id,
    pub reserved: u32,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_policy_update {}
impl eng_policy_update {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 24]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_range {
    pub parameter: *const eng_parameter,
    pub first: u64,
    pub count: u64,
    pub offset: u64,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_range {}
impl eng_range {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 32]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_result {
    pub name: *const c_char,
    pub combine: u32,
    pub flags: u32,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_result {}
impl eng_result {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 16]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_sample {
    pub struct_size: u32,
    pub n_ids: u32,
    pub prompt: *const c_char,
    pub ids: *const i32,
    pub tokens: i64,
    pub temperature: f64,
    pub seed: u64,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_sample {}
impl eng_sample {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 48]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_sampled {
    pub struct_size: u32,
    pub n: u32,
    pub ids: *const i32,
    pub text: *const c_char,
    pub bytes: u64,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_sampled {}
impl eng_sampled {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 32]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_schedule {
    pub struct_size: u32,
    pub reserved: u32,
    pub create: Option<unsafe extern "C" fn(*const eng_options, *const eng_schedule_run, *mut *mut c_void, *mut eng_error) -> eng_status>,
    pub destroy: Option<unsafe extern "C" fn(*mut c_void)>,
    pub rate: Option<unsafe extern "C" fn(*mut c_void, u64, *mut f64, *mut eng_error) -> eng_status>,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_schedule {}
impl eng_schedule {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 32]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_schedule_run {
    pub struct_size: u32,
    pub reserved: u32,
    pub steps: i64,
    pub peak: f64,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_schedule_run {}
impl eng_schedule_run {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 24]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_score_request {
    pub struct_size: u32,
    pub n: u32,
    pub ids: *const i32,
    pub ends: *const u64,
    pub first: *const u64,
    pub logprobs: *mut f32,
    pub greedy: *mut u8,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_score_request {}
impl eng_score_request {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 48]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_session_info {
    pub struct_size: u32,
    pub started: u32,
    pub rank: u32,
    pub ranks: u32,
    pub step: i64,
    pub steps: i64,
    pub rows: i64,
    pub micro_rows: i64,
    pub length: i64,
    pub vocabulary: i64,
    pub parameters: i64,
    pub tensors: u64,
    pub dl_device_type: i32,
    pub dl_device_id: i32,
    pub train_samples: u64,
    pub held_out: u64,
    pub directory: *const c_char,
    pub lr: f64,
    pub max_length: i64,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_session_info {}
impl eng_session_info {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 128]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_session_request {
    pub struct_size: u32,
    pub flags: u32,
    pub n_overrides: u32,
    pub n_plugin_paths: u32,
    pub target: *const c_char,
    pub text: *const c_char,
    pub place: *const c_char,
    pub out: *const c_char,
    pub resume: *const c_char,
    pub command: *const c_char,
    pub overrides: *const *const c_char,
    pub plugin_paths: *const *const c_char,
    pub data: *mut c_void,
    pub note: Option<unsafe extern "C" fn(*mut c_void, *const c_char, u64)>,
    pub activations: *const *const c_char,
    pub n_activations: u32,
    pub n_fields: u32,
    pub fields: *const *const c_char,
    pub lengths: *const i64,
    pub n_lengths: u32,
    pub reserved: u32,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_session_request {}
impl eng_session_request {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 136]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_site {
    pub struct_size: u32,
    pub what: u32,
    pub block: *const c_char,
    pub number: u32,
    pub output: u32,
    pub value: eng_id,
    pub scalars: eng_id,
    pub ranges: *const eng_site_range,
    pub n_ranges: u32,
    pub reserved: u32,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_site {}
impl eng_site {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 48]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_site_range {
    pub name: *const c_char,
    pub shape: *const eng_desc,
    pub first: u64,
    pub count: u64,
    pub offset: u64,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_site_range {}
impl eng_site_range {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 40]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_state_rule {
    pub name: *const c_char,
    pub dtype: i32,
    pub reserved: i32,
    pub shape: Option<unsafe extern "C" fn(*mut c_void, *const eng_parameter, *mut eng_state_shape, *mut eng_error) -> eng_status>,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_state_rule {}
impl eng_state_rule {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 24]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_state_shape {
    pub struct_size: u32,
    pub kind: u32,
    pub block: u32,
    pub whole: u32,
    pub ndim: u32,
    pub reserved: u32,
    pub dims: [i64; 6],
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_state_shape {}
impl eng_state_shape {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 72]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_step_done {
    pub struct_size: u32,
    pub n_observed: u32,
    pub step: i64,
    pub steps: i64,
    pub tokens: u64,
    pub loss: f64,
    pub grad_norm: f64,
    pub learning_rate: f64,
    pub eval_loss: f64,
    pub observed: *const eng_observed,
    pub skipped: u32,
    pub reserved: u32,
    pub host: *mut c_void,
    pub sample: Option<unsafe extern "C" fn(*const eng_step_done, *const eng_sample, *mut eng_sampled, *mut eng_error) -> eng_status>,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_step_done {}
impl eng_step_done {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 96]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_step_reply {
    pub struct_size: u32,
    pub flags: u32,
    pub text: *const c_char,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_step_reply {}
impl eng_step_reply {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 16]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_step_result {
    pub struct_size: u32,
    pub ended: u32,
    pub step: i64,
    pub tokens: u64,
    pub loss: f64,
    pub grad_norm: f64,
    pub lr: f64,
    pub loss_scale: f64,
    pub eval_loss: f64,
    pub seconds: f64,
    pub tokens_per_second: f64,
    pub mfu: f64,
    pub wait_data: f64,
    pub wait_comm: f64,
    pub device_peak_bytes: u64,
    pub host_peak_bytes: u64,
    pub skipped: u32,
    pub saved: u32,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_step_result {}
impl eng_step_result {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 128]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_stepping {
    pub api: *const eng_stepping_api,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_stepping {}
impl eng_stepping {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 8]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_stepping_api {
    pub struct_size: u32,
    pub minor: u32,
    pub status: Option<unsafe extern "C" fn(*mut eng_stepping, *mut eng_error) -> eng_status>,
    pub r#in: Option<unsafe extern "C" fn(*mut eng_stepping, u32) -> eng_id>,
    pub shape: Option<unsafe extern "C" fn(*mut eng_stepping, eng_id, *mut eng_desc, *mut eng_error) -> eng_status>,
    pub attrs: Option<unsafe extern "C" fn(*mut eng_stepping, *mut u32) -> *const eng_attr>,
    pub state: Option<unsafe extern "C" fn(*mut eng_stepping, *const eng_desc) -> eng_id>,
    pub counters: Option<unsafe extern "C" fn(*mut eng_stepping) -> eng_id>,
    pub give: Option<unsafe extern "C" fn(*mut eng_stepping, u32, eng_id)>,
    pub emit: Option<unsafe extern "C" fn(*mut eng_stepping, *const c_char, *const eng_id, u32, *mut eng_id, u32, *const eng_attr, u32, *mut eng_error) -> eng_status>,
    pub has: Option<unsafe extern "C" fn(*mut eng_stepping, u32) -> i32>,
    pub inputs: Option<unsafe extern "C" fn(*mut eng_stepping) -> u32>,
    pub length: Option<unsafe extern "C" fn(*mut eng_stepping) -> i64>,
    pub traced: Option<unsafe extern "C" fn(*mut eng_stepping, u32, *mut eng_desc, *mut eng_error) -> eng_status>,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_stepping_api {}
impl eng_stepping_api {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 104]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_tensor_in {
    pub struct_size: u32,
    pub reserved: u32,
    pub name: *const c_char,
    pub versioned: *mut DLManagedTensorVersioned,
    pub legacy: *mut DLManagedTensor,
    pub borrowed: *const DLTensor,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_tensor_in {}
impl eng_tensor_in {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 40]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_tensor_info {
    pub struct_size: u32,
    pub flags: u32,
    pub name: *const c_char,
    pub role: *const c_char,
    pub desc: eng_desc,
    pub first: u64,
    pub count: u64,
    pub ranges: u64,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_tensor_info {}
impl eng_tensor_info {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 104]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_threads {
    pub struct_size: u32,
    pub reserved: u32,
    pub count: Option<unsafe extern "C" fn(*const eng_threads) -> u32>,
    pub run: Option<unsafe extern "C" fn(*const eng_threads, u32, u64, u64, eng_range_fn, *mut c_void, *mut eng_error) -> eng_status>,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_threads {}
impl eng_threads {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 24]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_tier {
    pub struct_size: u32,
    pub minor: u32,
    pub describe: Option<unsafe extern "C" fn(*const eng_options, *mut eng_tier_info, *mut eng_error) -> eng_status>,
    pub create: Option<unsafe extern "C" fn(*const eng_options, u32, *mut *mut c_void, *mut eng_error) -> eng_status>,
    pub destroy: Option<unsafe extern "C" fn(*mut c_void)>,
    pub alloc: Option<unsafe extern "C" fn(*mut c_void, u64, *mut *mut c_void, *mut eng_error) -> eng_status>,
    pub free: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, u64)>,
    pub host_bytes: Option<unsafe extern "C" fn(*const eng_options, u64, *mut u64, *mut eng_error) -> eng_status>,
    pub read: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, u64, *mut c_void, u64, *mut eng_error) -> eng_status>,
    pub write: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, u64, *const c_void, u64, *mut eng_error) -> eng_status>,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_tier {}
impl eng_tier {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 72]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_tier_info {
    pub struct_size: u32,
    pub flags: u32,
    pub total_bytes: u64,
    pub read_bandwidth: f64,
    pub write_bandwidth: f64,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_tier_info {}
impl eng_tier_info {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 32]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_tokenizer {
    pub struct_size: u32,
    pub minor: u32,
    pub create: Option<unsafe extern "C" fn(*const eng_options, *const c_char, *mut *mut c_void, *mut eng_error) -> eng_status>,
    pub destroy: Option<unsafe extern "C" fn(*mut c_void)>,
    pub describe: Option<unsafe extern "C" fn(*mut c_void, *mut eng_tokenizer_info, *mut eng_error) -> eng_status>,
    pub encode: Option<unsafe extern "C" fn(*mut c_void, *const c_char, u64, u32, *mut i32, u64, *mut u64, *mut eng_error) -> eng_status>,
    pub decode: Option<unsafe extern "C" fn(*mut c_void, *const i32, u64, *mut c_char, u64, *mut u64, *mut eng_error) -> eng_status>,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_tokenizer {}
impl eng_tokenizer {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 48]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_tokenizer_info {
    pub struct_size: u32,
    pub reserved: u32,
    pub vocabulary: i64,
    pub bos: i32,
    pub eos: i32,
    pub eot: i32,
    pub reserved2: i32,
    pub content_hash: [c_char; 40],
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_tokenizer_info {}
impl eng_tokenizer_info {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 72]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_transform {
    pub struct_size: u32,
    pub minor: u32,
    pub create: Option<unsafe extern "C" fn(*const eng_options, *mut *mut c_void, *mut eng_error) -> eng_status>,
    pub destroy: Option<unsafe extern "C" fn(*mut c_void)>,
    pub apply: Option<unsafe extern "C" fn(*mut c_void, *mut eng_build, *const eng_transform_call, *mut eng_id, *mut eng_error) -> eng_status>,
    pub flags: Option<unsafe extern "C" fn(*mut c_void, *const eng_transform_param, *mut u32, *mut eng_error) -> eng_status>,
    pub states: Option<unsafe extern "C" fn(*mut c_void, *const eng_transform_call, *mut eng_policy_state, u32, *mut u32, *mut eng_error) -> eng_status>,
    pub update: Option<unsafe extern "C" fn(*mut c_void, *mut eng_build, *const eng_policy_update, *mut eng_error) -> eng_status>,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_transform {}
impl eng_transform {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 56]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_transform_call {
    pub struct_size: u32,
    pub number: u32,
    pub op: *const c_char,
    pub name: *const c_char,
    pub block: u32,
    pub blocks: u32,
    pub r#in: *const eng_id,
    pub out: *const eng_desc,
    pub attrs: *const eng_attr,
    pub params: *const eng_transform_param,
    pub n_in: u32,
    pub n_out: u32,
    pub n_attrs: u32,
    pub n_params: u32,
    pub states: *const eng_id,
    pub n_states: u32,
    pub reserved: u32,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_transform_call {}
impl eng_transform_call {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 96]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_transform_param {
    pub name: *const c_char,
    pub added_by: *const c_char,
    pub shape: *const eng_desc,
    pub flags: u32,
    pub input: u32,
    pub targeted: u32,
    pub reserved: u32,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_transform_param {}
impl eng_transform_param {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 40]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_unit {
    pub struct_size: u32,
    pub id: eng_id,
    pub block: u32,
    pub flags: u32,
    pub count: u64,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_unit {}
impl eng_unit {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 24]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_update {
    pub struct_size: u32,
    pub flags: u32,
    pub master: eng_id,
    pub grad: eng_id,
    pub weight_out: eng_id,
    pub scalars: eng_id,
    pub states: *const eng_id,
    pub n_states: u32,
    pub stage: u32,
    pub ranges: *const eng_range,
    pub n_ranges: u32,
    pub counters: eng_id,
    pub seed: i64,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_update {}
impl eng_update {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 64]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_view {
    pub struct_size: u32,
    pub dtype: i32,
    pub part: eng_id,
    pub reserved: u32,
    pub count: u64,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_view {}
impl eng_view {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 24]) };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct eng_world {
    pub struct_size: u32,
    pub rank: u32,
    pub size: u32,
    pub local_rank: u32,
    pub local_size: u32,
    pub announced: u32,
}
// Which thread may use a table: its header says it.
unsafe impl Sync for eng_world {}
impl eng_world {
    /// All bytes zero. Compiles only if the size is that of C.
    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; 24]) };
}

pub type DLDataTypeCode = i32;
pub const kDLInt: DLDataTypeCode = 0;
pub const kDLUInt: DLDataTypeCode = 1;
pub const kDLFloat: DLDataTypeCode = 2;
pub const kDLOpaqueHandle: DLDataTypeCode = 3;
pub const kDLBfloat: DLDataTypeCode = 4;
pub const kDLComplex: DLDataTypeCode = 5;
pub const kDLBool: DLDataTypeCode = 6;
pub const kDLFloat8_e3m4: DLDataTypeCode = 7;
pub const kDLFloat8_e4m3: DLDataTypeCode = 8;
pub const kDLFloat8_e4m3b11fnuz: DLDataTypeCode = 9;
pub const kDLFloat8_e4m3fn: DLDataTypeCode = 10;
pub const kDLFloat8_e4m3fnuz: DLDataTypeCode = 11;
pub const kDLFloat8_e5m2: DLDataTypeCode = 12;
pub const kDLFloat8_e5m2fnuz: DLDataTypeCode = 13;
pub const kDLFloat8_e8m0fnu: DLDataTypeCode = 14;
pub const kDLFloat6_e2m3fn: DLDataTypeCode = 15;
pub const kDLFloat6_e3m2fn: DLDataTypeCode = 16;
pub const kDLFloat4_e2m1fn: DLDataTypeCode = 17;

pub type DLDeviceType = i32;
pub const kDLCPU: DLDeviceType = 1;
pub const kDLCUDA: DLDeviceType = 2;
pub const kDLCUDAHost: DLDeviceType = 3;
pub const kDLOpenCL: DLDeviceType = 4;
pub const kDLVulkan: DLDeviceType = 7;
pub const kDLMetal: DLDeviceType = 8;
pub const kDLVPI: DLDeviceType = 9;
pub const kDLROCM: DLDeviceType = 10;
pub const kDLROCMHost: DLDeviceType = 11;
pub const kDLExtDev: DLDeviceType = 12;
pub const kDLCUDAManaged: DLDeviceType = 13;
pub const kDLOneAPI: DLDeviceType = 14;
pub const kDLWebGPU: DLDeviceType = 15;
pub const kDLHexagon: DLDeviceType = 16;
pub const kDLMAIA: DLDeviceType = 17;
pub const kDLTrn: DLDeviceType = 18;
pub type eng_id = u32;
pub type eng_plugin_query_fn = Option<unsafe extern "C" fn(u32) -> *const eng_plugin>;
pub type eng_range_fn = Option<unsafe extern "C" fn(*mut c_void, u64, u64, *mut eng_error) -> eng_status>;
#[repr(C)]
pub struct eng_session {
    _opaque: [u8; 0],
}
pub type eng_status = i32;
pub const DLPACK_FLAG_BITMASK_IS_COPIED: u64 = 2;
pub const DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED: u64 = 4;
pub const DLPACK_FLAG_BITMASK_READ_ONLY: u64 = 1;
pub const DLPACK_MAJOR_VERSION: i32 = 1;
pub const ENG_ABI_MAJOR: i32 = 1;
pub const ENG_ACT_GELU: i32 = 2;
pub const ENG_ACT_GELU_TANH: i32 = 3;
pub const ENG_ACT_RELU: i32 = 4;
pub const ENG_ACT_SILU: i32 = 1;
pub const ENG_AXIS_CASTS: u32 = 1;
pub const ENG_AXIS_LOSSY: u32 = 2;
pub const ENG_AXIS_RESIDUAL: u32 = 4;
pub const ENG_BF16: i32 = 3;
pub const ENG_CHAT_ANSWER: u32 = 1;
pub const ENG_CHAT_KIND: &str = "eng.chat/1";
pub const ENG_COMBINE_LAST: i32 = 3;
pub const ENG_COMBINE_MAX: i32 = 2;
pub const ENG_COMBINE_SUM: i32 = 1;
pub const ENG_COMM_ANY_LAUNCHER: u32 = 2;
pub const ENG_COMM_DEVICE_MEMORY: u32 = 1;
pub const ENG_COMM_KIND: &str = "eng.comm/1";
pub const ENG_C_COUNT: i32 = 8;
pub const ENG_C_MICRO: i32 = 2;
pub const ENG_C_POSITION: i32 = 3;
pub const ENG_C_RANK: i32 = 4;
pub const ENG_C_STEP: i32 = 0;
pub const ENG_C_UPDATES: i32 = 1;
pub const ENG_C_WORLD: i32 = 5;
pub const ENG_DATA_KIND: &str = "eng.data/1";
pub const ENG_DATA_LOSS: i32 = 15;
pub const ENG_DEVICE_ASYNC: u32 = 2;
pub const ENG_DEVICE_GRAPHS: u32 = 4;
pub const ENG_DEVICE_HOST_MEMORY: u32 = 1;
pub const ENG_DEVICE_KIND: &str = "eng.device/1";
pub const ENG_DOCUMENTS_KIND: &str = "eng.documents/1";
pub const ENG_EMBED_KIND: &str = "eng.embed/1";
pub const ENG_ENCODE_SPECIAL: u32 = 1;
pub const ENG_ENDED_DONE: u32 = 1;
pub const ENG_ENDED_STOPPED: u32 = 2;
pub const ENG_EXEC_SYNC: u32 = 1;
pub const ENG_F16: i32 = 4;
pub const ENG_F32: i32 = 1;
pub const ENG_F64: i32 = 2;
pub const ENG_FIELD_LABELS: &str = "labels";
pub const ENG_FIELD_LOSS_WEIGHTS: &str = "loss_weights";
pub const ENG_FIELD_POSITIONS: &str = "positions";
pub const ENG_FIELD_SEGMENTS: &str = "segments";
pub const ENG_FIELD_TOKENS: &str = "tokens";
pub const ENG_FORMATS_EXTENSION: &str = "eng.formats/1";
pub const ENG_FP8_E4M3: i32 = 1;
pub const ENG_FP8_E5M2: i32 = 2;
pub const ENG_I32: i32 = 5;
pub const ENG_I64: i32 = 6;
pub const ENG_IGNORE_LABEL: i32 = -100;
pub const ENG_INDEX_LABELS: u32 = 2;
pub const ENG_INDEX_TOKENS: u32 = 1;
pub const ENG_INSPECT_VERIFY: u32 = 1;
pub const ENG_INTERNAL: i32 = 13;
pub const ENG_INVALID: i32 = 3;
pub const ENG_JOB_GRADIENT: i32 = 2;
pub const ENG_JOB_HELD: i32 = 2;
pub const ENG_JOB_KEPT: u32 = 1;
pub const ENG_JOB_KIND: &str = "eng.job/1";
pub const ENG_JOB_NO_GRADIENTS: u32 = 2;
pub const ENG_JOB_PARAMETER: i32 = 1;
pub const ENG_JOB_POSITIONS: u32 = 1;
pub const ENG_JOB_SITE: i32 = 5;
pub const ENG_JOB_STATE: i32 = 3;
pub const ENG_JOB_TRAIN: i32 = 1;
pub const ENG_JOB_VALUE: i32 = 4;
pub const ENG_KERNELS_KIND: &str = "eng.kernels/1";
pub const ENG_KERNEL_EXACT: u32 = 1;
pub const ENG_KERNEL_HOST: u32 = 2;
pub const ENG_LOG_DEBUG: i32 = 1;
pub const ENG_LOG_ERROR: i32 = 4;
pub const ENG_LOG_INFO: i32 = 2;
pub const ENG_LOG_WARNING: i32 = 3;
pub const ENG_LOSS_KIND: &str = "eng.loss/1";
pub const ENG_MAX_DIMS: i32 = 6;
pub const ENG_MAX_FIELDS: i32 = 64;
pub const ENG_MAX_PARTS: i32 = 16;
pub const ENG_MEMORY_DEVICE: i32 = 0;
pub const ENG_MEMORY_HOST: i32 = 2;
pub const ENG_MEMORY_PINNED: i32 = 1;
pub const ENG_MODEL_KIND: &str = "eng.model/1";
pub const ENG_MONITOR_KIND: &str = "eng.monitor/1";
pub const ENG_NOT_FOUND: i32 = 5;
pub const ENG_NO_MEMORY: i32 = 8;
pub const ENG_OBSERVER_KIND: &str = "eng.observer/1";
pub const ENG_OK: i32 = 0;
pub const ENG_OPS_KIND: &str = "eng.ops/1";
pub const ENG_OPTIMIZER_KIND: &str = "eng.optimizer/1";
pub const ENG_OP_ACTIVATION: &str = "eng.activation/1";
pub const ENG_OP_ACTIVATION_GRAD: &str = "eng.activation_grad/1";
pub const ENG_OP_ADAMW: &str = "eng.adamw/1";
pub const ENG_OP_ADD: &str = "eng.add/1";
pub const ENG_OP_ALL_GATHER: &str = "eng.all_gather/1";
pub const ENG_OP_ALL_REDUCE: &str = "eng.all_reduce/1";
pub const ENG_OP_ALL_TO_ALL: &str = "eng.all_to_all/1";
pub const ENG_OP_ATTENTION: &str = "eng.attention/1";
pub const ENG_OP_ATTENTION_GRAD: &str = "eng.attention_grad/1";
pub const ENG_OP_ATTENTION_STEP: &str = "eng.attention_step/1";
pub const ENG_OP_ATTENTION_WINDOW: &str = "eng.attention_window/1";
pub const ENG_OP_ATTENTION_WINDOW_GRAD: &str = "eng.attention_window_grad/1";
pub const ENG_OP_ATTENTION_WINDOW_STEP: &str = "eng.attention_window_step/1";
pub const ENG_OP_BEGIN: &str = "eng.begin/1";
pub const ENG_OP_BROADCAST: &str = "eng.broadcast/1";
pub const ENG_OP_BY_POSITION: u32 = 2;
pub const ENG_OP_CAPPED_CROSS_ENTROPY: &str = "eng.capped_cross_entropy/1";
pub const ENG_OP_CAPPED_CROSS_ENTROPY_GRAD: &str = "eng.capped_cross_entropy_grad/1";
pub const ENG_OP_CAST: &str = "eng.cast/1";
pub const ENG_OP_CHEAP: u32 = 1;
pub const ENG_OP_CONCAT: &str = "eng.concat/1";
pub const ENG_OP_COPY: &str = "eng.copy/1";
pub const ENG_OP_CROSS_ENTROPY: &str = "eng.cross_entropy/1";
pub const ENG_OP_CROSS_ENTROPY_GRAD: &str = "eng.cross_entropy_grad/1";
pub const ENG_OP_DROPOUT: &str = "eng.dropout/1";
pub const ENG_OP_EMBEDDING: &str = "eng.embedding/1";
pub const ENG_OP_EMBEDDING_GRAD: &str = "eng.embedding_grad/1";
pub const ENG_OP_EMBEDDING_PART: &str = "eng.embedding_part/1";
pub const ENG_OP_EMBEDDING_PART_GRAD: &str = "eng.embedding_part_grad/1";
pub const ENG_OP_FINISH: &str = "eng.finish/1";
pub const ENG_OP_FOLD: &str = "eng.fold/1";
pub const ENG_OP_FP8_COLLECT: &str = "eng.fp8.collect/1";
pub const ENG_OP_FP8_LARGEST: &str = "eng.fp8.largest/1";
pub const ENG_OP_FP8_LINEAR: &str = "eng.fp8.linear/1";
pub const ENG_OP_FP8_MATMUL: &str = "eng.fp8.matmul/1";
pub const ENG_OP_FP8_ROLL: &str = "eng.fp8.roll/1";
pub const ENG_OP_FUSED_GRAD: u32 = 4;
pub const ENG_OP_GATED: &str = "eng.gated/1";
pub const ENG_OP_GATED_GRAD: &str = "eng.gated_grad/1";
pub const ENG_OP_GATHER_CHANNELS: &str = "eng.gather_channels/1";
pub const ENG_OP_GATHER_POSITIONS: &str = "eng.gather_positions/1";
pub const ENG_OP_GET_ROW: &str = "eng.get_row/1";
pub const ENG_OP_GROUP_CROSS_ENTROPY: &str = "eng.group_cross_entropy/1";
pub const ENG_OP_GROUP_EMBEDDING: &str = "eng.group_embedding/1";
pub const ENG_OP_GROUP_SUM: &str = "eng.group_sum/1";
pub const ENG_OP_INIT_CONSTANT: &str = "eng.init_constant/1";
pub const ENG_OP_INIT_NORMAL: &str = "eng.init_normal/1";
pub const ENG_OP_INIT_UNIFORM: &str = "eng.init_uniform/1";
pub const ENG_OP_LABEL_LOGPROB: &str = "eng.label_logprob/1";
pub const ENG_OP_LABEL_LOGPROB_GRAD: &str = "eng.label_logprob_grad/1";
pub const ENG_OP_LAYER_NORM: &str = "eng.layer_norm/1";
pub const ENG_OP_LAYER_NORM_GRAD: &str = "eng.layer_norm_grad/1";
pub const ENG_OP_LINEAR: &str = "eng.linear/1";
pub const ENG_OP_LINEAR_RELU: &str = "eng.linear_relu/1";
pub const ENG_OP_LOSS_SCALE: &str = "eng.loss_scale/1";
pub const ENG_OP_LOSS_SEED: &str = "eng.loss_seed/1";
pub const ENG_OP_MATMUL: &str = "eng.matmul/1";
pub const ENG_OP_MATMUL_RELU_GRAD: &str = "eng.matmul_relu_grad/1";
pub const ENG_OP_OUTPUT: u32 = 65536;
pub const ENG_OP_OWN_POSITIONS: &str = "eng.own_positions/1";
pub const ENG_OP_PACK: &str = "eng.pack/1";
pub const ENG_OP_POSITIONS: &str = "eng.positions/1";
pub const ENG_OP_POSITIONS_GRAD: &str = "eng.positions_grad/1";
pub const ENG_OP_PUT_ROW: &str = "eng.put_row/1";
pub const ENG_OP_RANDOM: u32 = 8;
pub const ENG_OP_REDUCE_SCATTER: &str = "eng.reduce_scatter/1";
pub const ENG_OP_RESHAPE: &str = "eng.reshape/1";
pub const ENG_OP_RMS_NORM: &str = "eng.rms_norm/1";
pub const ENG_OP_RMS_NORM_GRAD: &str = "eng.rms_norm_grad/1";
pub const ENG_OP_ROPE: &str = "eng.rope/1";
pub const ENG_OP_ROPE_STEP: &str = "eng.rope_step/1";
pub const ENG_OP_SCALE: &str = "eng.scale/1";
pub const ENG_OP_SCALER: &str = "eng.scaler/1";
pub const ENG_OP_SGD: &str = "eng.sgd/1";
pub const ENG_OP_SOFTCAP: &str = "eng.softcap/1";
pub const ENG_OP_SPLIT: &str = "eng.split/1";
pub const ENG_OP_SUM_ROWS: &str = "eng.sum_rows/1";
pub const ENG_OP_SUM_SQUARES: &str = "eng.sum_squares/1";
pub const ENG_OP_SUM_TO_CHANNELS: &str = "eng.sum_to_channels/1";
pub const ENG_OP_SUM_TO_POSITIONS: &str = "eng.sum_to_positions/1";
pub const ENG_OP_TO_CHANNELS: &str = "eng.to_channels/1";
pub const ENG_OP_TO_POSITIONS: &str = "eng.to_positions/1";
pub const ENG_OP_TRANSPOSE: &str = "eng.transpose/1";
pub const ENG_OP_UNPACK: &str = "eng.unpack/1";
pub const ENG_OP_VOCABULARY_GRAD: &str = "eng.vocabulary_grad/1";
pub const ENG_OP_VOCABULARY_LOSS: &str = "eng.vocabulary_loss/1";
pub const ENG_OP_VOCABULARY_SCORES: &str = "eng.vocabulary_scores/1";
pub const ENG_OUT_OF_RANGE: i32 = 11;
pub const ENG_PACKED_BLOCK: i32 = 64;
pub const ENG_PACKED_CHUNK: i32 = 4096;
pub const ENG_PACKED_E4M3: i32 = 65;
pub const ENG_PACKED_INT8: i32 = 64;
pub const ENG_PACKED_NF4: i32 = 66;
pub const ENG_PACKED_NF4_DOUBLE: i32 = 67;
pub const ENG_PADDING_SEGMENT: i32 = -1;
pub const ENG_PARAM_FP32: u32 = 2;
pub const ENG_PARAM_FROZEN: u32 = 4;
pub const ENG_PARAM_NOT_EXPORTED: u32 = 16;
pub const ENG_PARAM_NO_DECAY: u32 = 1;
pub const ENG_PARAM_OPTIONAL: u32 = 8;
pub const ENG_PER_LABEL: u32 = 0;
pub const ENG_PER_PAIR: u32 = 2;
pub const ENG_PER_SEQUENCE: u32 = 1;
pub const ENG_PRECISION_KIND: &str = "eng.precision/1";
pub const ENG_PRECONDITION: i32 = 9;
pub const ENG_RESULT_SQRT: u32 = 1;
pub const ENG_ROLE_ACT: i32 = 6;
pub const ENG_ROLE_GRAD: i32 = 5;
pub const ENG_ROLE_MASTER: i32 = 2;
pub const ENG_ROLE_PARTIAL: i32 = 4;
pub const ENG_ROLE_RESIDUAL: i32 = 7;
pub const ENG_ROLE_STATE: i32 = 3;
pub const ENG_ROLE_STREAM: i32 = 8;
pub const ENG_ROLE_WEIGHT: i32 = 1;
pub const ENG_SCALER_COUNT: i32 = 8;
pub const ENG_SCHEDULE_KIND: &str = "eng.schedule/1";
pub const ENG_SESSION_ALONE: u32 = 1;
pub const ENG_SESSION_FORWARD: u32 = 16;
pub const ENG_SESSION_GRADIENTS: u32 = 4;
pub const ENG_SESSION_LOGITS: u32 = 8;
pub const ENG_SESSION_NO_FILES: u32 = 2;
pub const ENG_SITE_ACTIVATION: i32 = 1;
pub const ENG_SITE_GRADIENT: i32 = 2;
pub const ENG_SITE_PARAMETER: i32 = 4;
pub const ENG_SITE_SCALARS: i32 = 5;
pub const ENG_SITE_UPDATE: i32 = 3;
pub const ENG_SPLIT_TRAIN: i32 = 0;
pub const ENG_SPLIT_VALIDATION: i32 = 1;
pub const ENG_STAGE_AFTER: i32 = 3;
pub const ENG_STAGE_BEFORE: i32 = 1;
pub const ENG_STAGE_UPDATE: i32 = 0;
pub const ENG_STAGE_WHOLE: i32 = 2;
pub const ENG_STATE_BLOCKS: i32 = 2;
pub const ENG_STATE_ELEMENTS: i32 = 1;
pub const ENG_STATE_NONE: i32 = 4;
pub const ENG_STATE_SHAPED: i32 = 3;
pub const ENG_STEP_SAVE: u32 = 1;
pub const ENG_STEP_STOP: u32 = 2;
pub const ENG_S_CLIP: i32 = 2;
pub const ENG_S_COUNT: i32 = 32;
pub const ENG_S_INV_TOKENS: i32 = 0;
pub const ENG_S_LOSS_SCALE: i32 = 1;
pub const ENG_S_LR: i32 = 8;
pub const ENG_S_MAY_SKIP: i32 = 5;
pub const ENG_S_NORM: i32 = 3;
pub const ENG_S_OK: i32 = 4;
pub const ENG_TAKE_COPY: u32 = 2;
pub const ENG_TAKE_PART: u32 = 4;
pub const ENG_TAKE_WRITABLE: u32 = 1;
pub const ENG_TENSOR_ACTIVATION: &str = "activation";
pub const ENG_TENSOR_ADDRESSABLE: u32 = 2;
pub const ENG_TENSOR_GRADIENT: &str = "gradient";
pub const ENG_TENSOR_PARAMETER: &str = "parameter";
pub const ENG_TENSOR_POLICY: &str = "policy";
pub const ENG_TENSOR_WHOLE: u32 = 1;
pub const ENG_TEXT_MORE: u32 = 1;
pub const ENG_TEXT_SPECIAL: u32 = 1;
pub const ENG_THREADS_EXTENSION: &str = "eng.threads/1";
pub const ENG_TIER_HOST_MEMORY: u32 = 1;
pub const ENG_TIER_KIND: &str = "eng.tier/1";
pub const ENG_TOKENIZER_KIND: &str = "eng.tokenizer/1";
pub const ENG_TRANSFORM_KIND: &str = "eng.transform/1";
pub const ENG_U8: i32 = 7;
pub const ENG_UNAVAILABLE: i32 = 14;
pub const ENG_UNSUPPORTED: i32 = 12;
pub const ENG_WORLD_LOCAL: u32 = 2;
pub const ENG_WORLD_RANKS: u32 = 1;
pub const ENG_WRITE_ROUND: u32 = 1;
pub const ENG_ZERO_KIND: &str = "eng.zero/1";

/// The id by which a description names a kind that is not frozen: engine/plugin.h, "Drafts".
#[macro_export]
macro_rules! eng_draft {
    (chat) => { "eng.chat/1-draft1" };
    (comm) => { "eng.comm/1-draft5" };
    (device) => { "eng.device/1-draft5" };
    (documents) => { "eng.documents/1-draft2" };
    (job) => { "eng.job/1-draft3" };
    (kernels) => { "eng.kernels/1-draft5" };
    (loss) => { "eng.loss/1-draft1" };
    (model) => { "eng.model/1-draft3" };
    (monitor) => { "eng.monitor/1-draft1" };
    (observer) => { "eng.observer/1-draft3" };
    (ops) => { "eng.ops/1-draft7" };
    (optimizer) => { "eng.optimizer/1-draft6" };
    (precision) => { "eng.precision/1-draft10" };
    (zero) => { "eng.zero/1-draft9" };
    (tier) => { "eng.tier/1-draft2" };
    (transform) => { "eng.transform/1-draft2" };
}

#[cfg(test)]
mod layout {
    use super::*;
    macro_rules! check {
        ($of:ident, $field:ident, $offset:expr, $size:expr) => {{
            let whole = core::mem::MaybeUninit::<$of>::zeroed();
            let at = unsafe { core::ptr::addr_of!((*whole.as_ptr()).$field) };
            fn size<T>(_: *const T) -> usize { core::mem::size_of::<T>() }
            assert_eq!((at as usize - whole.as_ptr() as usize, size(at)), ($offset, $size),
                       "{}.{}", stringify!($of), stringify!($field));
        }};
    }
    #[test]
    fn fields_lie_where_c_has_them() {
        check!(DLDataType, code, 0, 1);
        check!(DLDataType, bits, 1, 1);
        check!(DLDataType, lanes, 2, 2);
        check!(DLDevice, device_type, 0, 4);
        check!(DLDevice, device_id, 4, 4);
        check!(DLManagedTensor, dl_tensor, 0, 48);
        check!(DLManagedTensor, manager_ctx, 48, 8);
        check!(DLManagedTensor, deleter, 56, 8);
        check!(DLManagedTensorVersioned, version, 0, 8);
        check!(DLManagedTensorVersioned, manager_ctx, 8, 8);
        check!(DLManagedTensorVersioned, deleter, 16, 8);
        check!(DLManagedTensorVersioned, flags, 24, 8);
        check!(DLManagedTensorVersioned, dl_tensor, 32, 48);
        check!(DLPackVersion, major, 0, 4);
        check!(DLPackVersion, minor, 4, 4);
        check!(DLTensor, data, 0, 8);
        check!(DLTensor, device, 8, 8);
        check!(DLTensor, ndim, 16, 4);
        check!(DLTensor, dtype, 20, 4);
        check!(DLTensor, shape, 24, 8);
        check!(DLTensor, strides, 32, 8);
        check!(DLTensor, byte_offset, 40, 8);
        check!(eng_attr, key, 0, 8);
        check!(eng_attr, i, 8, 8);
        check!(eng_attr, f, 16, 8);
        check!(eng_axis, struct_size, 0, 4);
        check!(eng_axis, minor, 4, 4);
        check!(eng_axis, create, 8, 8);
        check!(eng_axis, destroy, 16, 8);
        check!(eng_axis, place, 24, 8);
        check!(eng_axis, r#move, 32, 8);
        check!(eng_axis, states, 40, 8);
        check!(eng_axis, update, 48, 8);
        check!(eng_axis, flags, 56, 4);
        check!(eng_axis, reserved, 60, 4);
        check!(eng_axis, begin, 64, 8);
        check!(eng_axis, flags_of, 72, 8);
        check!(eng_build, api, 0, 8);
        check!(eng_build_api, struct_size, 0, 4);
        check!(eng_build_api, minor, 4, 4);
        check!(eng_build_api, status, 8, 8);
        check!(eng_build_api, shape, 16, 8);
        check!(eng_build_api, param, 24, 8);
        check!(eng_build_api, block, 32, 8);
        check!(eng_build_api, batch, 40, 8);
        check!(eng_build_api, constant, 48, 8);
        check!(eng_build_api, emit, 56, 8);
        check!(eng_build_api, world, 64, 8);
        check!(eng_build_api, group, 72, 8);
        check!(eng_build_api, part, 80, 8);
        check!(eng_build_api, slice, 88, 8);
        check!(eng_build_api, term, 96, 8);
        check!(eng_build_api, offers, 104, 8);
        check!(eng_build_api, loss, 112, 8);
        check!(eng_build_api, term_per, 120, 8);
        check!(eng_call, struct_size, 0, 4);
        check!(eng_call, parallel, 4, 4);
        check!(eng_call, n_in, 8, 4);
        check!(eng_call, n_out, 12, 4);
        check!(eng_call, r#in, 16, 8);
        check!(eng_call, out, 24, 8);
        check!(eng_call, attrs, 32, 8);
        check!(eng_call, n_attrs, 40, 4);
        check!(eng_call, reserved, 44, 4);
        check!(eng_call, device, 48, 8);
        check!(eng_chat, struct_size, 0, 4);
        check!(eng_chat, minor, 4, 4);
        check!(eng_chat, create, 8, 8);
        check!(eng_chat, destroy, 16, 8);
        check!(eng_chat, render, 24, 8);
        check!(eng_chat, ends, 32, 8);
        check!(eng_chat_request, struct_size, 0, 4);
        check!(eng_chat_request, reserved, 4, 4);
        check!(eng_chat_request, tokenizer, 8, 8);
        check!(eng_chat_request, folder, 16, 8);
        check!(eng_chat_request, template_file, 24, 8);
        check!(eng_chat_request, date, 32, 8);
        check!(eng_comm, struct_size, 0, 4);
        check!(eng_comm, flags, 4, 4);
        check!(eng_comm, create, 8, 8);
        check!(eng_comm, destroy, 16, 8);
        check!(eng_comm, group, 24, 8);
        check!(eng_comm, exchange, 32, 8);
        check!(eng_comm, poll, 40, 8);
        check!(eng_comm, abort, 48, 8);
        check!(eng_comm, overhead_bytes, 56, 8);
        check!(eng_data, struct_size, 0, 4);
        check!(eng_data, minor, 4, 4);
        check!(eng_data, create, 8, 8);
        check!(eng_data, destroy, 16, 8);
        check!(eng_data, describe, 24, 8);
        check!(eng_data, read, 32, 8);
        check!(eng_data, build, 40, 8);
        check!(eng_data, inspect, 48, 8);
        check!(eng_data, fields, 56, 8);
        check!(eng_data_built, struct_size, 0, 4);
        check!(eng_data_built, reused, 4, 4);
        check!(eng_data_built, tokens, 8, 8);
        check!(eng_data_built, documents, 16, 8);
        check!(eng_data_built, path, 24, 4096);
        check!(eng_data_info, struct_size, 0, 4);
        check!(eng_data_info, files, 4, 4);
        check!(eng_data_info, tokens, 8, 8);
        check!(eng_data_info, train_samples, 16, 8);
        check!(eng_data_info, validation_samples, 24, 8);
        check!(eng_data_info, vocabulary, 32, 8);
        check!(eng_data_info, content_hash, 40, 40);
        check!(eng_data_info, host_bytes, 80, 8);
        check!(eng_data_info, documents, 88, 8);
        check!(eng_data_info, padding, 96, 8);
        check!(eng_data_request, struct_size, 0, 4);
        check!(eng_data_request, n_fields, 4, 4);
        check!(eng_data_request, seed, 8, 8);
        check!(eng_data_request, sequence_length, 16, 8);
        check!(eng_data_request, vocabulary, 24, 8);
        check!(eng_data_request, base_dir, 32, 8);
        check!(eng_data_request, fields, 40, 8);
        check!(eng_data_watch, struct_size, 0, 4);
        check!(eng_data_watch, threads, 4, 4);
        check!(eng_data_watch, data, 8, 8);
        check!(eng_data_watch, report, 16, 8);
        check!(eng_desc, dtype, 0, 4);
        check!(eng_desc, ndim, 4, 4);
        check!(eng_desc, dims, 8, 48);
        check!(eng_device, struct_size, 0, 4);
        check!(eng_device, minor, 4, 4);
        check!(eng_device, describe, 8, 8);
        check!(eng_device, create, 16, 8);
        check!(eng_device, destroy, 24, 8);
        check!(eng_device, alloc, 32, 8);
        check!(eng_device, free, 40, 8);
        check!(eng_device, upload, 48, 8);
        check!(eng_device, download, 56, 8);
        check!(eng_device, sync, 64, 8);
        check!(eng_device, queue_create, 72, 8);
        check!(eng_device, queue_destroy, 80, 8);
        check!(eng_device, event_create, 88, 8);
        check!(eng_device, event_destroy, 96, 8);
        check!(eng_device, event_record, 104, 8);
        check!(eng_device, event_wait, 112, 8);
        check!(eng_device, event_sync, 120, 8);
        check!(eng_device, event_elapsed, 128, 8);
        check!(eng_device, capture_begin, 136, 8);
        check!(eng_device, capture_end, 144, 8);
        check!(eng_device, graph_launch, 152, 8);
        check!(eng_device, graph_destroy, 160, 8);
        check!(eng_device, pin, 168, 8);
        check!(eng_device, unpin, 176, 8);
        check!(eng_device, inspect, 184, 8);
        check!(eng_device, choices, 192, 8);
        check!(eng_device, choose, 200, 8);
        check!(eng_device_info, struct_size, 0, 4);
        check!(eng_device_info, flags, 4, 4);
        check!(eng_device_info, parallel, 8, 4);
        check!(eng_device_info, parallel_beside, 12, 4);
        check!(eng_device_info, dl_device_type, 16, 4);
        check!(eng_device_info, dl_device_id, 20, 4);
        check!(eng_device_info, arch, 24, 4);
        check!(eng_device_info, reserved, 28, 4);
        check!(eng_device_info, total_bytes, 32, 8);
        check!(eng_device_info, overhead_bytes, 40, 8);
        check!(eng_device_info, device_overhead_bytes, 48, 8);
        check!(eng_device_info, peak_f32, 56, 8);
        check!(eng_device_info, peak_bf16, 64, 8);
        check!(eng_device_info, memory_bandwidth, 72, 8);
        check!(eng_device_info, to_device, 80, 8);
        check!(eng_device_info, to_host, 88, 8);
        check!(eng_device_info, name, 96, 64);
        check!(eng_device_info, settings, 160, 32);
        check!(eng_documents, struct_size, 0, 4);
        check!(eng_documents, minor, 4, 4);
        check!(eng_documents, create, 8, 8);
        check!(eng_documents, destroy, 16, 8);
        check!(eng_documents, read, 24, 8);
        check!(eng_documents_in, struct_size, 0, 4);
        check!(eng_documents_in, reserved, 4, 4);
        check!(eng_documents_in, data, 8, 8);
        check!(eng_documents_in, path, 16, 8);
        check!(eng_documents_in, size, 24, 8);
        check!(eng_documents_in, read, 32, 8);
        check!(eng_documents_in, seek, 40, 8);
        check!(eng_documents_in, first_part, 48, 8);
        check!(eng_documents_out, struct_size, 0, 4);
        check!(eng_documents_out, reserved, 4, 4);
        check!(eng_documents_out, data, 8, 8);
        check!(eng_documents_out, put, 16, 8);
        check!(eng_documents_out, part, 24, 8);
        check!(eng_documents_seen, struct_size, 0, 4);
        check!(eng_documents_seen, reserved, 4, 4);
        check!(eng_documents_seen, left_out, 8, 8);
        check!(eng_documents_seen, wrong, 16, 8);
        check!(eng_error, struct_size, 0, 4);
        check!(eng_error, code, 4, 4);
        check!(eng_error, data, 8, 8);
        check!(eng_error, set, 16, 8);
        check!(eng_eval_result, struct_size, 0, 4);
        check!(eng_eval_result, reserved, 4, 4);
        check!(eng_eval_result, loss, 8, 8);
        check!(eng_eval_result, tokens, 16, 8);
        check!(eng_eval_result, seconds, 24, 8);
        check!(eng_exec, struct_size, 0, 4);
        check!(eng_exec, flags, 4, 4);
        check!(eng_exec, queue, 8, 8);
        check!(eng_field, name, 0, 8);
        check!(eng_field, dtype, 8, 4);
        check!(eng_field, reserved, 12, 4);
        check!(eng_format, struct_size, 0, 4);
        check!(eng_format, reserved, 4, 4);
        check!(eng_format, name, 8, 8);
        check!(eng_format, table, 16, 8);
        check!(eng_format, options, 24, 8);
        check!(eng_format, identity, 32, 8);
        check!(eng_formats, struct_size, 0, 4);
        check!(eng_formats, reserved, 4, 4);
        check!(eng_formats, find, 8, 8);
        check!(eng_formats, recognise, 16, 8);
        check!(eng_gauges, struct_size, 0, 4);
        check!(eng_gauges, reserved, 4, 4);
        check!(eng_gauges, used_bytes, 8, 8);
        check!(eng_gauges, utilisation, 16, 8);
        check!(eng_gauges, celsius, 24, 8);
        check!(eng_gauges, watts, 32, 8);
        check!(eng_generate_request, struct_size, 0, 4);
        check!(eng_generate_request, n_ids, 4, 4);
        check!(eng_generate_request, prompt, 8, 8);
        check!(eng_generate_request, ids, 16, 8);
        check!(eng_generate_request, tokens, 24, 8);
        check!(eng_generate_request, top_k, 32, 8);
        check!(eng_generate_request, temperature, 40, 8);
        check!(eng_generate_request, top_p, 48, 8);
        check!(eng_generate_request, seed, 56, 8);
        check!(eng_generate_request, tokenizer, 64, 8);
        check!(eng_generate_request, data, 72, 8);
        check!(eng_generate_request, token, 80, 8);
        check!(eng_generate_request, max_length, 88, 8);
        check!(eng_generate_request, n_prompts, 96, 8);
        check!(eng_generate_request, ends, 104, 8);
        check!(eng_generate_request, token_of, 112, 8);
        check!(eng_gradient, api, 0, 8);
        check!(eng_gradient_api, struct_size, 0, 4);
        check!(eng_gradient_api, minor, 4, 4);
        check!(eng_gradient_api, status, 8, 8);
        check!(eng_gradient_api, r#in, 16, 8);
        check!(eng_gradient_api, out, 24, 8);
        check!(eng_gradient_api, d_out, 32, 8);
        check!(eng_gradient_api, own_d_out, 40, 8);
        check!(eng_gradient_api, wants, 48, 8);
        check!(eng_gradient_api, take, 56, 8);
        check!(eng_gradient_api, give, 64, 8);
        check!(eng_gradient_api, shape, 72, 8);
        check!(eng_gradient_api, attrs, 80, 8);
        check!(eng_gradient_api, emit, 88, 8);
        check!(eng_gradient_api, wanted, 96, 8);
        check!(eng_gradient_api, so_far, 104, 8);
        check!(eng_gradient_api, maker, 112, 8);
        check!(eng_gradient_api, scalars, 120, 8);
        check!(eng_gradient_api, weight, 128, 8);
        check!(eng_gradient_api, replaces, 136, 8);
        check!(eng_gradient_api, inputs, 144, 8);
        check!(eng_host, struct_size, 0, 4);
        check!(eng_host, minor, 4, 4);
        check!(eng_host, data, 8, 8);
        check!(eng_host, log, 16, 8);
        check!(eng_host, get_extension, 24, 8);
        check!(eng_in_place, out, 0, 4);
        check!(eng_in_place, r#in, 4, 4);
        check!(eng_in_place, must, 8, 4);
        check!(eng_in_place, reserved, 12, 4);
        check!(eng_index, ids, 0, 4);
        check!(eng_index, table, 4, 4);
        check!(eng_index, flags, 8, 4);
        check!(eng_index, reserved, 12, 4);
        check!(eng_job, struct_size, 0, 4);
        check!(eng_job, minor, 4, 4);
        check!(eng_job, create, 8, 8);
        check!(eng_job, destroy, 16, 8);
        check!(eng_job, describe, 24, 8);
        check!(eng_job, states, 32, 8);
        check!(eng_job, values, 40, 8);
        check!(eng_job, emit, 48, 8);
        check!(eng_job, host_bytes, 56, 8);
        check!(eng_job, run, 64, 8);
        check!(eng_job, site, 72, 8);
        check!(eng_job, observe, 80, 8);
        check!(eng_job, part, 88, 8);
        check!(eng_job_api, struct_size, 0, 4);
        check!(eng_job_api, minor, 4, 4);
        check!(eng_job_api, parameters, 8, 8);
        check!(eng_job_api, sites, 16, 8);
        check!(eng_job_api, windows, 24, 8);
        check!(eng_job_api, gradient, 32, 8);
        check!(eng_job_api, losses, 40, 8);
        check!(eng_job_api, program, 48, 8);
        check!(eng_job_api, read, 56, 8);
        check!(eng_job_api, write, 64, 8);
        check!(eng_job_api, save, 72, 8);
        check!(eng_job_api, progress, 80, 8);
        check!(eng_job_api, file, 88, 8);
        check!(eng_job_api, facts, 96, 8);
        check!(eng_job_api, field, 104, 8);
        check!(eng_job_api, position_losses, 112, 8);
        check!(eng_job_api, earlier, 120, 8);
        check!(eng_job_host, api, 0, 8);
        check!(eng_job_info, struct_size, 0, 4);
        check!(eng_job_info, programs, 4, 4);
        check!(eng_job_info, micro_batch, 8, 4);
        check!(eng_job_info, windows, 12, 4);
        check!(eng_job_info, kept, 16, 8);
        check!(eng_job_info, writes, 24, 8);
        check!(eng_job_info, flags, 32, 4);
        check!(eng_job_info, reserved, 36, 4);
        check!(eng_job_site, struct_size, 0, 4);
        check!(eng_job_site, block_number, 4, 4);
        check!(eng_job_site, block, 8, 8);
        check!(eng_job_site, op, 16, 8);
        check!(eng_job_site, output, 24, 4);
        check!(eng_job_site, node, 28, 4);
        check!(eng_job_site, attrs, 32, 8);
        check!(eng_job_site, n_attrs, 40, 4);
        check!(eng_job_site, number, 44, 4);
        check!(eng_job_site, shape, 48, 8);
        check!(eng_job_value, name, 0, 8);
        check!(eng_job_value, shape, 8, 56);
        check!(eng_job_value, flags, 64, 4);
        check!(eng_job_value, reserved, 68, 4);
        check!(eng_kernel, struct_size, 0, 4);
        check!(eng_kernel, flags, 4, 4);
        check!(eng_kernel, op, 8, 8);
        check!(eng_kernel, workspace, 16, 8);
        check!(eng_kernel, prepare, 24, 8);
        check!(eng_kernel, bind, 32, 8);
        check!(eng_kernel, launch, 40, 8);
        check!(eng_kernel, drop_record, 48, 8);
        check!(eng_kernel, drop_state, 56, 8);
        check!(eng_kernels, struct_size, 0, 4);
        check!(eng_kernels, count, 4, 4);
        check!(eng_kernels, kernels, 8, 8);
        check!(eng_loss, struct_size, 0, 4);
        check!(eng_loss, minor, 4, 4);
        check!(eng_loss, create, 8, 8);
        check!(eng_loss, destroy, 16, 8);
        check!(eng_loss, trace, 24, 8);
        check!(eng_model, struct_size, 0, 4);
        check!(eng_model, minor, 4, 4);
        check!(eng_model, create, 8, 8);
        check!(eng_model, destroy, 16, 8);
        check!(eng_model, describe, 24, 8);
        check!(eng_model, declare, 32, 8);
        check!(eng_model, trace, 40, 8);
        check!(eng_model_info, struct_size, 0, 4);
        check!(eng_model_info, reserved, 4, 4);
        check!(eng_model_info, vocabulary, 8, 8);
        check!(eng_model_info, attention_width, 16, 8);
        check!(eng_model_info, layers, 24, 8);
        check!(eng_model_info, max_length, 32, 8);
        check!(eng_monitor, struct_size, 0, 4);
        check!(eng_monitor, reserved, 4, 4);
        check!(eng_monitor, open, 8, 8);
        check!(eng_monitor, close, 16, 8);
        check!(eng_monitor, read, 24, 8);
        check!(eng_move, struct_size, 0, 4);
        check!(eng_move, role, 4, 4);
        check!(eng_move, unit, 8, 4);
        check!(eng_move, piece, 12, 4);
        check!(eng_move, src, 16, 4);
        check!(eng_move, dst, 20, 4);
        check!(eng_move, from, 24, 8);
        check!(eng_move, to, 32, 8);
        check!(eng_move, states, 40, 8);
        check!(eng_move, n_states, 48, 4);
        check!(eng_move, residual, 52, 4);
        check!(eng_node, op, 0, 8);
        check!(eng_node, r#in, 8, 8);
        check!(eng_node, out, 16, 8);
        check!(eng_node, n_in, 24, 4);
        check!(eng_node, n_out, 28, 4);
        check!(eng_observed, name, 0, 8);
        check!(eng_observed, value, 8, 8);
        check!(eng_observer, struct_size, 0, 4);
        check!(eng_observer, minor, 4, 4);
        check!(eng_observer, create, 8, 8);
        check!(eng_observer, destroy, 16, 8);
        check!(eng_observer, results, 24, 8);
        check!(eng_observer, observe, 32, 8);
        check!(eng_observer, after_step, 40, 8);
        check!(eng_op, struct_size, 0, 4);
        check!(eng_op, flags, 4, 4);
        check!(eng_op, id, 8, 8);
        check!(eng_op, min_in, 16, 4);
        check!(eng_op, max_in, 20, 4);
        check!(eng_op, infer, 24, 8);
        check!(eng_op, flops, 32, 8);
        check!(eng_op, grad, 40, 8);
        check!(eng_op, in_place, 48, 8);
        check!(eng_op, n_in_place, 56, 4);
        check!(eng_op, sums, 60, 4);
        check!(eng_op, step, 64, 8);
        check!(eng_op, optional, 72, 4);
        check!(eng_op, counts_as, 76, 4);
        check!(eng_op, rebuild, 80, 8);
        check!(eng_op, indexes, 88, 8);
        check!(eng_op, n_indexes, 96, 4);
        check!(eng_op, reserved, 100, 4);
        check!(eng_op, expand, 104, 8);
        check!(eng_ops, struct_size, 0, 4);
        check!(eng_ops, count, 4, 4);
        check!(eng_ops, ops, 8, 8);
        check!(eng_optimizer, struct_size, 0, 4);
        check!(eng_optimizer, granularity, 4, 4);
        check!(eng_optimizer, create, 8, 8);
        check!(eng_optimizer, destroy, 16, 8);
        check!(eng_optimizer, states, 24, 8);
        check!(eng_optimizer, scalars, 32, 8);
        check!(eng_optimizer, update, 40, 8);
        check!(eng_options, struct_size, 0, 4);
        check!(eng_options, minor, 4, 4);
        check!(eng_options, data, 8, 8);
        check!(eng_options, get_bool, 16, 8);
        check!(eng_options, get_int, 24, 8);
        check!(eng_options, get_float, 32, 8);
        check!(eng_options, get_string, 40, 8);
        check!(eng_options, get_count, 48, 8);
        check!(eng_options, get_float_at, 56, 8);
        check!(eng_options, get_string_at, 64, 8);
        check!(eng_options, is_set, 72, 8);
        check!(eng_own_loss, struct_size, 0, 4);
        check!(eng_own_loss, n, 4, 4);
        check!(eng_own_loss, gradients, 8, 8);
        check!(eng_own_loss, loss, 16, 8);
        check!(eng_param, struct_size, 0, 4);
        check!(eng_param, flags, 4, 4);
        check!(eng_param, name, 8, 8);
        check!(eng_param, init_op, 16, 8);
        check!(eng_param, init, 24, 8);
        check!(eng_param, dims, 32, 8);
        check!(eng_param, n_init, 40, 4);
        check!(eng_param, ndim, 44, 4);
        check!(eng_parameter, struct_size, 0, 4);
        check!(eng_parameter, flags, 4, 4);
        check!(eng_parameter, name, 8, 8);
        check!(eng_parameter, shape, 16, 8);
        check!(eng_parameter, options, 24, 8);
        check!(eng_parameter, block, 32, 4);
        check!(eng_parameter, blocks, 36, 4);
        check!(eng_parameter, number, 40, 4);
        check!(eng_parameter, reserved, 44, 4);
        check!(eng_part, struct_size, 0, 4);
        check!(eng_part, count, 4, 4);
        check!(eng_part, index, 8, 4);
        check!(eng_part, group, 12, 4);
        check!(eng_plugin, struct_size, 0, 4);
        check!(eng_plugin, abi_minor, 4, 4);
        check!(eng_plugin, draft_id, 8, 8);
        check!(eng_plugin, describe, 16, 8);
        check!(eng_plugin, start, 24, 8);
        check!(eng_plugin, stop, 32, 8);
        check!(eng_plugin, get_interface, 40, 8);
        check!(eng_policy_state, name, 0, 8);
        check!(eng_policy_state, shape, 8, 56);
        check!(eng_policy_update, struct_size, 0, 4);
        check!(eng_policy_update, n_states, 4, 4);
        check!(eng_policy_update, states, 8, 8);
        check!(eng_policy_update, scalars, 16, 4);
        check!(eng_policy_update, reserved, 20, 4);
        check!(eng_range, parameter, 0, 8);
        check!(eng_range, first, 8, 8);
        check!(eng_range, count, 16, 8);
        check!(eng_range, offset, 24, 8);
        check!(eng_result, name, 0, 8);
        check!(eng_result, combine, 8, 4);
        check!(eng_result, flags, 12, 4);
        check!(eng_sample, struct_size, 0, 4);
        check!(eng_sample, n_ids, 4, 4);
        check!(eng_sample, prompt, 8, 8);
        check!(eng_sample, ids, 16, 8);
        check!(eng_sample, tokens, 24, 8);
        check!(eng_sample, temperature, 32, 8);
        check!(eng_sample, seed, 40, 8);
        check!(eng_sampled, struct_size, 0, 4);
        check!(eng_sampled, n, 4, 4);
        check!(eng_sampled, ids, 8, 8);
        check!(eng_sampled, text, 16, 8);
        check!(eng_sampled, bytes, 24, 8);
        check!(eng_schedule, struct_size, 0, 4);
        check!(eng_schedule, reserved, 4, 4);
        check!(eng_schedule, create, 8, 8);
        check!(eng_schedule, destroy, 16, 8);
        check!(eng_schedule, rate, 24, 8);
        check!(eng_schedule_run, struct_size, 0, 4);
        check!(eng_schedule_run, reserved, 4, 4);
        check!(eng_schedule_run, steps, 8, 8);
        check!(eng_schedule_run, peak, 16, 8);
        check!(eng_score_request, struct_size, 0, 4);
        check!(eng_score_request, n, 4, 4);
        check!(eng_score_request, ids, 8, 8);
        check!(eng_score_request, ends, 16, 8);
        check!(eng_score_request, first, 24, 8);
        check!(eng_score_request, logprobs, 32, 8);
        check!(eng_score_request, greedy, 40, 8);
        check!(eng_session_info, struct_size, 0, 4);
        check!(eng_session_info, started, 4, 4);
        check!(eng_session_info, rank, 8, 4);
        check!(eng_session_info, ranks, 12, 4);
        check!(eng_session_info, step, 16, 8);
        check!(eng_session_info, steps, 24, 8);
        check!(eng_session_info, rows, 32, 8);
        check!(eng_session_info, micro_rows, 40, 8);
        check!(eng_session_info, length, 48, 8);
        check!(eng_session_info, vocabulary, 56, 8);
        check!(eng_session_info, parameters, 64, 8);
        check!(eng_session_info, tensors, 72, 8);
        check!(eng_session_info, dl_device_type, 80, 4);
        check!(eng_session_info, dl_device_id, 84, 4);
        check!(eng_session_info, train_samples, 88, 8);
        check!(eng_session_info, held_out, 96, 8);
        check!(eng_session_info, directory, 104, 8);
        check!(eng_session_info, lr, 112, 8);
        check!(eng_session_info, max_length, 120, 8);
        check!(eng_session_request, struct_size, 0, 4);
        check!(eng_session_request, flags, 4, 4);
        check!(eng_session_request, n_overrides, 8, 4);
        check!(eng_session_request, n_plugin_paths, 12, 4);
        check!(eng_session_request, target, 16, 8);
        check!(eng_session_request, text, 24, 8);
        check!(eng_session_request, place, 32, 8);
        check!(eng_session_request, out, 40, 8);
        check!(eng_session_request, resume, 48, 8);
        check!(eng_session_request, command, 56, 8);
        check!(eng_session_request, overrides, 64, 8);
        check!(eng_session_request, plugin_paths, 72, 8);
        check!(eng_session_request, data, 80, 8);
        check!(eng_session_request, note, 88, 8);
        check!(eng_session_request, activations, 96, 8);
        check!(eng_session_request, n_activations, 104, 4);
        check!(eng_session_request, n_fields, 108, 4);
        check!(eng_session_request, fields, 112, 8);
        check!(eng_session_request, lengths, 120, 8);
        check!(eng_session_request, n_lengths, 128, 4);
        check!(eng_session_request, reserved, 132, 4);
        check!(eng_site, struct_size, 0, 4);
        check!(eng_site, what, 4, 4);
        check!(eng_site, block, 8, 8);
        check!(eng_site, number, 16, 4);
        check!(eng_site, output, 20, 4);
        check!(eng_site, value, 24, 4);
        check!(eng_site, scalars, 28, 4);
        check!(eng_site, ranges, 32, 8);
        check!(eng_site, n_ranges, 40, 4);
        check!(eng_site, reserved, 44, 4);
        check!(eng_site_range, name, 0, 8);
        check!(eng_site_range, shape, 8, 8);
        check!(eng_site_range, first, 16, 8);
        check!(eng_site_range, count, 24, 8);
        check!(eng_site_range, offset, 32, 8);
        check!(eng_state_rule, name, 0, 8);
        check!(eng_state_rule, dtype, 8, 4);
        check!(eng_state_rule, reserved, 12, 4);
        check!(eng_state_rule, shape, 16, 8);
        check!(eng_state_shape, struct_size, 0, 4);
        check!(eng_state_shape, kind, 4, 4);
        check!(eng_state_shape, block, 8, 4);
        check!(eng_state_shape, whole, 12, 4);
        check!(eng_state_shape, ndim, 16, 4);
        check!(eng_state_shape, reserved, 20, 4);
        check!(eng_state_shape, dims, 24, 48);
        check!(eng_step_done, struct_size, 0, 4);
        check!(eng_step_done, n_observed, 4, 4);
        check!(eng_step_done, step, 8, 8);
        check!(eng_step_done, steps, 16, 8);
        check!(eng_step_done, tokens, 24, 8);
        check!(eng_step_done, loss, 32, 8);
        check!(eng_step_done, grad_norm, 40, 8);
        check!(eng_step_done, learning_rate, 48, 8);
        check!(eng_step_done, eval_loss, 56, 8);
        check!(eng_step_done, observed, 64, 8);
        check!(eng_step_done, skipped, 72, 4);
        check!(eng_step_done, reserved, 76, 4);
        check!(eng_step_done, host, 80, 8);
        check!(eng_step_done, sample, 88, 8);
        check!(eng_step_reply, struct_size, 0, 4);
        check!(eng_step_reply, flags, 4, 4);
        check!(eng_step_reply, text, 8, 8);
        check!(eng_step_result, struct_size, 0, 4);
        check!(eng_step_result, ended, 4, 4);
        check!(eng_step_result, step, 8, 8);
        check!(eng_step_result, tokens, 16, 8);
        check!(eng_step_result, loss, 24, 8);
        check!(eng_step_result, grad_norm, 32, 8);
        check!(eng_step_result, lr, 40, 8);
        check!(eng_step_result, loss_scale, 48, 8);
        check!(eng_step_result, eval_loss, 56, 8);
        check!(eng_step_result, seconds, 64, 8);
        check!(eng_step_result, tokens_per_second, 72, 8);
        check!(eng_step_result, mfu, 80, 8);
        check!(eng_step_result, wait_data, 88, 8);
        check!(eng_step_result, wait_comm, 96, 8);
        check!(eng_step_result, device_peak_bytes, 104, 8);
        check!(eng_step_result, host_peak_bytes, 112, 8);
        check!(eng_step_result, skipped, 120, 4);
        check!(eng_step_result, saved, 124, 4);
        check!(eng_stepping, api, 0, 8);
        check!(eng_stepping_api, struct_size, 0, 4);
        check!(eng_stepping_api, minor, 4, 4);
        check!(eng_stepping_api, status, 8, 8);
        check!(eng_stepping_api, r#in, 16, 8);
        check!(eng_stepping_api, shape, 24, 8);
        check!(eng_stepping_api, attrs, 32, 8);
        check!(eng_stepping_api, state, 40, 8);
        check!(eng_stepping_api, counters, 48, 8);
        check!(eng_stepping_api, give, 56, 8);
        check!(eng_stepping_api, emit, 64, 8);
        check!(eng_stepping_api, has, 72, 8);
        check!(eng_stepping_api, inputs, 80, 8);
        check!(eng_stepping_api, length, 88, 8);
        check!(eng_stepping_api, traced, 96, 8);
        check!(eng_tensor_in, struct_size, 0, 4);
        check!(eng_tensor_in, reserved, 4, 4);
        check!(eng_tensor_in, name, 8, 8);
        check!(eng_tensor_in, versioned, 16, 8);
        check!(eng_tensor_in, legacy, 24, 8);
        check!(eng_tensor_in, borrowed, 32, 8);
        check!(eng_tensor_info, struct_size, 0, 4);
        check!(eng_tensor_info, flags, 4, 4);
        check!(eng_tensor_info, name, 8, 8);
        check!(eng_tensor_info, role, 16, 8);
        check!(eng_tensor_info, desc, 24, 56);
        check!(eng_tensor_info, first, 80, 8);
        check!(eng_tensor_info, count, 88, 8);
        check!(eng_tensor_info, ranges, 96, 8);
        check!(eng_threads, struct_size, 0, 4);
        check!(eng_threads, reserved, 4, 4);
        check!(eng_threads, count, 8, 8);
        check!(eng_threads, run, 16, 8);
        check!(eng_tier, struct_size, 0, 4);
        check!(eng_tier, minor, 4, 4);
        check!(eng_tier, describe, 8, 8);
        check!(eng_tier, create, 16, 8);
        check!(eng_tier, destroy, 24, 8);
        check!(eng_tier, alloc, 32, 8);
        check!(eng_tier, free, 40, 8);
        check!(eng_tier, host_bytes, 48, 8);
        check!(eng_tier, read, 56, 8);
        check!(eng_tier, write, 64, 8);
        check!(eng_tier_info, struct_size, 0, 4);
        check!(eng_tier_info, flags, 4, 4);
        check!(eng_tier_info, total_bytes, 8, 8);
        check!(eng_tier_info, read_bandwidth, 16, 8);
        check!(eng_tier_info, write_bandwidth, 24, 8);
        check!(eng_tokenizer, struct_size, 0, 4);
        check!(eng_tokenizer, minor, 4, 4);
        check!(eng_tokenizer, create, 8, 8);
        check!(eng_tokenizer, destroy, 16, 8);
        check!(eng_tokenizer, describe, 24, 8);
        check!(eng_tokenizer, encode, 32, 8);
        check!(eng_tokenizer, decode, 40, 8);
        check!(eng_tokenizer_info, struct_size, 0, 4);
        check!(eng_tokenizer_info, reserved, 4, 4);
        check!(eng_tokenizer_info, vocabulary, 8, 8);
        check!(eng_tokenizer_info, bos, 16, 4);
        check!(eng_tokenizer_info, eos, 20, 4);
        check!(eng_tokenizer_info, eot, 24, 4);
        check!(eng_tokenizer_info, reserved2, 28, 4);
        check!(eng_tokenizer_info, content_hash, 32, 40);
        check!(eng_transform, struct_size, 0, 4);
        check!(eng_transform, minor, 4, 4);
        check!(eng_transform, create, 8, 8);
        check!(eng_transform, destroy, 16, 8);
        check!(eng_transform, apply, 24, 8);
        check!(eng_transform, flags, 32, 8);
        check!(eng_transform, states, 40, 8);
        check!(eng_transform, update, 48, 8);
        check!(eng_transform_call, struct_size, 0, 4);
        check!(eng_transform_call, number, 4, 4);
        check!(eng_transform_call, op, 8, 8);
        check!(eng_transform_call, name, 16, 8);
        check!(eng_transform_call, block, 24, 4);
        check!(eng_transform_call, blocks, 28, 4);
        check!(eng_transform_call, r#in, 32, 8);
        check!(eng_transform_call, out, 40, 8);
        check!(eng_transform_call, attrs, 48, 8);
        check!(eng_transform_call, params, 56, 8);
        check!(eng_transform_call, n_in, 64, 4);
        check!(eng_transform_call, n_out, 68, 4);
        check!(eng_transform_call, n_attrs, 72, 4);
        check!(eng_transform_call, n_params, 76, 4);
        check!(eng_transform_call, states, 80, 8);
        check!(eng_transform_call, n_states, 88, 4);
        check!(eng_transform_call, reserved, 92, 4);
        check!(eng_transform_param, name, 0, 8);
        check!(eng_transform_param, added_by, 8, 8);
        check!(eng_transform_param, shape, 16, 8);
        check!(eng_transform_param, flags, 24, 4);
        check!(eng_transform_param, input, 28, 4);
        check!(eng_transform_param, targeted, 32, 4);
        check!(eng_transform_param, reserved, 36, 4);
        check!(eng_unit, struct_size, 0, 4);
        check!(eng_unit, id, 4, 4);
        check!(eng_unit, block, 8, 4);
        check!(eng_unit, flags, 12, 4);
        check!(eng_unit, count, 16, 8);
        check!(eng_update, struct_size, 0, 4);
        check!(eng_update, flags, 4, 4);
        check!(eng_update, master, 8, 4);
        check!(eng_update, grad, 12, 4);
        check!(eng_update, weight_out, 16, 4);
        check!(eng_update, scalars, 20, 4);
        check!(eng_update, states, 24, 8);
        check!(eng_update, n_states, 32, 4);
        check!(eng_update, stage, 36, 4);
        check!(eng_update, ranges, 40, 8);
        check!(eng_update, n_ranges, 48, 4);
        check!(eng_update, counters, 52, 4);
        check!(eng_update, seed, 56, 8);
        check!(eng_view, struct_size, 0, 4);
        check!(eng_view, dtype, 4, 4);
        check!(eng_view, part, 8, 4);
        check!(eng_view, reserved, 12, 4);
        check!(eng_view, count, 16, 8);
        check!(eng_world, struct_size, 0, 4);
        check!(eng_world, rank, 4, 4);
        check!(eng_world, size, 8, 4);
        check!(eng_world, local_rank, 12, 4);
        check!(eng_world, local_size, 16, 4);
        check!(eng_world, announced, 20, 4);
    }
}
