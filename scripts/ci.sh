#!/usr/bin/env bash
# Runs all checks of CI: format, licences, crate counts, tests, the site, and beside the tests lints, documentation
# and features. Proofs are tests and run there with few cases. Run it before a commit. If a step fails, the later
# steps still run.
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

build() {
    cargo test --locked --quiet --no-run
}

# Most tests wait, for a time limit or for another process: these checks take the processors meanwhile. Their
# directory is their own, because cargo locks it.
checks() {
    local name
    export CARGO_TARGET_DIR=target/checks
    renice -n 19 -p "$BASHPID" >/dev/null
    for name in lints documentation features; do
        local since=$SECONDS
        "$name" >"$results/$name.log" 2>&1 && : >"$results/$name.passed"
        echo "$name: $((SECONDS - since)) s" >"$results/$name.time"
    done
}

# Prints what a step of `checks` has printed.
report_check() {
    printf '\n== %s\n' "$1"
    cat "$results/$1.log"
    [[ -e $results/$1.passed ]] || failed+=("$1")
    times+=("$(cat "$results/$1.time") beside the tests")
}

lints() {
    cargo clippy --locked --quiet --all-targets -- -D warnings &&
        cargo clippy --locked --quiet --lib --no-default-features --features capi -- -D warnings
}

# Checks the links of the documentation: that of all features, also of private items, and that without features.
documentation() {
    local features problems=0
    for features in "" "--document-private-items" "--no-default-features"; do
        # shellcheck disable=SC2086 # several words
        RUSTDOCFLAGS="-Dwarnings" cargo doc --locked --quiet --no-deps --lib $features || {
            echo "failed: cargo doc --no-deps --lib $features"
            problems=1
        }
    done
    return "$problems"
}

# Checks the library without features, and with each feature alone; the lints check it with the default ones too.
features() {
    local features problems=0
    for features in "" cli train nccl capi; do
        cargo check --locked --quiet --lib --no-default-features --features "$features" || {
            echo "failed: cargo check --lib --no-default-features --features \"$features\""
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

results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT

step "format" cargo fmt --check
step "licences and advisories" licences
step "crate counts" crate_counts
step "build" build
checks &
step "tests" scripts/test "$@"
# Not beside the tests: the pages print how long things take, and have jobs of their own.
step "site" scripts/docs --check
wait
for name in lints documentation features; do
    report_check "$name"
done

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
