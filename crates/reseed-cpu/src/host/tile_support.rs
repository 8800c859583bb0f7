//! Detects matrix instructions for bf16. The operating system must give permission to use those of AMX.

/// Whether this CPU has them and the operating system lets this process use them. Asks once.
pub fn available() -> bool {
    static AVAILABLE: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *AVAILABLE.get_or_init(cpu::has_tiles)
}

/// Whether a test of tiles must be skipped. Prints the reason, so that a skipped test is visible.
#[cfg(test)]
pub fn skip_test() -> bool {
    use std::io::Write;
    if !available() {
        let why = "this CPU has no matrix instructions for bf16, or the operating system does not allow them";
        let _ = writeln!(std::io::stderr(), "skipped: {why}");
    }
    !available()
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod cpu {
    use std::arch::asm;
    use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};

    /// CPUID leaf 7, register EDX: AMX-BF16 and AMX-TILE.
    const AMX_FEATURES: u32 = 1 << 22 | 1 << 24;
    /// State components of XCR0: tile configuration and tile data.
    const TILE_STATE: u64 = 1 << 17 | 1 << 18;

    pub fn has_tiles() -> bool {
        let avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bf16");
        if !avx512 || __cpuid(0).eax < 7 || __cpuid_count(7, 0).edx & AMX_FEATURES != AMX_FEATURES {
            return false;
        }
        // SAFETY: a CPU with AVX-512 that the operating system has enabled has `xgetbv`.
        if unsafe { xcr0() } & TILE_STATE != TILE_STATE {
            return false;
        }
        const ARCH_PRCTL: usize = 158;
        const ARCH_REQ_XCOMP_PERM: usize = 0x1023;
        const XFEATURE_XTILEDATA: usize = 18;
        let error: isize;
        // SAFETY: this system call reads and writes no memory of the process. The kernel overwrites `rcx` and `r11`,
        // which are declared.
        unsafe {
            asm!(
                "syscall",
                inlateout("rax") ARCH_PRCTL => error,
                in("rdi") ARCH_REQ_XCOMP_PERM,
                in("rsi") XFEATURE_XTILEDATA,
                out("rcx") _,
                out("r11") _,
                options(nostack)
            );
        }
        error == 0
    }

    /// The extended states that the operating system has enabled.
    ///
    /// # Safety
    /// The CPU must have `xgetbv` and the operating system must have enabled it.
    #[target_feature(enable = "xsave")]
    unsafe fn xcr0() -> u64 {
        // SAFETY: the caller guarantees the instruction.
        unsafe { _xgetbv(0) }
    }
}

#[cfg(target_arch = "aarch64")]
mod cpu {
    pub fn has_tiles() -> bool {
        std::arch::is_aarch64_feature_detected!("bf16")
    }
}

#[cfg(not(any(all(target_arch = "x86_64", target_os = "linux"), target_arch = "aarch64")))]
mod cpu {
    pub fn has_tiles() -> bool {
        false
    }
}
