//! A small VapourSynth: maps, frames, one source clip and one filter, and the order of calls of the real one.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicIsize, Ordering};

use reseed_vapoursynth::api::*;

use crate::fake_frame::{FakeFrame, Properties, Value};

/// A counted frame, as the plugin holds it.
pub struct SharedFrame {
    pub frame: FakeFrame,
    pub count: AtomicIsize,
}

thread_local! {
    /// Frames that are not released; all are made and released by the thread of a test.
    pub static LIVE: Cell<isize> = const { Cell::new(0) };
}

pub fn counted(frame: FakeFrame) -> *mut VsFrame {
    LIVE.set(LIVE.get() + 1);
    Box::into_raw(Box::new(SharedFrame { frame, count: AtomicIsize::new(1) })).cast()
}

pub unsafe fn frame<'f>(frame: *const VsFrame) -> &'f SharedFrame {
    unsafe { &*frame.cast::<SharedFrame>() }
}

/// A map that the plugin sees.
#[derive(Default)]
pub struct FakeMap {
    pub values: Properties,
    pub node: *mut VsNode,
    pub error: Option<String>,
    pub filter: Option<Added>,
}

pub struct Added {
    pub info: VsVideoInfo,
    pub get_frame: VsFilterGetFrame,
    pub free: VsFilterFree,
    pub instance: *mut c_void,
}

/// The source clip.
pub struct FakeNode {
    pub info: VsVideoInfo,
    pub frames: Vec<FakeFrame>,
}

/// The request of one frame.
#[derive(Default)]
pub struct FakeContext {
    pub requested: BTreeSet<i32>,
    pub available: HashMap<i32, *mut VsFrame>,
    pub most: usize,
    pub error: Option<String>,
}

thread_local! {
    pub static LOG: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    pub static FUNCTION: RefCell<Option<VsPublicFunction>> = const { RefCell::new(None) };
}

unsafe fn text(text: *const c_char) -> String {
    unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned()
}

pub unsafe extern "C" fn config(
    id: *const c_char,
    space: *const c_char,
    _: *const c_char,
    _: c_int,
    api: c_int,
    _: c_int,
    _: *mut VsPlugin,
) -> c_int {
    assert_eq!(unsafe { [text(id), text(space)] }, ["com.reseed.upscale", "reseed"]);
    assert_eq!(api, 4 << 16);
    1
}

pub unsafe extern "C" fn register(
    name: *const c_char,
    args: *const c_char,
    result: *const c_char,
    function: VsPublicFunction,
    _: *mut c_void,
    _: *mut VsPlugin,
) -> c_int {
    let [name, args, result] = unsafe { [text(name), text(args), text(result)] };
    assert_eq!((name.as_str(), result.as_str()), ("Upscale", "clip:vnode;"));
    assert!(args.starts_with("clip:vnode;model:data:opt;") && args.ends_with(';'), "{args}");
    FUNCTION.set(Some(function));
    1
}

pub unsafe extern "C" fn version() -> c_int {
    API_VERSION
}

unsafe extern "C" fn create_video_filter(
    out: *mut VsMap,
    _: *const c_char,
    info: *const VsVideoInfo,
    get_frame: VsFilterGetFrame,
    free: VsFilterFree,
    mode: c_int,
    _: *const VsFilterDependency,
    count: c_int,
    instance: *mut c_void,
    _: *mut VsCore,
) {
    assert_eq!((mode, count), (PARALLEL_REQUESTS, 1));
    let info = unsafe { *info };
    unsafe { map_mut(out) }.filter = Some(Added { info, get_frame, free, instance });
}

unsafe fn map<'m>(map: *const VsMap) -> &'m FakeMap {
    unsafe { &*map.cast::<FakeMap>() }
}

unsafe fn map_mut<'m>(map: *mut VsMap) -> &'m mut FakeMap {
    unsafe { &mut *map.cast::<FakeMap>() }
}

unsafe extern "C" fn free_node(_: *mut VsNode) {}

unsafe extern "C" fn get_video_info(node: *mut VsNode) -> *const VsVideoInfo {
    unsafe { &(*node.cast::<FakeNode>()).info }
}

unsafe extern "C" fn new_video_frame(
    format: *const VsVideoFormat,
    width: c_int,
    height: c_int,
    source: *const VsFrame,
    _: *mut VsCore,
) -> *mut VsFrame {
    let properties = unsafe { frame(source) }.frame.properties.clone();
    counted(FakeFrame::new(unsafe { *format }, [width as usize, height as usize], properties))
}

pub unsafe extern "C" fn free_frame(f: *const VsFrame) {
    if unsafe { frame(f) }.count.fetch_sub(1, Ordering::SeqCst) == 1 {
        LIVE.set(LIVE.get() - 1);
        drop(unsafe { Box::from_raw(f.cast_mut().cast::<SharedFrame>()) });
    }
}

unsafe extern "C" fn add_frame_ref(f: *const VsFrame) -> *const VsFrame {
    unsafe { frame(f) }.count.fetch_add(1, Ordering::SeqCst);
    f
}

/// Properties are read through a pointer to the frame itself.
unsafe extern "C" fn properties_ro(f: *const VsFrame) -> *const VsMap {
    let map = FakeMap { values: unsafe { frame(f) }.frame.properties.clone(), ..FakeMap::default() };
    Box::into_raw(Box::new(map)).cast()
}

thread_local! {
    /// The frame whose properties are being written.
    static WRITTEN: RefCell<*mut VsFrame> = const { RefCell::new(ptr::null_mut()) };
}

unsafe extern "C" fn properties_rw(f: *mut VsFrame) -> *mut VsMap {
    WRITTEN.set(f);
    unsafe { properties_ro(f) }.cast_mut()
}

unsafe extern "C" fn stride(f: *const VsFrame, plane: c_int) -> isize {
    unsafe { frame(f) }.frame.stride(plane as usize) as isize
}

unsafe extern "C" fn read_ptr(f: *const VsFrame, plane: c_int) -> *const u8 {
    unsafe { frame(f) }.frame.planes[plane as usize].as_ptr()
}

unsafe extern "C" fn write_ptr(f: *mut VsFrame, plane: c_int) -> *mut u8 {
    let counted = unsafe { &mut *f.cast::<SharedFrame>() };
    counted.frame.planes[plane as usize].as_mut_ptr()
}

unsafe extern "C" fn frame_width(f: *const VsFrame, plane: c_int) -> c_int {
    unsafe { frame(f) }.frame.plane(plane as usize)[0] as c_int
}

unsafe extern "C" fn frame_height(f: *const VsFrame, plane: c_int) -> c_int {
    unsafe { frame(f) }.frame.plane(plane as usize)[1] as c_int
}

unsafe extern "C" fn format_name(_: *const VsVideoFormat, buffer: *mut c_char) -> c_int {
    let name = b"YUV\0";
    unsafe { ptr::copy_nonoverlapping(name.as_ptr().cast(), buffer, name.len()) };
    1
}

unsafe fn context<'c>(context: *mut VsFrameContext) -> &'c mut FakeContext {
    unsafe { &mut *context.cast::<FakeContext>() }
}

unsafe extern "C" fn get_frame_filter(n: c_int, _: *mut VsNode, c: *mut VsFrameContext) -> *const VsFrame {
    let available = unsafe { context(c) }.available.get(&n);
    unsafe { add_frame_ref(*available.expect("only requested frames are available")) }
}

unsafe extern "C" fn request_frame_filter(n: c_int, _: *mut VsNode, c: *mut VsFrameContext) {
    unsafe { context(c) }.requested.insert(n);
}

unsafe extern "C" fn release_frame_early(_: *mut VsNode, n: c_int, c: *mut VsFrameContext) {
    if let Some(frame) = unsafe { context(c) }.available.remove(&n) {
        unsafe { free_frame(frame) };
    }
}

unsafe extern "C" fn set_filter_error(message: *const c_char, c: *mut VsFrameContext) {
    unsafe { context(c).error = Some(text(message)) };
}

unsafe extern "C" fn map_set_error(m: *mut VsMap, message: *const c_char) {
    unsafe { map_mut(m).error = Some(text(message)) };
}

/// Writes a change of properties through to the frame.
fn write_through(key: String, value: Option<Value>) {
    let counted = unsafe { &mut *WRITTEN.with_borrow(|written| *written).cast::<SharedFrame>() };
    match value {
        Some(value) => drop(counted.frame.properties.insert(key, value)),
        None => drop(counted.frame.properties.remove(&key)),
    }
}

unsafe extern "C" fn delete_key(_: *mut VsMap, key: *const c_char) -> c_int {
    write_through(unsafe { text(key) }, None);
    1
}

unsafe extern "C" fn set_int(_: *mut VsMap, key: *const c_char, value: i64, _: c_int) -> c_int {
    write_through(unsafe { text(key) }, Some(Value::Int(value)));
    0
}

unsafe fn value(m: *const VsMap, key: *const c_char, error: *mut c_int) -> Option<Value> {
    let value = unsafe { map(m).values.get(&text(key)).cloned() };
    unsafe { *error = c_int::from(value.is_none()) };
    value
}

unsafe extern "C" fn get_int(m: *const VsMap, key: *const c_char, _: c_int, error: *mut c_int) -> i64 {
    match unsafe { value(m, key, error) } {
        Some(Value::Int(value)) => value,
        _ => 0,
    }
}

unsafe extern "C" fn get_float(m: *const VsMap, key: *const c_char, _: c_int, error: *mut c_int) -> f64 {
    match unsafe { value(m, key, error) } {
        Some(Value::Float(value)) => value,
        _ => 0.0,
    }
}

unsafe extern "C" fn get_data(m: *const VsMap, key: *const c_char, _: c_int, error: *mut c_int) -> *const c_char {
    let found = unsafe { map(m).values.get(&text(key)) };
    unsafe { *error = c_int::from(found.is_none()) };
    match found {
        Some(Value::Text(text)) => text.as_ptr().cast(),
        _ => ptr::null(),
    }
}

unsafe extern "C" fn data_size(m: *const VsMap, key: *const c_char, _: c_int, error: *mut c_int) -> c_int {
    match unsafe { value(m, key, error) } {
        Some(Value::Text(text)) => text.len() as c_int,
        _ => 0,
    }
}

unsafe extern "C" fn get_node(m: *const VsMap, _: *const c_char, _: c_int, error: *mut c_int) -> *mut VsNode {
    let node = unsafe { map(m) }.node;
    unsafe { *error = c_int::from(node.is_null()) };
    node
}

unsafe extern "C" fn log_message(kind: c_int, message: *const c_char, _: *mut VsCore) {
    assert_eq!(kind, WARNING);
    LOG.with_borrow_mut(|log| log.push(unsafe { text(message) }));
}

/// All functions.
pub fn api() -> VsApi {
    VsApi {
        create_video_filter,
        unused_filters: [None; 6],
        free_node,
        unused_nodes: [None; 2],
        get_video_info,
        unused_audio_info: None,
        new_video_frame,
        unused_new_frames: [None; 3],
        free_frame,
        add_frame_ref,
        unused_copy_frame: None,
        get_frame_properties_ro: properties_ro,
        get_frame_properties_rw: properties_rw,
        get_stride: stride,
        get_read_ptr: read_ptr,
        get_write_ptr: write_ptr,
        unused_frame_formats: [None; 3],
        get_frame_width: frame_width,
        get_frame_height: frame_height,
        unused_frame_length: None,
        get_video_format_name: format_name,
        unused_formats: [None; 5],
        unused_get_frames: [None; 2],
        get_frame_filter,
        request_frame_filter,
        release_frame_early,
        unused_cache_frame: None,
        set_filter_error,
        unused_functions: [None; 4],
        unused_maps: [None; 4],
        map_set_error,
        unused_keys: [None; 3],
        map_delete_key: delete_key,
        unused_elements: [None; 3],
        map_get_int: get_int,
        unused_get_ints: [None; 2],
        map_set_int: set_int,
        unused_set_ints: None,
        map_get_float: get_float,
        unused_floats: [None; 4],
        map_get_data: get_data,
        map_get_data_size: data_size,
        unused_data: [None; 2],
        map_get_node: get_node,
        unused_set_nodes: [None; 8],
        unused_plugins: [None; 15],
        unused_core: [None; 6],
        log_message,
    }
}
