//! systemd: a socket that it has opened, and messages to it. Nothing happens on other systems.

use std::net::TcpListener;

/// The socket of a socket unit, where systemd has passed one to this process.
pub fn listener() -> Option<TcpListener> {
    #[cfg(unix)]
    return unix::listener();
    #[cfg(not(unix))]
    None
}

/// Sends a message such as `READY=1` to systemd, where it started this process and waits for one.
pub fn notify(message: &str) {
    #[cfg(unix)]
    unix::notify(message);
    #[cfg(not(unix))]
    let _ = message;
}

#[cfg(unix)]
mod unix {
    use std::env;
    use std::net::TcpListener;
    use std::os::fd::FromRawFd;
    use std::os::unix::net::UnixDatagram;

    /// The first descriptor that systemd passes.
    const FIRST: i32 = 3;

    pub fn listener() -> Option<TcpListener> {
        let number = |name: &str| env::var(name).ok()?.parse::<u32>().ok();
        if number("LISTEN_PID") != Some(std::process::id()) || number("LISTEN_FDS") != Some(1) {
            return None;
        }
        // SAFETY: the variables say that this process has got an open descriptor with this number, and nothing else in
        // this program uses it.
        Some(unsafe { TcpListener::from_raw_fd(FIRST) })
    }

    pub fn notify(message: &str) {
        let Some(path) = env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty()) else { return };
        let Ok(socket) = UnixDatagram::unbound() else { return };
        // systemd waits no longer than its own time-out.
        let _ = match path.to_string_lossy().strip_prefix('@') {
            #[cfg(target_os = "linux")]
            Some(name) => {
                use std::os::linux::net::SocketAddrExt;
                let address = std::os::unix::net::SocketAddr::from_abstract_name(name.as_bytes());
                address.and_then(|address| socket.send_to_addr(message.as_bytes(), &address))
            }
            _ => socket.send_to(message.as_bytes(), &path),
        };
    }
}
