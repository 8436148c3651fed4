#!/usr/bin/env bash
# Tries the README's commands on a bare Debian 12: a chroot made by debootstrap, an empty HOME,
# nothing but git, make and python3. Needs root, debootstrap and about 5 GB; removes all at the end.
#
#   packaging/debian-bare/try.sh            make test, then one unattended run of the window
#   KEEP=1 packaging/debian-bare/try.sh     leave the chroot in place and say where it is
#   MAKE_ARGS="DEVICE=cpu" ...              handed on to make
#
# What this machine needs to reach its package registries is handed on: pip's and apt's own
# settings, certificates, and the local folders that pip's settings name.
set -euo pipefail

readonly SUITE=bookworm
readonly INSIDE=/src/phasescope

say() { printf '== %s\n' "$*"; }

fail() { printf '%s\n' "$*" >&2; exit 1; }

[ "$(id -u)" -eq 0 ] || fail "A chroot needs root: try 'sudo $0', or the Containerfile beside it."
command -v debootstrap >/dev/null || fail "debootstrap is missing: apt-get install debootstrap"

source_tree=$(git -C "$(dirname "${BASH_SOURCE[0]}")" rev-parse --show-toplevel)
work=$(realpath "$(mktemp -d)") # as /proc/mounts will spell it
read -ra make_args <<<"${MAKE_ARGS:-}"
failures=()
root=$work/root
mkdir "$root"

mounted() { awk -v under="$root/" 'index($2, under) == 1 {print $2}' /proc/mounts | sort -r; }

clean_up() {
  # Nothing may be removed while something of this machine is still mounted below.
  mounted | while read -r point; do umount -l "$point"; done
  [ -z "$(mounted)" ] || fail "Some mounts under $root are still there; nothing was removed."
  if [ -n "${KEEP:-}" ]; then say "kept: $root"; else rm -rf --one-file-system "$work"; fi
}
trap clean_up EXIT

inside() { # run a command in the chroot with an empty HOME and nothing else of our environment
  chroot "$root" /usr/bin/env -i HOME=/home/fresh LANG=C.UTF-8 CI=true PIP_CONFIG_FILE=/etc/pip-user.conf \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "${pip_environment[@]}" "$@"
}

attempt() { # run a command inside, with its time; a failure is kept for the end
  say "$1"
  time inside "${@:2}" || failures+=("[$1]")
}

hand_on_settings() {
  apt-config dump Acquire | grep -v '::DEP-11' >"$root/etc/apt/apt.conf.d/99-from-outside" || true
  cp --remove-destination /etc/resolv.conf /etc/hosts "$root/etc/"
  mkdir -p "$root/etc/ssl" && cp -rL --remove-destination /etc/ssl/certs "$root/etc/ssl/"
  local file
  for file in /etc/pip.conf /etc/xdg/pip; do
    [ ! -e "$file" ] || { mkdir -p "$root$(dirname "$file")" && cp -rL --remove-destination "$file" "$root$file"; }
  done
  cat ~/.config/pip/pip.conf ~/.pip/pip.conf >"$root/etc/pip-user.conf" 2>/dev/null || true
  mapfile -t pip_environment < <(env | grep -E '^(PIP_[A-Z_]+|TORCH_INDEX|[a-z_]+_proxy|[A-Z]+_PROXY)=' | grep -v '^PIP_CONFIG_FILE=')
}

mount_pip_folders() { # local folders that pip looks into, read-only and at the same place
  local folder
  {
    python3 -m pip config list | grep -oE "'/[^' ,]+|[' ]/[^' ,]+" | tr -d "' "
    # An index names files that lie beside it.
    python3 -m pip config list | grep -oE "file://[^' ,]+" | sed 's,^file://,,' | xargs -r dirname
  } | sort -u | while read -r folder; do
    [ -d "$folder" ] || continue
    mkdir -p "$root$folder"
    mount --bind "$folder" "$root$folder"
    mount -o remount,ro,bind "$root$folder"
  done
}

say "Debian $SUITE into $root"
debootstrap --variant=minbase "$SUITE" "$root" >"$work/debootstrap.log" || { tail "$work/debootstrap.log"; exit 1; }
hand_on_settings
mkdir -p "$root/home/fresh" "$root/proc" "$root/dev/shm" "$root/src"
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/dev/shm"
mount_pip_folders

say "git, make and python3, as the README asks"
inside apt-get -qq update
inside env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install \
  ca-certificates git make python3 >"$work/apt.log" 2>&1 || { tail "$work/apt.log"; exit 1; }
hand_on_settings # ca-certificates wrote its own

git clone --quiet --no-hardlinks "$source_tree" "$root$INSIDE"
say "$(git -C "$root$INSIDE" log -1 --format='%h %s')"

attempt "make test, from nothing" make -C "$INSIDE" test "${make_args[@]}"
attempt "set-up again, which must cost nothing" \
  python3 "$INSIDE/packaging/bootstrap.py" --extras test,dev
attempt "without a display: exit code 1 and one line" sh -c \
  "$INSIDE/.venv/bin/phasescope 2>err; code=\$?; cat err; test \$code -eq 1 -a \$(wc -l <err) -eq 1"
attempt "the window, unattended" env QT_QPA_PLATFORM=offscreen "$INSIDE/.venv/bin/phasescope" \
  --prompt "Explain the KV cache in two sentences." --max-tokens 64 \
  --export /home/fresh/out --screenshot /home/fresh/out/window.png --exit-when-done
attempt "what it wrote" ls -l /home/fresh/out

[ ${#failures[@]} -eq 0 ] || fail "failed: ${failures[*]}"
say "all passed"
