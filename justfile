# The same as continuous integration.
check:
    .ci/run

# Lines of code per crate.
size:
    @for crate in crates/*/; do printf '%-24s %s\n' "$(basename "$crate")" "$(cat $(git ls-files "$crate" | grep '\.rs$') | wc -l)"; done

# Times this machine; docs/benchmarks.md says how the table there was made.
bench:
    cargo run --release --locked -- bench vae

# Compiles the CUDA kernels for every architecture; commit what it writes.
kernels:
    python3 -m venv target/kernels-venv
    target/kernels-venv/bin/pip install --quiet nvidia-cuda-nvrtc-cu12==12.8.93
    target/kernels-venv/bin/python tools/kernels.py
