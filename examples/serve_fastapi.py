"""A small shop behind HTTP: FastAPI routes are methods of the replicas. Its OpenAPI page is at /docs.

python examples/serve_fastapi.py [--port 8000]
"""

from __future__ import annotations

import argparse
import signal
import threading
from typing import Annotated

from fastapi import FastAPI, HTTPException, Path, Query, Response
from pydantic import BaseModel, Field

import weft
from weft import serve

app = FastAPI(title="shop")
Name = Annotated[str, Path(min_length=1, max_length=40, pattern=r"^[a-z]+$")]


class Item(BaseModel):
    price: float = Field(gt=0, le=1e6)
    tags: list[str] = Field(default_factory=list, max_length=10)


@serve.deployment
@serve.ingress(app)
class Shop:
    def __init__(self) -> None:
        self.items: dict[str, Item] = {"tea": Item(price=3.5)}

    @app.get("/items")
    async def list_items(self, limit: Annotated[int, Query(ge=0, le=100)] = 10) -> list[str]:
        return sorted(self.items)[:limit]

    @app.get("/items/{name}", responses={404: {"description": "no such item"}})
    async def get_item(self, name: Name) -> Item:
        if name not in self.items:
            raise HTTPException(404, "no such item")
        return self.items[name]

    @app.put("/items/{name}", status_code=204, responses={400: {"description": "the body is not JSON"}})
    async def put_item(self, name: Name, item: Item) -> Response:
        self.items[name] = item
        return Response(status_code=204)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    interrupted = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: interrupted.set())
    weft.init()
    serve.run(Shop.bind(), name="shop")
    print(serve.start(http_options=serve.HTTPOptions(port=options.port)), flush=True)
    interrupted.wait()
    serve.shutdown()
    weft.shutdown()


if __name__ == "__main__":
    main()
