//! Every frame equals that of a job on the whole clip.

use reseed::media::planes::{Layout, Matrix, Model, Planes};
use reseed::media::y4m::{Chroma, Range};
use reseed::{Batching, Session, Settings, Target};
use reseed_media::{Depth, Frame, Size};
use reseed_vapoursynth::api::{FLOAT, GREY, INTEGER, RGB, VsVideoFormat, YUV};

use crate::fake_frame::{FakeFrame, Properties, Value};
use crate::upscale::{Upscale, live_frames, messages};

const SIZE: Size = Size { h: 16, w: 20 };
const FRAMES: usize = 12;

fn format(color_family: i32, sample_type: i32, bits_per_sample: i32, chroma: [i32; 2]) -> VsVideoFormat {
    let bytes_per_sample = if bits_per_sample == 8 {
        1
    } else if bits_per_sample <= 16 {
        2
    } else {
        4
    };
    let num_planes = if color_family == GREY { 1 } else { 3 };
    let [sub_sampling_w, sub_sampling_h] = chroma;
    VsVideoFormat {
        color_family,
        sample_type,
        bits_per_sample,
        bytes_per_sample,
        sub_sampling_w,
        sub_sampling_h,
        num_planes,
    }
}

/// Two shots of 7 and 5 frames, as RGB of 16 bits.
fn clip() -> Vec<Frame> {
    let frame = |i: usize| {
        let shot = usize::from(i >= 7);
        let value = |k: usize| {
            let (x, y) = ((k / 3 % SIZE.w + i) as f32, (k / 3 / SIZE.w) as f32);
            [0.2, 0.75, 0.45][(shot + k % 3) % 3] + 0.15 * (0.2 * x + (0.1 + 0.1 * shot as f32) * y).sin()
        };
        let unit: Vec<f32> = (0..3 * SIZE.pixels()).map(value).collect();
        Frame::from_unit(SIZE, &unit, Depth::Sixteen)
    };
    (0..FRAMES).map(frame).collect()
}

fn properties(values: &[(&str, i64)]) -> Properties {
    let own = [("_DurationNum", 1), ("_DurationDen", 25)];
    own.iter().chain(values).map(|(key, value)| ((*key).to_owned(), Value::Int(*value))).collect()
}

/// The clip in a layout of integer planes, for VapourSynth: its RGB starts with red.
fn planar(layout: Layout, format: VsVideoFormat, properties: &Properties) -> Vec<FakeFrame> {
    let planes = Planes::new(SIZE, layout);
    let frame = |frame: Frame| {
        let mut bytes = Vec::new();
        let depth = if layout.bits == 8 { Depth::Eight } else { Depth::Sixteen };
        planes.encode(&Frame::from_unit(SIZE, &frame.to_unit(), depth), &mut bytes);
        FakeFrame::new(format, [SIZE.w, SIZE.h], properties.clone()).with_bytes(&ordered(&bytes, layout, 2))
    };
    clip().into_iter().map(frame).collect()
}

/// Moves planes between the order of the library and that of VapourSynth: by one for RGB.
fn ordered(bytes: &[u8], layout: Layout, by: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if layout.model == Model::Gbr {
        let plane = bytes.len() / 3;
        bytes.rotate_left(by * plane);
    }
    bytes
}

fn settings() -> Settings {
    let batching = Batching { size: 5, overlap: 2, uniform: false };
    Settings { target: Target::Scale(1.5), batching, ..Settings::default() }
}

fn arguments() -> Vec<(&'static str, Value)> {
    vec![
        ("model", Value::Text("formula:tiny".into())),
        ("device", Value::Text("cpu".into())),
        ("threads", Value::Int(1)),
        ("scale", Value::Float(1.5)),
        ("batch_size", Value::Int(5)),
        ("overlap", Value::Int(2)),
        ("cache", Value::Int(2)),
    ]
}

fn session() -> Session {
    Session::builder().model("formula:tiny").device("cpu").threads(1).open().unwrap()
}

/// All frames of a clip, requested in an order without a pattern.
fn shuffled(upscale: &Upscale) -> Vec<FakeFrame> {
    let mut order: Vec<usize> = (0..FRAMES).collect();
    order.sort_by_key(|i| (i * 7919 + 13) % 101);
    let mut frames: Vec<(usize, FakeFrame)> = order.into_iter().map(|n| (n, upscale.frame(n).unwrap().0)).collect();
    frames.sort_by_key(|(n, _)| *n);
    frames.into_iter().map(|(_, frame)| frame).collect()
}

/// Frames of integers equal what the library makes of the same planes.
fn check(name: &str, layout: Layout, format: VsVideoFormat, tags: &[(&str, i64)]) {
    let tags = properties(tags);
    let source = planar(layout, format, &tags);
    let planes = Planes::new(SIZE, layout);
    let input: Vec<Frame> =
        source.iter().map(|frame| planes.decode(&ordered(&frame.bytes(), layout, 1), None)).collect();
    let whole = session().upscale_frames(input, &settings(), &mut ()).unwrap();
    let upscale = Upscale::new(source, &arguments()).unwrap();
    assert_eq!(upscale.size(), [30, 24]);
    let output = Planes::new(Size { h: 24, w: 30 }, layout);
    for (n, (frame, expected)) in shuffled(&upscale).iter().zip(&whole).enumerate() {
        let mut bytes = Vec::new();
        output.encode(expected, &mut bytes);
        assert!(frame.bytes() == ordered(&bytes, layout, 2), "{name}: frame {n} differs");
        assert_eq!(frame.properties["_DurationDen"], Value::Int(25), "{name}");
    }
    drop(upscale);
    assert_eq!((live_frames(), messages()), (0, Vec::<String>::new()), "{name}");
}

fn yuv(chroma: Chroma, bits: u8, range: Range, matrix: Matrix) -> Layout {
    Layout { model: Model::Yuv { chroma, range, matrix }, bits, alpha: false }
}

#[test]
fn every_integer_format_equals_the_job() {
    use Range::{Full, Limited};
    let (small, hd) = (Matrix::Bt601, Matrix::Bt709);
    check("4:2:0", yuv(Chroma::Mpeg420, 8, Limited, small), format(YUV, INTEGER, 8, [1, 1]), &[]);
    let jpeg = [("_ChromaLocation", 1), ("_Range", 1), ("_Matrix", 1)];
    check("4:2:0 jpeg", yuv(Chroma::Jpeg420, 8, Full, hd), format(YUV, INTEGER, 8, [1, 1]), &jpeg);
    let old = [("_ColorRange", 0), ("_Matrix", 2)];
    check("4:2:2 10 bits", yuv(Chroma::Yuv422, 10, Full, small), format(YUV, INTEGER, 10, [1, 0]), &old);
    check("4:4:4 16 bits", yuv(Chroma::Yuv444, 16, Limited, small), format(YUV, INTEGER, 16, [0, 0]), &[]);
    check("grey", yuv(Chroma::Mono, 8, Limited, small), format(GREY, INTEGER, 8, [0, 0]), &[]);
    for bits in [8, 12] {
        let layout = Layout { model: Model::Gbr, bits, alpha: false };
        check(&format!("RGB of {bits} bits"), layout, format(RGB, INTEGER, bits.into(), [0, 0]), &[("_Matrix", 0)]);
    }
}

/// The floats of a frame of one plane after the other.
fn floats(bytes: &[u8], bits: i32) -> Vec<f32> {
    match bits {
        16 => bytes.chunks_exact(2).map(|b| half::f16::from_ne_bytes([b[0], b[1]]).to_f32()).collect(),
        _ => bytes.chunks_exact(4).map(|b| f32::from_ne_bytes([b[0], b[1], b[2], b[3]])).collect(),
    }
}

#[test]
fn floats_are_close_to_sixteen_bits() {
    let whole = session().upscale_frames(clip(), &settings(), &mut ()).unwrap();
    for bits in [32, 16] {
        let format = format(RGB, FLOAT, bits, [0, 0]);
        let source = clip().into_iter().map(|frame| {
            let unit = frame.to_unit();
            let planes = (0..3).flat_map(|c| unit.iter().skip(c).step_by(3));
            let bytes: Vec<u8> = match bits {
                16 => planes.flat_map(|v| half::f16::from_f32(*v).to_ne_bytes()).collect(),
                _ => planes.flat_map(|v| v.to_ne_bytes()).collect(),
            };
            FakeFrame::new(format, [SIZE.w, SIZE.h], properties(&[])).with_bytes(&bytes)
        });
        let upscale = Upscale::new(source.collect(), &arguments()).unwrap();
        // Half floats have 11 bits, which the network sees; histograms amplify them.
        let allowed = if bits == 16 { 0.05 } else { 0.002 };
        for (frame, expected) in shuffled(&upscale).iter().zip(&whole) {
            let unit = expected.to_unit();
            let expected = (0..3).flat_map(|c| unit.iter().skip(c).step_by(3));
            let found = floats(&frame.bytes(), bits);
            let worst = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(worst < allowed, "{bits} bits differ by {worst}");
        }
    }
}

#[test]
fn yuv_of_floats_equals_sixteen_bits() {
    let layout = yuv(Chroma::Yuv444, 16, Range::Full, Matrix::Bt709);
    let tags = properties(&[("_Matrix", 1), ("_Range", 1)]);
    let codes = planar(layout, format(YUV, INTEGER, 16, [0, 0]), &tags);
    let zero = |i: usize| if i < SIZE.pixels() { 0.0 } else { 32768.0 };
    let source = codes.iter().map(|frame| {
        let codes = frame.bytes();
        let codes = codes.chunks_exact(2).map(|b| f32::from(u16::from_le_bytes([b[0], b[1]]))).enumerate();
        let bytes: Vec<u8> = codes.flat_map(|(i, code)| ((code - zero(i)) / 65535.0).to_ne_bytes()).collect();
        FakeFrame::new(format(YUV, FLOAT, 32, [0, 0]), [SIZE.w, SIZE.h], tags.clone()).with_bytes(&bytes)
    });
    let floats_of = Upscale::new(source.collect(), &arguments()).unwrap();
    let codes_of = Upscale::new(codes, &arguments()).unwrap();
    for n in [0, 7, 11] {
        let (floating, codes) = (floats_of.frame(n).unwrap().0.bytes(), codes_of.frame(n).unwrap().0.bytes());
        let plane = 30 * 24;
        let expected = codes.chunks_exact(2).enumerate().map(|(i, b)| {
            let zero = if i < plane { 0.0 } else { 32768.0 };
            (f32::from(u16::from_le_bytes([b[0], b[1]])) - zero) / 65535.0
        });
        assert!(floats(&floating, 32) == expected.collect::<Vec<f32>>(), "frame {n}");
    }
}

#[test]
fn properties_are_right_for_the_new_size() {
    let layout = yuv(Chroma::Yuv444, 8, Range::Limited, Matrix::Bt601);
    let tags = properties(&[("_SARNum", 1), ("_SARDen", 1), ("_Alpha", 7), ("_ChromaLocation", 0)]);
    let source = planar(layout, format(YUV, INTEGER, 8, [0, 0]), &tags);
    let mut wide = arguments();
    wide.retain(|(key, _)| *key != "scale");
    wide.push(("size", Value::Text("1280x512".into())));
    wide.push(("model", Value::Text("identity".into())));
    let upscale = Upscale::new(source[..1].to_vec(), &wide).unwrap();
    let frame = upscale.frame(0).unwrap().0;
    // 20 x 16 square pixels become 1280 x 512, which is 64 times as wide and 32 times as high.
    let expected = [("_SARNum", 1), ("_SARDen", 2), ("_Matrix", 1), ("_ChromaLocation", 0)];
    expected.iter().for_each(|(key, value)| assert_eq!(frame.properties[*key], Value::Int(*value), "{key}"));
    assert!(!frame.properties.contains_key("_Alpha"));
    let same = Upscale::new(source[..1].to_vec(), &arguments()).unwrap().frame(0).unwrap().0;
    assert_eq!([&same.properties["_SARDen"], &same.properties["_Matrix"]], [&Value::Int(1), &Value::Int(6)]);
}

/// A late frame of a long clip is found without all frames before it in memory.
#[test]
fn long_clips_are_scanned_in_parts() {
    let layout = yuv(Chroma::Mono, 8, Range::Full, Matrix::Bt601);
    let source = planar(layout, format(GREY, INTEGER, 8, [0, 0]), &properties(&[("_Range", 1)]));
    let long: Vec<FakeFrame> = source.iter().cycle().take(200).cloned().collect();
    let upscale = Upscale::new(long, &arguments()).unwrap();
    let (_, most) = upscale.frame(199).unwrap();
    assert!(most <= 40, "{most} frames in memory");
}

#[test]
fn wrong_arguments_give_one_line() {
    let layout = yuv(Chroma::Mpeg420, 8, Range::Limited, Matrix::Bt601);
    let source = planar(layout, format(YUV, INTEGER, 8, [1, 1]), &properties(&[]));
    let error = |change: &[(&'static str, Value)]| {
        let mut arguments = arguments();
        arguments.retain(|(key, _)| !change.iter().any(|(other, _)| other == key));
        arguments.extend(change.iter().cloned());
        let error = Upscale::new(source.clone(), &arguments).err().unwrap();
        assert!(!error.contains('\n'), "{error}");
        error
    };
    let text = |text: &str| Value::Text(text.into());
    let cases = [
        (("model", text("no-such-model")), "Upscale: no-such-model: no such"),
        (("device", text("tpu")), "Upscale: tpu: unknown device"),
        (("batch_size", Value::Int(0)), "Upscale: batch_size 0: must be between 1 and 65535"),
        (("overlap", Value::Int(5)), "Upscale: an overlap of 5 frames must be smaller than the batch size of 5"),
        (("color", text("red")), "Upscale: color `red` is not lab"),
        (("dtype", text("f64")), "Upscale: dtype `f64` is not"),
        (("resolution", Value::Int(100)), "Upscale: scale, resolution and size exclude each other"),
        (("scale", Value::Float(0.0)), "Upscale: 20x16 frames would become 0x0"),
        (("latent_noise", Value::Float(2.0)), "Upscale: latent noise 2: must be between 0 and 1"),
        (("max_vram", text("six")), "Upscale: max_vram: `six` is not a size"),
    ];
    for ((key, value), expected) in cases {
        let error = error(&[(key, value)]);
        assert!(error.starts_with(expected), "{error}");
    }
    let mut odd = arguments();
    odd.retain(|(key, _)| *key != "scale");
    odd.push(("size", text("31x24")));
    let error = Upscale::new(source, &odd).err().unwrap();
    assert_eq!(error, "Upscale: size 31x24: YUV needs even sides");
}

#[test]
fn frames_that_cannot_be_converted_are_errors() {
    let layout = yuv(Chroma::Mpeg420, 8, Range::Limited, Matrix::Bt601);
    let fails = |tag: (&str, i64)| {
        let source = planar(layout, format(YUV, INTEGER, 8, [1, 1]), &properties(&[tag]));
        Upscale::new(source, &arguments()).unwrap().frame(3).unwrap_err()
    };
    assert!(fails(("_FieldBased", 2)).starts_with("Upscale: the clip is interlaced; deinterlace it first"));
    assert!(fails(("_Matrix", 8)).starts_with("Upscale: _Matrix 8: convert the clip to RGB"));
    assert!(fails(("_ChromaLocation", 5)).starts_with("Upscale: _ChromaLocation 5: use left"));
    let varying = FakeFrame::new(format(0, 0, 8, [0, 0]), [4, 4], properties(&[]));
    let error = Upscale::new(vec![varying], &arguments()).err().unwrap();
    assert!(error.starts_with("Upscale: the clip's format and size must be constant"), "{error}");
    let wide = FakeFrame::new(format(GREY, INTEGER, 32, [0, 0]), [4, 4], properties(&[]));
    let error = Upscale::new(vec![wide], &arguments()).err().unwrap();
    assert!(error.contains("use 8 to 16 bits, or half or single floats"), "{error}");
    assert_eq!(live_frames(), 0);
}
