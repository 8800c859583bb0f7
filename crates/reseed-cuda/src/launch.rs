//! Launching kernels by name.

use std::ffi::{CString, c_uint, c_void};
use std::marker::PhantomData;
use std::ptr;
use std::sync::PoisonError;

use cudarc::driver::{result, sys};
use reseed_ops::Result;

use crate::driver::{Driver, Ptr};
use crate::params::ConvArgs;
use crate::stream::Stream;

/// Shared memory that a kernel may use without an attribute.
const SHARED: usize = 48 << 10;

/// A kernel that has been looked up, and the shared memory that it may use.
pub struct Function {
    handle: sys::CUfunction,
    shared: usize,
}

/// Blocks of a launch, threads of a block, bytes of shared memory.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    pub blocks: [usize; 3],
    pub threads: [usize; 2],
    pub shared: usize,
}

impl Grid {
    /// One-dimensional blocks and no dynamic shared memory.
    pub fn new(blocks: [usize; 3], threads: usize) -> Grid {
        Grid { blocks, threads: [threads, 1], shared: 0 }
    }
}

/// A kernel argument passed by value, with the same layout in Rust and CUDA C++.
pub trait Arg {}

impl Arg for i32 {}
impl Arg for i64 {}
impl Arg for f32 {}
impl Arg for Ptr {}
impl Arg for ConvArgs {}
impl Arg for sys::CUtensorMap {}
impl Arg for [sys::CUtensorMap; 4] {}

/// Address of an argument, for its lifetime.
#[repr(transparent)]
pub struct Argument<'a>(*mut c_void, PhantomData<&'a ()>);

/// Address of an argument.
pub fn arg<T: Arg>(value: &T) -> Argument<'_> {
    Argument(ptr::from_ref(value).cast_mut().cast(), PhantomData)
}

/// Arguments of a kernel, which live to the end of the statement that launches it.
macro_rules! args {
    ($($value:expr),* $(,)?) => { &mut [$($crate::launch::arg(&$value)),*] };
}
pub(crate) use args;

impl Driver {
    /// Queues a kernel of a network.
    ///
    /// # Safety
    /// `args` match the kernel's parameters in order and type, and its pointers hold what it reads and writes.
    pub unsafe fn launch(&self, name: &str, grid: Grid, args: &mut [Argument]) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.launch_on(Stream::Compute, name, grid, args) }
    }

    /// Queues a kernel on a stream; a grid without blocks launches nothing.
    ///
    /// # Safety
    /// As for [`Driver::launch`].
    pub unsafe fn launch_on(&self, stream: Stream, name: &str, grid: Grid, args: &mut [Argument]) -> Result<()> {
        let [x, y, z] = grid.blocks;
        if x * y * z == 0 {
            return Ok(());
        }
        assert!(x < 1 << 31 && y < 1 << 16 && z < 1 << 16, "{name}: {grid:?} exceeds the limits of CUDA");
        self.enter()?;
        let function = self.function(name, grid.shared)?;
        let [blocks_x, blocks_y, blocks_z] = grid.blocks.map(|n| n as c_uint);
        let [threads_x, threads_y] = grid.threads.map(|n| n as c_uint);
        // SAFETY: the caller's promise; the driver copies the arguments before the call returns.
        let status = unsafe {
            sys::cuLaunchKernel(
                function,
                blocks_x,
                blocks_y,
                blocks_z,
                threads_x,
                threads_y,
                1,
                grid.shared as c_uint,
                self.handle(stream),
                args.as_mut_ptr().cast(),
                ptr::null_mut(),
            )
        };
        status.result().map_err(|error| self.failed(&format!("launch of {name} {grid:?}"), error))
    }

    fn function(&self, name: &str, shared: usize) -> Result<sys::CUfunction> {
        let mut known = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = known.get(name).filter(|function| shared <= function.shared) {
            return Ok(function.handle);
        }
        let symbol = CString::new(name).expect("names of kernels have no zero byte");
        // SAFETY: the module is held until this value is dropped.
        let handle = unsafe { result::module::get_function(self.module, symbol) };
        let handle = handle.map_err(|error| self.failed(&format!("lookup of {name}"), error))?;
        if shared > SHARED {
            use sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as MAXIMUM;
            // SAFETY: `handle` is a function of the module.
            let granted = unsafe { result::function::set_function_attribute(handle, MAXIMUM, shared as i32) };
            granted.map_err(|error| self.failed(&format!("{shared} bytes of shared memory for {name}"), error))?;
        }
        known.insert(name.to_string(), Function { handle, shared: shared.max(SHARED) });
        Ok(handle)
    }
}
