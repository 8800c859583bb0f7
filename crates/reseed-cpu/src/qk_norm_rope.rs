//! The queries, keys and values of attention: rows of two streams, with queries and keys normalised and rotated.

use std::sync::Arc;

use rayon::prelude::*;

use crate::CpuOps;
use crate::host::element::{Element, with_element};
use crate::host::level::Level;
use crate::host::memory::{elements, elements_mut};
use crate::rms_norm_modulate::square_sum;
use crate::simd::dispatch::dispatch;
use reseed_ops::reference;
use reseed_ops::{Qkv, Result, Rotary, RotaryData, Rows, Shape, Tensor};

/// Packs the weights of the op.
pub fn pack(data: &RotaryData) -> Rotary {
    data.check();
    let RotaryData { frequencies, turns, places } = data;
    let copy = RotaryData { frequencies: *frequencies, turns: turns.clone(), places: places.clone() };
    Rotary { count: places.len(), frequencies: *frequencies, packed: Arc::new(copy) }
}

/// Runs the op.
pub fn run(cpu: &CpuOps, streams: [Qkv; 2], rows: &Rows, rotary: &Rotary, eps: f32) -> Result<Tensor> {
    streams.iter().for_each(Qkv::check);
    let [first, second] = streams;
    let (width, d) = (first.qkv.channels(), first.q_gain.len);
    assert_eq!((width, d), (second.qkv.channels(), second.q_gain.len), "qk_norm_rope: the two streams");
    assert!(rows.end <= first.qkv.rows() + second.qkv.rows(), "qk_norm_rope: row {} of the streams", rows.end);
    assert_eq!((rows.count, rows.per), (rotary.count, 1), "qk_norm_rope: rows and places");
    assert!(6 * rotary.frequencies <= d, "qk_norm_rope: {} pairs an axis in {d} channels", rotary.frequencies);
    let shape = Shape::from([rows.count, width]);
    let (rows, rotary): (&Vec<u32>, &RotaryData) = (cpu.unpack(&rows.packed), cpu.unpack(&rotary.packed));
    if cpu.level() == Level::Reference {
        return run_reference(cpu, streams, rows, rotary, shape, f64::from(eps));
    }
    let mut y = cpu.allocate("qk_norm_rope", shape, first.qkv.dtype())?;
    let level = cpu.simd();
    with_element!(y.dtype(), E => {
        let sources = streams.map(|s| Source::<E> {
            values: elements(s.qkv),
            gains: [cpu.unpack::<Vec<f32>>(&s.q_gain.packed), cpu.unpack::<Vec<f32>>(&s.k_gain.packed)],
        });
        let to = elements_mut::<E>(&mut y).par_chunks_mut(width).zip(rows).zip(&rotary.places);
        let job = |rotation: &mut Rotation, ((to, &row), &places): ((&mut [E], &u32), &[u32; 3])| {
            let (source, from) = Source::of(&sources, row as usize, width);
            rotation.set(rotary, places);
            let third = width / 3;
            for (which, gain) in source.gains.iter().enumerate() {
                let part = which * third..(which + 1) * third;
                norm_rotate::<E>(level, &from[part.clone()], &mut to[part], gain, rotation, eps);
            }
            to[2 * third..].copy_from_slice(&from[2 * third..]);
        };
        cpu.install(|| to.for_each_init(|| Rotation::new(d), job));
    });
    Ok(y)
}

fn run_reference(
    cpu: &CpuOps,
    streams: [Qkv; 2],
    rows: &[u32],
    rotary: &RotaryData,
    shape: Shape,
    eps: f64,
) -> Result<Tensor> {
    let width = streams[0].qkv.channels();
    let values = streams.map(|s| cpu.to_f64(s.qkv));
    let gains = streams.map(|s| {
        let double =
            |v: &reseed_ops::Packed| cpu.unpack::<Vec<f32>>(v).iter().map(|&v| f64::from(v)).collect::<Vec<_>>();
        [double(&s.q_gain.packed), double(&s.k_gain.packed)]
    });
    let first = streams[0].qkv.rows();
    let row = |(&row, &places): (&u32, &[u32; 3])| {
        let (stream, row) = if (row as usize) < first { (0, row as usize) } else { (1, row as usize - first) };
        let [q, k] = &gains[stream];
        reference::qk_norm_rope(&values[stream][row * width..][..width], [q, k], rotary, places, eps)
    };
    cpu.round_to_tensor(shape, &rows.iter().zip(&rotary.places).flat_map(row).collect::<Vec<_>>())
}

/// One of the two streams.
struct Source<'a, E> {
    values: &'a [E],
    gains: [&'a Vec<f32>; 2],
}

impl<'a, E> Source<'a, E> {
    /// The stream and the values of a row. Rows of the second stream follow those of the first.
    fn of(sources: &'a [Source<'a, E>; 2], row: usize, width: usize) -> (&'a Source<'a, E>, &'a [E]) {
        let [first, second] = sources;
        match (row * width).checked_sub(first.values.len()) {
            None => (first, &first.values[row * width..][..width]),
            Some(at) => (second, &second.values[at..][..width]),
        }
    }
}

/// Cosine and sine for every pair of channels of one token.
pub struct Rotation {
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl Rotation {
    fn new(d: usize) -> Rotation {
        Rotation { cos: vec![1.0; d / 2], sin: vec![0.0; d / 2] }
    }

    fn set(&mut self, rotary: &RotaryData, places: [u32; 3]) {
        let count = rotary.frequencies;
        let turns = places.iter().flat_map(|&place| &rotary.turns[place as usize * count..][..count]);
        for ((cos, sin), turn) in self.cos.iter_mut().zip(&mut self.sin).zip(turns) {
            [*cos, *sin] = *turn;
        }
    }
}

dispatch! {
    /// RMS norm and rotation of the queries or the keys of one token, head by head.
    pub fn norm_rotate<E: Element>(from: &[E], to: &mut [E], gain: &[f32], rotation: &Rotation, eps: f32) {
        let d = gain.len();
        for (from, to) in from.chunks_exact(d).zip(to.chunks_exact_mut(d)) {
            let scale = 1.0 / (square_sum(from) / d as f32 + eps).sqrt();
            let (from, to) = (from.as_chunks::<2>().0, to.as_chunks_mut::<2>().0);
            let gains = gain.as_chunks::<2>().0;
            let angles = rotation.cos.iter().zip(&rotation.sin);
            for (((to, from), gain), (cos, sin)) in to.iter_mut().zip(from).zip(gains).zip(angles) {
                let a = from[0].to_f32() * scale * gain[0];
                let b = from[1].to_f32() * scale * gain[1];
                *to = [E::from_f32(a * cos - b * sin), E::from_f32(b * cos + a * sin)];
            }
        }
    }
}
