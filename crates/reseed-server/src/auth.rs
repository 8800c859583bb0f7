//! The token, the cookie of a browser and the address that sets it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

use crate::config::Access;
use crate::error::{Error, Result};

/// The file of a generated token in the data folder.
const FILE: &str = "token";
/// The shortest chosen token.
const LEAST: usize = 16;
const RANDOM_BYTES: usize = 24;

/// The secrets of a server.
pub struct Keys {
    token: String,
    cookie: String,
    /// Sets the cookie once.
    code: Mutex<Option<String>>,
}

impl Keys {
    /// The secrets, or none for a server that everybody on the machine may use.
    pub fn open(access: &Access, data: &Path) -> Result<Option<Keys>> {
        let token = match access {
            Access::Open => return Ok(None),
            Access::Token(token) => {
                let visible = token.bytes().all(|byte| byte.is_ascii_graphic());
                if token.len() < LEAST || !visible {
                    return Err(Error::WeakToken { length: token.len(), least: LEAST });
                }
                token.clone()
            }
            Access::Generated => kept(&data.join(FILE))?,
        };
        // A cookie must not reveal the token, and must be valid after a restart.
        let key = hmac::Key::new(hmac::HMAC_SHA256, token.as_bytes());
        let cookie = hex(hmac::sign(&key, b"reseed cookie").as_ref());
        Ok(Some(Keys { token, cookie, code: Mutex::new(Some(random()?)) }))
    }

    /// The token for programs.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The value of a browser's cookie.
    pub fn cookie(&self) -> &str {
        &self.cookie
    }

    /// The code that has not been used.
    pub fn code(&self) -> Option<String> {
        self.code.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether a code is the one that has not been used. It is used from here on.
    pub fn take_code(&self, code: &str) -> bool {
        let mut kept = self.code.lock().unwrap_or_else(PoisonError::into_inner);
        let valid = kept.as_deref().is_some_and(|kept| equal(kept, code));
        if valid {
            *kept = None;
        }
        valid
    }

    /// Whether a client has this token.
    pub fn is_token(&self, token: &str) -> bool {
        equal(&self.token, token)
    }

    /// Whether a client has this cookie.
    pub fn is_cookie(&self, value: &str) -> bool {
        equal(&self.cookie, value)
    }
}

/// Compares secrets in a time that does not depend on where they differ.
fn equal(a: &str, b: &str) -> bool {
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"reseed comparison");
    hmac::verify(&key, b.as_bytes(), hmac::sign(&key, a.as_bytes()).as_ref()).is_ok()
}

/// The token of an earlier start, or a new one that only the owner of the folder can read.
fn kept(path: &Path) -> Result<String> {
    let failed = |cause| Error::Data { path: path.into(), cause };
    match fs::read_to_string(path) {
        Ok(token) if token.trim().len() >= LEAST => return Ok(token.trim().to_owned()),
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(failed(cause)),
        _ => {}
    }
    let token = random()?;
    let mut file = create_private(path).map_err(failed)?;
    writeln!(file, "{token}").and_then(|()| file.sync_all()).map_err(failed)?;
    Ok(token)
}

fn create_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Random digits that cannot be guessed.
pub fn random() -> Result<String> {
    let mut bytes = [0; RANDOM_BYTES];
    SystemRandom::new().fill(&mut bytes).map_err(|_| Error::NoRandomness)?;
    Ok(hex(&bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_code_works_once() {
        let folder = temp_dir::TempDir::new().unwrap();
        let keys = Keys::open(&Access::Generated, folder.path()).unwrap().unwrap();
        let code = keys.code().unwrap();
        assert!(!keys.take_code("") && !keys.take_code(&code[1..]));
        assert!(keys.take_code(&code) && !keys.take_code(&code));
    }

    #[test]
    fn a_generated_token_survives_a_restart_and_is_private() {
        let folder = temp_dir::TempDir::new().unwrap();
        let [first, second] = [0, 1].map(|_| Keys::open(&Access::Generated, folder.path()).unwrap().unwrap());
        assert!(first.token() == second.token() && first.cookie() == second.cookie());
        assert!(first.code() != second.code() && first.cookie() != first.token());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(folder.path().join(FILE)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn short_tokens_are_refused() {
        let token = |text: &str| Keys::open(&Access::Token(text.into()), Path::new("")).map(|keys| keys.is_some());
        assert!(token("secret").is_err() && token("sixteen letters.").is_err());
        assert!(token("0123456789abcdef").unwrap());
    }
}
