//! Hostile files and paths: each case is refused.
#![allow(clippy::unwrap_used)]

use std::fs;

use reseed_server::{Config, Server};
use serde_json::json;

use crate::common::{Lab, job};

/// Inputs that are refused whatever they name.
fn assert_refused(lab: &Lab, input: &str) {
    let reply = lab.post("/v1/jobs", json!({"input": input}));
    let detail = reply.assert_problem(422, "usage");
    assert!(!detail.contains("root:"), "{detail}");
    lab.post("/v1/estimate", json!({"input": input})).assert_problem(422, "usage");
    lab.post("/v1/previews", json!({"input": input, "frame": 0})).assert_problem(422, "usage");
    let query: String = input.bytes().map(|byte| format!("%{byte:02x}")).collect();
    lab.get(&format!("/v1/inputs?input={query}")).assert_problem(422, "usage");
    lab.get(&format!("/v1/inputs/frame?input={query}")).assert_problem(422, "usage");
    if !input.is_empty() {
        lab.get(&format!("/v1/files?path={query}")).assert_problem(422, "usage");
    }
}

#[test]
fn addresses_are_no_inputs() {
    let lab = Lab::new();
    for input in [
        "http://169.254.169.254/latest/meta-data",
        "https://evil.example/a.mp4",
        "file:///etc/passwd",
        "concat:a.mp4|/etc/passwd",
        "subfile,,start,0,end,0,,:/etc/passwd",
        "data:video/mp4;base64,AAAA",
        "pipe:0",
        "-",
        "rtsp://evil.example/stream",
    ] {
        assert_refused(&lab, input);
    }
}

#[test]
fn paths_that_lead_upwards_are_refused() {
    let lab = Lab::new();
    fs::write(lab.path("secret.y4m"), "secret").unwrap();
    for input in ["../secret.y4m", "./../secret.y4m", "a/../../secret.y4m", "..\\secret.y4m", ".."] {
        assert_refused(&lab, input);
    }
}

#[test]
fn absolute_paths_outside_the_roots_are_refused() {
    let lab = Lab::new();
    fs::write(lab.path("secret.y4m"), "secret").unwrap();
    let absolute = lab.path("secret.y4m");
    for input in [absolute.to_str().unwrap(), "/etc/passwd", "/proc/self/environ", "/"] {
        assert_refused(&lab, input);
    }
}

#[test]
fn network_paths_are_refused() {
    let lab = Lab::new();
    for input in ["//host/share/a.mp4", "\\\\host\\share\\a.mp4", "\\\\?\\C:\\a.mp4", "\\\\.\\PhysicalDrive0"] {
        assert_refused(&lab, input);
    }
}

#[test]
fn devices_are_neither_inputs_nor_outputs() {
    let lab = Lab::new();
    lab.clip("in.y4m", 2);
    ["/dev/zero", "/dev/stdin"].iter().for_each(|input| assert_refused(&lab, input));
    for output in ["nul", "CON.mp4", "com1.mkv", "aux.y4m", "lpt9.png", "/dev/null"] {
        lab.post("/v1/jobs", job("in.y4m", output)).assert_problem(422, "usage");
    }
}

#[test]
fn malformed_paths_are_refused() {
    let lab = Lab::new();
    let long = "x".repeat(5000);
    ["in.y4m\0.mp4", "in\n.y4m", "", &long].iter().for_each(|input| assert_refused(&lab, input));
}

#[cfg(unix)]
#[test]
fn links_out_of_a_root_are_refused() {
    use std::os::unix::fs::symlink;
    let lab = Lab::new();
    lab.clip("in.y4m", 2);
    fs::rename(lab.file("in.y4m"), lab.path("secret.y4m")).unwrap();
    symlink(lab.path("secret.y4m"), lab.file("link.y4m")).unwrap();
    symlink(lab.path(""), lab.file("up")).unwrap();
    ["link.y4m", "up/secret.y4m"].iter().for_each(|input| assert_refused(&lab, input));
    lab.clip("in.y4m", 2);
    for output in ["up/out.y4m", "link.y4m", "../out.y4m", "nul.y4m", ".hidden.y4m"] {
        lab.post("/v1/jobs", job("in.y4m", output)).assert_problem(422, "usage");
    }
}

#[cfg(unix)]
#[test]
fn a_link_that_takes_the_place_of_an_input_is_not_followed() {
    let lab = Lab::new();
    lab.clip("long.y4m", 100);
    lab.clip("in.y4m", 2);
    let first = lab.accept(job("long.y4m", "a.y4m"));
    let second = lab.accept(job("in.y4m", "b.y4m"));
    fs::rename(lab.file("in.y4m"), lab.path("secret.y4m")).unwrap();
    std::os::unix::fs::symlink(lab.path("secret.y4m"), lab.file("in.y4m")).unwrap();
    lab.send("DELETE", &format!("/v1/jobs/{first}"), &[], b"");
    lab.wait(&second, "failed", |job| job["state"] == "failed");
    assert!(!lab.file("b.y4m").exists());
}

#[test]
fn files_of_the_server_are_no_inputs() {
    let folder = temp_dir::TempDir::new().unwrap();
    let mut config = Config::new("127.0.0.1:0".parse().unwrap(), folder.path().join("data"));
    config.roots = vec![folder.path().into()];
    (config.model, config.devices) = ("identity".into(), vec!["cpu".into()]);
    let server = Server::bind(config).unwrap();
    let (address, token, stopper) = (server.address(), server.token().unwrap().to_owned(), server.stopper());
    let thread = std::thread::spawn(move || server.run().unwrap());
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    for body in [json!({"input": "data/token"}), json!({"input": "data/queue"})] {
        let request =
            agent.post(format!("http://{address}/v1/jobs")).header("authorization", format!("Bearer {token}"));
        let reply = request.content_type("application/json").send(body.to_string()).unwrap();
        assert_eq!(reply.status(), 422);
    }
    stopper.stop();
    thread.join().unwrap();
}

#[test]
fn weights_of_clients_are_not_loaded() {
    let lab = Lab::new();
    lab.clip("in.y4m", 2);
    fs::create_dir(lab.file("model")).unwrap();
    fs::write(lab.file("model/evil.safetensors"), "x").unwrap();
    let folder = lab.file("model");
    for model in [folder.to_str().unwrap(), "root/model", "formula:full", "../model", "identity", "evil.safetensors"] {
        lab.post("/v1/jobs", json!({"input": "in.y4m", "model": model})).assert_problem(422, "model");
    }
}

/// A file that names another one is refused in a root and as an upload, whatever its extension.
fn assert_names_nothing(name: &str, content: impl FnOnce(&str) -> String) {
    let lab = Lab::new();
    if !lab.ffmpeg("-f lavfi -i testsrc2=size=16x16:rate=5:duration=1 -pix_fmt yuv420p", "in.mp4") {
        return;
    }
    let secret = lab.path("secret.mp4");
    fs::rename(lab.file("in.mp4"), &secret).unwrap();
    let content = content(secret.to_str().unwrap());
    let upload = lab.upload(content.as_bytes(), name);
    fs::write(lab.file(name), content).unwrap();
    for body in [json!({"input": name}), json!({"upload": upload})] {
        lab.post("/v1/jobs", body.clone()).assert_problem(422, "input");
        lab.post("/v1/estimate", body).assert_problem(422, "input");
    }
    for query in [format!("input={name}"), format!("upload={upload}")] {
        lab.get(&format!("/v1/inputs?{query}")).assert_problem(422, "input");
        lab.get(&format!("/v1/inputs/frame?{query}")).assert_problem(422, "input");
    }
}

#[test]
fn hls_playlists_are_refused() {
    let list = |file: &str| format!("#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{file}\n#EXT-X-ENDLIST\n");
    assert_names_nothing("hls.m3u8", list);
}

#[test]
fn hls_playlists_with_the_name_of_a_video_are_refused() {
    let list = |file: &str| format!("#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile://{file}\n#EXT-X-ENDLIST\n");
    assert_names_nothing("hls.mp4", list);
}

#[test]
fn concat_scripts_are_refused() {
    assert_names_nothing("concat.mp4", |file| format!("ffconcat version 1.0\nfile '{file}'\n"));
}

#[test]
fn session_descriptions_are_refused() {
    let text = "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 96\n";
    assert_names_nothing("session.mp4", |_| text.into());
}

#[test]
fn dash_manifests_are_refused() {
    assert_names_nothing("dash.mpd", |file| {
        format!(
            "<?xml version=\"1.0\"?><MPD xmlns=\"urn:mpeg:dash:schema:mpd:2011\"><Period><AdaptationSet>\
             <Representation id=\"a\"><BaseURL>{file}</BaseURL></Representation></AdaptationSet></Period></MPD>"
        )
    });
}

#[test]
fn scripts_are_refused() {
    assert_names_nothing("script.avs", |file| format!("FFVideoSource(\"{file}\")\n"));
}

#[test]
fn a_playlist_that_takes_the_place_of_an_input_is_not_opened() {
    let lab = Lab::new();
    if !lab.ffmpeg("-f lavfi -i testsrc2=size=16x16:rate=5:duration=1 -pix_fmt yuv420p", "in.mp4") {
        return;
    }
    lab.clip("long.y4m", 3000);
    let first = lab.accept(job("long.y4m", "a.y4m"));
    let second = lab.accept(job("in.mp4", "b.mp4"));
    fs::rename(lab.file("in.mp4"), lab.path("secret.mp4")).unwrap();
    let list = format!("ffconcat version 1.0\nfile '{}'\n", lab.path("secret.mp4").display());
    fs::write(lab.file("in.mp4"), list).unwrap();
    lab.send("DELETE", &format!("/v1/jobs/{first}"), &[], b"");
    lab.wait(&second, "failed", |job| job["state"] == "failed");
    assert!(!lab.file("b.mp4").exists());
}
