# The image of gpu-responder. Build with: docker build -t gpu-responder:0.1.0 .
# For builds that can be repeated bit by bit, give the base by digest: --build-arg BASE=<image>@sha256:…
# tests/chart/test_image.py runs the steps of the first stage without Docker: keep COPY and RUN plain.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
# Another index of Python packages; without it pip's own.
ARG PIP_INDEX_URL
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY responder ./responder
COPY rules ./rules
COPY alertmanager ./alertmanager
COPY examples ./examples
RUN python -m venv /opt/gpu-responder
# Wheels only: what would need a compiler fails here, and not in the cluster.
RUN /opt/gpu-responder/bin/python -m pip wheel --quiet --no-deps --wheel-dir /src/dist /src
RUN /opt/gpu-responder/bin/python -m pip install --quiet --only-binary :all: --constraint constraints.txt /src/dist/*.whl
# What runs need not install anything.
RUN /opt/gpu-responder/bin/python -m pip uninstall --quiet --yes setuptools pip

FROM ${BASE}
ARG BASE
ARG VERSION=0.1.0
ARG REVISION
LABEL org.opencontainers.image.title="gpu-responder" \
      org.opencontainers.image.description="Turns GPU alerts into idempotent, explained scale-up and scale-down of Kubernetes workloads" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE}" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/gpu-responder /opt/gpu-responder
ENV PATH=/opt/gpu-responder/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# The base's own installer goes as well: nothing here can fetch code, and scanners have less to find fault with.
RUN rm -rf /usr/local/bin/pip* /usr/local/lib/python3*/site-packages/* /usr/local/lib/python3*/ensurepip
# A number, so that runAsNonRoot can be checked. The folder is for `--store sqlite:`; mount a volume there.
RUN install -d -o 65532 -g 65532 /var/lib/gpu-responder
USER 65532:65532
WORKDIR /var/lib/gpu-responder
EXPOSE 9099
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=6 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9099/-/healthy', timeout=4)"]
ENTRYPOINT ["gpu-responder"]
CMD ["--help"]
