//! `core.reseed.Upscale` as the core calls it.

use std::ffi::c_int;
use std::ptr;
use std::rc::Rc;

use reseed_vapoursynth::VapourSynthPluginInit2;
use reseed_vapoursynth::api::{ALL_FRAMES_READY, INITIAL, VsApi, VsPluginApi, VsVideoInfo};

use crate::fake_frame::{FakeFrame, Value};
use crate::fake_host::{
    Added, FUNCTION, FakeContext, FakeMap, FakeNode, LIVE, LOG, api, config, counted, frame as counted_frame,
    free_frame, register, version,
};

/// `core.reseed.Upscale` on a clip.
pub struct Upscale {
    api: &'static VsApi,
    node: Rc<FakeNode>,
    filter: Added,
}

/// The functions, which live as long as the library of the real core.
fn table() -> &'static VsApi {
    Box::leak(Box::new(api()))
}

impl Upscale {
    /// Calls the function of the plugin.
    pub fn new(frames: Vec<FakeFrame>, arguments: &[(&str, Value)]) -> Result<Upscale, String> {
        let plugin = VsPluginApi { get_api_version: version, config_plugin: config, register_function: register };
        unsafe { VapourSynthPluginInit2(ptr::null_mut(), &plugin) };
        let function = FUNCTION.with_borrow(|function| function.unwrap());
        let FakeFrame { format, size: [w, h], .. } = frames[0];
        let (num_frames, width, height) = (frames.len() as c_int, w as c_int, h as c_int);
        let info = VsVideoInfo { format, fps_num: 25, fps_den: 1, width, height, num_frames };
        let node = Rc::new(FakeNode { info, frames });
        let values = arguments.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
        let input = FakeMap { values, node: Rc::as_ptr(&node).cast_mut().cast(), ..FakeMap::default() };
        let (mut out, api) = (FakeMap::default(), table());
        unsafe {
            function(
                ptr::from_ref(&input).cast(),
                ptr::from_mut(&mut out).cast(),
                ptr::null_mut(),
                ptr::null_mut(),
                api,
            );
        }
        match out.error {
            Some(error) => Err(error),
            None => Ok(Upscale { api, node, filter: out.filter.unwrap() }),
        }
    }

    /// Columns and rows of the output.
    pub fn size(&self) -> [usize; 2] {
        [self.filter.info.width as usize, self.filter.info.height as usize]
    }

    /// A frame, and how many frames of the source were in memory at once.
    pub fn frame(&self, n: usize) -> Result<(FakeFrame, usize), String> {
        let (mut context, mut data) = (FakeContext::default(), [ptr::null_mut(); 4]);
        let mut reason = INITIAL;
        let result = loop {
            let Added { get_frame, instance, .. } = self.filter;
            let context_ptr = ptr::from_mut(&mut context).cast();
            let data = data.as_mut_ptr();
            let frame =
                unsafe { get_frame(n as c_int, reason, instance, data, context_ptr, ptr::null_mut(), self.api) };
            if let Some(error) = context.error.take() {
                assert!(frame.is_null(), "a frame and an error");
                break Err(error);
            }
            if !frame.is_null() {
                assert!(context.requested.is_empty(), "a frame and requests");
                let copy = unsafe { counted_frame(frame) }.frame.clone();
                unsafe { free_frame(frame) };
                break Ok(copy);
            }
            assert!(!context.requested.is_empty(), "neither a frame nor requests");
            for n in std::mem::take(&mut context.requested) {
                let source = self.node.frames[n as usize].clone();
                if let Some(twice) = context.available.insert(n, counted(source)) {
                    unsafe { free_frame(twice) };
                }
            }
            context.most = context.most.max(context.available.len());
            reason = ALL_FRAMES_READY;
        };
        context.available.drain().for_each(|(_, frame)| unsafe { free_frame(frame) });
        result.map(|frame| (frame, context.most))
    }
}

impl Drop for Upscale {
    fn drop(&mut self) {
        unsafe { (self.filter.free)(self.filter.instance, ptr::null_mut(), self.api) };
    }
}

/// The messages since the last call.
pub fn messages() -> Vec<String> {
    LOG.take()
}

/// Frames that nobody released.
pub fn live_frames() -> isize {
    LIVE.get()
}
