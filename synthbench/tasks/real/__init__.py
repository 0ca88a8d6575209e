"""Tasks on data that people made: finite, and divided into splits."""
