//! Interlaced video: what a user chooses, and how fields become frames.

use std::fmt;
use std::str::FromStr;

/// How interlaced video is read. A frame of such video holds two fields, the even and the odd rows of two moments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Deinterlace {
    /// One frame per two fields where the flags of the file or its frames show interlacing, and the frames of the film
    /// where 3:2 pulldown is found.
    #[default]
    Auto,
    /// Frames as they are stored.
    Off,
    /// One frame per field: twice the frame rate.
    Bob,
    /// One frame per two fields.
    Single,
    /// The frames of a film at 24000/1001 frames per second, from video with 3:2 pulldown.
    InverseTelecine,
}

const NAMES: [(&str, Deinterlace); 5] = [
    ("auto", Deinterlace::Auto),
    ("off", Deinterlace::Off),
    ("bob", Deinterlace::Bob),
    ("single", Deinterlace::Single),
    ("ivtc", Deinterlace::InverseTelecine),
];

impl fmt::Display for Deinterlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAMES.iter().find(|(_, choice)| choice == self).map_or("", |(name, _)| name))
    }
}

/// Parses `auto`, `off`, `bob`, `single` and `ivtc`.
impl FromStr for Deinterlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Deinterlace, String> {
        let known = NAMES.iter().find(|(name, _)| *name == text).map(|(_, choice)| *choice);
        known.ok_or_else(|| format!("unknown way to deinterlace `{text}`; choose auto, off, bob, single or ivtc"))
    }
}

#[cfg(feature = "ffmpeg")]
pub(crate) use action::{FieldAction, Parity};

#[cfg(feature = "ffmpeg")]
mod action {
    use crate::frame::Rate;

    /// Which field of a frame comes first.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Parity {
        Top,
        Bottom,
        /// As the flags of each frame say.
        Flags,
    }

    /// What is done with the fields of a video.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum FieldAction {
        Keep,
        /// One frame per field if `double`, else one per two fields. With `flagged`, only of frames with a flag.
        Deinterlace {
            double: bool,
            parity: Parity,
            flagged: bool,
        },
        /// Inverse telecine: four frames of film from five of video.
        InverseTelecine,
    }

    /// The clock of film from 3:2 pulldown: a frame is 5005 ticks, and 4004 of its video.
    const FILM_TICKS: u32 = 120_000;

    impl FieldAction {
        /// The filters of ffmpeg. Their timestamps count in units of [`FieldAction::base`].
        pub fn filters(self, base: Rate) -> Option<String> {
            let Rate { num, den } = self.base(base);
            let filters = match self {
                FieldAction::Keep => return None,
                FieldAction::Deinterlace { double, parity, flagged } => {
                    let mode = if double { "send_field" } else { "send_frame" };
                    let parity = match parity {
                        Parity::Top => "tff",
                        Parity::Bottom => "bff",
                        Parity::Flags => "auto",
                    };
                    let deint = if flagged { "interlaced" } else { "all" };
                    format!("bwdif=mode={mode}:parity={parity}:deint={deint}")
                }
                // The last filter deinterlaces what fieldmatch could not match.
                FieldAction::InverseTelecine => format!(
                    "settb={num}/{den},fieldmatch=order=auto:combmatch=full,bwdif=mode=send_frame:deint=interlaced,\
                     decimate"
                ),
            };
            Some(format!("{filters},settb={num}/{den}"))
        }

        /// The time base of timestamps after the filters, for timestamps in units of `base` before them.
        pub fn base(self, base: Rate) -> Rate {
            match self {
                FieldAction::Deinterlace { double: true, .. } => halved(base),
                FieldAction::InverseTelecine => Rate { num: 1, den: FILM_TICKS },
                _ => base,
            }
        }

        /// The frame rate after the filters.
        pub fn rate(self, rate: Rate) -> Rate {
            match self {
                FieldAction::Deinterlace { double: true, .. } => inverse(halved(inverse(rate))),
                FieldAction::InverseTelecine => {
                    let fifth =
                        |rate: Rate| Some(Rate { num: rate.num.checked_mul(4)?, den: rate.den.checked_mul(5)? });
                    fifth(rate).map_or(rate, reduced)
                }
                _ => rate,
            }
        }

        /// The number of frames after the filters.
        pub fn frames(self, frames: usize) -> usize {
            match self {
                FieldAction::Deinterlace { double: true, .. } => frames.saturating_mul(2),
                FieldAction::InverseTelecine => frames - frames / 5,
                _ => frames,
            }
        }
    }

    fn inverse(rate: Rate) -> Rate {
        Rate { num: rate.den, den: rate.num }
    }

    /// Half of a fraction; the fraction itself if its half has no representation.
    fn halved(Rate { num, den }: Rate) -> Rate {
        match num % 2 {
            0 => Rate { num: num / 2, den },
            _ => Rate { num, den: den.checked_mul(2).unwrap_or(den) },
        }
    }

    fn reduced(Rate { num, den }: Rate) -> Rate {
        let (mut a, mut b) = (num, den);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        Rate { num: num / a.max(1), den: den / a.max(1) }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn rates_are_exact() {
            let ntsc = Rate { num: 30000, den: 1001 };
            let bob = FieldAction::Deinterlace { double: true, parity: Parity::Flags, flagged: false };
            assert_eq!(bob.rate(ntsc), Rate { num: 60000, den: 1001 });
            assert_eq!(bob.rate(Rate { num: 25, den: 1 }), Rate { num: 50, den: 1 });
            assert_eq!(bob.rate(Rate { num: 25, den: 2 }), Rate { num: 25, den: 1 });
            assert_eq!(bob.base(Rate { num: 1, den: 90_000 }), Rate { num: 1, den: 180_000 });
            assert_eq!(FieldAction::InverseTelecine.rate(ntsc), Rate { num: 24000, den: 1001 });
            assert_eq!((bob.frames(7), FieldAction::InverseTelecine.frames(11)), (14, 9));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for (name, choice) in NAMES {
            assert_eq!((choice.to_string().as_str(), name.parse()), (name, Ok(choice)));
        }
        assert!("yadif".parse::<Deinterlace>().is_err());
    }
}
