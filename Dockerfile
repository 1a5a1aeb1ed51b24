# fedkoopman for both sides of a federation; nginx, which only the coordinator's side uses, is small.
# The Python is that on which constraints.txt was made.
FROM python:3.11-slim-bookworm AS build
WORKDIR /source
RUN python -m venv /opt/fedkoopman
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY src ./src
RUN /opt/fedkoopman/bin/pip install --no-cache-dir --disable-pip-version-check -c constraints.txt '.[deploy,mqtt]'

FROM python:3.11-slim-bookworm
RUN apt-get update \
    && apt-get install -y --no-install-recommends nginx-light \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --uid 10001 --create-home --home-dir /var/lib/fedkoopman fedkoopman \
    && chmod 0700 /var/lib/fedkoopman
COPY --from=build /opt/fedkoopman /opt/fedkoopman
ENV PATH=/opt/fedkoopman/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    FLWR_TELEMETRY_ENABLED=0 \
    FLWR_DISABLE_UPDATE_CHECK=1
USER 10001:10001
WORKDIR /var/lib/fedkoopman
VOLUME /var/lib/fedkoopman
EXPOSE 8443
STOPSIGNAL SIGTERM
ENTRYPOINT ["fedkoopman"]
CMD ["--help"]
