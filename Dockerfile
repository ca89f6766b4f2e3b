# An image of Writ, from the static binary that `cargo xtask dist` has put beside this file:
#
#   cargo xtask dist && docker build --tag writ dist
#
# The base gives what the agent's commands want (a shell, git) and the certificates that TLS is checked against.
# `--build-arg BASE=…` takes another one with both.
#
# In a container the sandbox is reduced: Docker's own seccomp profile refuses user namespaces, so that commands run under
# Landlock and seccomp alone, on copies of projects. `writ doctor` says so, and the ledger records it at each start. With
# `--security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined` the sandbox
# is whole again, at the price of Docker's own confinement.

ARG BASE=debian:trixie-slim
FROM ${BASE} AS base
# A base that has both needs no network for this.
RUN if ! test -e /etc/ssl/certs/ca-certificates.crt || ! command -v git; then \
      apt-get update && \
      apt-get install --yes --no-install-recommends ca-certificates git && \
      rm -rf /var/lib/apt/lists/*; \
    fi

FROM base
COPY writ /usr/local/bin/writ
# No root inside: what the agent's commands can do, this user can do at most.
RUN mkdir -p /home/agent/.writ /work && \
    echo 'agent:x:10001:10001::/home/agent:/bin/sh' >> /etc/passwd && \
    echo 'agent:x:10001:' >> /etc/group && \
    chown -R 10001:10001 /home/agent /work && \
    chmod 0700 /home/agent/.writ
USER 10001:10001
ENV HOME=/home/agent
WORKDIR /work
VOLUME ["/home/agent/.writ"]
EXPOSE 8420
# Any address but the machine's own needs a token: without `server.auth_token` this ends with 3. Keys and token come as
# variables or from the home; `docker run --rm -it -v writ:/home/agent/.writ writ init` makes one.
ENTRYPOINT ["/usr/local/bin/writ"]
CMD ["start", "--host", "0.0.0.0"]
STOPSIGNAL SIGTERM
