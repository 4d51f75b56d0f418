#!/bin/sh
# The first process of a container: `serve [FILE]` keeps a deployment up until the container is stopped, and then takes it
# down in good order; anything else is an `islands` command.
set -eu
if [ "${1:-serve}" != serve ]; then exec islands "$@"; fi
file=${2:-/var/lib/islands/islands.yaml}
stop() { islands down "$file"; exit 0; }
trap stop TERM INT
islands up "$file"
# A shell waits for its children only, and the supervisor is none: look whether it is there.
read -r supervisor < "$(dirname "$file")/run/supervisor.lock"
while kill -0 "$supervisor" 2>/dev/null; do sleep 1 & wait $!; done
echo "serve: the supervisor of $file has ended" >&2
exit 1
