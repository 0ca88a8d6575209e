"""Tasks on data made by people: the data are finite and divided into splits."""
