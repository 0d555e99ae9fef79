"""What PYTHONPATH shows to the children of a program that runs under the alias: it hands over to Weft."""

try:
    from weft.compat import alias
except ModuleNotFoundError as error:
    if error.name != "weft":
        raise
    text = (
        "`import ray` means Weft here, because a parent process runs under weft.compat, but this Python has no weft. "
        "Install it here, or start this process without the variables PYTHONPATH and RAY_MEANS_WEFT."
    )
    raise ModuleNotFoundError(text, name="weft") from None

alias.take_over()
