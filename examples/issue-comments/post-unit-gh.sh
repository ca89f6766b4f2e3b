#!/bin/sh
# Comments on the GitHub issue that a unit of the autopilot is linked with: «writ verify: success».
#
# Reads one JSON object on standard input: that of the hook `post_unit`, or a notice of the kind `webhook`. Needs Python 3, and `gh` with a
# login; GH names another program in its place. Without a linked issue, or without a verdict, nothing is posted.
set -eu

# Three lines: the issue, the phase and the verdict. Words of the object are text here and never a part of a command.
fields=$(python3 -c '
import json, sys

about = json.loads(sys.stdin.read(1 << 20))
issue = ((about.get("unit") or {}).get("metadata") or {}).get("gh_issue")
for value in (issue, about.get("phase"), about.get("verdict")):
    print("" if value is None else " ".join(str(value).split()))
')
issue=$(printf '%s\n' "$fields" | sed -n 1p)
phase=$(printf '%s\n' "$fields" | sed -n 2p)
verdict=$(printf '%s\n' "$fields" | sed -n 3p)

case $issue in
  '') exit 0 ;;
  *[!0-9]*) echo "no number of an issue: $issue" >&2; exit 1 ;;
esac
[ -n "$verdict" ] || exit 0

"${GH:-gh}" issue comment "$issue" --body "writ $phase: $verdict"
