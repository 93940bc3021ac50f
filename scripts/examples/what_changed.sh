#!/bin/sh
# Says which tensors a fine-tune changed: by plain diff of two mounts, then by weightfs diff, which also says how much.
# Run: sh what_changed.sh BASE TUNED

set -eu
[ $# = 2 ] || { echo "usage: $0 BASE TUNED" >&2; exit 2; }

place=$(mktemp -d)
tidy() {
    for point in "$place/base" "$place/tuned"; do
        if mountpoint -q "$point"; then weightfs umount "$point"; fi
        if [ -d "$point" ]; then rmdir "$point"; fi
    done
    rmdir "$place"
}
trap tidy EXIT
trap 'exit 130' INT TERM
trap 'exit 141' PIPE
mkdir "$place/base" "$place/tuned"
weightfs mount "$1" "$place/base"
weightfs mount "$2" "$place/tuned"

# The .json hold offsets and checksums, the .npy the same bytes as the .bin. Status 1: some differ;
# 2: some could not be read, or are damaged.
status=0
(cd "$place" && diff -rq --exclude='*.json' --exclude='*.npy' base/tensors tuned/tensors) || status=$?
case $status in
0) echo "no tensor differs" ;;
1) weightfs diff "$1" "$2" ;;
*) exit "$status" ;;
esac
