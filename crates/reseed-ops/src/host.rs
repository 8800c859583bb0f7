//! The memory of this machine.

/// Bytes of the machine's memory, where the system tells.
pub fn host_bytes() -> Option<usize> {
    system::total()
}

/// Bytes of the machine's memory that programs can still get, where the system tells.
pub fn host_free_bytes() -> Option<usize> {
    system::available()
}

#[cfg(not(windows))]
mod system {
    pub fn total() -> Option<usize> {
        field("MemTotal:")
    }

    pub fn available() -> Option<usize> {
        field("MemAvailable:")
    }

    fn field(key: &str) -> Option<usize> {
        let text = std::fs::read_to_string("/proc/meminfo").ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib << 10)
    }
}

#[cfg(windows)]
mod system {
    use windows_sys::Win32::System::SystemInformation::{GlobalMemoryStatusEx, MEMORYSTATUSEX};

    pub fn total() -> Option<usize> {
        status().map(|status| status.ullTotalPhys as usize)
    }

    /// What is neither used in memory nor, with the page file, promised to other programs.
    pub fn available() -> Option<usize> {
        status().map(|status| status.ullAvailPhys.min(status.ullAvailPageFile) as usize)
    }

    fn status() -> Option<MEMORYSTATUSEX> {
        let mut status = MEMORYSTATUSEX { dwLength: size_of::<MEMORYSTATUSEX>() as u32, ..Default::default() };
        // SAFETY: the structure is writable and names its own size.
        (unsafe { GlobalMemoryStatusEx(&mut status) } != 0).then_some(status)
    }
}

#[cfg(all(test, any(target_os = "linux", windows)))]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_the_machine_is_known() {
        let (total, free) = (host_bytes(), host_free_bytes());
        assert!(free > Some(0) && free <= total, "{free:?} of {total:?}");
    }
}
