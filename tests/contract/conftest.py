"""The modules beside the tests are found by name."""
