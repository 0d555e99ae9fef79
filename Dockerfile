# Weft with all of its libraries: docker build -t weft . && docker run --rm -it --shm-size=2g weft weft demo engine
# WEFT_EXTRAS="" builds the engine alone; the wheel is compiled once, in the first stage, and extras add nothing to that.
ARG PYTHON=3.12

FROM python:${PYTHON}-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
COPY . /weft
RUN pip wheel --no-cache-dir --no-deps -w /wheels /weft

FROM python:${PYTHON}-slim
ARG WEFT_EXTRAS="[all]"
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir "$(echo /wheels/weft-*.whl)${WEFT_EXTRAS}" && rm -r /wheels \
    && useradd --create-home weft
USER weft
WORKDIR /home/weft
CMD ["weft", "doctor"]
