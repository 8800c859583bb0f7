set shell := ["bash", "-euo", "pipefail", "-c"]

# One compilation serves lints and tests, here and in .ci/run.
linted := 'RUSTC_WORKSPACE_WRAPPER="' + justfile_directory() / 'tools/rustc-lint"'

# Lists the recipes.
default:
    @just --list

# Format, lints and fast tests: run it before every commit.
check:
    cargo fmt --all --check
    tools/lint
    tools/words
    python3 tools/reference/make_goldens.py --check crates/reseed-testing/golden
    {{linted}} cargo test --workspace --locked --lib --bins
    {{linted}} cargo test --workspace --locked --test suite -- errors:: layering:: roundtrip:: upscale:: vae::

# Everything that continuous integration checks.
ci:
    .ci/run

# Licences, bans, duplicates and sources of the dependencies.
deny:
    cargo deny check licenses bans sources

# Known vulnerabilities of the dependencies; needs the advisory database from the network.
deny-advisories:
    cargo deny check advisories

# Fails every I/O call of tiny jobs in turn, then resumes them. Linux.
faults:
    RESEED_FAULTS=every cargo test --workspace --locked --test suite -- faults:: --nocapture

# Kills tiny jobs at random moments, then resumes them.
kills count="100" seed="1":
    RESEED_KILLS={{count}} RESEED_SEED={{seed}} cargo test --workspace --locked --test suite -- kills:: --nocapture

# Many more mutated inputs for every parser than in continuous integration, with overflow checks.
mutations times="10" seed="2":
    RESEED_MUTATIONS={{times}} RESEED_SEED={{seed}} \
        cargo test --profile checked --locked -p reseed-testing --test mutations

# Fuzzes one parser with libFuzzer; needs a nightly toolchain and cargo-fuzz. Found inputs become unit tests.
fuzz target seconds="60": nightly
    @cargo fuzz --version >/dev/null 2>&1 || { echo "cargo-fuzz is missing: cargo install cargo-fuzz --locked"; exit 1; }
    mkdir -p target/fuzz-corpus/{{target}}
    cargo +nightly fuzz run {{target}} target/fuzz-corpus/{{target}} fuzz/corpus/{{target}} -- \
        -max_total_time={{seconds}} -rss_limit_mb=2048 -timeout=20 -max_len=65536

# Writes the generated seeds of the fuzz targets to fuzz/corpus; commit the result.
fuzz-seeds:
    cargo run --release --locked -p reseed-testing --example fuzz_seeds

# AddressSanitizer on the crates with unsafe code; needs a nightly toolchain.
asan *args: nightly
    RUSTFLAGS="-Zsanitizer=address" CARGO_TARGET_DIR=target/asan cargo +nightly test --release --locked \
        --target {{arch()}}-unknown-linux-gnu -p reseed-ops -p reseed-cpu -p reseed-media --lib {{args}}

# ThreadSanitizer on the CPU device; needs a nightly toolchain with rust-src, because the standard library is built too.
tsan *args: nightly
    RUSTFLAGS="-Zsanitizer=thread" CARGO_TARGET_DIR=target/tsan cargo +nightly test --release --locked -Zbuild-std \
        --target {{arch()}}-unknown-linux-gnu -p reseed-cpu --lib {{args}}

# Miri on the unsafe code of the tensor crate; needs a nightly toolchain with miri. The rules are those of tree borrows:
# rayon's queues break the older ones of stacked borrows. The sums of `merge` have no unsafe code and take too long.
miri *args: nightly
    cargo +nightly miri --version
    MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-tree-borrows" CARGO_TARGET_DIR=target/miri \
        cargo +nightly miri test --locked -p reseed-ops --lib -- --skip merge:: {{args}}

[private]
nightly:
    @cargo +nightly --version || { echo "a nightly toolchain is missing: rustup toolchain install nightly"; exit 1; }

# A whole tiny job under valgrind, with the portable kernels: valgrind knows no AVX-512 and no AMX.
valgrind:
    @command -v valgrind >/dev/null || { echo "valgrind is missing: sudo apt-get install valgrind"; exit 1; }
    cargo build --release --locked -p reseed-cli
    tools/valgrind-job target/release/reseed

# 20,000 tiny frames: memory and open files must stay flat.
soak frames="20000":
    cargo build --release --locked -p reseed-cli
    tools/soak --reseed target/release/reseed --frames {{frames}}

# Correctness and targets on the GPU of this machine; writes target/gpu-check.md.
gpu device="cuda:0":
    cargo build --release --locked -p reseed-cli -p reseed-check
    tools/gpu-check --reseed target/release/reseed --device {{device}} --table target/gpu-check.md

# Every op, the work on frames and the main layers under compute-sanitizer of the CUDA toolkit, on the GPU of this machine.
gpu-sanitizer device="cuda:0":
    @command -v compute-sanitizer >/dev/null || { echo "compute-sanitizer is missing: it is in the CUDA toolkit"; exit 1; }
    cargo build --release --locked -p reseed-cli -p reseed-check
    tools/gpu-check --reseed target/release/reseed --device {{device}} --only sanitizer

# Times this machine.
bench *args:
    cargo run --release --locked --bin reseed -- bench vae {{args}}

# Builds the Python wheel and tests it in fresh environments of Python 3.11 and 3.12, with numpy, Pillow and torch.
python:
    tools/python-wheel build --out target/wheels
    tools/python-wheel test --python python3.11 --wheels target/wheels --all
    tools/python-wheel test --python python3.12 --wheels target/wheels --all --optional
    tools/python-wheel types --wheels target/wheels
    tools/python-wheel notebook --wheels target/wheels

# Builds the VapourSynth plugin as a wheel and compares it with the command line, in a fresh environment.
vapoursynth:
    tools/vapoursynth

# The page of `reseed serve` in a real chromium, with a tiny model. Screenshots go to target/browser.
browser:
    cargo build --release --locked -p reseed-cli
    tests/browser/run

# The nodes in a real ComfyUI without a display. Downloads ComfyUI and torch once, 3 GB; needs Python 3.12.
comfyui *args:
    tools/python-wheel build --out target/wheels
    python3 comfyui/tests/install.py target/comfyui target/wheels
    target/comfyui/venv/bin/python comfyui/tests/prove.py --comfyui target/comfyui/ComfyUI \
        --work target/comfyui/work {{args}}

# Lints for Windows, and all tests under wine, with mingw: Debian or Ubuntu. Installs what is missing.
windows *args:
    tests/windows/run {{args}}

# Lints for 64-bit ARM, and the tests of the ops, the CPU device and the networks under qemu: Debian or Ubuntu.
arm64 *args:
    tests/arm64/run {{args}}

# Type-checks the workspace for macOS on ARM. Its C compiler is zig, from the package index, which does not know the
# name of the target that the crate `cc` adds by default.
macos:
    rustup target add aarch64-apple-darwin
    python3 -m venv target/macos-venv
    target/macos-venv/bin/pip install --quiet ziglang==0.17.0
    CRATE_CC_NO_DEFAULTS=1 SDKROOT=/ \
        CC_aarch64_apple_darwin="$PWD/target/macos-venv/bin/python-zig cc -target aarch64-macos" \
        AR_aarch64_apple_darwin="$PWD/target/macos-venv/bin/python-zig ar" PYO3_NO_PYTHON=1 \
        cargo check --workspace --locked --target aarch64-apple-darwin

# The files of a release in target/dist-files, each one started.
dist *args:
    tools/dist build {{args}}
    tools/dist check {{args}}

# A container image of the program in target/dist-files, with ffmpeg, as an OCI archive. Needs root and mmdebstrap.
dist-image:
    tools/dist image

# Lines of Rust per crate.
size:
    @for crate in crates/*/; do \
        printf '%-24s %s\n' "$(basename "$crate")" "$(git ls-files "$crate" | grep '\.rs$' | xargs cat | wc -l)"; \
    done

# Compiles the CUDA kernels for every architecture; commit the result.
kernels: nvrtc
    target/kernels-venv/bin/python tools/kernels.py

# Compares the committed kernels with their sources.
kernels-check: nvrtc
    target/kernels-venv/bin/python tools/kernels.py --check

[private]
nvrtc:
    python3 -m venv target/kernels-venv
    target/kernels-venv/bin/pip install --quiet nvidia-cuda-nvrtc-cu12==12.8.93

# Makes the golden files again in target/golden and compares them with the committed ones.
goldens:
    python3 -m venv target/goldens-venv
    target/goldens-venv/bin/pip install --quiet torch==2.15.0 numpy==2.4.6 safetensors==0.8.0
    target/goldens-venv/bin/python tools/reference/make_goldens.py --out target/golden \
        --compare crates/reseed-testing/golden || test $? = 3

# Hashes of CPU outputs, to show that a change leaves every byte as it was: `just same-bytes record`, then `check`.
same-bytes verb:
    cargo build --release --locked -p reseed-cli -p reseed-check
    tools/same-bytes {{verb}} --reseed target/release/reseed \
        {{ if verb == "record" { "--out" } else { "--against" } }} target/same-bytes.json

# Tests that take minutes and are ignored by default.
long-tests:
    cargo test --workspace --release --locked -- --ignored

# Shards with Ray, Slurm, openjd and an S3 server, compared with one machine. Slurm is left out where it is missing.
cluster *args:
    cargo build --release --locked -p reseed-cli
    python3 -m venv target/cluster-venv
    target/cluster-venv/bin/pip install --quiet 'moto[server]==5.2.5' ray==2.60.0 openjd-cli==0.8.0
    PATH="$PWD/target/cluster-venv/bin:$PATH" target/cluster-venv/bin/python tests/cluster/prove.py \
        --reseed target/release/reseed --work target/cluster {{args}}
