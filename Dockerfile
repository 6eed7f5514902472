# syntax=docker/dockerfile:1
#
# The console commands of ALBERT-TF2, run by an ordinary user in /work.
#
#   docker build --tag albert-tf2 .
#   docker run --rm --volume "$PWD:/work" --user "$(id -u):$(id -g)" albert-tf2 \
#       albert-run-classifier --help
#
# For GPUs, with CUDA's libraries in the image, and NVIDIA's container toolkit on the machine:
#
#   docker build --tag albert-tf2:gpu --build-arg DEVICE=gpu .
#   docker run --rm --gpus all --volume "$PWD:/work" albert-tf2:gpu albert-run-pretraining --help

ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS wheel
WORKDIR /source
COPY pyproject.toml README.md CHANGELOG.md LICENSE ./
COPY configs configs
COPY benchmarks/check_device.py benchmarks/
COPY albert_tf albert_tf
RUN pip wheel --no-cache-dir --no-deps --wheel-dir=/wheel .

FROM python:${PYTHON}-slim
ARG DEVICE=cpu
ARG EXTRAS=hf,sentences,zh
COPY --from=wheel /wheel /wheel
# The versions are those that the wheel allows.
# hadolint ignore=DL3013
RUN case "$DEVICE" in \
      cpu) tensorflow="tensorflow~=2.20.0" ;; \
      gpu) tensorflow="tensorflow[and-cuda]~=2.20.0" ;; \
      *) echo "DEVICE=$DEVICE: expected cpu or gpu" >&2; exit 1 ;; \
    esac \
    && for wheel in /wheel/*.whl; do \
         pip install --no-cache-dir "${wheel}[${EXTRAS}]" "$tensorflow" || exit 1; \
       done \
    && rm -r /wheel \
    && useradd --uid 1000 --create-home albert \
    && install --directory --owner=albert /work
# With --user, the home folder may be another user's.
ENV MPLCONFIGDIR=/tmp/matplotlib \
    PYTHONUNBUFFERED=1
USER 1000
WORKDIR /work
CMD ["albert-run-predict", "--help"]
