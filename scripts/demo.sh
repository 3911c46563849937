#!/usr/bin/env bash
# The main job, small: a device measured locally and over NVMe/TCP, then a database on a plain disk against an
# attached remote volume. Writes demo/ anew.
set -euo pipefail
bin=$(realpath "${1:?usage: demo.sh BINARY}")
cd "$(dirname "$0")/.."
rm -rf demo
mkdir demo
"$bin" lab run scenarios/demo.toml --dir demo --out demo
scripts/demo-database.sh "$bin" demo
echo "The report: demo/report.html; the figures: demo/result.json"
