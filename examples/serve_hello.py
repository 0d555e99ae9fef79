"""Serving in ten lines: a deployment, its handle, an answer.

python examples/serve_hello.py
"""

from weft import serve


@serve.deployment(num_replicas=2)
class Greeter:
    def __call__(self, name: str) -> str:
        return f"hello {name}"


def main():
    handle = serve.run(Greeter.bind())
    print(handle.remote("world").result())
    serve.shutdown()


if __name__ == "__main__":
    main()
