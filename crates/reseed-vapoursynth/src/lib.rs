//! The VapourSynth plugin of Reseed: `core.reseed.Upscale(clip, ...)` restores and upscales a clip with SeedVR2-family
//! models.
//!
//! A frame has the bytes that a job on the whole clip gives it, in whatever order frames are requested. The filter
//! finds the cuts of the clip as far as it must, requests the frames of the batches that a frame needs, computes these,
//! and keeps the results of the last batches. VapourSynth's C API is declared here, since the plugin needs few of its
//! functions.
#![deny(missing_docs)]

pub mod api;
mod args;
mod cache;
mod filter;
mod format;
mod host;
mod sessions;

use std::any::Any;
use std::ffi::{CStr, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use api::{API_VERSION, VsApi, VsCore, VsFrame, VsFrameContext, VsMap, VsPlugin, VsPluginApi};
use filter::{Filter, FrameState};
use host::{Host, Map, MapMut, Request};

/// The name of the plugin's only function.
const FUNCTION: &CStr = c"Upscale";
/// Version 0.1 of the plugin.
const VERSION: c_int = 1;

/// The entry point of the plugin.
///
/// # Safety
///
/// VapourSynth calls it with its own pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VapourSynthPluginInit2(plugin: *mut VsPlugin, api: *const VsPluginApi) {
    let name = c"Restores and upscales clips with SeedVR2-family models";
    // SAFETY: the table is valid for the call, and all texts are static.
    unsafe {
        let VsPluginApi { config_plugin, register_function, .. } = *api;
        config_plugin(
            c"com.reseed.upscale".as_ptr(),
            c"reseed".as_ptr(),
            name.as_ptr(),
            VERSION,
            API_VERSION,
            0,
            plugin,
        );
        let (arguments, result) = (args::SIGNATURE.as_ptr(), c"clip:vnode;".as_ptr());
        register_function(FUNCTION.as_ptr(), arguments, result, create, std::ptr::null_mut(), plugin);
    }
}

/// `Upscale(clip, ...)`: adds the filter, or fails with one line.
unsafe extern "C" fn create(
    input: *const VsMap,
    out: *mut VsMap,
    _: *mut c_void,
    core: *mut VsCore,
    api: *const VsApi,
) {
    // SAFETY: the pointers are those of the call.
    let (host, input, mut out) = unsafe {
        let host = Host::new(api, core);
        (host, Map::new(host, input), MapMut::new(host, out))
    };
    match caught(|| Filter::new(host, &input)) {
        Ok(filter) => {
            let (info, instance) = (filter.output_info(), Box::into_raw(Box::new(filter)));
            // SAFETY: the instance is a filter, which `free` drops once. The core keeps the clip alive until then.
            unsafe { out.add_filter((FUNCTION, &info), (get_frame, free), (*instance).source(), instance.cast()) };
        }
        Err(message) => out.fail(&message),
    }
}

/// Computes a frame, or requests the frames that it needs first.
unsafe extern "C" fn get_frame(
    n: c_int,
    reason: c_int,
    instance: *mut c_void,
    frame_data: *mut *mut c_void,
    context: *mut VsFrameContext,
    core: *mut VsCore,
    api: *const VsApi,
) -> *const VsFrame {
    // SAFETY: the pointers are those of the call; the instance is a filter; a frame has at least two values of its own.
    let (request, filter, data) = unsafe {
        let host = Host::new(api, core);
        (Request::new(host, context), &*instance.cast::<Filter>(), std::slice::from_raw_parts_mut(frame_data, 2))
    };
    let mut state = match reason {
        api::INITIAL => FrameState::default(),
        api::ALL_FRAMES_READY => FrameState { available: data[0] as usize..data[1] as usize },
        _ => return std::ptr::null(),
    };
    let frame = caught(|| filter.frame(n as usize, &mut state, request));
    // The range that was requested, as two numbers: there is nothing to free when a request ends early.
    (data[0], data[1]) = (state.available.start as *mut c_void, state.available.end as *mut c_void);
    match frame {
        Ok(frame) => frame.map_or(std::ptr::null(), host::FrameRef::into_raw),
        Err(message) => {
            request.fail(&message);
            std::ptr::null()
        }
    }
}

/// Drops the filter.
unsafe extern "C" fn free(instance: *mut c_void, _: *mut VsCore, _: *const VsApi) {
    // SAFETY: the core frees an instance once, after its last frame.
    drop(unsafe { Box::from_raw(instance.cast::<Filter>()) });
}

/// The result of `work`; a panic becomes an error, since it must not reach VapourSynth.
fn caught<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic: Box<dyn Any + Send>| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given");
        Err(format!("internal error: {text}"))
    })
}
