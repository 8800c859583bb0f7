//! `reseed doctor`: the devices and tools of this machine.

use reseed::MathMode;
use reseed::internals::{GpuInfo, Machine};
use serde_json::{Value, json};

use crate::failure::Result;
use crate::report::bytes;
use reseed_args::{DoctorArgs, version};

pub fn run(args: &DoctorArgs) -> Result<()> {
    let machine = Machine::detect()?;
    match args.json {
        true => say!("{}", as_json(&machine)),
        false => print(&machine),
    }
    Ok(())
}

fn print(machine: &Machine) {
    say!("reseed  {}, {}", env!("CARGO_PKG_VERSION"), version::build());
    say!("device  {} by default (--device)", machine.device);
    say!("cpu     {}, {} by default", machine.cpu, machine.dtype);
    say!("levels  {} (cap with RESEED_CPU)", machine.levels.join(", "));
    match &machine.gpus {
        Ok(gpus) => gpus.iter().for_each(print_gpu),
        Err(error) => say!("cuda    {error}"),
    }
    say!("tuning  {}", tuning(machine));
    match &machine.ffmpeg {
        Ok(path) => say!("ffmpeg  {}", path.display()),
        Err(error) => say!("ffmpeg  {error}"),
    }
    say!("memory  {}", machine.memory.map_or("unknown".into(), bytes));
}

fn as_json(machine: &Machine) -> Value {
    let gpus: Vec<Value> = machine.gpus.iter().flatten().map(gpu_json).collect();
    json!({
        "event": "doctor", "version": env!("CARGO_PKG_VERSION"), "commit": version::COMMIT,
        "kernels": machine.kernels, "features": version::features(), "device": machine.device, "cpu": machine.cpu,
        "cpu_dtype": machine.dtype.to_string(), "cpu_levels": machine.levels, "gpus": gpus,
        "gpu_error": machine.gpus.as_ref().err(), "tuning": tuning(machine),
        "ffmpeg": machine.ffmpeg.as_ref().ok().map(|path| path.to_string_lossy()),
        "ffmpeg_error": machine.ffmpeg.as_ref().err(), "memory_bytes": machine.memory,
    })
}

/// cuBLASLt and the record of measured kernels, with the flag that makes one.
fn tuning(machine: &Machine) -> String {
    machine.tuning().replace("nothing measured yet", "nothing measured yet (--tune on)")
}

fn print_gpu(gpu: &GpuInfo) {
    let GpuInfo { ordinal, name, capability, memory, driver, budget } = gpu;
    let (capability, driver) = (format!("{}.{}", capability.0, capability.1), format!("{}.{}", driver.0, driver.1));
    let budget = budget.map_or(String::new(), |budget| format!(" ({} allowed by Windows)", bytes(budget)));
    let memory = bytes(*memory);
    say!("cuda:{ordinal}  {name}, compute capability {capability}, {memory}{budget}, driver for CUDA {driver}");
    match modes(gpu) {
        Ok(modes) => modes.iter().for_each(|(mode, convolutions, linear)| {
            say!("        --precision {mode}: VAE {convolutions}; transformer {linear}");
        }),
        Err(error) => say!("        {error}"),
    }
}

/// How the GPU computes the convolutions of the VAE and the linear layers of a transformer's blocks in every mode.
fn modes(gpu: &GpuInfo) -> Result<Vec<(String, &'static str, &'static str)>> {
    let mode = |mode: MathMode| {
        Ok((mode.to_string(), gpu.convolutions(mode).map_err(reseed::Error::from)?, GpuInfo::linear_layers(mode)))
    };
    MathMode::ALL.into_iter().map(mode).collect()
}

fn gpu_json(gpu: &GpuInfo) -> Value {
    let GpuInfo { ordinal, name, capability, memory, driver, budget } = gpu;
    let mut fields = json!({
        "device": format!("cuda:{ordinal}"), "name": name, "memory_bytes": memory,
        "compute_capability": format!("{}.{}", capability.0, capability.1),
        "driver_cuda": format!("{}.{}", driver.0, driver.1),
    });
    budget.iter().for_each(|budget| fields["budget_bytes"] = json!(budget));
    for (mode, convolutions, linear) in modes(gpu).iter().flatten() {
        fields["convolutions"][mode] = json!(convolutions);
        fields["linear_layers"][mode] = json!(linear);
    }
    fields
}
