//! Sessions that filters with the same model and device share, so that weights are in memory once.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use reseed::{Budget, Builder, Precision, Session};

/// What a session depends on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionKey {
    /// The model.
    pub model: Option<String>,
    /// The file of its VAE.
    pub vae: Option<PathBuf>,
    /// The file of its text embedding.
    pub text: Option<PathBuf>,
    /// The device.
    pub device: Option<String>,
    /// Bytes of GPU memory.
    pub budget: Option<Budget>,
    /// The type of the activations.
    pub dtype: Option<Precision>,
    /// CPU threads.
    pub threads: Option<usize>,
}

static OPEN: Mutex<Vec<(SessionKey, Weak<Session>)>> = Mutex::new(Vec::new());

/// The session of another filter, or a new one.
pub fn open(key: &SessionKey) -> reseed::Result<Arc<Session>> {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|(_, session)| session.strong_count() > 0);
    let shared = open.iter().find(|(other, _)| other == key).and_then(|(_, session)| session.upgrade());
    if let Some(session) = shared {
        return Ok(session);
    }
    let mut builder: Builder = Session::builder().dtype(key.dtype).threads(key.threads).budget(key.budget);
    builder = builder.vae(key.vae.clone()).text(key.text.clone());
    if let Some(model) = &key.model {
        builder = builder.model(model);
    }
    if let Some(device) = &key.device {
        builder = builder.device(device);
    }
    let session = Arc::new(builder.open()?);
    open.push((key.clone(), Arc::downgrade(&session)));
    Ok(session)
}
