//! The numeric class of a machine: what the bytes of a result depend on beside the job.

use reseed_media::Digest;
use serde_json::Value;

use crate::devices::kernel_stamp;
use crate::error::{Error, Result, ShardError};
use crate::job::JobRecord;
use crate::session::Environment;

/// Decides whether this machine may compute a part of a job on many machines. It is asked before the networks are
/// loaded, and again with the plan of the memory.
pub type ClassCheck<'a> = &'a mut dyn FnMut(&NumericClass) -> Result<()>;

/// The name of the plan of the memory, which is known last.
const PLAN: &str = "plan";

/// What the bytes of a result depend on beside the job: the device, its types and kernels, the content of the model,
/// the build of ffmpeg, and the plan of the memory. All machines that work on one video have the same class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumericClass(JobRecord);

impl NumericClass {
    /// The class of this machine, without the plan.
    pub(crate) fn new(environment: &Environment) -> Result<NumericClass> {
        let mut class = JobRecord::default();
        environment.values.iter().for_each(|(name, value)| class.set(name, value));
        class.set("kernels", kernel_stamp().unwrap_or("none"));
        class.set("ffmpeg", reseed_media::ffmpeg_version().map_err(Error::Output)?);
        let mut embedded = Digest::new(0);
        environment.embedded.iter().for_each(|content| embedded.update(content));
        class.set("model", format!("{} ({:016x})", environment.model, embedded.value()));
        for (name, path) in &environment.files {
            let digest = reseed_media::digest_of_file(path);
            let digest = digest.map_err(|cause| Error::ModelFile { path: path.clone(), cause })?;
            class.set(name, format!("{digest:016x}"));
        }
        Ok(NumericClass(class))
    }

    pub(crate) fn with_plan(mut self, plan: &str) -> NumericClass {
        self.0.set(PLAN, plan);
        self
    }

    /// Whether the plan of the memory is known.
    pub fn is_complete(&self) -> bool {
        self.0.has(PLAN)
    }

    /// An error where another machine has computed shards in another class.
    pub fn check(&self, other: &NumericClass) -> Result<()> {
        match self.0.difference(&other.0) {
            None => Ok(()),
            Some((value, ..)) if value == PLAN => Err(ShardError::OtherPlan.into()),
            Some((value, there, here)) => Err(ShardError::OtherClass { value, there, here }.into()),
        }
    }

    /// As one JSON object.
    pub fn to_json(&self) -> String {
        format!("{:#}\n", self.0.to_json())
    }

    /// From JSON; `None` where it is damaged.
    pub fn from_json(text: &[u8]) -> Option<NumericClass> {
        let value: Value = serde_json::from_slice(text).ok()?;
        value.is_object().then(|| NumericClass(JobRecord::from_json(&value)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::error::Kind;

    fn class(device: &str, plan: Option<&str>) -> NumericClass {
        let mut record = JobRecord::default();
        record.set("device", device);
        plan.into_iter().for_each(|plan| record.set(PLAN, plan));
        NumericClass(record)
    }

    #[test]
    fn another_device_or_plan_is_refused() {
        let claimed = class("H200", Some("slice 2"));
        assert!(class("H200", None).check(&claimed).is_ok(), "before the plan is known");
        assert!(class("H200", Some("slice 2")).check(&claimed).is_ok());
        let device = class("H100", None).check(&claimed).unwrap_err();
        assert_eq!((device.kind(), device.to_string().contains("H100")), (Kind::Device, true));
        assert_eq!(class("H200", Some("slice 1")).check(&claimed).unwrap_err().kind(), Kind::Memory);
        assert_eq!(NumericClass::from_json(claimed.to_json().as_bytes()), Some(claimed));
        assert_eq!(NumericClass::from_json(b"{"), None);
    }
}
