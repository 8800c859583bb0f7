use super::*;

fn convolution(args: ConvArgs, dtype: DType) -> Convolution {
    let none = Ptr::NULL;
    let (x, cache, w, bias, y, residual) = (none, none, none, none, none, none);
    Convolution {
        dtype,
        out: dtype,
        x,
        frames: 1,
        cache,
        w,
        bias,
        y,
        residual,
        partial: none,
        groups: 0,
        norm: None,
        args,
    }
}

#[test]
fn only_what_the_halo_kernels_compute_is_given_to_them() {
    let plane = ConvArgs { in_h: 9, in_w: 17, out_h: 9, out_w: 17, ..ConvArgs::matrix(1, 128, 256) };
    let three = ConvArgs { taps_t: 3, taps_h: 3, taps_w: 3, pad_h: 1, pad_w: 1, ..plane };
    let two = ConvArgs { taps_t: 2, taps_h: 2, taps_w: 2, pad_h: 1, pad_w: 1, phases: 4, ..plane };
    let down = ConvArgs { stride_t: 2, stride_h: 2, stride_w: 2, pad_h: 0, pad_w: 0, out_h: 4, out_w: 8, ..three };
    let halo = |taps, stride, few| Some(Halo { taps, stride, few });
    assert_eq!(convolution(three, DType::F16).halo(), halo(3, 1, false));
    assert_eq!(convolution(two, DType::Bf16).halo(), halo(2, 1, false));
    assert_eq!(convolution(down, DType::Bf16).halo(), halo(3, 2, false));
    assert_eq!(convolution(two, DType::F32).halo(), None);
    assert_eq!(convolution(plane, DType::F16).halo(), halo(1, 1, false));
    assert_eq!(convolution(ConvArgs { c_out: 3, y_pitch: 3, ..three }, DType::F16).halo(), halo(3, 1, true));
    for no in [
        ConvArgs { stride_h: 2, ..three },
        ConvArgs { stride_t: 2, ..three },
        ConvArgs { c_in: 100, x_pitch: 100, w_pitch: 100, ..three },
        ConvArgs { c_out: 20, y_pitch: 20, ..three },
        ConvArgs { c_out: 132, y_pitch: 132, ..three },
        ConvArgs { phases: 1, ..two },
    ] {
        assert_eq!(convolution(no, DType::F16).halo(), None, "{no:?}");
    }
}

#[test]
fn columns_are_computed_in_pairs_where_channels_fill_a_tile() {
    let cube = |c_in, c_out| ConvSpec::same(c_in, c_out, Thw::new(3, 3, 3));
    assert_eq!(pairs::bytes(DType::F16, true, &cube(128, 64)), 3 * 3 * 4 * 128 * 64 * 2);
    assert_eq!(pairs::bytes(DType::F16, true, &ConvSpec::same(64, 64, Thw::new(1, 3, 3))), 3 * 4 * 64 * 64 * 2);
    let halved = ConvSpec { stride: Thw::new(1, 2, 2), ..cube(128, 128) };
    for no in [cube(96, 128), cube(128, 96), halved, ConvSpec::same(128, 128, Thw::new(1, 1, 1))] {
        assert_eq!(pairs::bytes(DType::F16, true, &no), 0, "{no:?}");
    }
    assert_eq!(pairs::bytes(DType::Bf16, true, &cube(128, 128)), 0);
    assert_eq!(pairs::bytes(DType::F16, false, &cube(128, 128)), 0);
}

#[test]
fn rows_left_over_are_cut_wide() {
    let halo = Halo { taps: 3, stride: 1, few: false };
    let cut = |h, w, halo: Halo| {
        let Cut { tiles, columns, lines } = halo.cut(&ConvArgs { out_h: h, out_w: w, ..ConvArgs::matrix(1, 128, 128) });
        (tiles, columns, lines)
    };
    assert_eq!(cut(32, 240, halo), (2 * 15, 15, 16));
    assert_eq!(cut(135, 240, halo), (8 * 15 + 8, 15, 68));
    assert_eq!(cut(137, 240, halo), (9 * 15, 15, 72));
    assert_eq!(cut(5, 40, halo), (2, 3, 4));
    assert_eq!(cut(5, 16, halo), (1, 1, 8));
    assert_eq!(cut(135, 240, Halo { taps: 1, ..halo }), (9 * 15, 15, 72));
}

#[test]
fn norms_are_applied_on_load_where_that_is_faster() {
    let cube = |c_in, c_out| ConvSpec::same(c_in, c_out, Thw::new(3, 3, 3));
    let fits = |spec: ConvSpec| norms_on_load(DType::F16, true, &spec);
    assert!(fits(cube(128, 128)) && fits(cube(512, 256)) && fits(cube(72, 24)));
    for no in [cube(256, 512), cube(128, 3), cube(100, 128), ConvSpec::same(128, 128, Thw::new(1, 1, 1))] {
        assert!(!fits(no), "{no:?}");
    }
    assert!(!norms_on_load(DType::F32, true, &cube(128, 128)));
    assert!(!norms_on_load(DType::F16, false, &cube(128, 128)));
}

#[test]
fn pictures_have_a_kernel_of_their_own() {
    let plane = ConvArgs { in_h: 9, in_w: 17, out_h: 9, out_w: 17, ..ConvArgs::matrix(1, 3, 128) };
    let stem = ConvArgs { taps_t: 3, taps_h: 3, taps_w: 3, pad_h: 1, pad_w: 1, w_pitch: 8, ..plane };
    assert!(convolution(stem, DType::F16).stem() && !convolution(stem, DType::F32).stem());
    assert!(!convolution(ConvArgs { c_in: 8, x_pitch: 8, ..stem }, DType::F16).stem());
    assert!(!convolution(ConvArgs { c_out: 16, y_pitch: 16, ..stem }, DType::F16).stem());
}
