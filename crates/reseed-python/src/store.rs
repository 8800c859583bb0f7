//! Memory of a result, on the host or on the GPU of its session.

use reseed::{DeviceBuffer, Error};

use crate::buffer::Buffer;
use crate::dlpack::{CPU, CUDA, DeviceId};
use crate::errors::Result;

/// It lives until the last array that shares it is gone.
pub enum Store {
    Host(Buffer),
    Gpu(DeviceBuffer),
}

impl Store {
    pub fn address(&self) -> usize {
        match self {
            Store::Host(buffer) => buffer.as_ptr() as usize,
            Store::Gpu(buffer) => buffer.address() as usize,
        }
    }

    /// As DLPack names it.
    pub fn device(&self) -> DeviceId {
        match self {
            Store::Host(_) => DeviceId { kind: CPU, number: 0 },
            Store::Gpu(buffer) => DeviceId { kind: CUDA, number: buffer.ordinal() as i32 },
        }
    }

    /// As torch names it.
    pub fn device_name(&self) -> String {
        match self {
            Store::Host(_) => "cpu".into(),
            Store::Gpu(buffer) => format!("cuda:{}", buffer.ordinal()),
        }
    }

    /// A copy of a part in the same memory.
    pub fn copy(&self, from: usize, bytes: usize) -> Result<Store> {
        match self {
            Store::Host(_) => Ok(Store::Host(self.to_host(from, bytes)?)),
            Store::Gpu(buffer) => Ok(Store::Gpu(buffer.copy(from, bytes).map_err(Error::from)?)),
        }
    }

    /// A copy of a part in host memory.
    pub fn to_host(&self, from: usize, bytes: usize) -> Result<Buffer> {
        let mut copy = Buffer::zeros(bytes).ok_or(Error::OutOfHostMemory { what: "a copy of the frames", bytes })?;
        self.read(from, &mut copy.as_mut_slice()[..bytes])?;
        Ok(copy)
    }

    /// Copies a part to `to`.
    pub fn read(&self, from: usize, to: &mut [u8]) -> Result<()> {
        match self {
            Store::Host(buffer) => buffer.read(from, to),
            Store::Gpu(buffer) => buffer.read(from, to).map_err(Error::from)?,
        }
        Ok(())
    }
}
