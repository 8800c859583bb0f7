set shell := ["bash", "-euo", "pipefail", "-c"]

# Lists the recipes.
default:
    @just --list

# Format, lints and fast tests: run it before every commit.
check:
    cargo fmt --all --check
    tools/lint
    tools/words
    python3 tools/reference/make_goldens.py --check crates/reseed-testing/golden
    cargo clippy --workspace --all-targets --release --locked -- -D warnings
    cargo test --workspace --release --locked --lib --bins
    cargo test --release --locked -p reseed-cli --test errors --test layering --test roundtrip --test upscale --test vae

# Everything that continuous integration checks.
ci:
    .ci/run

# Licences, bans, duplicates and sources of the dependencies.
deny:
    cargo deny check licenses bans sources

# Correctness and targets on the GPU of this machine; writes target/gpu-check.md.
gpu device="cuda:0":
    cargo build --release --locked -p reseed-cli -p reseed-check
    tools/gpu-check --reseed target/release/reseed --device {{device}} --table target/gpu-check.md

# Times this machine.
bench *args:
    cargo run --release --locked --bin reseed -- bench vae {{args}}

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
