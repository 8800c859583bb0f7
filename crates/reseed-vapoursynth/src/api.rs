//! The part of VapourSynth's C API 4.0 that the plugin calls, as the header `VapourSynth4.h` lays it out. Functions
//! that are not called only take their place in the table.

use std::ffi::{c_char, c_int, c_void};

/// A handle that only VapourSynth looks into.
macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident),*) => {
        $($(#[$doc])* #[repr(C)] pub struct $name { _private: [u8; 0] })*
    };
}

handles!(
    /// A frame.
    VsFrame,
    /// A filter in the graph.
    VsNode,
    /// The core.
    VsCore,
    /// A plugin.
    VsPlugin,
    /// Named values: arguments, results, or properties of a frame.
    VsMap,
    /// The request of one frame.
    VsFrameContext
);

/// The version of the API that the plugin needs: 4.0.
pub const API_VERSION: c_int = 4 << 16;

/// Colour families of a format.
pub const GREY: c_int = 1;
/// Red, green and blue.
pub const RGB: c_int = 2;
/// Luma and chroma.
pub const YUV: c_int = 3;

/// Sample type of integers.
pub const INTEGER: c_int = 0;
/// Sample type of floats.
pub const FLOAT: c_int = 1;

/// Frames are computed one at a time, and their inputs are requested in parallel.
pub const PARALLEL_REQUESTS: c_int = 1;
/// Any input frame may be requested for any output frame.
pub const GENERAL_REQUESTS: c_int = 0;
/// The filter is asked for a frame.
pub const INITIAL: c_int = 0;
/// All frames that the filter requested are available.
pub const ALL_FRAMES_READY: c_int = 1;
/// A value replaces those that a map has.
pub const REPLACE: c_int = 0;
/// A message that a user should see.
pub const WARNING: c_int = 2;

/// How a frame stores its samples.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VsVideoFormat {
    /// `GREY`, `RGB` or `YUV`; 0 where the format varies.
    pub color_family: c_int,
    /// `INTEGER` or `FLOAT`.
    pub sample_type: c_int,
    /// Significant bits of a sample.
    pub bits_per_sample: c_int,
    /// Bytes of a sample.
    pub bytes_per_sample: c_int,
    /// Base-2 logarithm of the horizontal subsampling of chroma.
    pub sub_sampling_w: c_int,
    /// Base-2 logarithm of the vertical subsampling of chroma.
    pub sub_sampling_h: c_int,
    /// Planes of a frame.
    pub num_planes: c_int,
}

/// What is known of a clip.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VsVideoInfo {
    /// The format of its frames.
    pub format: VsVideoFormat,
    /// Frames per second: numerator, or 0 where it varies.
    pub fps_num: i64,
    /// Denominator.
    pub fps_den: i64,
    /// Columns; 0 where they vary.
    pub width: c_int,
    /// Rows.
    pub height: c_int,
    /// Frames.
    pub num_frames: c_int,
}

/// A clip that a filter requests frames of.
#[repr(C)]
pub struct VsFilterDependency {
    /// The clip.
    pub source: *mut VsNode,
    /// Which frames are requested.
    pub request_pattern: c_int,
}

/// A function of a plugin.
pub type VsPublicFunction =
    unsafe extern "C" fn(input: *const VsMap, out: *mut VsMap, user: *mut c_void, core: *mut VsCore, api: *const VsApi);

/// Computes a frame, or requests what it needs.
pub type VsFilterGetFrame = unsafe extern "C" fn(
    n: c_int,
    reason: c_int,
    instance: *mut c_void,
    frame_data: *mut *mut c_void,
    context: *mut VsFrameContext,
    core: *mut VsCore,
    api: *const VsApi,
) -> *const VsFrame;

/// Frees a filter.
pub type VsFilterFree = unsafe extern "C" fn(instance: *mut c_void, core: *mut VsCore, api: *const VsApi);

/// What a plugin calls when it is loaded.
#[repr(C)]
pub struct VsPluginApi {
    /// The version of the core.
    pub get_api_version: unsafe extern "C" fn() -> c_int,
    /// Names the plugin: identifier, namespace, name, version, API version, flags.
    pub config_plugin:
        unsafe extern "C" fn(*const c_char, *const c_char, *const c_char, c_int, c_int, c_int, *mut VsPlugin) -> c_int,
    /// Registers a function: name, arguments, return type.
    pub register_function: unsafe extern "C" fn(
        *const c_char,
        *const c_char,
        *const c_char,
        VsPublicFunction,
        *mut c_void,
        *mut VsPlugin,
    ) -> c_int,
}

/// The place of a function that the plugin does not call.
pub type Unused = Option<unsafe extern "C" fn()>;

/// The functions of the core, in the order of the header.
#[repr(C)]
pub struct VsApi {
    /// Adds a filter to the output of a function.
    pub create_video_filter: unsafe extern "C" fn(
        *mut VsMap,
        *const c_char,
        *const VsVideoInfo,
        VsFilterGetFrame,
        VsFilterFree,
        c_int,
        *const VsFilterDependency,
        c_int,
        *mut c_void,
        *mut VsCore,
    ),
    /// createVideoFilter2 to setCacheOptions.
    pub unused_filters: [Unused; 6],
    /// Releases a clip.
    pub free_node: unsafe extern "C" fn(*mut VsNode),
    /// addNodeRef, getNodeType.
    pub unused_nodes: [Unused; 2],
    /// What is known of a clip.
    pub get_video_info: unsafe extern "C" fn(*mut VsNode) -> *const VsVideoInfo,
    /// getAudioInfo.
    pub unused_audio_info: Unused,
    /// A frame with the properties of another.
    pub new_video_frame:
        unsafe extern "C" fn(*const VsVideoFormat, c_int, c_int, *const VsFrame, *mut VsCore) -> *mut VsFrame,
    /// newVideoFrame2 to newAudioFrame2.
    pub unused_new_frames: [Unused; 3],
    /// Releases a frame.
    pub free_frame: unsafe extern "C" fn(*const VsFrame),
    /// Another reference to a frame.
    pub add_frame_ref: unsafe extern "C" fn(*const VsFrame) -> *const VsFrame,
    /// copyFrame.
    pub unused_copy_frame: Unused,
    /// The properties of a frame.
    pub get_frame_properties_ro: unsafe extern "C" fn(*const VsFrame) -> *const VsMap,
    /// The same, to change them.
    pub get_frame_properties_rw: unsafe extern "C" fn(*mut VsFrame) -> *mut VsMap,
    /// Bytes from a row of a plane to the next.
    pub get_stride: unsafe extern "C" fn(*const VsFrame, c_int) -> isize,
    /// The first row of a plane.
    pub get_read_ptr: unsafe extern "C" fn(*const VsFrame, c_int) -> *const u8,
    /// The same, to write to it.
    pub get_write_ptr: unsafe extern "C" fn(*mut VsFrame, c_int) -> *mut u8,
    /// getVideoFrameFormat to getFrameType.
    pub unused_frame_formats: [Unused; 3],
    /// Columns of a plane.
    pub get_frame_width: unsafe extern "C" fn(*const VsFrame, c_int) -> c_int,
    /// Rows of a plane.
    pub get_frame_height: unsafe extern "C" fn(*const VsFrame, c_int) -> c_int,
    /// getFrameLength.
    pub unused_frame_length: Unused,
    /// The name of a format, in a buffer of 32 bytes.
    pub get_video_format_name: unsafe extern "C" fn(*const VsVideoFormat, *mut c_char) -> c_int,
    /// getAudioFormatName to getVideoFormatByID.
    pub unused_formats: [Unused; 5],
    /// getFrame, getFrameAsync.
    pub unused_get_frames: [Unused; 2],
    /// A frame that was requested.
    pub get_frame_filter: unsafe extern "C" fn(c_int, *mut VsNode, *mut VsFrameContext) -> *const VsFrame,
    /// Requests a frame.
    pub request_frame_filter: unsafe extern "C" fn(c_int, *mut VsNode, *mut VsFrameContext),
    /// Gives back a frame that was requested.
    pub release_frame_early: unsafe extern "C" fn(*mut VsNode, c_int, *mut VsFrameContext),
    /// cacheFrame.
    pub unused_cache_frame: Unused,
    /// Ends the request of a frame with an error.
    pub set_filter_error: unsafe extern "C" fn(*const c_char, *mut VsFrameContext),
    /// createFunction to callFunction.
    pub unused_functions: [Unused; 4],
    /// createMap to copyMap.
    pub unused_maps: [Unused; 4],
    /// Ends a function with an error.
    pub map_set_error: unsafe extern "C" fn(*mut VsMap, *const c_char),
    /// mapGetError to mapGetKey.
    pub unused_keys: [Unused; 3],
    /// Removes a key.
    pub map_delete_key: unsafe extern "C" fn(*mut VsMap, *const c_char) -> c_int,
    /// mapNumElements to mapSetEmpty.
    pub unused_elements: [Unused; 3],
    /// An integer.
    pub map_get_int: unsafe extern "C" fn(*const VsMap, *const c_char, c_int, *mut c_int) -> i64,
    /// mapGetIntSaturated, mapGetIntArray.
    pub unused_get_ints: [Unused; 2],
    /// Sets an integer.
    pub map_set_int: unsafe extern "C" fn(*mut VsMap, *const c_char, i64, c_int) -> c_int,
    /// mapSetIntArray.
    pub unused_set_ints: Unused,
    /// A float.
    pub map_get_float: unsafe extern "C" fn(*const VsMap, *const c_char, c_int, *mut c_int) -> f64,
    /// mapGetFloatSaturated to mapSetFloatArray.
    pub unused_floats: [Unused; 4],
    /// Text.
    pub map_get_data: unsafe extern "C" fn(*const VsMap, *const c_char, c_int, *mut c_int) -> *const c_char,
    /// Its bytes.
    pub map_get_data_size: unsafe extern "C" fn(*const VsMap, *const c_char, c_int, *mut c_int) -> c_int,
    /// mapGetDataTypeHint, mapSetData.
    pub unused_data: [Unused; 2],
    /// A clip.
    pub map_get_node: unsafe extern "C" fn(*const VsMap, *const c_char, c_int, *mut c_int) -> *mut VsNode,
    /// mapSetNode to mapConsumeFunction.
    pub unused_set_nodes: [Unused; 8],
    /// registerFunction to invoke.
    pub unused_plugins: [Unused; 15],
    /// createCore to getAPIVersion.
    pub unused_core: [Unused; 6],
    /// Prints a message.
    pub log_message: unsafe extern "C" fn(c_int, *const c_char, *mut VsCore),
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    /// The header has 104 functions up to `logMessage`; `mapGetInt` is the 60th.
    #[test]
    fn the_table_has_the_layout_of_the_header() {
        let pointer = size_of::<usize>();
        assert_eq!(size_of::<VsApi>(), 104 * pointer);
        assert_eq!(offset_of!(VsApi, get_frame_filter), 38 * pointer);
        assert_eq!(offset_of!(VsApi, map_get_int), 59 * pointer);
        assert_eq!(offset_of!(VsApi, map_get_node), 73 * pointer);
    }
}
