#!/bin/bash
# Installs what scripts/packages.txt lists and this machine lacks. Quick when nothing is missing; as an ordinary user it
# only says what is missing. Asks no questions.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
suite=/usr/share/doc/rdma-core/tests
export DEBIAN_FRONTEND=noninteractive

wanted() {
    sed 's/#.*//' "$here/packages.txt" | tr -s ' \t' '\n' | sed '/^$/d'
}

missing() {
    comm -23 <(wanted | sort -u) \
        <(dpkg-query -W -f '${Package} ${db:Status-Status}\n' 2>/dev/null | sed -n 's/ installed$//p' | sort -u)
}

# A download that fails (a mirror being updated, a network just coming up) is tried again.
patiently() {
    local attempt
    for attempt in 1 2 3; do
        "$@" && return 0
        sleep $((attempt * 5))
    done
    echo "failed three times: $*" >&2
    return 1
}

apt() {
    patiently apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 "$@"
}

# dpkg may have been told to leave out the files; the folder is made all the same.
suite_is_there() {
    [[ -f $suite/__init__.py ]]
}

# Images that are to be small leave out documentation, and with it rdma-core's test suite, which python3-pyverbs ships there.
unpack_suite() (
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    cd "$folder"
    apt -o APT::Sandbox::User=root download python3-pyverbs
    dpkg-deb --fsys-tarfile python3-pyverbs_*.deb | tar -x -C / "./${suite#/}"
)

if ! command -v dpkg-query >/dev/null; then
    echo "this is not a Debian system; install the counterparts of scripts/packages.txt by hand" >&2
    exit 1
fi

mapfile -t lacking < <(missing)
if [[ ${#lacking[@]} -eq 0 ]] && suite_is_there; then
    exit 0
fi

if [[ $EUID -ne 0 ]]; then
    if [[ ${#lacking[@]} -eq 0 ]]; then
        echo "note: $suite is missing, rdma-core's own tests will fail; run scripts/install-packages.sh as root" >&2
        exit 0
    fi
    echo "missing packages: ${lacking[*]}" >&2
    echo "install them as root: apt-get install --no-install-recommends ${lacking[*]}" >&2
    exit 1
fi

if [[ ${#lacking[@]} -gt 0 ]]; then
    echo "installing ${#lacking[@]} packages: ${lacking[*]}"
    # tshark asks whether everybody may capture; nobody needs to.
    if ! apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "${lacking[@]}" \
        2>/dev/null; then
        apt update
        apt install -y --no-install-recommends "${lacking[@]}"
    fi
fi
suite_is_there || { apt update && unpack_suite; }
