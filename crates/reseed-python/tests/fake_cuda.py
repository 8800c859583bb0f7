"""A program for the fake CUDA driver, which counts memory and computes nothing: arrays on a GPU that this machine need
not have. Prints one line when every assertion has held."""

import ctypes
import gc

import reseed
from reseed import _reseed

CUDA = 2
driver = ctypes.CDLL("libcuda.so.1")


class Tensor(ctypes.Structure):
    """A tensor of DLPack version 0.8."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint8 * 4),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


class Array:
    """An array of another library on a GPU."""

    def __init__(self, shape, bits=8, code=1, device=(CUDA, 0), address=1 << 45):
        self.device, self.address, self.streams = device, address, []
        self.sides = (ctypes.c_int64 * len(shape))(*shape)
        dtype = (ctypes.c_uint8 * 4)(code, bits, 1, 0)
        self.tensor = Tensor(address, (ctypes.c_int32 * 2)(*device), len(shape), dtype, self.sides)

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, stream=None):
        """As libraries from before DLPack 1 have it: without its further arguments."""
        self.streams.append(stream)
        capsule = ctypes.pythonapi.PyCapsule_New
        capsule.restype, capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return capsule(ctypes.addressof(self.tensor), b"dltensor", None)


def used():
    """Bytes that are allocated on the GPU."""
    gc.collect()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    return total.value - free.value


def pointer(capsule, name=b"dltensor"):
    """The address of a capsule's elements."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return Tensor.from_address(get(capsule, name)).data


def main():
    session = reseed.Session("formula:tiny", device="cuda:0", dtype="f32")
    native, empty = session._native, used()
    frames = Array((6, 16, 24, 3))
    assert native.gpu == 0 and _reseed.address(frames, native) == frames.address, "read in place"
    assert frames.streams[-1] == 1, "the stream of kernels, which this driver made first"

    latent = session.vae.encode(frames)
    assert (latent.device, latent.shape, latent.dtype) == ("cuda:0", (3, 2, 3, 16), "float32")
    assert latent.__dlpack_device__() == (CUDA, 0) and not hasattr(latent, "__array_interface__")
    assert _reseed.address(latent, native) == pointer(latent.__dlpack__()), "one memory"
    assert pointer(latent.__dlpack__(stream=7)) == pointer(latent.__dlpack__())

    decoded = session.vae.decode(latent)
    assert repr(decoded) == "Frames(shape=(6, 16, 24, 3), dtype='uint8', device='cuda:0')"
    assert _reseed.address(decoded[2], native) == pointer(decoded.__dlpack__()) + 2 * decoded[2].nbytes
    cropped = session.vae.decode(latent, frames=3, height=15, dtype="float16")
    assert (cropped.shape, cropped.dtype, cropped.device) == ((3, 15, 24, 3), "float16", "cuda:0")
    copied = decoded.cpu()
    assert copied.device == "cpu" and copied.shape == decoded.shape and len(decoded.tobytes()) == decoded.nbytes
    own = _reseed.address(decoded, native)
    assert pointer(decoded.__dlpack__(copy=True)) != own and pointer(decoded.__dlpack__(dl_device=(1, 0))) != own

    half = Array((2, 16, 24, 4), bits=16, code=2)
    upscaled = session.upscale_frames(half, scale=2)
    assert (upscaled.shape, upscaled.dtype, upscaled.device) == ((2, 32, 48, 4), "float16", "cuda:0")
    images = session.upscale_frames([Array((16, 24, 1)), Array((8, 8))], independent=True, scale=2)
    assert [(each.shape, each.device) for each in images] == [((32, 48, 1), "cuda:0"), ((16, 16), "cuda:0")]
    mixed = session.upscale_frames([Array((16, 24, 3)), reseed.Frames.zeros((16, 24, 3))], scale=2)
    assert mixed.device == "cpu", "a clip that is not all on the GPU"

    for wrong, message in ((Array((1, 8, 8, 3), bits=64, code=2), "float64"), (Array((1, 3, 8, 8)), "last dimension")):
        try:
            session.vae.encode(wrong)
        except reseed.InputError as error:
            assert message in str(error), error
        else:
            raise AssertionError(message)
    try:
        session.vae.encode(Array((1, 8, 8, 3), device=(CUDA, 1)))
    except reseed.InputError as error:
        assert "device memory" in str(error), error
    else:
        raise AssertionError("a tensor of another GPU")

    session.unload()
    results = [latent, decoded, cropped, upscaled, *images]
    bytes_of = [latent._values.nbytes, *(each.nbytes for each in results[1:])]
    assert used() == empty + sum(bytes_of), "results are left, nothing else"
    capsule, size = decoded.__dlpack__(max_version=(1, 0)), decoded.nbytes
    del latent, cropped, upscaled, images, results, decoded
    assert used() == empty + size, "a capsule keeps its memory"
    del capsule
    assert used() == empty, "the last reference frees it"
    assert session.vae.encode(frames).shape == (3, 2, 3, 16), "a session opens its device again"
    print("all of it holds")


main()
