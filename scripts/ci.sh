#!/usr/bin/env bash
# Runs all checks of CI: format, lints, documentation, licences, crate counts, tests. Proofs are tests and
# run there with few cases. Run it before a commit. If a step fails, the later steps still run.
#
#   scripts/ci.sh [ARGUMENTS OF scripts/test]
set -uo pipefail
cd "$(dirname "$0")/.."

# Every file is compiled once here: the data of incremental compilation would be gigabytes without a reader.
export CARGO_INCREMENTAL=0

failed=()
times=()

step() {
    local name=$1 since=$SECONDS
    shift
    printf '\n== %s\n' "$name"
    "$@" || failed+=("$name")
    times+=("$name: $((SECONDS - since)) s")
}

# Checks the links of the documentation for several sets of features.
documentation() {
    local features problems=0
    for features in "" "--no-default-features" "--no-default-features --features "{cli,train,nccl} --document-private-items; do
        # shellcheck disable=SC2086 # several words
        RUSTDOCFLAGS="-Dwarnings" cargo doc --locked --quiet --no-deps --lib $features || {
            echo "failed: cargo doc --no-deps --lib $features"
            problems=1
        }
    done
    return "$problems"
}

licences() {
    if cargo deny --version >/dev/null 2>&1; then
        cargo deny --locked check
    else
        echo "skipped: cargo-deny is not installed (cargo install --locked cargo-deny)"
    fi
}

# Compares the table of crate counts in docs/dependencies.md with the lock file.
crate_counts() {
    local row
    while IFS= read -r row; do
        if ! grep -qxF "$row" docs/dependencies.md; then
            echo "docs/dependencies.md lacks the row: $row"
            return 1
        fi
    done < <(scripts/crates)
}

step "format" cargo fmt --check
step "lints" cargo clippy --locked --quiet --all-targets -- -D warnings
step "documentation" documentation
step "licences and advisories" licences
step "crate counts" crate_counts
step "tests" scripts/test "$@"

printf '\ntimes:'
printf ' [%s]' "${times[@]}"
echo

# Printed last, after the summary of the tests, and only after a failure.
if [[ ${#failed[@]} -gt 0 ]]; then
    printf '\nfailed:'
    printf ' [%s]' "${failed[@]}"
    echo
    exit 1
fi
