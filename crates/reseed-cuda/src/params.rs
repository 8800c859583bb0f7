//! Kernel arguments, which `kernels/params.cuh` declares with the same fields in the same order.

/// One launch of a convolution; `kernels/params.cuh` defines the fields.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvArgs {
    pub in_h: i32,
    pub in_w: i32,
    pub c_in: i32,
    pub cache_frames: i32,
    pub out_frames: i32,
    pub out_h: i32,
    pub out_w: i32,
    pub c_out: i32,
    pub taps_t: i32,
    pub taps_h: i32,
    pub taps_w: i32,
    pub stride_t: i32,
    pub stride_h: i32,
    pub stride_w: i32,
    pub pad_h: i32,
    pub pad_w: i32,
    pub first: i32,
    pub phases: i32,
    pub frame_start: i32,
    pub frame_step: i32,
    pub x_pitch: i32,
    pub w_pitch: i32,
    pub y_pitch: i32,
}

impl ConvArgs {
    /// y = x wᵀ over `rows` dense rows: a convolution of one tap over a plane that is one row high.
    pub fn matrix(rows: usize, c_in: usize, c_out: usize) -> ConvArgs {
        let (rows, c_in, c_out) = (int(rows), int(c_in), int(c_out));
        ConvArgs {
            in_h: 1,
            in_w: rows,
            c_in,
            cache_frames: 0,
            out_frames: 1,
            out_h: 1,
            out_w: rows,
            c_out,
            taps_t: 1,
            taps_h: 1,
            taps_w: 1,
            stride_t: 1,
            stride_h: 1,
            stride_w: 1,
            pad_h: 0,
            pad_w: 0,
            first: 0,
            phases: 1,
            frame_start: 0,
            frame_step: 1,
            x_pitch: c_in,
            w_pitch: c_in,
            y_pitch: c_out,
        }
    }

    /// Spatial and temporal taps of one phase.
    pub fn taps(&self) -> usize {
        (self.taps_t * self.taps_h * self.taps_w) as usize
    }
}

/// A size as a kernel argument.
pub fn int(size: usize) -> i32 {
    i32::try_from(size).unwrap_or_else(|_| panic!("a size of {size} does not fit a kernel's argument"))
}

/// A number of values as a kernel argument.
pub fn long(count: usize) -> i64 {
    i64::try_from(count).unwrap_or_else(|_| panic!("a count of {count} does not fit a kernel's argument"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_match_the_header() {
        let header = include_str!("../kernels/params.cuh");
        let body = header.split("struct ConvArgs {").nth(1).unwrap().split("};").next().unwrap();
        let declarations = body.lines().filter_map(|line| line.trim().strip_prefix("int "));
        let names = declarations.flat_map(|line| line.split(';').next().unwrap().split(',').map(str::trim));
        let debug = format!("{:?}", ConvArgs::matrix(1, 1, 1));
        let ours = debug.trim_start_matches("ConvArgs { ").trim_end_matches(" }").split(", ");
        let ours: Vec<&str> = ours.map(|field| field.split(':').next().unwrap()).collect();
        assert_eq!(names.collect::<Vec<_>>(), ours);
        assert_eq!(size_of::<ConvArgs>(), 4 * ours.len());
    }
}
