"""What the machine and its user give: folders, secrets, programs, GPUs, load. It imports nothing of Weft."""
