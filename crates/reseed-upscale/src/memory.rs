//! What the system says this process takes. Known on Linux only.

/// Resident bytes now.
pub fn resident() -> Option<usize> {
    status("VmRSS:")
}

/// Most resident bytes since [`forget_peak`].
pub fn peak() -> Option<usize> {
    status("VmHWM:")
}

/// Starts the peak anew from what is resident now.
pub fn forget_peak() {
    // Where the system cannot, the peak stays that of the whole process, which is never too small.
    if cfg!(target_os = "linux") {
        let _ = std::fs::write("/proc/self/clear_refs", "5");
    }
}

/// Bytes of the machine's memory.
pub fn machine() -> Option<usize> {
    field("/proc/meminfo", "MemTotal:")
}

fn status(key: &str) -> Option<usize> {
    field("/proc/self/status", key)
}

fn field(path: &str, key: &str) -> Option<usize> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}
