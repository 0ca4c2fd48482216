# oscine on a CPU, with the bundled voice: docker build -t oscine . && docker run -p 8000:8000 -e OSCINE_API_KEY=... oscine
FROM python:3.11-slim AS build
WORKDIR /src
# Point TORCH_INDEX at a CPU build of torch to keep the image small; see docs/dependencies.md.
ARG TORCH_INDEX=""
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
COPY pyproject.toml hatch_build.py constraints.txt README.md LICENSE ./
COPY src ./src
RUN python -m venv /opt/oscine \
 && if [ -n "$TORCH_INDEX" ]; then /opt/oscine/bin/pip install --no-cache-dir -c constraints.txt torch --index-url "$TORCH_INDEX"; fi \
 && /opt/oscine/bin/pip install --no-cache-dir -c constraints.txt ".[server]"

FROM python:3.11-slim
RUN useradd --create-home --uid 10001 oscine && mkdir /data && chown oscine /data
COPY --from=build /opt/oscine /opt/oscine
ENV PATH=/opt/oscine/bin:$PATH OSCINE_HOME=/data HF_HOME=/data/hub
USER 10001
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/ready', timeout=4)"]
ENTRYPOINT ["oscine", "serve", "--host", "0.0.0.0"]
