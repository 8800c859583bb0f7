//! The header line, such as `YUV4MPEG2 W96 H64 F24:1 Ip A1:1 C420jpeg XCOLORRANGE=LIMITED`.

use std::fmt;

use crate::error::HeaderProblem;
use crate::format::{Chroma, Format, Range};
use crate::frame::{Rate, Size};

const COLOR_RANGE: &str = "XCOLORRANGE=";
/// The chroma format of old mjpegtools; some writers still add it to `C`.
const CHROMA_ALIAS: &str = "XYSCSS=";

/// A parsed header line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub size: Size,
    pub rate: Rate,
    pub format: Format,
}

impl Header {
    /// Parses a header without its line feed. Parameters may have any order.
    pub fn parse(line: &str) -> Result<Header, HeaderProblem> {
        let mut tokens = line.split(' ').filter(|token| !token.is_empty());
        if tokens.next().map(str::as_bytes) != Some(super::MAGIC) {
            return Err(HeaderProblem::NotY4m);
        }
        let (mut w, mut h, mut rate) = (None, None, None);
        let (mut range, mut interlace, mut aspect, mut chroma) = (None, None, None, None);
        let mut extras = Vec::new();
        for token in tokens {
            let mut rest = token.chars();
            let letter = rest.next();
            let value = rest.as_str();
            match letter {
                Some('W') => w = Some(parse_side(token, value)?),
                Some('H') => h = Some(parse_side(token, value)?),
                Some('F') => rate = Some(parse_rate(token, value)?),
                Some('I') => interlace = Some(value.to_owned()),
                Some('A') => aspect = Some(value.to_owned()),
                Some('C') => chroma = Some(value.to_owned()),
                _ => match parse_range(token) {
                    Some(tagged) => range = Some(tagged),
                    None => extras.push(token.to_owned()),
                },
            }
        }
        let size = Size { h: h.ok_or(HeaderProblem::Missing("height"))?, w: w.ok_or(HeaderProblem::Missing("width"))? };
        if !size.is_plausible() {
            return Err(HeaderProblem::Size(size));
        }
        let alias = extras.iter().find_map(|extra| extra.strip_prefix(CHROMA_ALIAS)).map(str::to_ascii_lowercase);
        let (chroma, bits) = parse_chroma(chroma.or(alias).as_deref().unwrap_or("420jpeg"))?;
        let format = Format { chroma, bits, range, interlace, aspect, extras };
        Ok(Header { size, rate: rate.unwrap_or_default(), format })
    }
}

/// Formats the line without its line feed.
impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Header { size, rate, format } = self;
        write!(f, "YUV4MPEG2 W{} H{} F{rate}", size.w, size.h)?;
        if let Some(interlace) = &format.interlace {
            write!(f, " I{interlace}")?;
        }
        if let Some(aspect) = &format.aspect {
            write!(f, " A{aspect}")?;
        }
        write!(f, " C{}", chroma_name(format.chroma, format.bits))?;
        match format.range {
            Some(Range::Full) => write!(f, " {COLOR_RANGE}FULL")?,
            Some(Range::Limited) => write!(f, " {COLOR_RANGE}LIMITED")?,
            None => {}
        }
        format.extras.iter().try_for_each(|extra| write!(f, " {extra}"))
    }
}

fn parse_side(token: &str, value: &str) -> Result<usize, HeaderProblem> {
    // Parsing as u32 gives the same limits on all platforms and prevents overflow of products.
    value.parse::<u32>().ok().and_then(|side| usize::try_from(side).ok()).ok_or_else(|| invalid(token))
}

fn parse_rate(token: &str, value: &str) -> Result<Rate, HeaderProblem> {
    let (num, den) = value.split_once(':').ok_or_else(|| invalid(token))?;
    match (num.parse(), den.parse()) {
        // 0:0 means that the rate is unknown.
        (Ok(0), Ok(_)) | (Ok(_), Ok(0)) => Ok(Rate::default()),
        (Ok(num), Ok(den)) => Ok(Rate { num, den }),
        _ => Err(invalid(token)),
    }
}

fn parse_range(token: &str) -> Option<Range> {
    match token.strip_prefix(COLOR_RANGE)? {
        "FULL" => Some(Range::Full),
        "LIMITED" => Some(Range::Limited),
        _ => None,
    }
}

fn parse_chroma(name: &str) -> Result<(Chroma, u8), HeaderProblem> {
    let eight = match name {
        "420jpeg" | "420" => Some(Chroma::Jpeg420),
        "420mpeg2" => Some(Chroma::Mpeg420),
        "420paldv" => Some(Chroma::Paldv420),
        "422" => Some(Chroma::Yuv422),
        "444" => Some(Chroma::Yuv444),
        "mono" => Some(Chroma::Mono),
        _ => None,
    };
    // Deep 4:2:0 has no tag for its chroma position; its codecs (HEVC, AV1) place chroma on the left.
    let deep = || {
        let (chroma, bits) =
            [("420p", Chroma::Mpeg420), ("422p", Chroma::Yuv422), ("444p", Chroma::Yuv444), ("mono", Chroma::Mono)]
                .into_iter()
                .find_map(|(prefix, chroma)| Some((chroma, name.strip_prefix(prefix)?)))?;
        let bits = ["9", "10", "12", "14", "16"].contains(&bits).then(|| bits.parse().ok())??;
        Some((chroma, bits))
    };
    eight.map(|chroma| (chroma, 8)).or_else(deep).ok_or_else(|| HeaderProblem::Chroma(excerpt(name)))
}

fn chroma_name(chroma: Chroma, bits: u8) -> String {
    let (eight, deep) = match chroma {
        Chroma::Jpeg420 => ("420jpeg", "420p"),
        Chroma::Mpeg420 => ("420mpeg2", "420p"),
        Chroma::Paldv420 => ("420paldv", "420p"),
        Chroma::Yuv422 => ("422", "422p"),
        Chroma::Yuv444 => ("444", "444p"),
        Chroma::Mono => ("mono", "mono"),
    };
    if bits == 8 { eight.to_owned() } else { format!("{deep}{bits}") }
}

fn invalid(token: &str) -> HeaderProblem {
    HeaderProblem::Invalid(excerpt(token))
}

/// The beginning of untrusted text, short enough for an error message.
fn excerpt(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(parameters: &str) -> Result<Header, HeaderProblem> {
        Header::parse(&format!("YUV4MPEG2 {parameters}"))
    }

    #[test]
    fn parameters_in_any_order_are_parsed_and_kept() {
        let header = parse("C422p10 XCOLORRANGE=FULL A4:3 H6 Xfoo=bar It F30000:1001 W8 XCOLORRANGE=ODD").unwrap();
        assert_eq!(header.size, Size { h: 6, w: 8 });
        assert_eq!(header.rate, Rate { num: 30000, den: 1001 });
        assert_eq!(header.format.range(), Range::Full);
        let line = "YUV4MPEG2 W8 H6 F30000:1001 It A4:3 C422p10 XCOLORRANGE=FULL Xfoo=bar XCOLORRANGE=ODD";
        assert_eq!(header.to_string(), line);
        assert_eq!(Header::parse(line).unwrap(), header);
    }

    #[test]
    fn a_header_without_parameters_gets_the_defaults() {
        let header = parse("W2 H2").unwrap();
        assert_eq!((header.format.chroma, header.format.bits), (Chroma::Jpeg420, 8));
        assert_eq!(header.format.range(), Range::Limited);
        assert_eq!(header.rate, Rate::default());
        assert_eq!(parse("W2 H2 F0:0").unwrap().rate, Rate::default());
    }

    #[test]
    fn every_chroma_name_is_parsed_and_formatted() {
        for name in "420jpeg 420mpeg2 420paldv 422 444 mono 420p9 420p10 420p12 420p14 420p16 422p10 422p12 422p16 \
                     444p10 444p12 444p14 444p16 mono10 mono12 mono16"
            .split_whitespace()
        {
            let (chroma, bits) = parse_chroma(name).unwrap();
            assert_eq!(chroma_name(chroma, bits), name);
        }
        assert_eq!(parse_chroma("420"), Ok((Chroma::Jpeg420, 8)));
        assert_eq!(parse("W2 H2 XYSCSS=420MPEG2").unwrap().format.chroma, Chroma::Mpeg420);
    }

    #[test]
    fn invalid_headers_are_reported_with_the_parameter() {
        let problem = |parameters: &str| parse(parameters).unwrap_err();
        assert_eq!(Header::parse("YUV4MPEG W2 H2"), Err(HeaderProblem::NotY4m));
        assert_eq!(problem("W2"), HeaderProblem::Missing("height"));
        assert_eq!(problem("H2"), HeaderProblem::Missing("width"));
        assert_eq!(problem("Wide H2"), HeaderProblem::Invalid("Wide".into()));
        assert_eq!(problem("W2 H99999999999"), HeaderProblem::Invalid("H99999999999".into()));
        assert_eq!(problem("W2 H2 F25"), HeaderProblem::Invalid("F25".into()));
        assert_eq!(problem("W2 H0"), HeaderProblem::Size(Size { h: 0, w: 2 }));
        assert_eq!(problem("W4294967295 H4294967295"), HeaderProblem::Size(Size { h: 4294967295, w: 4294967295 }));
        assert_eq!(problem("W30000 H30000"), HeaderProblem::Size(Size { h: 30000, w: 30000 }));
        for name in ["444alpha", "420p11", "420p010", "411", "", "420p"] {
            assert_eq!(problem(&format!("W2 H2 C{name}")), HeaderProblem::Chroma(name.into()));
        }
    }
}
