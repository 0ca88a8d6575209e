"""Tasks on data made by people: finite data, divided into training, validation and test splits."""
