#!/bin/sh
# Installs, uses, upgrades, removes and purges the package in a container that is thrown away. $1 is the version of the newer one.
set -eu
version=$1

step() { echo "   $1"; }
fail() {
  echo "FAILED: $1" >&2
  [ ! -e /tmp/run.log ] || tail -n 20 /tmp/run.log >&2
  [ ! -e /tmp/server.log ] || tail -n 20 /tmp/server.log >&2
  [ ! -e /tmp/worker.log ] || tail -n 20 /tmp/worker.log >&2
  exit 1
}
expect() { [ "$1" = "$2" ] || fail "$3: expected \`$2\`, found \`$1\`"; }
# Tries a command until it succeeds, half a minute at most.
until_true() {
  tries=300
  until "$@" >/dev/null 2>&1; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || fail "not within half a minute: $*"
    sleep 0.1
  done
}
exec_start() { sed -n 's/^ExecStart=//p' "/lib/systemd/system/$1.service"; }
# As systemd would: the unit's user and StateDirectory=, and none of the variables of the shell. The server would take the token file of users
# for one that it is given.
start_server() {
  install -d -m 700 -o longshore -g longshore /var/lib/longshore
  # shellcheck disable=SC2046
  env -u LONGSHORE_API_TOKEN_FILE setpriv --reuid longshore --regid longshore --clear-groups $(exec_start longshore-server) >>/tmp/server.log 2>&1 &
  server=$!
  until_true longshore health
}

export LONGSHORE_SERVER=https://localhost:8080 LONGSHORE_CA_FILE=/etc/longshore/ca.pem LONGSHORE_API_TOKEN_FILE=/var/lib/longshore/admin.token

step "install"
dpkg --install /test/earlier.deb >/tmp/dpkg.log 2>&1 || { cat /tmp/dpkg.log; fail "dpkg --install"; }
longshore --version
expect "$(getent passwd longshore | cut -d: -f6,7)" /var/lib/longshore:/usr/sbin/nologin "home and shell of the user"
longshore validate /etc/longshore/jobs.yaml >/dev/null
for unit in longshore-server longshore-worker; do
  [ ! -e /etc/systemd/system/multi-user.target.wants/$unit.service ] || fail "$unit was enabled by the installation"
done
[ ! -e /var/lib/longshore ] || fail "state exists before the first start"

step "configure a server and a worker"
# The server's own machine need not resolve the name.
longshore-setup server jobs.test
longshore-setup server jobs.test 2>/dev/null && fail "a second set-up should be refused"
longshore-setup invite 2>/dev/null && fail "a file for workers was made without a server"
cat >/etc/longshore/jobs.yaml <<'END'
jobs:
  hello:
    runtime: process
    command: [/bin/echo, hello]
END
start_server
longshore-setup invite >/dev/null
longshore-setup invite /tmp/revoked.tar --uses 3 --labels zone=eu >/dev/null
revoked=$(longshore token ls | sed -n 's/^\(join-[^ ]*\) .*zone=eu.*/\1/p')
longshore token revoke "$revoked" >/dev/null
echo '127.0.0.1 jobs.test' >>/etc/hosts
longshore-setup worker /tmp/revoked.tar 2>/dev/null && fail "a revoked file for workers was accepted"
[ ! -e /etc/longshore/worker.yaml.before-setup ] || fail "a refused file has configured the worker"
longshore-setup worker /etc/longshore/worker-join.tar
expect "$(longshore doctor --config /etc/longshore/worker.yaml | grep -c '^ok *\(settings\|token\) ')" 2 "findings of the doctor about the worker"
for file in /etc/longshore/tls/server-key.pem /var/lib/longshore/admin.token; do
  expect "$(stat -c '%U %a' $file)" 'longshore 600' "owner and mode of $file"
done
for file in ca/ca-key.pem worker/token; do
  expect "$(stat -c '%U %a' /etc/longshore/$file)" 'root 600' "owner and mode of $file"
done
expect "$(stat -c %a /etc/longshore/worker-join.tar)" 600 "mode of the file for workers"
runuser -u longshore -- cat /etc/longshore/ca/ca-key.pem 2>/dev/null && fail "the server can read the authority's key"

step "run a job over TLS"
# shellcheck disable=SC2046
$(exec_start longshore-worker) --no-docker --allow-process >>/tmp/worker.log 2>&1 &
worker=$!
expect "$(longshore run hello --follow 2>/tmp/run.log | head -n 1)" hello "output of the job"
! LONGSHORE_API_TOKEN_FILE=/etc/longshore/worker/token longshore ls >/dev/null 2>&1 || fail "the worker's token lists jobs"
longshore token ls | grep -q '^join-.* used_up ' || fail "the join token is not used up"

step "renew the certificate"
before=$(cksum </etc/longshore/tls/server.pem)
longshore-setup renew other.test 2>/tmp/renew.log && fail "a certificate for another name was made"
grep -q 'reach this server as jobs.test' /tmp/renew.log || fail "$(cat /tmp/renew.log)"
mv /etc/longshore/ca /tmp/ca
longshore-setup renew 2>/dev/null && fail "a certificate of a new authority was made"
mv /tmp/ca /etc/longshore/ca
expect "$(cksum </etc/longshore/tls/server.pem)" "$before" "the certificate after two refusals"
longshore-setup renew
[ "$(cksum </etc/longshore/tls/server.pem)" != "$before" ] || fail "the certificate is the same"
longshore ls >/dev/null

step "upgrade while both run"
# What `systemctl enable` does.
install -d /etc/systemd/system/multi-user.target.wants
ln -s /lib/systemd/system/longshore-server.service /etc/systemd/system/multi-user.target.wants/
dpkg --install /test/longshore.deb >/tmp/dpkg.log 2>&1 || { cat /tmp/dpkg.log; fail "dpkg --install"; }
expect "$(dpkg-query -W -f '${Version}' longshore)" "$version" "version"
grep -q 'runtime: process' /etc/longshore/jobs.yaml || fail "the upgrade has replaced jobs.yaml"
[ -e /etc/systemd/system/multi-user.target.wants/longshore-server.service ] || fail "the upgrade has disabled the server"
[ ! -e /etc/systemd/system/multi-user.target.wants/longshore-worker.service ] || fail "the upgrade has enabled the worker"
kill "$server" "$worker"
wait "$server" "$worker" || true
start_server
expect "$(longshore show 1 | sed -n 's/^state *//p')" succeeded "state of the job after the upgrade"

step "remove keeps settings and state"
dpkg --remove longshore >/tmp/dpkg.log 2>&1 || { cat /tmp/dpkg.log; fail "dpkg --remove"; }
[ ! -e /usr/bin/longshore ] || fail "the program is still there"
[ -s /var/lib/longshore/longshore.db ] && [ -s /etc/longshore/jobs.yaml ] || fail "remove has deleted more than the program"
dpkg --install /test/longshore.deb >/tmp/dpkg.log 2>&1 || { cat /tmp/dpkg.log; fail "dpkg --install after remove"; }
[ -e /etc/systemd/system/multi-user.target.wants/longshore-server.service ] || fail "the server is not enabled again"
[ ! -L /etc/systemd/system/longshore-server.service ] || fail "the server is still masked"

step "purge deletes both"
dpkg --purge longshore >/tmp/dpkg.log 2>&1 || { cat /tmp/dpkg.log; fail "dpkg --purge"; }
for path in /etc/longshore /var/lib/longshore /var/lib/longshore-worker /usr/share/doc/longshore; do
  [ ! -e $path ] || fail "$path is still there: $(ls $path)"
done
left=$(find /etc/systemd /var/lib/systemd /lib/systemd -name '*longshore*' 2>/dev/null)
expect "$left" "" "what is left of the units"
getent passwd longshore >/dev/null || fail "the user should stay, so that its number is not given to another"
