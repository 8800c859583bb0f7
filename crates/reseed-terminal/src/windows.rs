//! The console of Windows: its close button, and its escape sequences.

use std::sync::OnceLock;

use windows_sys::Win32::System::Console::{
    CTRL_BREAK_EVENT, CTRL_C_EVENT, ENABLE_VIRTUAL_TERMINAL_PROCESSING, GetConsoleMode, GetStdHandle, STD_ERROR_HANDLE,
    SetConsoleCtrlHandler, SetConsoleMode,
};
use windows_sys::core::BOOL;

static ON_CLOSE: OnceLock<fn() -> !> = OnceLock::new();

/// From here on `on_close` runs when the console is closed, the user logs off or the machine shuts down. Windows ends
/// the process when the handler returns, or after a few seconds.
pub fn on_close(on_close: fn() -> !) {
    if ON_CLOSE.set(on_close).is_ok() {
        // SAFETY: the handler is a function that lives as long as the program. Without it the process ends at once.
        unsafe { SetConsoleCtrlHandler(Some(handle), 1) };
    }
}

/// Runs in a thread of its own. The handler that was registered before takes Ctrl-C and Ctrl-Break.
unsafe extern "system" fn handle(event: u32) -> BOOL {
    match ON_CLOSE.get() {
        Some(on_close) if event != CTRL_C_EVENT && event != CTRL_BREAK_EVENT => on_close(),
        _ => 0,
    }
}

/// Whether standard error clears a line by an escape sequence. Consoles before Windows 10 do not.
pub fn has_escapes() -> bool {
    static HAS_ESCAPES: OnceLock<bool> = OnceLock::new();
    *HAS_ESCAPES.get_or_init(|| {
        // SAFETY: the calls take a handle, which may be invalid, and a place for one number.
        unsafe {
            let (handle, mut mode) = (GetStdHandle(STD_ERROR_HANDLE), 0);
            // Terminals that are no consoles, as those of MSYS, know escape sequences.
            GetConsoleMode(handle, &mut mode) == 0
                || mode & ENABLE_VIRTUAL_TERMINAL_PROCESSING != 0
                || SetConsoleMode(handle, mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING) != 0
        }
    })
}
