//! VapourSynth's handles as Rust values that release what they hold.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr;

use crate::api::{
    GENERAL_REQUESTS, PARALLEL_REQUESTS, REPLACE, VsApi, VsCore, VsFilterDependency, VsFilterFree, VsFilterGetFrame,
    VsFrame, VsFrameContext, VsMap, VsNode, VsVideoFormat, VsVideoInfo, WARNING,
};

/// The core and its functions.
#[derive(Clone, Copy)]
pub struct Host {
    api: &'static VsApi,
    core: *mut VsCore,
}

// SAFETY: the functions of the core may be called from any thread.
unsafe impl Send for Host {}
// SAFETY: as above.
unsafe impl Sync for Host {}

impl Host {
    /// The host that calls the plugin.
    ///
    /// # Safety
    ///
    /// `api` and `core` are those of a call, and outlive all that the plugin makes with them.
    pub unsafe fn new(api: *const VsApi, core: *mut VsCore) -> Host {
        // SAFETY: the table belongs to the library of the core, which stays loaded as long as its plugins.
        Host { api: unsafe { &*api }, core }
    }

    /// A message that a user should see.
    pub fn warn(self, text: &str) {
        // SAFETY: the text is valid for the call.
        unsafe { (self.api.log_message)(WARNING, line(text).as_ptr(), self.core) }
    }

    /// The name of a format, such as YUV420P8.
    pub fn format_name(self, format: &VsVideoFormat) -> String {
        let mut buffer = [0; 32];
        // SAFETY: the function writes at most 32 bytes, the last of which is 0.
        let named = unsafe { (self.api.get_video_format_name)(format, buffer.as_mut_ptr()) };
        // SAFETY: the buffer holds a 0 in any case.
        let name = unsafe { CStr::from_ptr(buffer.as_ptr()) };
        if named == 0 { "unknown".into() } else { name.to_string_lossy().into_owned() }
    }

    /// A frame with the properties of another, filled by `fill`, which gets the rows of each plane.
    pub fn new_frame(
        self,
        format: &VsVideoFormat,
        [width, height]: [c_int; 2],
        source: &FrameRef,
        fill: impl FnOnce(&mut NewFrame),
    ) -> FrameRef {
        // SAFETY: the format is one that the core gave, the size is positive, the source is a frame.
        let frame = unsafe { (self.api.new_video_frame)(format, width, height, source.frame, self.core) };
        let mut new = NewFrame { host: self, frame };
        fill(&mut new);
        FrameRef { host: self, frame }
    }
}

/// A frame that is being written.
pub struct NewFrame {
    host: Host,
    frame: *mut VsFrame,
}

impl NewFrame {
    /// The rows of a plane, each of `bytes` bytes.
    pub fn rows_mut(&mut self, plane: usize, bytes: usize) -> impl Iterator<Item = &mut [u8]> {
        let api = self.host.api;
        // SAFETY: the frame is new and nobody else writes to it; the plane exists.
        let (start, stride, rows) = unsafe {
            let plane = plane as c_int;
            let start = (api.get_write_ptr)(self.frame, plane);
            (start, (api.get_stride)(self.frame, plane), (api.get_frame_height)(self.frame, plane))
        };
        // SAFETY: rows are `stride` bytes apart and have at least `bytes` bytes; none overlaps another.
        (0..rows as isize).map(move |row| unsafe { std::slice::from_raw_parts_mut(start.offset(row * stride), bytes) })
    }

    /// Its properties.
    pub fn properties(&mut self) -> MapMut {
        // SAFETY: the frame is new and nobody else reads its properties.
        MapMut { host: self.host, map: unsafe { (self.host.api.get_frame_properties_rw)(self.frame) } }
    }
}

/// A frame that no one changes any more.
pub struct FrameRef {
    host: Host,
    frame: *const VsFrame,
}

// SAFETY: a frame is counted by atomics and never changes.
unsafe impl Send for FrameRef {}
// SAFETY: as above.
unsafe impl Sync for FrameRef {}

impl FrameRef {
    /// The rows of a plane, each of `bytes` bytes.
    pub fn rows(&self, plane: usize, bytes: usize) -> impl Iterator<Item = &[u8]> {
        let api = self.host.api;
        // SAFETY: the frame and the plane exist.
        let (start, stride, rows) = unsafe {
            let plane = plane as c_int;
            let start = (api.get_read_ptr)(self.frame, plane);
            (start, (api.get_stride)(self.frame, plane), (api.get_frame_height)(self.frame, plane))
        };
        // SAFETY: rows are `stride` bytes apart and have at least `bytes` bytes.
        (0..rows as isize).map(move |row| unsafe { std::slice::from_raw_parts(start.offset(row * stride), bytes) })
    }

    /// Columns and rows of its first plane.
    pub fn size(&self) -> [c_int; 2] {
        // SAFETY: the frame exists.
        unsafe { [(self.host.api.get_frame_width)(self.frame, 0), (self.host.api.get_frame_height)(self.frame, 0)] }
    }

    /// Its properties.
    pub fn properties(&self) -> Map {
        // SAFETY: the frame exists, and its properties as long as it does.
        Map { host: self.host, map: unsafe { (self.host.api.get_frame_properties_ro)(self.frame) } }
    }

    /// The reference that a filter returns.
    pub fn into_raw(self) -> *const VsFrame {
        let frame = self.frame;
        std::mem::forget(self);
        frame
    }
}

impl Clone for FrameRef {
    fn clone(&self) -> FrameRef {
        // SAFETY: the frame exists.
        FrameRef { host: self.host, frame: unsafe { (self.host.api.add_frame_ref)(self.frame) } }
    }
}

impl Drop for FrameRef {
    fn drop(&mut self) {
        // SAFETY: this is the last use of the reference.
        unsafe { (self.host.api.free_frame)(self.frame) }
    }
}

/// A clip.
pub struct Node {
    host: Host,
    node: *mut VsNode,
}

// SAFETY: a clip is counted by atomics and may be used from any thread.
unsafe impl Send for Node {}
// SAFETY: as above.
unsafe impl Sync for Node {}

impl Node {
    /// What is known of it.
    pub fn info(&self) -> VsVideoInfo {
        // SAFETY: the clip is one of video.
        unsafe { *(self.host.api.get_video_info)(self.node) }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // SAFETY: this is the last use of the reference.
        unsafe { (self.host.api.free_node)(self.node) }
    }
}

/// The request of a frame.
#[derive(Clone, Copy)]
pub struct Request {
    host: Host,
    context: *mut VsFrameContext,
}

impl Request {
    /// The request of a call.
    ///
    /// # Safety
    ///
    /// `context` is that of the call, and the value does not outlive it.
    pub unsafe fn new(host: Host, context: *mut VsFrameContext) -> Request {
        Request { host, context }
    }

    /// The host of the call.
    pub fn host(self) -> Host {
        self.host
    }

    /// Requests frames of a clip.
    pub fn request(self, node: &Node, frames: std::ops::Range<usize>) {
        // SAFETY: clip and context exist.
        frames.for_each(|n| unsafe { (self.host.api.request_frame_filter)(n as c_int, node.node, self.context) });
    }

    /// A frame that was requested.
    pub fn frame(self, node: &Node, n: usize) -> FrameRef {
        // SAFETY: clip and context exist, and the frame was requested.
        FrameRef {
            host: self.host,
            frame: unsafe { (self.host.api.get_frame_filter)(n as c_int, node.node, self.context) },
        }
    }

    /// Gives back a frame that was requested.
    pub fn release(self, node: &Node, n: usize) {
        // SAFETY: clip and context exist.
        unsafe { (self.host.api.release_frame_early)(node.node, n as c_int, self.context) }
    }

    /// Ends the request with an error.
    pub fn fail(self, message: &str) {
        // SAFETY: the text is valid for the call.
        unsafe { (self.host.api.set_filter_error)(line(message).as_ptr(), self.context) }
    }
}

/// Named values.
#[derive(Clone, Copy)]
pub struct Map {
    host: Host,
    map: *const VsMap,
}

impl Map {
    /// The values of a call.
    ///
    /// # Safety
    ///
    /// `map` is that of the call, and the value does not outlive it.
    pub unsafe fn new(host: Host, map: *const VsMap) -> Map {
        Map { host, map }
    }

    /// An integer.
    pub fn int(&self, key: &CStr) -> Option<i64> {
        let mut error = 0;
        // SAFETY: map and key exist.
        let value = unsafe { (self.host.api.map_get_int)(self.map, key.as_ptr(), 0, &mut error) };
        (error == 0).then_some(value)
    }

    /// A float.
    pub fn float(&self, key: &CStr) -> Option<f64> {
        let mut error = 0;
        // SAFETY: map and key exist.
        let value = unsafe { (self.host.api.map_get_float)(self.map, key.as_ptr(), 0, &mut error) };
        (error == 0).then_some(value)
    }

    /// Text.
    pub fn text(&self, key: &CStr) -> Option<String> {
        let (mut error, api) = (0, self.host.api);
        // SAFETY: map and key exist.
        let data = unsafe { (api.map_get_data)(self.map, key.as_ptr(), 0, &mut error) };
        if error != 0 || data.is_null() {
            return None;
        }
        // SAFETY: as above; the value is there.
        let size = unsafe { (api.map_get_data_size)(self.map, key.as_ptr(), 0, &mut error) };
        // SAFETY: the core holds so many bytes.
        let bytes = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), size.max(0) as usize) };
        Some(String::from_utf8_lossy(bytes).into_owned())
    }

    /// A clip.
    pub fn node(&self, key: &CStr) -> Option<Node> {
        let mut error = 0;
        // SAFETY: map and key exist.
        let node = unsafe { (self.host.api.map_get_node)(self.map, key.as_ptr(), 0, &mut error) };
        (error == 0).then_some(Node { host: self.host, node })
    }
}

/// Named values that can be changed.
pub struct MapMut {
    host: Host,
    map: *mut VsMap,
}

impl MapMut {
    /// The results of a call.
    ///
    /// # Safety
    ///
    /// `map` is that of the call, and the value does not outlive it.
    pub unsafe fn new(host: Host, map: *mut VsMap) -> MapMut {
        MapMut { host, map }
    }

    /// Sets an integer.
    pub fn set(&mut self, key: &CStr, value: i64) {
        // SAFETY: map and key exist.
        unsafe { (self.host.api.map_set_int)(self.map, key.as_ptr(), value, REPLACE) };
    }

    /// Removes a value.
    pub fn remove(&mut self, key: &CStr) {
        // SAFETY: map and key exist.
        unsafe { (self.host.api.map_delete_key)(self.map, key.as_ptr()) };
    }

    /// Ends the call with an error.
    pub fn fail(&mut self, message: &str) {
        // SAFETY: the text is valid for the call.
        unsafe { (self.host.api.map_set_error)(self.map, line(message).as_ptr()) }
    }

    /// Adds a filter that requests frames of `source`. The core owns `instance` from here on.
    ///
    /// # Safety
    ///
    /// The functions take an `instance` as it is given here.
    pub unsafe fn add_filter(
        &mut self,
        (name, info): (&CStr, &VsVideoInfo),
        (get_frame, free): (VsFilterGetFrame, VsFilterFree),
        source: &Node,
        instance: *mut c_void,
    ) {
        let dependency = VsFilterDependency { source: source.node, request_pattern: GENERAL_REQUESTS };
        // SAFETY: all pointers are valid for the call.
        unsafe {
            (self.host.api.create_video_filter)(
                self.map,
                name.as_ptr(),
                info,
                get_frame,
                free,
                PARALLEL_REQUESTS,
                ptr::from_ref(&dependency),
                1,
                instance,
                self.host.core,
            );
        }
    }
}

/// One line for VapourSynth, with the name of the function.
fn line(text: &str) -> CString {
    let text = text.replace('\0', "").replace('\n', " ");
    CString::new(format!("Upscale: {text}")).unwrap_or_default()
}
