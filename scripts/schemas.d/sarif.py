"""Validates a SARIF document, on standard input, against the schema of OASIS. Exits with 1 if it is invalid."""

import json
import sys
from pathlib import Path

import jsonschema

SCHEMA = Path(__file__).parents[2] / "tests/vectors/sarif/sarif-schema-2.1.0.json"


def main():
    validator = jsonschema.Draft4Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
    problems = list(validator.iter_errors(json.load(sys.stdin)))
    for problem in problems:
        print(f"{problem.json_path}: {problem.message[:200]}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
