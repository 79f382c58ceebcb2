# One image for all parts: the compose file says which one a container is.
FROM python:3.11-slim

WORKDIR /app
ENV PYTHONUNBUFFERED=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1

# A package index with CPU builds of torch makes the image four times smaller:
#   docker-compose build --build-arg PIP_EXTRA_INDEX_URL=...
ARG PIP_EXTRA_INDEX_URL

# Dependencies first, so that a change of our code does not fetch torch again.
COPY constraints.txt pyproject.toml ./
RUN touch README.md && mkdir -p stateroom stateroom_ops scheduler_svc cache_svc \
 && touch stateroom/__init__.py stateroom_ops/__init__.py scheduler_svc/__init__.py cache_svc/__init__.py \
 && pip install -q -c constraints.txt 'setuptools>=77' wheel \
 && pip install -q -c constraints.txt --no-build-isolation .

COPY README.md ./
COPY stateroom stateroom
COPY stateroom_ops stateroom_ops
COPY scheduler_svc scheduler_svc
COPY cache_svc cache_svc
RUN pip install -q -c constraints.txt --no-build-isolation --no-deps .
COPY deploy deploy

# All parts of a group run as one user: descriptors of the pools pass between them on a shared folder.
RUN useradd --uid 10001 --create-home stateroom && mkdir -p /run/stateroom /var/lib/stateroom /var/log/stateroom \
 && chown stateroom /run/stateroom /var/lib/stateroom /var/log/stateroom && chmod 0700 /run/stateroom
USER stateroom
STOPSIGNAL SIGTERM
