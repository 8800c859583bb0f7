//! All integration tests in one binary, which links faster than one binary for each file.

mod dit;
mod dit_golden;
mod dit_streaming;
mod dit_weight_files;
mod embedded_model;
mod model_folder;
mod pixel_input;
mod planner;
mod quantized_files;
mod saved_state;
mod slicing;
mod vae_golden;
mod vae_golden_bf16;
mod vae_op_conformance;
mod vae_trace;
mod vae_weight_file_errors;
mod vae_weight_files;
mod vae_without_attention;
