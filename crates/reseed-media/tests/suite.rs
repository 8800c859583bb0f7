//! All integration tests in one binary, which links faster than one binary for each file.

mod alpha;
mod animations;
mod clips;
mod cuts;
mod damage;
mod deinterlace;
mod errors;
mod files;
mod images;
mod resume;
mod sync;
