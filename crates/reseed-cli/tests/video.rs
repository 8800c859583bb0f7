//! Videos through `reseed upscale` with the identity model keep frames, sample values, timestamps, streams and tags.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::Stdio;

use crate::common::video::{ask, make, planes, probe, run, streams, times};
use crate::common::{Lab, outcome};
use serde_json::Value;

const PLAIN: &str = "--model identity --scale 1 --color none";
/// Fast encoder settings, with enough quality for these tests.
const FAST: &str = "-c:v libx264 -preset ultrafast -pix_fmt yuv420p";

fn test_video(rate: &str, seconds: &str, size: &str) -> String {
    format!("-f lavfi -i testsrc2=size={size}:rate={rate}:duration={seconds}")
}

fn upscale(lab: &Lab, input: &str, output: &str, options: &str) {
    lab.succeed(&format!("upscale {input} {output} {PLAIN} --encoder-arg preset=ultrafast {options}"));
}

fn root(lab: &Lab) -> std::path::PathBuf {
    lab.path("")
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_else(|| panic!("no {key} in {value}"))
}

#[test]
fn audio_subtitles_chapters_and_length_are_kept() {
    let lab = Lab::new();
    fs::write(lab.path("words.srt"), "1\n00:00:00,500 --> 00:00:02,000\nHello\n").unwrap();
    let chapters = ";FFMETADATA1\ntitle=A film\n[CHAPTER]\nTIMEBASE=1/1000\nSTART=0\nEND=2000\ntitle=One\n";
    fs::write(lab.path("facts.txt"), chapters).unwrap();
    let args = format!(
        "{} -f lavfi -i sine=frequency=440:sample_rate=48000:duration=5.2 -i words.srt -i facts.txt \
         -map 0 -map 1 -map 2 -map_metadata 3 -map_chapters 3 {FAST} -c:a aac -c:s srt \
         -metadata:s:a:0 language=eng -metadata:s:s:0 language=fra",
        test_video("24000/1001", "5.1", "128x72")
    );
    make(&root(&lab), &args, "in.mkv");
    let before = times(&root(&lab), "in.mkv");
    for output in ["out.mkv", "out.mp4", "out.mov"] {
        upscale(&lab, "in.mkv", output, "");
        let facts = probe(&root(&lab), output);
        let video = streams(&facts, "video")[0];
        assert_eq!((text(video, "codec_name"), text(video, "pix_fmt")), ("h264", "yuv420p"), "{output}");
        let [audio] = streams(&facts, "audio")[..] else { panic!("{facts}") };
        assert_eq!((text(audio, "codec_name"), text(&audio["tags"], "language")), ("aac", "eng"), "{output}");
        let [subtitle] = streams(&facts, "subtitle")[..] else { panic!("{facts}") };
        let codec = if output == "out.mkv" { "subrip" } else { "mov_text" };
        assert_eq!((text(subtitle, "codec_name"), text(&subtitle["tags"], "language")), (codec, "fra"), "{output}");
        assert_eq!(text(&facts["chapters"][0]["tags"], "title"), "One", "{output}");
        assert_eq!(text(&facts["format"]["tags"], "title"), "A film", "{output}");
        // Container timestamps have a resolution of one millisecond or better.
        let after = times(&root(&lab), output);
        assert_eq!(after.len(), before.len(), "{output}");
        assert!(before.iter().zip(&after).all(|(a, b)| (a - b).abs() <= 1000), "{output}");
    }
    let packets = |name| ask(&root(&lab), "-select_streams a:0 -show_entries packet=size", name)["packets"].clone();
    assert_eq!(packets("in.mkv"), packets("out.mkv"), "audio was encoded again");
    upscale(&lab, "in.mkv", "bare.mkv", "--no-audio --no-subtitles --no-chapters --no-metadata");
    let bare = probe(&root(&lab), "bare.mkv");
    assert_eq!((bare["streams"].as_array().unwrap().len(), bare["chapters"].as_array().unwrap().len()), (1, 0));
    assert!(bare["format"]["tags"]["title"].is_null());
    assert_eq!(lab.names(), ["bare.mkv", "facts.txt", "in.mkv", "out.mkv", "out.mov", "out.mp4", "words.srt"]);
}

/// More frames than a segment holds, at a variable frame rate.
#[test]
fn variable_frame_rate_timestamps_are_kept() {
    let lab = Lab::new();
    let uneven =
        "-vf settb=1/90000,setpts=N*3000+700*mod(N\\,3)+13*mod(N\\,7) -enc_time_base 1/90000 -vsync passthrough";
    let args = format!("{} {uneven} -video_track_timescale 90000 {FAST}", test_video("30", "9", "64x48"));
    make(&root(&lab), &args, "in.mp4");
    let before = times(&root(&lab), "in.mp4");
    assert!(before.len() == 270 && before[1] - before[0] != before[2] - before[1], "{before:?}");
    upscale(&lab, "in.mp4", "out.mp4", "");
    assert_eq!(times(&root(&lab), "out.mp4"), before);
    upscale(&lab, "in.mp4", "out.mkv", "--codec ffv1 --encoder-arg level=3");
    let after = times(&root(&lab), "out.mkv");
    assert!(after.len() == 270 && before.iter().zip(&after).all(|(a, b)| (a - b).abs() <= 500), "{after:?}");
}

#[test]
fn hdr_video_keeps_its_bit_depth_and_metadata() {
    let lab = Lab::new();
    let hdr = "log-level=error:colorprim=bt2020:transfer=smpte2084:colormatrix=bt2020nc:max-cll=1000,400:\
               master-display=G(13250,34500)B(7500,3000)R(34000,16000)WP(15635,16450)L(10000000,1)";
    let args = format!(
        "{} -c:v libx265 -preset ultrafast -pix_fmt yuv420p10le -x265-params {hdr} -color_range tv \
         -color_primaries bt2020 -color_trc smpte2084 -colorspace bt2020nc",
        test_video("25", "0.4", "128x72")
    );
    make(&root(&lab), &args, "in.mkv");
    for output in ["out.mkv", "out.mp4"] {
        upscale(&lab, "in.mkv", output, "");
        let facts = probe(&root(&lab), output);
        let video = streams(&facts, "video")[0];
        let tags = ["codec_name", "pix_fmt", "color_range", "color_primaries", "color_transfer", "color_space"];
        let tags = tags.map(|tag| text(video, tag));
        assert_eq!(tags, ["hevc", "yuv420p10le", "tv", "bt2020", "smpte2084", "bt2020nc"], "{output}");
        let frame = ask(&root(&lab), "-select_streams v:0 -show_frames -read_intervals %+#1", output);
        let sides = frame["frames"][0]["side_data_list"].as_array().unwrap();
        let side = |kind: &str| sides.iter().find(|side| side["side_data_type"] == kind).unwrap();
        let mastering = side("Mastering display metadata");
        assert_eq!(text(mastering, "green_y"), "34500/50000", "{output}");
        assert_eq!(text(mastering, "max_luminance"), "10000000/10000", "{output}");
        assert_eq!(side("Content light level metadata")["max_average"], 400, "{output}");
    }
}

#[test]
fn rotation_metadata_is_applied_to_the_frames_and_removed() {
    let lab = Lab::new();
    make(&root(&lab), &format!("{} {FAST}", test_video("30", "0.5", "96x64")), "flat.mp4");
    // Versions of ffmpeg differ in how a rotation is asked for.
    let is_rotated = ["-i flat.mp4 -c copy -metadata:s:v:0 rotate=90", "-display_rotation -90 -i flat.mp4 -c copy"]
        .into_iter()
        .any(|args| {
            make(&root(&lab), args, "in.mp4");
            let rotated = ask(&root(&lab), "-show_streams", "in.mp4");
            rotated["streams"][0]["side_data_list"][0]["rotation"].is_number()
        });
    assert!(is_rotated);
    upscale(&lab, "in.mp4", "out.mp4", "");
    let facts = probe(&root(&lab), "out.mp4");
    let video = streams(&facts, "video")[0];
    assert_eq!((video["width"].as_u64(), video["height"].as_u64()), (Some(64), Some(96)));
    assert!(video["side_data_list"].is_null() && video["tags"]["rotate"].is_null(), "{video}");
    // ffmpeg decodes both files to the same frames.
    let [before, after] = planes(&root(&lab), ["in.mp4", "out.mp4"], "gray");
    let mean = before.iter().zip(&after).map(|(a, b)| a.abs_diff(*b)).map(u64::from).sum::<u64>() / before.len() as u64;
    assert!(before.len() == after.len() && mean < 4, "{mean}");
}

#[test]
fn single_frames_and_odd_sides_are_supported() {
    let lab = Lab::new();
    make(&root(&lab), &format!("{} -frames:v 1 {FAST}", test_video("25", "1", "64x48")), "in.mp4");
    upscale(&lab, "in.mp4", "out.mp4", "");
    assert_eq!(times(&root(&lab), "out.mp4"), [0]);
    make(&root(&lab), &format!("{} -c:v ffv1 -pix_fmt yuv444p", test_video("25", "0.2", "63x49")), "odd.mkv");
    upscale(&lab, "odd.mkv", "even.mp4", "");
    lab.succeed("upscale odd.mkv odd-out.mkv --model identity --color none --size 63x49 --codec ffv1");
    let size = |name| {
        let facts = probe(&root(&lab), name);
        (facts["streams"][0]["width"].as_u64().unwrap(), facts["streams"][0]["height"].as_u64().unwrap())
    };
    assert_eq!((size("even.mp4"), size("odd-out.mkv")), ((62, 48), (63, 49)));
    // The input is 4:4:4, which h264 stores with odd sides.
    let odd = "--model identity --color none --size 63x49";
    let refused = lab.run(&format!("upscale odd.mkv odd.mp4 {odd} --encoder-arg pix_fmt=yuv420p"));
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("h264 stores even sides only, not 63x49"), "{}", refused.stderr);
    lab.succeed(&format!("upscale odd.mkv odd.mp4 {odd}"));
    assert_eq!(size("odd.mp4"), (63, 49));
}

#[test]
fn the_sample_aspect_ratio_is_kept() {
    let lab = Lab::new();
    make(&root(&lab), &format!("{} -vf setsar=64/45 {FAST}", test_video("25", "0.2", "72x58")), "in.mp4");
    for output in ["out.mp4", "out.mkv"] {
        upscale(&lab, "in.mp4", output, "");
        assert_eq!(text(&probe(&root(&lab), output)["streams"][0], "sample_aspect_ratio"), "64:45", "{output}");
    }
}

/// Lossless grey ramps and saturated bars at common depths, in both ranges and with the common matrices. Edges of
/// subsampled chroma lie between pixels and cannot be restored; all other pixels are.
#[test]
fn sample_values_are_kept_within_one_code() {
    let lab = Lab::new();
    // Bars above a ramp.
    let source = "-f lavfi -i pal100bars=size=256x96:rate=25:duration=0.12 -f lavfi \
         -i gradients=size=256x96:rate=25:duration=0.12:c0=black:c1=white:x0=0:y0=0:x1=255:y1=0:speed=0.00001";
    for format in ["yuv420p", "yuv420p10le", "yuv422p10le", "yuv444p", "yuv420p12le"] {
        let spaces = [("tv", "bt709"), ("pc", "bt709"), ("tv", "smpte170m"), ("tv", "bt2020nc")];
        // All colour spaces in the most common formats, one in the others.
        let spaces = if ["yuv420p", "yuv420p10le"].contains(&format) { &spaces[..] } else { &spaces[..1] };
        for (range, space) in spaces.iter().copied() {
            let (input, output) = (format!("{format}-{range}-{space}.mkv"), "out.mkv");
            let to_rgb = "[0]format=gbrp[bars];[1]format=gbrp[ramp];[bars][ramp]vstack";
            // Newer versions of the filter know the matrix by its short name alone.
            let matrix = space.trim_end_matches("nc");
            let convert = format!("{to_rgb},scale=out_range={range}:out_color_matrix={matrix},format={format}");
            let tags = format!("-color_range {range} -colorspace {space}");
            make(&root(&lab), &format!("{source} -filter_complex {convert} -c:v ffv1 {tags}"), &input);
            let _ = fs::remove_file(lab.path(output));
            lab.succeed(&format!("upscale {input} {output} {PLAIN} --codec ffv1"));
            let video = &probe(&root(&lab), output)["streams"][0];
            assert_eq!([text(video, "pix_fmt"), text(video, "color_space")], [format, space], "{input}");
            assert_eq!(text(video, "color_range"), range, "{input}");
            let [before, after] = planes(&root(&lab), [&input, output], format).map(|bytes| codes(&bytes, format));
            assert_within_one_code(&before, &after, format);
        }
    }
}

/// Sample values of raw frames with 8 bits, or 16 bits little-endian.
fn codes(bytes: &[u8], format: &str) -> Vec<i32> {
    match format.ends_with("le") {
        true => bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]).into()).collect(),
        false => bytes.iter().map(|byte| i32::from(*byte)).collect(),
    }
}

/// Compares the first frame, 256x192, except near chroma edges, where some colours are outside of RGB.
fn assert_within_one_code(before: &[i32], after: &[i32], format: &str) {
    assert_eq!(before.len(), after.len(), "{format}");
    let (w, h) = (256, 192);
    let (across, down) = (if format.contains("444") { 1 } else { 2 }, if format.contains("420") { 2 } else { 1 });
    let (cw, ch, reach) = (w / across, h / down, if across == 1 { 4 } else { 2 });
    let chroma = |plane: usize, x: usize, y: usize| w * h + plane * cw * ch + y * cw + x;
    let flat = |x: usize, y: usize| {
        let xs = x.saturating_sub(reach)..=(x + reach).min(cw - 1);
        let near = |plane, x, y| before[chroma(plane, x, y)];
        let ys = || y.saturating_sub(reach)..=(y + reach).min(ch - 1);
        xs.flat_map(|i| ys().map(move |j| (i, j)))
            .all(|(i, j)| (0..2).all(|plane| (near(plane, i, j) - near(plane, x, y)).abs() <= 1))
    };
    let flat: Vec<bool> = (0..cw * ch).map(|i| flat(i % cw, i / cw)).collect();
    let (mut compared, mut worst) = (0, 0);
    for (x, y) in (0..w).flat_map(|x| (0..h).map(move |y| (x, y))) {
        let (cx, cy) = (x / across, y / down);
        if flat[cy * cw + cx] {
            compared += 1;
            for i in [y * w + x, chroma(0, cx, cy), chroma(1, cx, cy)] {
                worst = worst.max((before[i] - after[i]).abs());
            }
        }
    }
    assert!(worst <= 1, "{format}: off by {worst}");
    assert!(compared > w * h / 2, "{format}: only {compared} pixels compared");
}

#[test]
fn start_and_end_select_exact_frames() {
    let lab = Lab::new();
    let sound = "-f lavfi -i sine=frequency=440:duration=6";
    make(&root(&lab), &format!("{} {sound} {FAST} -c:a aac", test_video("25", "6", "64x48")), "in.mp4");
    upscale(&lab, "in.mp4", "out.mp4", "--start 1.5 --end 0:00:04");
    let facts = probe(&root(&lab), "out.mp4");
    assert_eq!(streams(&facts, "video")[0]["nb_frames"], "62");
    let seconds: f64 = text(streams(&facts, "audio")[0], "duration").parse().unwrap();
    assert!((seconds - 2.5).abs() < 0.05, "{seconds}");
    let [whole, part] = planes(&root(&lab), ["in.mp4", "out.mp4"], "gray");
    // Frame 38 is the first with a timestamp of 1.5 s or later.
    let off: u64 = whole[38 * 64 * 48..].iter().zip(&part[..64 * 48]).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
    assert!(off / (64 * 48) < 4, "{off}");
}

#[test]
fn a_folder_of_videos_becomes_a_folder_of_videos() {
    let lab = Lab::new();
    fs::create_dir(lab.path("in")).unwrap();
    for (name, seconds) in [("b 2.mkv", "0.2"), ("a'1.mp4", "0.4"), ("c.avi", "0.2")] {
        make(&lab.path("in"), &format!("{} {FAST}", test_video("25", seconds, "64x48")), name);
    }
    fs::write(lab.path("in/d.mp4"), "a letter").unwrap();
    let outcome = lab.run(&format!("upscale in out {PLAIN}"));
    assert_eq!(outcome.code, Some(1));
    let lines: Vec<&str> = outcome.stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("d.mp4: ffmpeg cannot read it") && lines[1].contains("1 of 4 files"), "{lines:?}");
    let mut names: Vec<_> = fs::read_dir(lab.path("out")).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["a'1.mp4", "b 2.mkv", "c.mkv"]);
    fs::write(lab.path("in/e.png"), "").unwrap();
    let mixed = lab.run(&format!("upscale in out2 {PLAIN}"));
    assert!(mixed.code == Some(3) && mixed.stderr.contains("folders of their own"), "{}", mixed.stderr);
}

#[cfg(unix)]
#[test]
fn unusual_file_names_are_supported() {
    let lab = Lab::new();
    let mut names: Vec<std::ffi::OsString> =
        ["-i.mp4", "a b.mp4", "q'u\"o`te$(x);&.mp4", "new\nline.mp4", "100%d.mp4", "concat:x|y.mp4", "ünï.mp4"]
            .map(Into::into)
            .into();
    names.push(std::os::unix::ffi::OsStringExt::from_vec(b"by\xffte.mp4".to_vec()));
    fs::create_dir(lab.path("from")).unwrap();
    fs::create_dir(lab.path("to")).unwrap();
    make(&root(&lab), &format!("{} {FAST}", test_video("25", "0.12", "64x48")), "in.mp4");
    for name in &names {
        fs::copy(lab.path("in.mp4"), lab.path("from").join(name)).unwrap();
        let mut command = lab.command("upscale");
        command.current_dir(lab.path("to")).args(PLAIN.split(' ')).arg("--");
        command.arg(std::path::Path::new("../from").join(name)).arg(name);
        let outcome = outcome(command);
        assert_eq!(outcome.code, Some(0), "{name:?}: {}", outcome.stderr);
        assert_eq!(probe(&lab.path("to"), name)["streams"][0]["nb_frames"], "3", "{name:?}");
    }
    assert_eq!(fs::read_dir(lab.path("to")).unwrap().count(), names.len());
}

#[test]
fn pipes_videos_and_folders_convert_into_each_other() {
    let lab = Lab::new();
    lab.write_frames("in.y4m", reseed_media::Size { h: 48, w: 64 }, 9);
    let mut command = lab.command(&format!("upscale - out.mkv {PLAIN}"));
    command.stdin(Stdio::from(fs::File::open(lab.path("in.y4m")).unwrap()));
    assert_eq!(outcome(command).code, Some(0));
    assert_eq!(times(&root(&lab), "out.mkv").len(), 9);
    let piped = lab.succeed(&format!("upscale out.mkv - {PLAIN}"));
    assert!(piped.stdout.starts_with(b"YUV4MPEG2 W64 H48 F24000:1001"));
    upscale(&lab, "out.mkv", "frames", "");
    assert_eq!(fs::read_dir(lab.path("frames")).unwrap().count(), 9);
    upscale(&lab, "frames", "again.mp4", "");
    assert_eq!(times(&root(&lab), "again.mp4").len(), 9);
}

#[test]
fn codecs_and_containers_hold_video_and_audio() {
    let lab = Lab::new();
    let sound = "-f lavfi -i sine=frequency=440:duration=0.4";
    make(&root(&lab), &format!("{} {sound} {FAST} -c:a pcm_s16le", test_video("25", "0.4", "128x96")), "in.mkv");
    let cases = [
        ("a.mp4", "hevc", "hevc", "alac"),
        ("a.mkv", "av1", "av1", "pcm_s16le"),
        ("a.webm", "av1", "av1", "opus"),
        ("a.mov", "prores", "prores", "pcm_s16le"),
        ("b.mkv", "prores", "prores", "pcm_s16le"),
        ("c.mkv", "ffv1", "ffv1", "pcm_s16le"),
    ];
    for (output, codec, video, audio) in cases {
        lab.succeed(&format!("upscale in.mkv {output} {PLAIN} --codec {codec}"));
        let facts = probe(&root(&lab), output);
        assert_eq!(text(streams(&facts, "video")[0], "codec_name"), video, "{output}");
        assert_eq!(text(streams(&facts, "audio")[0], "codec_name"), audio, "{output}");
        assert_eq!(times(&root(&lab), output).len(), 10, "{output}");
    }
    run("ffmpeg", &root(&lab), ["-i", "a.mp4", "-f", "null", "-"]);
}
