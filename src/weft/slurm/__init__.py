"""A cluster inside a job of Slurm: one node of Weft per node of the job."""
