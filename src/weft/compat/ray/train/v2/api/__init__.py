"""Ray 2.60 has its trainers under this name, too."""
