//! Matrix products by NVIDIA's cuBLASLt, an optional library that is loaded at run time.

use std::ffi::{c_int, c_void};
use std::ptr;

use cudarc::driver::sys::CUstream;
use libloading::{Library, Symbol};
use reseed_ops::DType;

use crate::driver::Ptr;
use crate::tune::Product;

/// File names of the library, newest first.
const NAMES: [&str; 3] = if cfg!(windows) {
    ["cublasLt64_13.dll", "cublasLt64_12.dll", "cublasLt64_11.dll"]
} else {
    ["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"]
};

/// Bytes of workspace that its kernels may use.
pub const WORKSPACE: usize = 32 << 20;
/// Alignment of operands in bytes.
pub const ALIGNMENT: u64 = 256;
/// Most algorithms that are tried per product.
const TRIED: usize = 4;

/// An opaque object of the library.
type Handle = *mut c_void;
/// Result of a call; zero is success.
type Status = c_int;

/// One of the library's kernels and its configuration, valid for the same version of the library only.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Algorithm(pub [u64; 8]);

/// An algorithm that the library suggests for a product.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Suggestion {
    algorithm: Algorithm,
    workspace: usize,
    status: Status,
    waves: f32,
    reserved: [c_int; 4],
}

// Constants of cublasLt.h.
const COMPUTE_F32: c_int = 68;
const REAL_F32: c_int = 0;
const REAL_F16: c_int = 2;
const REAL_BF16: c_int = 14;
const TRANSPOSE_FIRST: c_int = 3;
const EPILOGUE: c_int = 7;
const BIAS_POINTER: c_int = 8;
const TRANSPOSED: c_int = 1;
const ADD_BIAS: c_int = 4;
const MOST_WORKSPACE: c_int = 1;

type Create = unsafe extern "C" fn(*mut Handle) -> Status;
type Destroy = unsafe extern "C" fn(Handle) -> Status;
type Set = unsafe extern "C" fn(Handle, c_int, *const c_void, usize) -> Status;
type Suggest = unsafe extern "C" fn(
    Handle,
    Handle,
    Handle,
    Handle,
    Handle,
    Handle,
    Handle,
    c_int,
    *mut Suggestion,
    *mut c_int,
) -> Status;
type Multiply = unsafe extern "C" fn(
    Handle,
    Handle,
    *const f32,
    Ptr,
    Handle,
    Ptr,
    Handle,
    *const f32,
    Ptr,
    Handle,
    Ptr,
    Handle,
    *const Algorithm,
    Ptr,
    usize,
    CUstream,
) -> Status;

/// The library's functions.
struct Calls {
    operation: unsafe extern "C" fn(*mut Handle, c_int, c_int) -> Status,
    set_operation: Set,
    drop_operation: Destroy,
    layout: unsafe extern "C" fn(*mut Handle, c_int, u64, u64, i64) -> Status,
    drop_layout: Destroy,
    preference: Create,
    set_preference: Set,
    drop_preference: Destroy,
    suggest: Suggest,
    multiply: Multiply,
    drop_handle: Destroy,
}

/// The loaded library.
pub struct CublasLt {
    /// Its version, 120804 for 12.8.4.
    pub version: usize,
    handle: Handle,
    calls: Calls,
    _library: Library,
}

// SAFETY: a handle of the library may be used from several threads at once.
unsafe impl Send for CublasLt {}
// SAFETY: as above.
unsafe impl Sync for CublasLt {}

/// Addresses of the operands of a product.
#[derive(Clone, Copy)]
pub struct Operands {
    pub x: Ptr,
    pub w: Ptr,
    /// In the type of x; null without a bias.
    pub bias: Ptr,
    pub y: Ptr,
    pub workspace: Ptr,
}

/// Loads the library that `RESEED_CUBLASLT` names, or the first one under a known name.
fn library() -> Result<(String, Library), String> {
    let named = std::env::var("RESEED_CUBLASLT").ok().filter(|path| !path.is_empty());
    let names: Vec<String> = named.map_or_else(|| NAMES.map(String::from).to_vec(), |path| vec![path]);
    for name in &names {
        // SAFETY: NVIDIA's library has no unsafe initialisers; the user vouches for a library in RESEED_CUBLASLT.
        if let Ok(library) = unsafe { Library::new(name) } {
            return Ok((name.clone(), library));
        }
    }
    Err(format!("cuBLASLt not found (tried {}); install it or set RESEED_CUBLASLT to its path", names.join(", ")))
}

/// Looks up the function cublasLt`name`.
///
/// # Safety
/// `T` is the type of that function.
unsafe fn call<T: Copy>(library: &Library, name: &str) -> Result<T, String> {
    // SAFETY: the caller's promise.
    let found: Result<Symbol<T>, _> = unsafe { library.get(format!("cublasLt{name}\0").as_bytes()) };
    found
        .map(|symbol| *symbol)
        .map_err(|_| format!("this cuBLASLt has no function cublasLt{name}; install version 11 or newer"))
}

/// File name and version of the library.
pub fn version() -> Result<(String, usize), String> {
    let (name, library) = library()?;
    // SAFETY: cublasLt.h declares this type.
    let version: unsafe extern "C" fn() -> usize = unsafe { call(&library, "GetVersion") }?;
    // SAFETY: takes no arguments and has no side effects.
    Ok((name, unsafe { version() }))
}

/// A version as text, such as 12.8.4.
pub fn version_text(version: usize) -> String {
    format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
}

impl CublasLt {
    /// Loads it for the GPU whose context is current.
    pub fn open() -> Result<CublasLt, String> {
        let (_, library) = library()?;
        // SAFETY: cublasLt.h declares these types.
        unsafe {
            let version: unsafe extern "C" fn() -> usize = call(&library, "GetVersion")?;
            let calls = Calls {
                operation: call(&library, "MatmulDescCreate")?,
                set_operation: call(&library, "MatmulDescSetAttribute")?,
                drop_operation: call(&library, "MatmulDescDestroy")?,
                layout: call(&library, "MatrixLayoutCreate")?,
                drop_layout: call(&library, "MatrixLayoutDestroy")?,
                preference: call(&library, "MatmulPreferenceCreate")?,
                set_preference: call(&library, "MatmulPreferenceSetAttribute")?,
                drop_preference: call(&library, "MatmulPreferenceDestroy")?,
                suggest: call(&library, "MatmulAlgoGetHeuristic")?,
                multiply: call(&library, "Matmul")?,
                drop_handle: call(&library, "Destroy")?,
            };
            let create: Create = call(&library, "Create")?;
            let mut handle = ptr::null_mut();
            match create(&mut handle) {
                0 => Ok(CublasLt { version: version(), handle, calls, _library: library }),
                status => Err(format!("cublasLtCreate failed with status {status}; Reseed's kernels are used")),
            }
        }
    }

    /// Algorithms that the library suggests, the best first.
    pub fn algorithms(&self, product: &Product) -> Vec<Algorithm> {
        let Some(described) = Described::new(self, product, Ptr::NULL) else { return Vec::new() };
        let Some(preference) = self.preference() else { return Vec::new() };
        let [w, x, y] = described.layouts;
        let (mut found, mut count) = ([Suggestion::default(); TRIED], 0);
        // SAFETY: the library created the handles for this product; `found` has room for TRIED suggestions.
        let status = unsafe {
            let status = (self.calls.suggest)(
                self.handle,
                described.operation,
                w,
                x,
                y,
                y,
                preference,
                TRIED as c_int,
                found.as_mut_ptr(),
                &mut count,
            );
            (self.calls.drop_preference)(preference);
            status
        };
        let count = if status == 0 { count as usize } else { 0 };
        let usable = |found: &&Suggestion| found.status == 0 && found.workspace <= WORKSPACE;
        found[..count.min(TRIED)].iter().filter(usable).map(|found| found.algorithm).collect()
    }

    fn preference(&self) -> Option<Handle> {
        let mut preference = ptr::null_mut();
        // SAFETY: writes one handle; the attribute is a size.
        unsafe {
            ((self.calls.preference)(&mut preference) == 0).then_some(())?;
            let most = ptr::from_ref(&WORKSPACE).cast();
            let status = (self.calls.set_preference)(preference, MOST_WORKSPACE, most, size_of::<usize>());
            if status != 0 {
                (self.calls.drop_preference)(preference);
            }
            (status == 0).then_some(preference)
        }
    }

    /// Queues y = x wᵀ + bias; `false` where the library does not support the product, and then nothing is queued.
    ///
    /// # Safety
    /// The pointers hold the operands of `product`, the workspace holds [`WORKSPACE`] bytes, and the context of
    /// `stream` is current.
    pub unsafe fn multiply(&self, product: &Product, at: Operands, algorithm: &Algorithm, stream: CUstream) -> bool {
        let Some(described) = Described::new(self, product, at.bias) else { return false };
        let [w, x, y] = described.layouts;
        // SAFETY: the caller's promise; factors are read before the call returns.
        let status = unsafe {
            (self.calls.multiply)(
                self.handle,
                described.operation,
                &1.0,
                at.w,
                w,
                at.x,
                x,
                &0.0,
                at.y,
                y,
                at.y,
                y,
                algorithm,
                at.workspace,
                WORKSPACE,
                stream,
            )
        };
        status == 0
    }
}

impl Drop for CublasLt {
    fn drop(&mut self) {
        // SAFETY: `open` created it. There is nothing to do about an error.
        let _ = unsafe { (self.calls.drop_handle)(self.handle) };
    }
}

/// A product as the library describes it. The library is column-major: rows here are its columns, and y = wᵀ x.
struct Described<'a> {
    library: &'a CublasLt,
    operation: Handle,
    /// Of w, x and y.
    layouts: [Handle; 3],
}

impl<'a> Described<'a> {
    fn new(library: &'a CublasLt, product: &Product, bias: Ptr) -> Option<Described<'a>> {
        let Product { dtype, rows, d_in, d_out, biased } = *product;
        let kind = match dtype {
            DType::F16 => REAL_F16,
            DType::Bf16 => REAL_BF16,
            DType::F32 => return None,
        };
        let mut described = Described { library, operation: ptr::null_mut(), layouts: [ptr::null_mut(); 3] };
        let calls = &library.calls;
        // SAFETY: each call writes one handle.
        unsafe {
            ((calls.operation)(&mut described.operation, COMPUTE_F32, REAL_F32) == 0).then_some(())?;
            let sizes = [(d_in, d_out), (d_in, rows), (d_out, rows)];
            for (layout, (height, width)) in described.layouts.iter_mut().zip(sizes) {
                ((calls.layout)(layout, kind, height as u64, width as u64, height as i64) == 0).then_some(())?;
            }
        }
        // SAFETY: cublasLt.h gives these attributes the types of the values.
        unsafe {
            described.set(TRANSPOSE_FIRST, &TRANSPOSED)?;
            if biased {
                described.set(EPILOGUE, &ADD_BIAS)?;
                described.set(BIAS_POINTER, &bias)?;
            }
        }
        Some(described)
    }

    /// Sets an attribute of the operation.
    ///
    /// # Safety
    /// `T` is the type of the attribute.
    unsafe fn set<T>(&self, attribute: c_int, value: &T) -> Option<()> {
        let set = self.library.calls.set_operation;
        // SAFETY: the caller's promise; the library copies the value.
        let status = unsafe { set(self.operation, attribute, ptr::from_ref(value).cast(), size_of::<T>()) };
        (status == 0).then_some(())
    }
}

impl Drop for Described<'_> {
    fn drop(&mut self) {
        let calls = &self.library.calls;
        // SAFETY: `new` created the handles that are not null.
        unsafe {
            if !self.operation.is_null() {
                (calls.drop_operation)(self.operation);
            }
            self.layouts.into_iter().filter(|layout| !layout.is_null()).for_each(|layout| {
                (calls.drop_layout)(layout);
            });
        }
    }
}
