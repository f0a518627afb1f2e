"""Which engines of a user's own live in a partition, and how? Dask, Ray, torchrun's meetings, and commands of anybody's."""
