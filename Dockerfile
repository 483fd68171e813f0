# Both images of Longshore from one build: `docker build --target server .` and `docker build --target worker .`
# Works with BuildKit and with the classic builder.

ARG RUST_IMAGE=rust:1-slim-bookworm
ARG BASE_IMAGE=debian:bookworm-slim
ARG DOCKER_CLI_IMAGE=docker:28-cli

FROM ${RUST_IMAGE} AS build
# Cargo reads these from the environment; a quick build for tests sets other values.
ARG CARGO_PROFILE_RELEASE_OPT_LEVEL=3
ARG CARGO_PROFILE_RELEASE_LTO=thin
ARG CARGO_PROFILE_RELEASE_CODEGEN_UNITS=4
WORKDIR /src
COPY . .
RUN cargo build --release --locked --package longshore-cli --bin longshore

FROM ${DOCKER_CLI_IMAGE} AS docker-cli

FROM ${BASE_IMAGE} AS server
# A named volume takes owner and mode from the image's directory.
RUN install -d -o 10001 -g 10001 -m 700 /var/lib/longshore /tokens /worker-token
COPY --from=build /src/target/release/longshore /usr/local/bin/longshore
USER 10001:10001
EXPOSE 8080
VOLUME /var/lib/longshore
ENTRYPOINT ["longshore"]
CMD ["server", "--listen", "0.0.0.0:8080", "--data", "/var/lib/longshore", "--jobs", "/etc/longshore/jobs.yaml"]

FROM ${BASE_IMAGE} AS worker
# Runs as root: whoever may use the Docker socket is root on the host anyway.
RUN install -d -m 700 /var/lib/longshore-worker
COPY --from=docker-cli /usr/local/bin/docker /usr/local/bin/docker
COPY --from=build /src/target/release/longshore /usr/local/bin/longshore
VOLUME /var/lib/longshore-worker
# As variables, so that whoever starts it can set others.
ENV LONGSHORE_STATE_DIR=/var/lib/longshore-worker LONGSHORE_SHARE_STATE_DIR=true LONGSHORE_ON_TERM=detach
ENTRYPOINT ["longshore"]
CMD ["worker"]
