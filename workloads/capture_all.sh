#!/usr/bin/env bash
# Capture every bundled trace of one GPU into a folder: workloads/capture_all.sh traces
set -u
folder=${1:?usage: workloads/capture_all.sh FOLDER}
capture() { # workload variant [--plain]
    local name="$1_$2${3:+_plain}"
    timeout 120 python3 -m "workloads.$1" "$2" ${3:-} --output "$folder/$name.pt.trace.json.gz"
}
for variant in one_stream_pinned one_stream_pageable copy_stream_pageable copy_stream_synchronize copy_stream_pinned; do
    capture prefetch "$variant"
done
for variant in wait event_synchronize stream_synchronize device_synchronize item; do
    capture events "$variant"
done
for variant in small medium large; do
    capture two_streams "$variant"
done
capture prefetch copy_stream_pinned --plain
capture events wait --plain
