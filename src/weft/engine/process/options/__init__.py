"""What may be written in `init`, `@weft.remote` and `.options`, checked where it is written."""
