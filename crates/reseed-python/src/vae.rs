//! The VAE of a session by itself.

use std::sync::{Arc, PoisonError};

use pyo3::prelude::*;
use reseed::media::Size;
use reseed::{DeviceFrames, DeviceLatent, EncodedClip, Error, Latent, Observer, Thw};

use crate::buffer::Buffer;
use crate::clip::Clip;
use crate::dtype::Dtype;
use crate::errors::{Failure, Result};
use crate::frames::Frames;
use crate::job::{CancelToken, Watch, run};
use crate::session::PySession;
use crate::store::Store;
use crate::target::Target;

/// Frames, height, width and type of a clip.
type Extent = (usize, usize, usize, String);

/// The latent `[T, h, w, C]` of frames.
#[pyfunction]
#[pyo3(signature = (session, arrays, progress=None, cancel=None))]
pub fn encode<'py>(
    py: Python<'py>,
    session: &Bound<'py, PySession>,
    arrays: Vec<Bound<'py, PyAny>>,
    progress: Option<Bound<'py, PyAny>>,
    cancel: Option<Bound<'py, CancelToken>>,
) -> PyResult<(Frames, Extent)> {
    let clip = Clip::new(session.get().arrays(py, &arrays)?)?;
    let extent = (clip.frames, clip.size.h, clip.size.w, clip.dtype.name().to_owned());
    let load = session.get().loader();
    let job = move |observer: &mut dyn Observer| match clip.gpu_arrays() {
        Some(arrays) => {
            let DeviceLatent { thw, channels, values } = load()?.encode_arrays(&arrays, observer)?;
            Ok((Store::Gpu(values), thw, channels))
        }
        None => {
            let frames = (0..clip.frames).map(|i| clip.frame(i, None)).collect::<Result<Vec<_>>>()?;
            let latent = load()?.encode_watched(&frames, observer)?.latent;
            Ok((store(&latent.values)?, latent.thw, latent.channels()))
        }
    };
    let (store, thw, channels) = run(py, &Watch { progress, cancel }, job)?.value;
    Ok((Frames::of(store, vec![thw.t, thw.h, thw.w, channels], Dtype::F32), extent))
}

/// Values in memory that arrays can share.
fn store(values: &[f32]) -> Result<Store> {
    let bytes = size_of_val(values);
    let mut buffer = Buffer::zeros(bytes).ok_or(Error::OutOfHostMemory { what: "a latent", bytes })?;
    let (to, _) = buffer.as_mut_slice().as_chunks_mut::<4>();
    to.iter_mut().zip(values).for_each(|(to, value)| *to = value.to_ne_bytes());
    Ok(Store::Host(buffer))
}

/// The frames of a latent: as many and of the size and the type that `extent` has, or all that the latent holds.
#[pyfunction]
#[pyo3(signature = (session, latent, extent=None, progress=None, cancel=None))]
pub fn decode<'py>(
    py: Python<'py>,
    session: &Bound<'py, PySession>,
    latent: &Bound<'py, PyAny>,
    extent: Option<Extent>,
    progress: Option<Bound<'py, PyAny>>,
    cancel: Option<Bound<'py, CancelToken>>,
) -> PyResult<Frames> {
    let array = session.get().array(latent)?;
    let (shape, dtype) = (array.shape.clone(), array.dtype);
    let [t, h, w, channels] = shape[..] else {
        return Err(Failure::Input(format!("shape {shape:?}: a latent is [T, H, W, C]")).into());
    };
    if dtype != Dtype::F32 || t * h * w == 0 {
        let found = format!("a latent of {t}x{h}x{w} elements of type {}; give float32", dtype.name());
        return Err(Failure::Input(found).into());
    }
    let load = session.get().loader();
    let job = move |observer: &mut dyn Observer| {
        let vae = load()?;
        let [needed, pixels, per_latent] = vae.factors();
        if channels != needed {
            let found = format!("a latent of {channels} channels; this model has {needed}");
            return Err(Failure::Input(found));
        }
        let most = (1 + per_latent * (t - 1), pixels * h, pixels * w);
        let (frames, height, width, name) = extent.unwrap_or((most.0, most.1, most.2, "float32".into()));
        let dtype = Dtype::named(&name).ok_or_else(|| Failure::Usage(format!("{name} is no type of frames")))?;
        if frames == 0 || height == 0 || width == 0 || frames > most.0 || height > most.1 || width > most.2 {
            return Err(Failure::Usage(format!(
                "{frames} frames of {width}x{height} pixels: the latent holds 1 to {} of up to {}x{}",
                most.0, most.2, most.1
            )));
        }
        let size = Size { h: height, w: width };
        match array.gpu_array() {
            Some(latent) => {
                let wanted = DeviceFrames { frames, size, dtype: dtype.array_type() };
                let store = Store::Gpu(vae.decode_array(latent, wanted, observer)?);
                Ok(Frames::of(store, vec![frames, height, width, 3], dtype))
            }
            None => {
                let mut values = Vec::new();
                array.read_block(&[], &mut values)?;
                let latent = Latent { thw: Thw::new(t, h, w), values };
                let clip = EncodedClip { latent, frames, size, depth: dtype.depth() };
                let decoded = vae.decode_watched(&clip, observer)?;
                let target = Target::new(size, 3, dtype, decoded.len(), None)?;
                decoded.iter().enumerate().try_for_each(|(i, frame)| target.write(i, frame))?;
                target.into_frames()
            }
        }
    };
    Ok(run(py, &Watch { progress, cancel }, job)?.value)
}

/// The frames, the size and the type of everything that a latent holds.
#[pyfunction]
pub fn extent<'py>(py: Python<'py>, session: &Bound<'py, PySession>, latent: &Bound<'py, PyAny>) -> PyResult<Extent> {
    let shape = session.get().array(latent)?.shape;
    let [t, h, w, _] = shape[..] else {
        return Err(Failure::Input(format!("shape {shape:?}: a latent is [T, H, W, C]")).into());
    };
    let load = session.get().loader();
    let [_, pixels, per_latent] = run(py, &Watch::default(), move |_| Ok(load()?.factors()))?.value;
    Ok((1 + per_latent * t.saturating_sub(1), pixels * h, pixels * w, "float32".into()))
}

impl PySession {
    /// Loads the VAE, unless a call before has.
    fn loader(&self) -> impl FnOnce() -> Result<Arc<reseed::Vae>> + Send + use<> {
        let (engine, loaded) = (self.engine.clone(), self.vae.clone());
        move || {
            let mut loaded = loaded.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(vae) = &*loaded {
                return Ok(vae.clone());
            }
            let vae = Arc::new(engine.vae()?);
            *loaded = Some(vae.clone());
            Ok(vae)
        }
    }
}
