"""Nothing at run time: what type checkers see of `.remote` is in the stub file beside this one."""
