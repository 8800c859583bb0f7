//! The heads of attention over packed sequences.

/// From this length on a sequence occupies all threads, and more queries share a pass over its keys.
pub const LONG: usize = 2048;

/// One head of one sequence.
#[derive(Clone, Copy)]
pub struct Head {
    /// First token.
    pub first: usize,
    /// Number of tokens.
    pub count: usize,
    /// First channel.
    pub channel: usize,
}

/// Every head of `d` channels of every sequence.
pub fn heads(lengths: &[usize], width: usize, d: usize) -> impl Iterator<Item = Head> {
    let starts = lengths.iter().scan(0, |end, &n| {
        *end += n;
        Some(*end - n)
    });
    let sequences = starts.zip(lengths).filter(|(_, n)| **n > 0);
    sequences.flat_map(move |(first, &count)| (0..width).step_by(d).map(move |channel| Head { first, count, channel }))
}
