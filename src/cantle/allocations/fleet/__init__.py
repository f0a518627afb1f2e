"""How do runners on other machines come to serve this run? They are invited, let in by certificate, and reached over Dask."""
