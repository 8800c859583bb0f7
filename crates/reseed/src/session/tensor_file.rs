//! Clips as tensors `[T, C, H, W]` in safetensors files, read and written frame by frame.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use reseed_media::Error as Media;
use reseed_model::weights::Source;
use reseed_model::weights::safetensors::{Safetensors, header, write_values};
use reseed_ops::{Hw, Shape};

use crate::error::{Error, Result};

/// A clip in a file.
pub struct TensorInput {
    file: Safetensors,
    name: String,
    /// Frames.
    pub frames: usize,
    /// Channels of a frame.
    pub channels: usize,
    /// Size of a frame.
    pub plane: Hw,
}

impl TensorInput {
    /// Opens the tensor `input`, or the only one.
    pub fn open(path: &Path) -> Result<TensorInput> {
        let file = Safetensors::open(path).map_err(Error::Tensor)?;
        let names: Vec<&String> = file.shapes().keys().collect();
        let name = match names[..] {
            [only] => only.clone(),
            _ if file.shapes().contains_key("input") => "input".to_string(),
            _ => {
                return Err(unusable(path, format!("none of its {} tensors is called `input`", names.len())));
            }
        };
        let shape = file.shapes()[&name];
        let &[frames, channels, h, w] = shape.dims() else {
            let reason = format!("`{name}` is {shape}; it must be [frames, channels, height, width]");
            return Err(unusable(path, reason));
        };
        if shape.count() == 0 {
            return Err(unusable(path, format!("`{name}` is {shape}: there is nothing in it")));
        }
        Ok(TensorInput { file, name, frames, channels, plane: Hw::new(h, w) })
    }

    /// An error unless the channels are among `allowed`.
    pub fn needs_channels(&self, allowed: &[usize], what: &str) -> Result<()> {
        if allowed.contains(&self.channels) {
            return Ok(());
        }
        let allowed: Vec<String> = allowed.iter().map(usize::to_string).collect();
        let (allowed, name, channels) = (allowed.join(" or "), &self.name, self.channels);
        Err(unusable(self.file.path(), format!("`{name}` has {channels} channels; {what} have {allowed}")))
    }

    /// Frame `i` as `[H, W, C]` with its first `channels` channels.
    pub fn frame(&self, i: usize, channels: usize) -> Result<Vec<f32>> {
        let size = self.plane.count();
        let values =
            self.file.read_range(&self.name, i * size * self.channels, size * channels).map_err(Error::Tensor)?;
        let mut frame = vec![0.0; values.len()];
        for (c, plane) in values.chunks_exact(size).enumerate() {
            plane.iter().enumerate().for_each(|(p, v)| frame[p * channels + c] = *v);
        }
        Ok(frame)
    }

    /// A whole number from the file's metadata.
    pub fn number(&self, key: &str) -> Option<usize> {
        self.file.metadata(key)?.parse().ok()
    }
}

fn unusable(path: &Path, reason: String) -> Error {
    Error::Unusable { path: path.into(), reason }
}

/// A file that gets its final name when it is complete.
pub struct TensorOutput {
    path: PathBuf,
    partial: PathBuf,
    file: Option<BufWriter<File>>,
}

impl TensorOutput {
    /// Starts a file with the one tensor `output`.
    pub fn create(path: &Path, shape: Shape, metadata: &BTreeMap<String, String>) -> Result<TensorOutput> {
        if path.is_dir() {
            return Err(Error::Output(Media::IsFolder { path: path.into() }));
        }
        let Some(name) = path.file_name() else {
            return Err(Error::Output(Media::UnknownOutput { path: path.into(), expected: "the name of a file" }));
        };
        if let Some(parent) = path.parent().filter(|parent| *parent != Path::new("") && !parent.is_dir()) {
            return Err(Error::Output(Media::NoParent { path: path.into(), parent: parent.into() }));
        }
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(".partial");
        let partial = path.with_file_name(hidden);
        let mut file = BufWriter::new(File::create(&partial).map_err(|e| Error::write(path, e))?);
        let written = file.write_all(&header(&[("output", shape)], metadata));
        let output = TensorOutput { path: path.into(), partial, file: Some(file) };
        written.map_err(|e| Error::write(path, e))?;
        Ok(output)
    }

    /// The file until it is complete, which is removed on drop.
    pub fn partial(&self) -> &Path {
        &self.partial
    }

    /// Appends a frame `[H, W, C]` as `[C, H, W]`.
    pub fn frame(&mut self, frame: &[f32], channels: usize) -> Result<()> {
        let size = frame.len() / channels;
        let mut planes = vec![0.0; frame.len()];
        for (p, pixel) in frame.chunks_exact(channels).enumerate() {
            pixel.iter().enumerate().for_each(|(c, v)| planes[c * size + p] = *v);
        }
        let file = self.file.as_mut().expect("an output is written before it is finished");
        write_values(file, &planes).map_err(|e| Error::write(&self.path, e))
    }

    /// Gives the file its final name.
    pub fn finish(mut self) -> Result<()> {
        let file = self.file.take().expect("an output is finished once");
        let closed = file.into_inner().map_err(|e| e.into_error()).and_then(|file| file.sync_all());
        let named = closed.and_then(|()| reseed_media::files::rename(&self.partial, &self.path));
        named.map_err(|e| Error::write(&self.path, e))
    }
}

impl Drop for TensorOutput {
    fn drop(&mut self) {
        // After `finish` there is nothing to remove.
        self.file = None;
        let _ = std::fs::remove_file(&self.partial);
    }
}
