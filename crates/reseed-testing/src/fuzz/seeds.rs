//! Small valid inputs of every format, generated.

use std::fs;
use std::path::Path;

use reseed::{Batching, Event, Job, Observer, Session, Settings, Target};
use reseed_media::video::{JOB_FILE, work_folder};
use reseed_media::{Frame, Info, Kind, Size};
use reseed_model::{Config, dit};
use reseed_ops::Shape;
use serde_json::{Map, json};

use crate::gguf::{GgufBuilder, GgufTensor, GgufType};
use crate::quantized::{StoredFormat, StoredTensor, file};
use crate::torch::{pickle, zip};

/// A safetensors file with these tensors of zeros.
fn zeros(tensors: &[(String, Shape)], dtypes: &[(&str, usize)], metadata: &[(&str, &str)]) -> Vec<u8> {
    let mut header = Map::new();
    if !metadata.is_empty() {
        header.insert("__metadata__".into(), metadata.iter().map(|(key, value)| (*key, *value)).collect());
    }
    let mut end = 0;
    for (i, (name, shape)) in tensors.iter().enumerate() {
        let (dtype, bytes) = dtypes[i % dtypes.len()];
        let start = end;
        end += bytes * shape.count();
        header.insert(name.clone(), json!({"dtype": dtype, "shape": shape.dims(), "data_offsets": [start, end]}));
    }
    let text = serde_json::to_vec(&header).unwrap();
    [&(text.len() as u64).to_le_bytes()[..], &text, &vec![0; end]].concat()
}

fn named(names: &[&str], shape: impl Into<Shape> + Copy) -> Vec<(String, Shape)> {
    names.iter().map(|name| (name.to_string(), shape.into())).collect()
}

pub fn safetensors() -> Vec<Vec<u8>> {
    let types = [("F32", 4), ("F16", 2), ("BF16", 2), ("F8_E4M3", 1)];
    let tensors = named(&["a", "b.weight", "c", "positive_conditioning"], [2, 3]);
    vec![zeros(&tensors, &types, &[("groups", "2"), ("start", "noise")]), zeros(&[], &types, &[])]
}

/// Small matrices in every format, a description in the metadata, and a file of the older fp8 format.
pub fn quantized() -> Vec<Vec<u8>> {
    let values: Vec<f32> = (0..3 * 256).map(|i| (i % 19) as f32 - 9.0).collect();
    let store = |format: StoredFormat| format.store("layer", &values, [3, 256]).0;
    let old = StoredFormat::OldFp8;
    let formats = StoredFormat::ALL.into_iter().filter(|format| *format != old);
    let mut seeds: Vec<Vec<u8>> = formats.map(|format| file(&store(format), &[])).collect();
    let marker = StoredTensor::new("scaled_fp8", "F8_E4M3", &[0], Vec::new());
    seeds.push(file(&[store(old), vec![marker]].concat(), &[]));
    let layers = r#"{"layers": {"layer": {"format": "float8_e4m3fn"}, "other": {"format": "nvfp4"}}}"#;
    seeds.push(file(&store(old), &[("_quantization_metadata", layers)]));
    seeds
}

/// A model of one channel per level.
pub fn vae_config() -> Vec<Vec<u8>> {
    let small = |attention| {
        let mut config = Config::with_channels(&[1, 1], 1);
        (config.layers, config.decoder_layers, config.latent, config.image) = (1, 1, 1, 1);
        (config.temporal_stages, config.attention) = (1, attention);
        zeros(&config.tensors(), &[("F16", 2)], &[("groups", "1"), ("scaling_factor", "0.5")])
    };
    vec![small(true), small(false)]
}

fn small_dit(layout: dit::Layout) -> dit::Config {
    let mut config = dit::Config::tiny(layout, 2);
    (config.width, config.heads, config.hidden, config.text_width, config.latent) = (2, 1, 2, 2, 1);
    config.mm_layers = config.mm_layers.min(1);
    config
}

pub fn dit_config() -> Vec<Vec<u8>> {
    let file = |layout| zeros(&small_dit(layout).tensors(), &[("F8_E4M3", 1)], &[("start", "condition")]);
    let tensor = |(name, shape): (String, Shape)| GgufTensor {
        name,
        dims: shape.dims().iter().map(|&dim| dim as u64).collect(),
        kind: GgufType::F16.number(),
        bytes: vec![0; 2 * shape.count()],
    };
    let mut mixed = small_dit(dit::B7);
    mixed.mm_layers = 2;
    let gguf = GgufBuilder::new(small_dit(dit::B3).tensors().into_iter().map(tensor).collect());
    vec![file(dit::B3), zeros(&mixed.tensors(), &[("F8_E4M3", 1)], &[]), gguf.bytes()]
}

pub fn gguf() -> Vec<Vec<u8>> {
    let tensor = |name: &str, kind: GgufType, columns: u64| {
        let values: Vec<f32> = (0..2 * columns).map(|i| (i % 7) as f32 - 3.0).collect();
        GgufTensor { name: name.into(), dims: vec![2, columns], kind: kind.number(), bytes: kind.store(&values).0 }
    };
    let mut file = GgufBuilder::new(vec![
        tensor("vid_in.proj.weight", GgufType::F32, 4),
        tensor("txt_in.weight", GgufType::F16, 4),
        tensor("q8", GgufType::Q8_0, 32),
        tensor("q4", GgufType::Q4K, 256),
    ]);
    let plain = file.bytes();
    file.shapes.push(("q8".into(), vec![2, 4, 8]));
    file.alignment = Some(64);
    vec![plain, file.bytes()]
}

pub fn torch() -> Vec<Vec<u8>> {
    let file = |storage: &str, bytes: usize| {
        let (pickle, data) = (pickle(storage, 2), vec![0; 6 * bytes]);
        zip(&[("t/data.pkl", &pickle), ("t/byteorder", b"little"), ("t/data/0", &data)], 0)
    };
    vec![file("BFloat16Storage", 2), file("FloatStorage", 4)]
}

pub fn noise() -> Vec<Vec<u8>> {
    let tensors = named(&["noise0", "noise1", "second_noise1", "other"], [2, 4, 3, 4]);
    vec![zeros(&tensors, &[("F16", 2)], &[])]
}

/// Cancels a job when its first frames are safe on disk.
#[derive(Default)]
struct FirstBatch {
    saved: bool,
}

impl Observer for FirstBatch {
    fn event(&mut self, event: &Event) {
        self.saved |= matches!(event, Event::Saved { .. });
    }

    fn cancelled(&mut self) -> bool {
        self.saved
    }
}

/// The journal of a tiny job that was cancelled. The folder of the process changes.
pub fn journal() -> Vec<Vec<u8>> {
    let folder = temp_dir::TempDir::new().unwrap();
    std::env::set_current_dir(folder.path()).unwrap();
    let mut clip = reseed_media::sample();
    let mut sink = reseed_media::create(Path::new("in.y4m"), clip.info()).unwrap();
    while let Some(frame) = clip.next().unwrap() {
        sink.write(&frame).unwrap();
    }
    sink.finish().unwrap();
    let session = Session::builder().model("formula:tiny").device("cpu").threads(1).open().unwrap();
    let batching = Batching { size: 3, overlap: 1, ..Settings::default().batching };
    let settings = Settings { target: Target::Scale(1.0), batching, ..Settings::default() };
    let job = Job::create("in.y4m", "out.y4m", settings).unwrap();
    assert!(job.run(&session, &mut FirstBatch::default()).is_err(), "the job was not cancelled");
    let text = fs::read_to_string(work_folder(Path::new("out.y4m")).join(JOB_FILE)).unwrap();
    // The seed is the same wherever it is made.
    vec![text.replace(&*folder.path().to_string_lossy(), "/clips").into_bytes()]
}

/// What ffprobe reports on a rotated HDR video with tracks and chapters.
pub fn ffprobe() -> Vec<Vec<u8>> {
    let video = json!({"index": 0, "codec_type": "video", "codec_name": "hevc", "width": 64, "height": 48,
        "pix_fmt": "yuv420p10le", "r_frame_rate": "30000/1001", "avg_frame_rate": "2997/100",
        "time_base": "1/90000", "start_time": "1.400000", "duration": "4.0", "nb_frames": "120",
        "sample_aspect_ratio": "64:45", "field_order": "tt", "color_space": "bt2020nc",
        "side_data_list": [{"side_data_type": "Display Matrix", "rotation": -90},
            {"side_data_type": "Content light level metadata", "max_content": 1000, "max_average": 400}],
        "tags": {"title": "a", "language": "eng", "DURATION": "00:00:04.000000000"}});
    let audio = json!({"index": 1, "codec_type": "audio", "codec_name": "aac", "start_time": "0.9"});
    let chapter = json!({"start_time": "0.0", "end_time": "2.5", "tags": {"title": "One"}});
    let format = json!({"format_name": "mpegts", "start_time": "0.9", "duration": "4.5"});
    let frame = json!({"frames": [{"width": 64, "height": 48, "pix_fmt": "yuv420p10le", "color_range": "tv"}]});
    let case = json!({"facts": {"streams": [video, audio], "format": format, "chapters": [chapter]},
        "frame": frame, "stamps": [126_000, 129_003, 132_006, null, 138_012]});
    vec![case.to_string().into_bytes()]
}

pub fn y4m() -> Vec<Vec<u8>> {
    let stream = |header: &str, bytes: usize| {
        let frame = [&b"FRAME\n"[..], &vec![99; bytes]].concat();
        [format!("YUV4MPEG2 {header}\n").as_bytes(), &frame, &frame].concat()
    };
    vec![
        stream("W4 H4 F25:1 Ip A1:1 C420jpeg XCOLORRANGE=FULL", 24),
        stream("W3 H5 F30000:1001 Ip A0:0 C420mpeg2", 27),
        stream("W4 H2 F24:1 C444p10 XCOLORRANGE=LIMITED", 48),
        stream("W4 H4 F24:1 Cmono", 16),
    ]
}

/// A frame of the sample as an image file, in these colours.
fn image(extension: &str, alpha: bool) -> Vec<u8> {
    let folder = temp_dir::TempDir::new().unwrap();
    let path = folder.path().join("seed").with_extension(extension);
    let size = Size { h: 8, w: 12 };
    let info = Info { size, kind: Kind::Image, alpha, ..reseed_media::sample().info().clone() };
    let unit: Vec<f32> = (0..3 * size.pixels()).map(|i| (i % 31) as f32 / 31.0).collect();
    let mut frame = Frame::from_unit(size, &unit, info.depth);
    frame.alpha = alpha.then(|| reseed_media::Samples::from_unit(&unit[..size.pixels()], info.depth));
    write(&path, &info, &frame)
}

fn write(path: &Path, info: &Info, frame: &Frame) -> Vec<u8> {
    let mut sink = reseed_media::create(path, info).unwrap();
    sink.write(frame).unwrap();
    sink.finish().unwrap();
    fs::read(path).unwrap()
}

/// A PNG file of 4x2 pixels with a palette of three colours. Its data are stored, not compressed.
fn palette_png() -> Vec<u8> {
    let rows = [[0, 0, 1, 2, 0], [0, 2, 1, 0, 1]].concat();
    let length = (rows.len() as u16).to_le_bytes();
    let (mut a, mut b) = (1u32, 0u32);
    for row in &rows {
        a = (a + u32::from(*row)) % 65521;
        b = (b + a) % 65521;
    }
    let inverse = length.map(|byte| !byte);
    let data = [&[0x78, 0x01, 0x01][..], &length, &inverse, &rows, &((b << 16) | a).to_be_bytes()].concat();
    let header = [&4u32.to_be_bytes()[..], &2u32.to_be_bytes(), &[8, 3, 0, 0, 0]].concat();
    let chunks: [(&[u8], &[u8]); 5] = [
        (b"IHDR", &header),
        (b"PLTE", &[0, 0, 0, 255, 0, 0, 0, 0, 255]),
        (b"tRNS", &[9, 99]),
        (b"IDAT", &data),
        (b"IEND", &[]),
    ];
    let mut to = b"\x89PNG\r\n\x1a\n".to_vec();
    for (name, content) in chunks {
        to.extend((content.len() as u32).to_be_bytes());
        let named = [name, content].concat();
        to.extend(&named);
        to.extend(super::mutate::crc32(&named).to_be_bytes());
    }
    to
}

pub fn png() -> Vec<Vec<u8>> {
    vec![image("png", false), image("png", true), palette_png()]
}

pub fn jpeg() -> Vec<Vec<u8>> {
    vec![image("jpg", false)]
}

pub fn webp() -> Vec<Vec<u8>> {
    vec![image("webp", false), image("webp", true)]
}

pub fn tiff() -> Vec<Vec<u8>> {
    vec![image("tiff", false), image("tiff", true)]
}
