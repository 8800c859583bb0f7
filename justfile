# The same as continuous integration.
check:
    .ci/run

# Lines of code per crate.
size:
    @for crate in crates/*/; do printf '%-24s %s\n' "$(basename "$crate")" "$(cat $(git ls-files "$crate" | grep '\.rs$') | wc -l)"; done

# Times this machine; docs/benchmarks.md says how the table there was made.
bench:
    cargo run --release --locked -- bench vae
