//! One run of the pipeline.

use std::path::Path;
use std::ptr;

use reseed::{Checkpoint, Error, Model, Replanner, Report, Settings, Upscaler};
use reseed_media::video::Options;
use reseed_media::{Sink, Source};
use reseed_ops::ProfileOps;

use crate::args::JobArgs;
use crate::crew::{Crew, Engine};
use crate::ending;
use crate::engine::Device;
use crate::failure::{Failure, Result};
use crate::job::Work;
use crate::job::settings::Settings as TypedSettings;
use crate::outline::{BudgetReplanner, JobPlan, JobPlanner, Loaded};
use crate::progress::Progress;
use crate::report::{self, MemoryWatch};

/// One run of the pipeline.
pub struct Job<'a> {
    pub name: &'static str,
    pub args: &'a JobArgs,
    pub input: &'a Path,
    pub output: &'a Path,
    pub options: Options,
}

impl Job<'_> {
    /// What is quickly found wrong is found before the model is loaded, which takes long. `crew` is what an earlier job
    /// left, and then what this one leaves.
    pub fn run(
        &self,
        mut source: Box<dyn Source>,
        settings: Settings,
        mut work: Work,
        crew: &mut Option<Crew>,
    ) -> Result<()> {
        ending::catch_ctrl_c();
        let info = settings.output(source.info())?;
        let Crew { engine, loaded } = Crew::of(crew.take(), self.args)?;
        let mut settings = engine.suited(settings, self.args)?;
        let outline = engine.outline(self.args, settings.geometry(source.info())?, settings.batching.size);
        let chosen = outline.as_ref().map(|outline| outline.choose_behind(loaded)).transpose()?;
        let sink = work.sink(&info, &self.options)?;
        let kept = chosen.as_ref().is_some_and(|(_, networks)| networks.is_some());
        let load = |(outline, (choice, networks)): (&JobPlanner, _)| outline.load(choice, networks, &mut settings);
        let loaded = outline.as_ref().zip(chosen).map(load).transpose()?;
        let ready = Ready { engine: &engine, outline, loaded, kept };
        let from = work.start(|typed| ready.describe(typed, &settings), &info)?;
        let watch = MemoryWatch::start();
        let progress = Progress::new(self.name, source.info().frames, self.args.compute.json);
        let progress = progress.going_on_from(from.frames).on(ready.device().card.clone());

        let [vae_ops, dit_ops] = ready.ops();
        let profilers = self.args.compute.profile.then(|| [vae_ops, dit_ops].map(ProfileOps::new));
        let [vae_ops, dit_ops] =
            profilers.as_ref().map_or([vae_ops, dit_ops], |[vae, dit]| [vae as &dyn reseed_ops::Device, dit]);
        let run = ready.run([vae_ops, dit_ops], settings, from, (&mut *source, sink), (&mut work, progress));
        let report = run.map_err(|error| self.failure(error))?;
        work.finish();
        if let Some(([vae, dit], ceiling)) = profilers.as_ref().zip(ready.device().ceiling.as_ref()) {
            report::profile(&[vae.records()?, dit.records()?].concat(), ceiling, self.args.compute.json);
        }
        self.tell(&report, &info, &watch, &ready);
        let loaded = ready.loaded;
        *crew = Some(Crew { loaded, engine });
        Ok(())
    }

    fn failure(&self, error: Error) -> Failure {
        match error {
            Error::NoFrames => Failure::Input(format!("{}: there are no frames in it", self.input.display())),
            error => Failure::from(error).keeping(ending::frames_kept()),
        }
    }
}

/// A job whose networks are loaded.
pub struct Ready<'a> {
    engine: &'a Engine,
    outline: Option<JobPlanner<'a>>,
    loaded: Option<Loaded>,
    /// Whether an earlier job loaded them.
    pub kept: bool,
}

impl Ready<'_> {
    /// The autoencoder's device.
    pub fn device(&self) -> &Device {
        &self.engine.devices.device
    }

    /// How the networks run.
    pub fn choice(&self) -> Option<&JobPlan> {
        self.loaded.as_ref().map(|loaded| &loaded.choice)
    }

    /// The autoencoder's device, and the transformer's.
    fn ops(&self) -> [&dyn reseed_ops::Device; 2] {
        [&*self.device().ops, &*self.engine.devices.transformer().ops]
    }

    /// With all else that the result depends on.
    fn describe(&self, typed: TypedSettings, settings: &Settings) -> Result<TypedSettings> {
        let ops = &self.device().ops;
        let typed = typed.with("device", ops.name()).with("type", ops.precision());
        let typed = typed.with("transformer type", self.engine.devices.transformer().ops.precision());
        let typed = typed.with("plan", format!("{:?}", settings.vae)).with("version", env!("CARGO_PKG_VERSION"));
        match &self.engine.weights {
            Some(weights) => weights.described(typed),
            None => Ok(typed),
        }
    }

    /// Runs it from a point on.
    fn run(
        &self,
        [vae_ops, dit_ops]: [&dyn reseed_ops::Device; 2],
        settings: Settings,
        from: Checkpoint,
        (source, sink): (&mut dyn Source, Box<dyn Sink>),
        (work, progress): (&mut Work, Progress),
    ) -> std::result::Result<Report, Error> {
        let networks = self.outline.as_ref().zip(self.loaded.as_ref());
        let shrinking =
            networks.filter(|_| self.device().card.is_some()).map(|(outline, Loaded { networks, choice, .. })| {
                BudgetReplanner::new(outline, networks.vae(), choice, &settings)
            });
        let step = networks.map(|(_, loaded)| loaded.networks.transformer(dit_ops));
        let (mut watch, keep) = work.watch(progress);
        let devices = &self.engine.devices;
        let encoder_ops = if ptr::eq(devices.encoder(), &devices.device) { vae_ops } else { dit_ops };
        let upscaler = match (networks, &step) {
            (Some((_, loaded)), Some(step)) => {
                let model = Model { vae: loaded.networks.vae(), step };
                Upscaler::new(vae_ops, model, settings).encoding_on(encoder_ops)
            }
            _ => Upscaler::identity(settings),
        };
        let upscaler = upscaler.fitting(shrinking.as_ref().map(|fit| fit as &dyn Replanner)).keeping(keep);
        upscaler.resume(from, source, sink, &mut watch)
    }
}
