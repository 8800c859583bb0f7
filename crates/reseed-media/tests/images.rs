//! Damaged and hostile images, and what outputs keep of an image besides its pixels.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a skipped test says so")]

use std::fs;
use std::path::Path;

use reseed_media::{
    Depth, Error, Frame, ImageTags, Info, Kind, Problem, Rate, Samples, Size, create, decode, losses, metrics, open,
    video::Options,
};

const SIZE: Size = Size { h: 24, w: 34 };

fn info(depth: Depth, tags: ImageTags) -> Info {
    let (rate, kind, names) = (Rate::default(), Kind::Image, Vec::new());
    Info { size: SIZE, frames: Some(1), rate, depth, alpha: false, kind, names, tags }
}

/// A smooth frame, which lossy formats change little; grey if `grey` is set.
fn gradient(depth: Depth, grey: bool) -> Frame {
    let value = |i: usize| {
        let (pixel, channel) = (i / 3, i % 3);
        let (x, y) = ((pixel % SIZE.w) as f32 / SIZE.w as f32, (pixel / SIZE.w) as f32 / SIZE.h as f32);
        if grey { (x + y) / 2.0 } else { [x, y, (x + y) / 2.0][channel] }
    };
    let unit: Vec<f32> = (0..3 * SIZE.pixels()).map(value).collect();
    Frame::from_unit(SIZE, &unit, depth)
}

fn ramp(depth: Depth) -> Samples {
    Samples::from_unit(&(0..SIZE.pixels()).map(|i| i as f32 / SIZE.pixels() as f32).collect::<Vec<_>>(), depth)
}

fn write_all(path: &Path, info: &Info, frames: &[Frame]) {
    let mut sink = create(path, info).unwrap();
    frames.iter().for_each(|frame| sink.write(frame).unwrap());
    sink.finish().unwrap();
}

/// The description, the frames, and the problems of a file.
fn read_all(path: &Path) -> (Info, Vec<Frame>, Vec<String>) {
    let mut source = open(path).unwrap();
    let frames = std::iter::from_fn(|| source.next().unwrap()).collect();
    (source.info().clone(), frames, source.problems().iter().map(Problem::to_string).collect())
}

fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

fn png(chunks: &[(&[u8; 4], &[u8])]) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    for (name, content) in chunks {
        file.extend((content.len() as u32).to_be_bytes());
        let checked = [&name[..], content].concat();
        file.extend(&checked);
        file.extend(crc32(&checked).to_be_bytes());
    }
    file
}

/// A palette whose length is no multiple of three made the decoder panic.
#[test]
fn a_png_with_a_broken_palette_is_an_error_and_no_panic() {
    let header = b"\0\0\0\x01\0\0\0\x01\x08\x03\0\0\0";
    // A stored block with the filter byte and one index.
    let pixels = b"\x78\x01\x01\x02\0\xfd\xff\0\x01\0\x02\0\x02";
    for palette in 0..8 {
        let palette = vec![7; palette];
        let file = png(&[(b"IHDR", header), (b"PLTE", &palette), (b"IDAT", pixels), (b"IEND", b"")]);
        match decode(&file, Path::new("a.png")) {
            Ok(frame) => assert_eq!(frame.size, Size { h: 1, w: 1 }),
            Err(error) => assert!(matches!(error, Error::Decode { .. }), "{error}"),
        }
    }
}

/// An EXIF block in big-endian order: maker, orientation, EXIF with date and width, GPS with a map datum, thumbnail.
fn exif(orientation: u16) -> Vec<u8> {
    let entry = |tag: u16, kind: u16, count: u32, value: [u8; 4]| {
        [&tag.to_be_bytes()[..], &kind.to_be_bytes(), &count.to_be_bytes(), &value].concat()
    };
    let at = |offset: u32| offset.to_be_bytes();
    let [high, low] = orientation.to_be_bytes();
    let main = [
        entry(0x010f, 2, 7, at(62)),
        entry(0x0112, 3, 1, [high, low, 0, 0]),
        entry(0x8769, 4, 1, at(70)),
        entry(0x8825, 4, 1, at(124)),
    ];
    let mut block = b"MM\0*\0\0\0\x08\0\x04".to_vec();
    main.iter().for_each(|entry| block.extend(entry));
    block.extend(at(150));
    block.extend(b"Camera\0\0");
    block.extend(b"\0\x02");
    block.extend(entry(0x9003, 2, 20, at(100)));
    block.extend(entry(0xa002, 3, 1, [0, 34, 0, 0]));
    block.extend([0; 4]);
    block.extend(b"2001:02:03 04:05:06\0");
    block.extend([0; 4]);
    block.extend(b"\0\x01");
    block.extend(entry(0x0012, 2, 7, at(142)));
    block.extend([0; 4]);
    block.extend(b"WGS-84\0\0");
    block.extend(b"\0\0\0\0\0\0");
    block
}

const XMP: &[u8] = b"<x:xmpmeta xmlns:x='adobe:ns:meta/'>a caption</x:xmpmeta>";
const IPTC: &[u8] = b"\x1c\x02\x78\x00\x03cat";

fn has(block: &[u8], text: &[u8]) -> bool {
    block.windows(text.len()).any(|window| window == text)
}

/// Writes a JPEG file with all tags, as a camera and an editor would.
fn write_photograph(path: &Path, orientation: u16) {
    write_all(path, &info(Depth::Eight, ImageTags::default()), &[gradient(Depth::Eight, false)]);
    let plain = fs::read(path).unwrap();
    let mut file = plain[..2].to_vec();
    let photoshop = [b"8BIM\x04\x04\0\0\0\0\0\x08", IPTC].concat();
    for (marker, prefix, content) in [
        (0xe1, &b"Exif\0\0"[..], &exif(orientation)),
        (0xe1, b"http://ns.adobe.com/xap/1.0/\0", &XMP.to_vec()),
        (0xed, b"Photoshop 3.0\0", &photoshop),
    ] {
        file.extend([0xff, marker]);
        file.extend(((2 + prefix.len() + content.len()) as u16).to_be_bytes());
        file.extend([prefix, content].concat());
    }
    file.extend(&plain[2..]);
    fs::write(path, file).unwrap();
}

#[test]
fn exif_xmp_and_iptc_reach_every_format_that_stores_them() {
    let folder = temp_dir::TempDir::new().unwrap();
    let photograph = folder.path().join("photograph.jpg");
    write_photograph(&photograph, 6);
    let (input, frames, _) = read_all(&photograph);
    assert_eq!(input.size, Size { h: SIZE.w, w: SIZE.h }, "upright");
    assert_eq!(input.tags.xmp.as_deref(), Some(XMP));
    assert_eq!(input.tags.iptc.as_deref(), Some(IPTC));

    for name in ["a.jpg", "a.png", "a.webp", "a.tiff"] {
        let path = folder.path().join(name);
        write_all(&path, &input, &frames);
        let (output, again, _) = read_all(&path);
        let exif = output.tags.exif.unwrap();
        for text in [&b"Camera\0"[..], b"2001:02:03 04:05:06\0", b"WGS-84\0"] {
            assert!(has(&exif, text), "{name}: {}", String::from_utf8_lossy(text));
        }
        assert_eq!(output.size, input.size, "{name}: the orientation is reset");
        assert!(metrics::psnr(&frames[0], &again[0]) > 35.0, "{name}");
        assert_eq!(output.tags.xmp.as_deref(), Some(XMP), "{name}");
        let stored = (name != "a.webp").then_some(IPTC);
        assert_eq!(output.tags.iptc.as_deref(), stored, "{name}");
        let lost = losses(&input, &path, &Options::default());
        assert_eq!(lost.iter().any(|line| line.contains("IPTC")), stored.is_none(), "{name}: {lost:?}");
    }
}

/// The width in EXIF follows the image, and the thumbnail of a rotated image, which would be wrong, is unlinked.
#[test]
fn exif_states_the_size_of_the_output() {
    let folder = temp_dir::TempDir::new().unwrap();
    let (from, to) = (folder.path().join("from.jpg"), folder.path().join("to.jpg"));
    write_photograph(&from, 3);
    let (input, _, _) = read_all(&from);
    let size = Size { h: 48, w: 68 };
    let frame = Frame::from_unit(size, &vec![0.5; 3 * size.pixels()], Depth::Eight);
    write_all(&to, &Info { size, ..input }, &[frame]);
    let exif = read_all(&to).0.tags.exif.unwrap();
    assert!(has(&exif, b"\xa0\x02\0\x03\0\0\0\x01\0\x44"), "68 columns");
    assert!(has(&exif, b"\x01\x12\0\x03\0\0\0\x01\0\x01"), "upright");
    assert_eq!(exif[58..62], [0; 4], "no thumbnail");
}

#[test]
fn a_folder_keeps_the_tags_of_every_image() {
    let folder = temp_dir::TempDir::new().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    fs::create_dir(&from).unwrap();
    write_photograph(&from.join("1.jpg"), 1);
    let grey = info(Depth::Eight, ImageTags { grey: true, ..ImageTags::default() });
    write_all(&from.join("2.png"), &grey, &[gradient(Depth::Eight, true)]);
    let (input, frames, _) = read_all(&from);
    write_all(&to, &input, &frames);
    let tags = |name: &str| read_all(&to.join(name)).0.tags;
    assert!(tags("1.jpg").exif.is_some() && !tags("1.jpg").grey);
    assert!(tags("2.png").exif.is_none() && tags("2.png").grey);
}

#[test]
fn grey_images_stay_grey() {
    let folder = temp_dir::TempDir::new().unwrap();
    for (name, depth, alpha) in [
        ("8.png", Depth::Eight, false),
        ("8a.png", Depth::Eight, true),
        ("16.png", Depth::Sixteen, false),
        ("16a.png", Depth::Sixteen, true),
        ("8.tiff", Depth::Eight, false),
        ("8a.tiff", Depth::Eight, true),
        ("16a.tiff", Depth::Sixteen, true),
        ("8.jpg", Depth::Eight, false),
    ] {
        let path = folder.path().join(name);
        let frame = Frame { alpha: alpha.then(|| ramp(depth)), ..gradient(depth, true) };
        let tags = ImageTags { grey: true, ..ImageTags::default() };
        write_all(&path, &Info { alpha, ..info(depth, tags) }, std::slice::from_ref(&frame));
        // The other decoder does not know TIFF files of grey and alpha.
        if !name.ends_with("a.tiff") {
            let color = image::ImageReader::open(&path).unwrap().decode().unwrap().color();
            assert_eq!((color.has_color(), color.has_alpha()), (false, alpha), "{name}: {color:?}");
        }
        let (read, frames, _) = read_all(&path);
        assert!(read.tags.grey && read.alpha == alpha && read.depth == depth, "{name}");
        match name.ends_with("jpg") {
            true => assert!(metrics::psnr(&frame, &frames[0]) > 35.0, "{name}"),
            false => assert_eq!(frames, [frame], "{name}"),
        }
    }
}

#[test]
fn transparent_images_are_put_on_white_in_jpeg() {
    let folder = temp_dir::TempDir::new().unwrap();
    let path = folder.path().join("a.jpg");
    let unit = vec![0.2; 3 * SIZE.pixels()];
    let clear = (0..SIZE.pixels()).map(|i| if i % SIZE.w < SIZE.w / 2 { 0 } else { 255 }).collect();
    let frame = Frame { alpha: Some(Samples::U8(clear)), ..Frame::from_unit(SIZE, &unit, Depth::Eight) };
    let info = Info { alpha: true, ..info(Depth::Eight, ImageTags::default()) };
    write_all(&path, &info, &[frame]);
    let read = read_all(&path).1[0].to_unit();
    assert!(read[0] > 0.97 && (read[3 * SIZE.w - 1] - 0.2).abs() < 0.03, "{} {}", read[0], read[3 * SIZE.w - 1]);
    let lost = losses(&info, &path, &Options::default());
    assert!(lost.len() == 1 && lost[0].contains("white"), "{lost:?}");
    assert!(losses(&info, Path::new("a.png"), &Options::default()).is_empty());
}

#[test]
fn truncated_images_are_read_as_far_as_they_go_and_say_so() {
    let folder = temp_dir::TempDir::new().unwrap();
    let size = Size { h: 64, w: 64 };
    let noise = |i: usize| ((i * 2_654_435_761) >> 7) as f32 % 97.0 / 97.0;
    let unit: Vec<f32> = (0..3 * size.pixels()).map(noise).collect();
    let frame = Frame::from_unit(size, &unit, Depth::Eight);
    for name in ["a.png", "a.jpg"] {
        let path = folder.path().join(name);
        write_all(&path, &Info { size, ..info(Depth::Eight, ImageTags::default()) }, std::slice::from_ref(&frame));
        let whole = read_all(&path);
        assert!(whole.2.is_empty(), "{name}: {:?}", whole.2);
        let file = fs::read(&path).unwrap();
        fs::write(&path, &file[..file.len() * 2 / 3]).unwrap();
        let (read, frames, problems) = read_all(&path);
        assert_eq!((read.size, frames.len()), (size, 1), "{name}");
        let rows = 3 * size.w * 16;
        let (upper, lower) = (&frames[0].to_unit()[..rows], &whole.1[0].to_unit()[..rows]);
        assert!(upper == lower, "{name}: the first rows are those of the whole image");
        assert!(problems.len() == 1 && problems[0].contains(name), "{problems:?}");
    }
}

#[test]
fn every_page_of_a_tiff_file_is_read_and_written() {
    let folder = temp_dir::TempDir::new().unwrap();
    let (path, copy) = (folder.path().join("scan.tiff"), folder.path().join("copy.tif"));
    let shade = |shade: f32| Frame::from_unit(SIZE, &vec![shade; 3 * SIZE.pixels()], Depth::Eight);
    let pages = [shade(0.1), shade(0.5), shade(0.9)];
    let described = Info { kind: Kind::Pages, frames: Some(3), ..info(Depth::Eight, ImageTags::default()) };
    write_all(&path, &described, &pages);
    let (read, frames, _) = read_all(&path);
    assert_eq!((&read.kind, read.frames), (&Kind::Pages, Some(3)));
    assert_eq!(frames, pages);
    write_all(&copy, &read, &frames);
    assert_eq!(read_all(&copy).1, pages);
    assert!(matches!(create(&folder.path().join("a.png"), &read), Err(Error::UnknownOutput { .. })));
    write_all(&folder.path().join("numbered"), &read, &frames);
    assert_eq!(read_all(&folder.path().join("numbered/000002.png")).1, pages[1..2]);
}

#[test]
fn bmp_pnm_and_tga_images_are_read() {
    let folder = temp_dir::TempDir::new().unwrap();
    let from = |name: &str| folder.path().join(name);
    let Samples::U8(rgb) = gradient(Depth::Eight, false).samples else { unreachable!("eight bits") };
    let image = image::RgbImage::from_raw(SIZE.w as u32, SIZE.h as u32, rgb).unwrap();
    for name in ["a.bmp", "a.ppm", "a.pam", "a.tga"] {
        image.save(from(name)).unwrap();
        let (read, frames, _) = read_all(&from(name));
        assert_eq!((read.kind, frames), (Kind::Image, vec![gradient(Depth::Eight, false)]), "{name}");
    }
    image::DynamicImage::from(image).into_luma8().save(from("a.pgm")).unwrap();
    assert!(read_all(&from("a.pgm")).0.tags.grey);
}

/// The output of a format that is not written is PNG, under a name that no other image has.
#[test]
fn images_of_a_folder_in_other_formats_become_png() {
    let folder = temp_dir::TempDir::new().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    fs::create_dir(&from).unwrap();
    image::RgbImage::new(8, 8).save(from.join("a.bmp")).unwrap();
    image::RgbImage::new(8, 8).save(from.join("b.bmp")).unwrap();
    image::RgbImage::new(8, 8).save(from.join("b.png")).unwrap();
    let (input, frames, _) = read_all(&from);
    write_all(&to, &input, &frames);
    let mut names: Vec<_> = fs::read_dir(&to).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["a.png", "b.bmp.png", "b.png"]);
}

/// Makes an image with ffmpeg; `false` if this ffmpeg lacks the encoder.
#[cfg(feature = "ffmpeg")]
fn make(path: &Path, encoder: &str) -> bool {
    let mut command = std::process::Command::new("ffmpeg");
    command.args(["-v", "error", "-y", "-f", "lavfi", "-i", "color=c=0x4080c0:s=34x24", "-frames:v", "1"]);
    command.args(encoder.split_whitespace()).arg(path).status().is_ok_and(|status| status.success())
}

#[cfg(feature = "ffmpeg")]
#[test]
fn images_that_ffmpeg_decodes_are_images() {
    let folder = temp_dir::TempDir::new().unwrap();
    let (png, output) = (folder.path().join("a.png"), folder.path().join("out.png"));
    assert!(make(&png, "-update 1"), "these tests need ffmpeg");
    let original = &read_all(&png).1[0];
    let avif = "-c:v libaom-av1 -still-picture 1 -crf 5 -pix_fmt yuv444p";
    for (name, encoder) in [("a.avif", avif), ("a.jxl", "-c:v libjxl -distance 0.1")] {
        let path = folder.path().join(name);
        if !make(&path, encoder) {
            continue;
        }
        let (info, frames, _) = read_all(&path);
        assert_eq!((&info.kind, info.frames, info.size), (&Kind::Image, Some(1), SIZE), "{name}");
        let psnr = metrics::psnr(original, &frames[0]);
        assert!(psnr > 35.0, "{name}: {psnr} dB");
        write_all(&output, &info, &frames);
        assert_eq!(read_all(&output).1, frames, "{name}");
    }
}

#[cfg(feature = "ffmpeg")]
#[test]
fn the_tags_of_a_jpeg_xl_photograph_are_copied() {
    let folder = temp_dir::TempDir::new().unwrap();
    let (path, output) = (folder.path().join("a.jxl"), folder.path().join("out.png"));
    if !make(&path, "-c:v libjxl -distance 1") {
        println!("skipped: this ffmpeg has no libjxl");
        return;
    }
    let boxed =
        |kind: &[u8; 4], content: &[u8]| [&(content.len() as u32 + 8).to_be_bytes()[..], kind, content].concat();
    let exif = b"II*\0\x08\0\0\0\x01\0\x31\x01\x02\0\x04\0\0\0abc\0\0\0\0\0";
    let xmp = b"<x:xmpmeta xmlns:x=\"adobe:ns:meta/\"/>";
    let boxes = [
        boxed(b"JXL ", b"\r\n\x87\n"),
        boxed(b"ftyp", b"jxl \0\0\0\0jxl "),
        boxed(b"Exif", &[&[0; 4][..], exif].concat()),
        boxed(b"xml ", xmp),
        boxed(b"jxlc", &fs::read(&path).unwrap()),
    ];
    fs::write(&path, boxes.concat()).unwrap();
    let (info, frames, _) = read_all(&path);
    write_all(&output, &info, &frames);
    let copied = read_all(&output).0.tags;
    assert_eq!(copied.exif.as_deref(), Some(&exif[..]));
    assert_eq!(copied.xmp.as_deref(), Some(&xmp[..]));
}

#[cfg(feature = "ffmpeg")]
#[test]
fn an_image_that_ffmpeg_cannot_decode_says_so() {
    let folder = temp_dir::TempDir::new().unwrap();
    let path = folder.path().join("a.heic");
    fs::write(&path, b"\0\0\0\x18ftypheic\0\0\0\0mif1heic").unwrap();
    let error = open(&path).err().unwrap();
    assert!(matches!(error, Error::UnsupportedImage { format: "HEIC", .. }), "{error}");
    assert!(error.to_string().contains("a.heic") && error.to_string().lines().count() == 1, "{error}");
}

#[test]
fn a_folder_of_images_of_different_sizes_has_a_job_for_each() {
    let folder = temp_dir::TempDir::new().unwrap();
    for name in ["2.png", "10.png"] {
        image::RgbImage::new(8, 8).save(folder.path().join(name)).unwrap();
    }
    assert!(reseed_media::jobs_in(folder.path()).unwrap().is_empty(), "one size is one job");
    image::RgbImage::new(8, 9).save(folder.path().join("11.bmp")).unwrap();
    assert_eq!(reseed_media::jobs_in(folder.path()).unwrap(), ["2.png", "10.png", "11.bmp"]);
}

#[test]
fn a_rate_is_for_folders_of_images() {
    let folder = temp_dir::TempDir::new().unwrap();
    image::RgbImage::new(8, 8).save(folder.path().join("1.png")).unwrap();
    let clip = reseed_media::video::Clip { rate: Some(Rate { num: 12, den: 1 }), ..Default::default() };
    let source = reseed_media::open_clip(folder.path(), clip).unwrap();
    assert_eq!(source.info().rate, Rate { num: 12, den: 1 });
    image::RgbImage::new(9, 9).save(folder.path().join("cover.png")).unwrap();
    let source = reseed_media::open_clip(&folder.path().join("%d.png"), clip).unwrap();
    assert_eq!((source.info().frames, source.info().rate), (Some(1), Rate { num: 12, den: 1 }));
    let error = reseed_media::open_clip(&folder.path().join("1.png"), clip).err().unwrap();
    assert!(matches!(error, Error::RateOfOther { .. }), "{error}");
}
