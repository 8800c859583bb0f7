use proptest::prelude::*;

use super::*;
use crate::frame::Depth;

const CHROMAS: [Chroma; 6] =
    [Chroma::Jpeg420, Chroma::Mpeg420, Chroma::Paldv420, Chroma::Yuv422, Chroma::Yuv444, Chroma::Mono];
const RANGES: [Range; 2] = [Range::Limited, Range::Full];

fn yuv(size: Size, chroma: Chroma, bits: u8, range: Range) -> Yuv {
    Yuv::new(size, chroma, bits, range, Matrix::for_size(size))
}

fn round_trip(yuv: &Yuv, frame: &Frame) -> Frame {
    let mut planes = Vec::new();
    yuv.encode(frame, &mut planes);
    yuv.decode(&planes, None)
}

fn codes(yuv: &Yuv) -> std::ops::RangeInclusive<u16> {
    yuv.codes.black as u16..=(yuv.codes.black + yuv.codes.luma_span) as u16
}

/// Converts every grey code from black to white, one per row, to RGB and back.
#[test]
fn every_grey_code_survives_conversion_to_rgb_and_back() {
    for chroma in CHROMAS {
        for range in RANGES {
            for bits in [8, 10, 12, 16] {
                let all: Vec<u16> = codes(&yuv(Size { h: 1, w: 1 }, chroma, bits, range)).collect();
                let yuv = yuv(Size { h: all.len(), w: 3 }, chroma, bits, range);
                let luma = all.iter().flat_map(|code| [*code; 3]);
                let grey = [yuv.codes.grey as u16].into_iter().cycle();
                let chroma_samples = yuv.frame_bytes() / yuv.bytes_per_sample() - 3 * all.len();
                let samples = luma.chain(grey.take(chroma_samples));
                let planes: Vec<u8> = match bits {
                    8 => samples.map(|code| code as u8).collect(),
                    _ => samples.flat_map(u16::to_le_bytes).collect(),
                };
                let mut again = Vec::new();
                yuv.encode(&yuv.decode(&planes, None), &mut again);
                assert!(again == planes, "{chroma:?} {range:?} {bits}");
            }
        }
    }
}

/// Black and white convert to the limits of RGB, at sixteen bits too.
#[test]
fn black_and_white_convert_to_the_limits_of_rgb() {
    for range in RANGES {
        for bits in [8, 10, 16] {
            let yuv = yuv(Size { h: 1, w: 2 }, Chroma::Yuv444, bits, range);
            let ends = [0.0, 0.0, 0.0, 1.0, 1.0, 1.0];
            let frame = Frame::from_unit(yuv.size, &ends, Depth::for_bits(bits));
            assert_eq!(round_trip(&yuv, &frame).to_unit(), ends);
        }
    }
}

/// The standards give the codes of pure red: BT.601 (81, 90, 240), BT.709 (63, 102, 240).
#[test]
fn red_has_the_standard_codes() {
    for (h, expected) in [(576, [81, 90, 240]), (577, [63, 102, 240])] {
        let size = Size { h, w: 1 };
        let yuv = yuv(size, Chroma::Yuv444, 8, Range::Limited);
        let red = Frame::from_unit(size, &[1.0, 0.0, 0.0].repeat(h), Depth::Eight);
        let mut planes = Vec::new();
        yuv.encode(&red, &mut planes);
        assert_eq!([planes[0], planes[h], planes[2 * h]], expected, "{h} rows");
    }
}

/// Full-range codes are as fine as RGB codes, and the largest sum of three rounding errors stays under 1.5.
/// Limited-range codes are coarser by 255/219 and 255/224, so that blue, with its factor of 1.8, can differ by one
/// more.
#[test]
fn rgb_through_444_changes_by_at_most_one_or_two_codes() {
    let steps: Vec<u8> = (0..=255).step_by(3).collect();
    let cube: Vec<u8> =
        steps.iter().flat_map(|r| steps.iter().flat_map(|g| steps.iter().flat_map(|b| [*r, *g, *b]))).collect();
    for (range, allowed) in [(Range::Full, 1), (Range::Limited, 2)] {
        for size in [Size { h: steps.len(), w: steps.len().pow(2) }, Size { h: steps.len().pow(2), w: steps.len() }] {
            let yuv = yuv(size, Chroma::Yuv444, 8, range);
            let frame = Frame { size, samples: Samples::U8(cube.clone()), alpha: None };
            let Samples::U8(again) = round_trip(&yuv, &frame).samples else { panic!("expected eight bits") };
            let worst = cube.iter().zip(&again).map(|(a, b)| a.abs_diff(*b)).max();
            assert!(worst <= Some(allowed), "{range:?} {size}: {worst:?}");
        }
    }
}

proptest! {
    #[test]
    fn any_planes_convert_to_a_frame_and_back(
        h in 1usize..8, w in 1usize..8, chroma in 0..6usize, deep: bool, full: bool, seed in any::<u64>(),
    ) {
        let yuv = yuv(Size { h, w }, CHROMAS[chroma], if deep { 10 } else { 8 }, RANGES[usize::from(full)]);
        let byte = |i: u64| (seed.wrapping_mul(2 * i + 1) >> 32) as u8;
        let planes: Vec<u8> = (0..yuv.frame_bytes() as u64).map(byte).collect();
        let frame = yuv.decode(&planes, None);
        prop_assert_eq!(frame.samples.len(), 3 * h * w);
        let mut again = Vec::new();
        yuv.encode(&frame, &mut again);
        prop_assert_eq!(again.len(), planes.len());
    }

    #[test]
    fn a_uniform_frame_stays_uniform(
        h in 1usize..8, w in 1usize..8, chroma in 0..5usize, full: bool, rgb in prop::array::uniform3(0.0f32..=1.0),
    ) {
        let size = Size { h, w };
        let yuv = yuv(size, CHROMAS[chroma], 16, RANGES[usize::from(full)]);
        let frame = Frame::from_unit(size, &rgb.repeat(h * w), Depth::Sixteen);
        for (a, b) in frame.to_unit().iter().zip(round_trip(&yuv, &frame).to_unit()) {
            prop_assert!((a - b).abs() < 3.0 / 65535.0, "{} {}", a, b);
        }
    }
}
