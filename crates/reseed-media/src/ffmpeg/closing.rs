//! The last steps of a segment: the encoder completes its file, frames get their times, and the file is verified.
//! The steps run beside the encoder of the next segment.

use std::fs;
use std::path::Path;

use super::encoder::EncoderConfig;
use super::feeder::Feeder;
use super::process::Process;
use super::verify::Verification;
use super::work_folder::WorkFolder;
use crate::error::Result;

/// A segment whose frames are all sent.
pub(super) struct Closing {
    step: Step,
    /// The file that the step writes or reads.
    file: String,
    index: usize,
    frames: usize,
    /// The times of the frames, unless their rate is constant.
    times: Option<Vec<i64>>,
}

enum Step {
    Encode(Process, Feeder),
    Retime(Process),
    Verify(Box<Verification>),
}

impl Closing {
    /// The segment that `process` encodes into `file`.
    pub fn new(
        process: Process,
        feeder: Feeder,
        file: String,
        index: usize,
        frames: usize,
        times: Option<Vec<i64>>,
    ) -> Closing {
        Closing { step: Step::Encode(process, feeder), file, index, frames, times }
    }

    /// What still sends frames to the encoder.
    pub fn feeder(&mut self) -> Option<&mut Feeder> {
        match &mut self.step {
            Step::Encode(_, feeder) => Some(feeder),
            _ => None,
        }
    }

    /// Whether the current step is complete.
    pub fn has_ended(&mut self) -> bool {
        match &mut self.step {
            Step::Encode(process, _) | Step::Retime(process) => process.has_ended(),
            Step::Verify(verification) => verification.has_ended(),
        }
    }

    /// Waits for the current step and starts the next one. After the last one, the file gets its final name.
    pub fn advance(self, config: &EncoderConfig, work: &mut WorkFolder) -> Result<Option<Closing>> {
        let Closing { step, file, index, frames, times } = self;
        let done = |process: Process| {
            let exit = process.wait().map_err(|cause| config.failed(cause.to_string()))?;
            exit.check().map_err(|reason| config.failed(reason))
        };
        let (step, file) = match step {
            Step::Encode(process, mut feeder) => {
                feeder.finish()?;
                done(process)?;
                match &times {
                    Some(times) => {
                        let retimed = work.unfinished(index, "retime");
                        (Step::Retime(config.retime(&work.path, &file, &retimed, times)?), retimed)
                    }
                    None => (verify(config, work, &file, frames, None)?, file),
                }
            }
            Step::Retime(process) => {
                done(process)?;
                // The retimed copy replaces this file; a failure to remove it does no harm.
                let _ = fs::remove_file(work.path.join(work.unfinished(index, "encode")));
                (verify(config, work, &file, frames, times.as_deref())?, file)
            }
            Step::Verify(verification) => {
                verification.finish(&config.tools)?.map_err(|reason| config.failed(reason))?;
                work.finish(&file, index, frames)?;
                return Ok(None);
            }
        };
        Ok(Some(Closing { step, file, index, frames, times }))
    }
}

fn verify(config: &EncoderConfig, work: &WorkFolder, file: &str, frames: usize, times: Option<&[i64]>) -> Result<Step> {
    let expected = config.expected(frames, times);
    let verification = Verification::start(&config.tools, &work.path, Path::new(file), expected)?;
    Ok(Step::Verify(Box::new(verification)))
}
