//! A video that many machines compute.

use std::fs;
use std::path::{Path, PathBuf};

use reseed::{NumericClass, Observer, Report, Session, ShardPlan};

use crate::error::{Error, Result};
use crate::input::local_file;
use crate::manifest::{Manifest, SegmentEntry};
use crate::store::{Store, is_address};

/// The extension of plans.
const EXTENSION: &str = ".json";

/// A plan in storage, with the work of all machines beside it: `tape.json` has its work in the folder `tape`.
pub struct ClusterJob {
    store: Store,
    /// The folder of its work.
    folder: String,
    plan: ShardPlan,
}

/// How a shard is computed on this machine.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Whether a machine of another numeric class may compute shards; the bytes of the result then depend on which
    /// machine computed what.
    pub mixed: bool,
    /// Folder for the segments of a shard until they are stored.
    pub work: PathBuf,
    /// Folder for copies of inputs in object storage.
    pub cache: PathBuf,
}

/// What became of a shard.
#[derive(Debug)]
pub enum Done {
    /// It was finished before.
    Before,
    /// It was computed.
    Now(Box<Report>),
}

impl ClusterJob {
    /// Stores a plan. An error where there is one of this name.
    pub fn create(address: &str, plan: ShardPlan) -> Result<ClusterJob> {
        let (store, name) = Store::of(address)?;
        let folder = folder_of(address, &name)?;
        if !store.create(&name, plan.to_json().into_bytes())? {
            return Err(Error::Exists { name: address.into() });
        }
        Ok(ClusterJob { store, folder, plan })
    }

    /// An error where a plan cannot be stored at this address.
    pub fn check_new(address: &str) -> Result<()> {
        let (store, name) = Store::of(address)?;
        folder_of(address, &name)?;
        match store.identity(&name)? {
            Some(_) => Err(Error::Exists { name: address.into() }),
            None => Ok(()),
        }
    }

    /// Opens a stored plan.
    pub fn open(address: &str) -> Result<ClusterJob> {
        let (store, name) = Store::of(address)?;
        let folder = folder_of(address, &name)?;
        let text = store.read(&name)?.ok_or_else(|| Error::NoPlan { name: address.into() })?;
        Ok(ClusterJob { store, folder, plan: ShardPlan::from_json(&text)? })
    }

    /// The plan.
    pub fn plan(&self) -> &ShardPlan {
        &self.plan
    }

    /// Whether a shard is finished.
    pub fn is_done(&self, shard: usize) -> Result<bool> {
        self.plan.frames_of(shard)?;
        Ok(self.manifest(shard)?.is_some())
    }

    /// The shards that are not finished.
    pub fn missing(&self) -> Result<Vec<usize>> {
        let mut missing = Vec::new();
        for shard in 0..self.plan.shards() {
            if self.manifest(shard)?.is_none() {
                missing.push(shard);
            }
        }
        Ok(missing)
    }

    /// Computes a shard and stores it, unless it is finished. The session is that of the plan's
    /// [builder](ShardPlan::builder).
    pub fn run(
        &self,
        shard: usize,
        session: &Session,
        options: &RunOptions,
        observer: &mut dyn Observer,
    ) -> Result<Done> {
        if self.is_done(shard)? {
            return Ok(Done::Before);
        }
        let input = local_file(&self.plan.input, &options.cache)?;
        let work = WorkFolder::create(&options.work, shard)?;
        let segments = work.0.join("segments");
        let mut failure = None;
        let mut check = |class: &NumericClass| self.check_class(class, options.mixed, &mut failure);
        let ran = self.plan.run(shard, (&input, &segments), session, &mut check, observer);
        if let Some(error) = failure {
            return Err(error);
        }
        let (report, names) = ran?;
        self.store(shard, &segments, &names)?;
        Ok(Done::Now(Box::new(report)))
    }

    /// Joins all shards into the output of the plan, or into another one.
    pub fn join(&self, output: &str, options: &RunOptions) -> Result<()> {
        let missing = self.missing()?;
        if !missing.is_empty() {
            return Err(Error::Unfinished { missing, shards: self.plan.shards() });
        }
        let input = local_file(&self.plan.input, &options.cache)?;
        if !is_address(output) {
            return self.join_into(&input, Path::new(output));
        }
        let (store, name) = Store::of(output)?;
        let work = WorkFolder::create(&options.work, 0)?;
        let file = work.0.join(&name);
        self.join_into(&input, &file)?;
        store.upload(&file, &name)
    }

    /// An error where an output exists.
    pub fn check_output(output: &str) -> Result<()> {
        let exists = match is_address(output) {
            true => {
                let (store, name) = Store::of(output)?;
                store.identity(&name)?.is_some()
            }
            false => Path::new(output).exists(),
        };
        if exists { Err(Error::Exists { name: output.into() }) } else { Ok(()) }
    }

    fn join_into(&self, input: &Path, output: &Path) -> Result<()> {
        let folder = ShardPlan::segment_folder(output);
        let cannot_write = |path: &Path, cause| reseed::Error::Write { path: path.into(), cause };
        fs::create_dir_all(&folder).map_err(|cause| cannot_write(&folder, cause))?;
        for shard in 0..self.plan.shards() {
            let missing = || Error::Unfinished { missing: vec![shard], shards: self.plan.shards() };
            for segment in self.manifest(shard)?.ok_or_else(missing)?.segments {
                let name = self.segment(&segment.name);
                let damaged = || Error::Damaged { name: self.store.full_name(&name), shard };
                let content = self.store.read(&name)?.filter(|content| segment.matches(content)).ok_or_else(damaged)?;
                let file = folder.join(&segment.name);
                fs::write(&file, content).map_err(|cause| cannot_write(&file, cause))?;
            }
        }
        Ok(self.plan.join(input, output)?)
    }

    /// Compares the class of this machine with that of the finished shards. The first machine to know its plan decides.
    fn check_class(&self, here: &NumericClass, mixed: bool, failure: &mut Option<Error>) -> Result<(), reseed::Error> {
        let name = format!("{}/class.json", self.folder);
        let claimed = || -> Result<Option<NumericClass>> {
            if let Some(text) = self.store.read(&name)? {
                return Ok(NumericClass::from_json(&text));
            }
            if !here.is_complete() || self.store.create(&name, here.to_json().into_bytes())? {
                return Ok(None);
            }
            Ok(self.store.read(&name)?.and_then(|text| NumericClass::from_json(&text)))
        };
        match claimed() {
            Ok(Some(claimed)) if !mixed => here.check(&claimed),
            Ok(_) => Ok(()),
            // The library has no error for storage: it stops here, and the caller reports the failure.
            Err(error) => {
                *failure = Some(error);
                Err(reseed::Error::Cancelled)
            }
        }
    }

    /// Stores the segments of a shard, then its manifest.
    fn store(&self, shard: usize, folder: &Path, names: &[String]) -> Result<()> {
        let mut segments = Vec::new();
        for name in names {
            let path = folder.join(name);
            let content = fs::read(&path).map_err(|cause| reseed::Error::Read { path, cause })?;
            segments.push(SegmentEntry::new(name, &content));
            self.store.create(&self.segment(name), content)?;
        }
        let manifest = Manifest { segments };
        if self.store.create(&self.manifest_name(shard), manifest.to_json().into_bytes())? {
            return Ok(());
        }
        // Another machine was faster. Its bytes are the same.
        match self.manifest(shard)? == Some(manifest) {
            true => Ok(()),
            false => Err(Error::Conflict { shard }),
        }
    }

    fn manifest(&self, shard: usize) -> Result<Option<Manifest>> {
        let name = self.manifest_name(shard);
        let Some(text) = self.store.read(&name)? else { return Ok(None) };
        let damaged = || Error::Damaged { name: self.store.full_name(&name), shard };
        Manifest::from_json(&text).map(Some).ok_or_else(damaged)
    }

    fn manifest_name(&self, shard: usize) -> String {
        format!("{}/shards/{shard:06}.json", self.folder)
    }

    fn segment(&self, name: &str) -> String {
        format!("{}/segments/{name}", self.folder)
    }
}

/// The folder of the work of a plan.
fn folder_of(address: &str, name: &str) -> Result<String> {
    let wrong = || Error::Address { address: address.into(), reason: "a plan has a name ending in .json".into() };
    Ok(name.strip_suffix(EXTENSION).filter(|stem| !stem.is_empty()).ok_or_else(wrong)?.to_owned())
}

/// A folder of this process, removed when it is dropped.
struct WorkFolder(PathBuf);

impl WorkFolder {
    fn create(parent: &Path, shard: usize) -> Result<WorkFolder> {
        let path = parent.join(format!("reseed-shard-{shard}-{}", std::process::id()));
        // A process of the same number that was killed may have left one.
        let _ = fs::remove_dir_all(&path);
        let created = fs::create_dir_all(&path);
        created.map_err(|cause| reseed::Error::Write { path: path.clone(), cause })?;
        Ok(WorkFolder(path))
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
