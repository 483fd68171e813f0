# Both images of Longshore from one build: `docker build --target server .` and `docker build --target worker .`
# Works with BuildKit and with the classic builder.

ARG RUST_IMAGE=rust:1-slim-bookworm
ARG DOCKER_CLI_IMAGE=docker:28-cli

FROM ${RUST_IMAGE} AS build
# Cargo reads these from the environment; a quick build for tests sets other values.
ARG CARGO_PROFILE_RELEASE_OPT_LEVEL=3
ARG CARGO_PROFILE_RELEASE_LTO=thin
ARG CARGO_PROFILE_RELEASE_CODEGEN_UNITS=4
# Features of the program, such as otel.
ARG LONGSHORE_FEATURES=
WORKDIR /src
COPY . .
RUN cargo build --release --locked --package longshore-cli --bin longshore --features "$LONGSHORE_FEATURES"

# The root directory that both images share: the program, the C library that it is linked with, the certificate authorities of this
# image, and the names of users. There is no shell and no package that would need updates of its own.
RUN install -D --target-directory=/image/usr/local/bin target/release/longshore \
 && ldd target/release/longshore | grep --only-matching '/[^ ]*' | xargs cp --dereference --parents --target-directory=/image \
 && install -D --mode=644 --target-directory=/image/etc/ssl/certs /etc/ssl/certs/ca-certificates.crt \
 && printf 'hosts: files dns\n' >/image/etc/nsswitch.conf \
 && printf 'root:x:0:0::/root:/sbin/nologin\nlongshore:x:10001:10001::/var/lib/longshore:/sbin/nologin\n' >/image/etc/passwd \
 && printf 'root:x:0:\nlongshore:x:10001:\n' >/image/etc/group \
 && install -d --mode=1777 /image/tmp \
 && install -d /image/run \
 && install -d --mode=700 /image/root

# A named volume takes owner and mode from the image's directory. Those below /etc are for docker-compose.yml and deploy/compose-tls.
RUN install -d --owner=10001 --group=10001 --mode=700 /server/var/lib/longshore \
    /server/etc/longshore/authority /server/etc/longshore/tls /server/etc/longshore/join \
 && install -d --mode=700 /worker/var/lib/longshore-worker

FROM ${DOCKER_CLI_IMAGE} AS docker-cli

FROM scratch AS server
COPY --from=build /image/ /
COPY --from=build /server/ /
ENV PATH=/usr/local/bin
USER 10001:10001
EXPOSE 8080
VOLUME /var/lib/longshore
ENTRYPOINT ["longshore"]
CMD ["server", "--listen", "0.0.0.0:8080", "--data", "/var/lib/longshore", "--jobs", "/etc/longshore/jobs.yaml"]

FROM scratch AS worker
# Runs as root: access to the Docker socket is as good as being root on the host anyway.
COPY --from=docker-cli /usr/local/bin/docker /usr/local/bin/docker
COPY --from=build /image/ /
COPY --from=build /worker/ /
VOLUME /var/lib/longshore-worker
ENV PATH=/usr/local/bin HOME=/root
# As variables, so that an operator can set others.
ENV LONGSHORE_STATE_DIR=/var/lib/longshore-worker LONGSHORE_SHARE_STATE_DIR=true LONGSHORE_ON_TERM=detach
ENTRYPOINT ["longshore"]
CMD ["worker"]
