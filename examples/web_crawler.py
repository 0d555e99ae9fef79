"""A crawler that follows links as it finds them, against a small site that it serves itself.

python examples/web_crawler.py

Fetching waits more than it computes, so the fetchers are actors with threads that hold no CPU; parsing is tasks. The
frontier grows while it is worked on: nobody knows the graph before it has run.
"""

from __future__ import annotations

import random
import threading
import urllib.error
import urllib.request
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urljoin

import weft


class Site(BaseHTTPRequestHandler):
    """Pages 0 to 199; each links to the next ones, to others at random, and some to pages that do not exist."""

    pages = 200

    def do_GET(self) -> None:
        number = int(self.path.rpartition("/")[2] or 0)
        if number >= self.pages:
            return self.send_error(404)
        others = random.Random(number).sample(range(self.pages), 3)
        dead = [self.pages + number] if number % 50 == 7 else []
        links = [(number * 2 + 1) % self.pages, (number * 2 + 2) % self.pages, *others, *dead]
        body = "".join(f'<a href="/page/{target}">{target}</a>\n' for target in links).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@weft.remote(num_cpus=0, max_concurrency=8)
class Fetcher:
    """Up to eight requests at once, each on a thread."""

    def fetch(self, url: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(url, timeout=10) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            error.close()
            return error.code, ""


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attributes if (tag, name) == ("a", "href") and value]


@weft.remote
def parse(url: str, page: tuple[int, str]) -> tuple[str, int, list[str]]:
    parser = Links()
    parser.feed(page[1])
    return url, page[0], [urljoin(url, link) for link in parser.found]


def crawl(start: str, fetchers: list[weft.ActorHandle]) -> dict[str, int]:
    """Every address that can be reached, and its status."""
    status, seen, running = {}, {start}, [parse.remote(start, fetchers[0].fetch.remote(start))]
    while running:
        (done,), running = weft.wait(running)
        url, status[url], links = weft.get(done)
        for link in links:
            if link not in seen:
                page = fetchers[len(seen) % len(fetchers)].fetch.remote(link)
                seen.add(link)
                running.append(parse.remote(link, page))
    return status


def main() -> dict[str, int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            status = crawl(f"http://127.0.0.1:{server.server_port}/page/0", [Fetcher.remote(), Fetcher.remote()])
        finally:
            server.shutdown()
    missing = [url.rpartition("/")[2] for url, code in status.items() if code == 404]
    print(f"{len(status)} addresses, {len(missing)} of them dead: {', '.join(missing)}")
    return status


if __name__ == "__main__":
    main()
